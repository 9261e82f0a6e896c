"""Compaction of 2,000 small files against Iceberg's own rewrite_data_files, in turn, in one Spark session.

Both tables have the same rows in as many files, written by the same writer, and go back to them after each round. Lakeward's
time is that of the plan, the rewrite, the swap and the flush that makes its snapshot; Iceberg's is that of the call, on a table
of a Hadoop catalog, whose commit is two renames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common import Options, Report, lake_in, main, median, seconds

from lakeward import Lake
from lakeward.snapshots.rollback import rollback_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES = 2_000
ROW_BYTES = 24  # in a file: three random doubles that do not compress, and an id that does
COLUMNS = {"id": "long", "a": "double", "b": "double", "c": "double"}
TARGET = 128 << 20


def run(options: Options, report: Report) -> None:
    with lake_in(options.folder) as lake:
        conf = {
            "spark.driver.memory": "2g",
            "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.ice.type": "hadoop",
            "spark.sql.catalog.ice.warehouse": f"file://{options.folder}/ice",
            "spark.sql.catalog.ice.cache-enabled": "false",
        }
        spark = lake.spark("local[2]", conf)
        spark.sparkContext.setLogLevel("ERROR")
        for megabytes in (32, 400):
            _compare(lake, spark, megabytes, options.pick(3, 7), report)
        spark.stop()


def _compare(lake: Lake, spark: SparkSession, megabytes: int, rounds: int, report: Report) -> None:
    ours, theirs = f"bench.rows{megabytes}", f"ice.bench.rows{megabytes}"
    rows = _rows(spark, megabytes)
    table = lake.create_table(ours, COLUMNS)
    lake.append(ours, rows)
    first = lake.flush(ours).snapshot_id
    assert first is not None
    spark.sql(f"CREATE TABLE {theirs} (id bigint, a double, b double, c double) TBLPROPERTIES ('format-version'='2')")
    rows.writeTo(theirs).option("compression-codec", "zstd").append()
    start = spark.sql(f"SELECT snapshot_id FROM {theirs}.snapshots").head()[0]
    call = (
        f"CALL ice.system.rewrite_data_files(table => '{theirs}', options => map('target-file-size-bytes', '{TARGET}'))"
    )
    compact: list[float] = []
    with_snapshot: list[float] = []
    iceberg: list[float] = []
    for number in range(rounds + 2):
        alone = seconds(lambda: lake.compact(ours, spark))
        whole = alone + seconds(lambda: lake.flush(ours))
        other = seconds(lambda: spark.sql(call).collect())
        made = len(lake.files(ours)), spark.table(f"{theirs}.files").count()
        if number > 1:  # the first rounds are to warm up
            compact.append(alone)
            with_snapshot.append(whole)
            iceberg.append(other)
        rollback_table(lake.registry, table, first)
        spark.sql(f"CALL ice.system.rollback_to_snapshot('{theirs}', {start})")
    size = sum(file.file_size for file in lake.files(ours))
    name = f"{FILES:,} files of {size / 1e6:.0f} MB"
    report.add(f"{name} into {made[0]}: lake.compact, p50", median(compact), "s")
    report.add(f"{name}: with its snapshot, p50", median(with_snapshot), "s")
    report.add(f"{name} into {made[1]}: rewrite_data_files, p50", median(iceberg), "s")
    report.add(f"{name}: against rewrite_data_files", median(with_snapshot) / median(iceberg), "x", "target 1.1")


def _rows(spark: SparkSession, megabytes: int) -> DataFrame:
    count = megabytes * 1_000_000 // ROW_BYTES
    return spark.range(0, count, 1, FILES).selectExpr("id", "rand(1) a", "rand(2) b", "rand(3) c")


if __name__ == "__main__":
    main(run, __doc__)
