"""What registration adds to a Spark write, for one file of 1 MB to 128 MB.

The write is Spark's, through Iceberg's writer without its commit, and declared by its intent; 'added' is the registration
against that write, within one append. Registry: SQLite, durable. Astha and all components run in the same process; what they
cost the write itself is shown by writes in turn with and without them. An append of a DataFrame is a sync run, too: what it
takes to begin and to end one is measured by itself. The run of an append of rows is written by the commit of the rows: such
appends are measured in turn with writes that are no run.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from common import Options, Report, in_turn, lake_in, main, median

from lakeward import Lake
from lakeward.components import supervisor
from lakeward.lake import writes
from lakeward.names import parse_table
from lakeward.ops.records.operations import SyncMode
from lakeward.ops.run_recorder import recorded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROW_BYTES = 24  # in the file: three random doubles that do not compress, and an id that does
SIZES = (1, 8, 32, 128)  # MB
MAKE = ["id", "rand(1) a", "rand(2) b", "rand(3) c"]
COLUMNS = {"id": "long", "a": "double", "b": "double", "c": "double"}


def run(options: Options, report: Report) -> None:
    with lake_in(options.folder) as lake:
        spark = lake.spark("local[2]", {"spark.driver.memory": "2g"})
        # Its files are as large as the target, or nearly: there is nothing to compact, and no Spark job of others beside it.
        lake.create_table("bench.rows", COLUMNS, properties={"lakeward.compaction.enabled": "false"})
        for _ in range(3):  # the first writes pay for the session
            lake.append("bench.rows", spark.range(1_000).coalesce(1).selectExpr(*MAKE))
        _measure_run(options, report, lake)
        _measure_rows(options, report, lake)
        for size in SIZES:
            _measure(options, report, lake, spark, size)
        spark.stop()


def _measure_run(options: Options, report: Report, lake: Lake) -> None:
    source, destination = {"kind": "dataframe"}, {"table": "bench.rows"}
    seconds = []
    for _ in range(options.pick(200, 1_000)):
        started = time.perf_counter()
        with recorded(lake.registry, "bench", SyncMode.BATCH, source_info=source, destination_info=destination):
            pass
        seconds.append(time.perf_counter() - started)
    report.add("an append's run, begun and ended, p50", median(seconds) * 1e3, "ms", "in every append")


def _measure_rows(options: Options, report: Report, lake: Lake) -> None:
    lake.create_table("bench.small", COLUMNS)
    name, row = parse_table("bench.small"), [{"id": 1, "a": 0.5, "b": 0.5, "c": 0.5}]

    def as_no_run() -> None:
        writes.write(lake.registry, name, writes.writer_for(row, lake.settings.catalog))

    for _ in range(50):
        lake.append(name, row)
    alone, counted = in_turn(options.pick(500, 2_000), as_no_run, lambda: lake.append(name, row))
    report.add("an append of a row, without a run, p50", median(alone) * 1e3, "ms")
    report.add("an append of a row, p50", median(counted) * 1e3, "ms")
    report.add("what its run takes", (median(counted) / median(alone) - 1) * 100, "%", "target 10")


def _measure(options: Options, report: Report, lake: Lake, spark: SparkSession, size: int) -> None:
    data = spark.range(size * 1_000_000 // ROW_BYTES).coalesce(1).selectExpr(*MAKE)
    count = options.pick(3 if size > 100 else 5, 15)
    alone, results = [], []
    for _ in range(2):
        alone += [lake.append("bench.rows", data) for _ in range(count)]
        with supervisor.running(lake):
            results += [lake.append("bench.rows", data) for _ in range(count)]
    name = f"{results[0].bytes / 1e6:.1f} MB"
    write = median([r.seconds["write"] for r in results])
    report.add(f"{name}: Spark's write, p50", write * 1e3, "ms")
    report.add(f"{name}: registration, p50", median([r.seconds["register"] for r in results]) * 1e3, "ms")
    added = median([r.seconds["register"] / r.seconds["write"] for r in results])
    report.add(f"{name}: added", added * 100, "%", "target 5, goal 1")
    without = median([sum(r.seconds.values()) for r in alone])
    both = median([sum(r.seconds.values()) for r in results])
    report.add(f"{name}: write and registration against those without components", both / without, "x")


if __name__ == "__main__":
    main(run, __doc__)
