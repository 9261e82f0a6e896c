"""Appends of Spark DataFrames: staged by Iceberg's writer, committed by the registry, read by Spark, PyIceberg and scan."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import LongType

import lakeward
from lakeward.errors import FileRefused, InvalidInput, InvalidSetting, ServerUnavailable, TableNotFound
from lakeward.ops import error_log, runs
from lakeward.ops.records.operations import ErrorType, SyncStatus
from lakeward.storage.locations import local_path

SCHEMA = {"id": "long not null", "name": "string", "day": "date", "price": "decimal(9,2)"}
ODD_TEXTS = [
    "",
    " ",
    "a/b",
    "x=y",
    "per%cent",
    "ünï¢ode",
    "quo'te\"",
    "back\\slash",
    "..",
    "line\nbreak",
    "long" * 100,
    None,
]


def orders(spark: SparkSession, count: int = 4, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr(
        "id",
        "concat('n', id % 3) AS name",
        "date_add(DATE'2024-01-30', CAST(id % 4 AS int)) AS day",
        "CAST(id * 1.5 AS decimal(9,2)) AS price",
    )


def objects(lake: lakeward.Lake, name: str) -> list[str]:
    """Every file below the table's data folder, hidden ones too."""
    folder = Path(local_path(lake.table(name).location)) / "data"
    return sorted(f"file://{path}" for path in folder.rglob("*") if path.is_file())


def read_by_pyiceberg(lake: lakeward.Lake, name: str) -> pa.Table:
    return RestCatalog("lakeward", uri=lake.catalog_url, token=lake.token or "").load_table(name).scan().to_arrow()


def as_rows(table: pa.Table, *, null_lists: bool = True) -> list[str]:
    """The rows, to be compared in any order; with `null_lists=False` a null list or map counts as an empty one."""

    def shown(value: Any) -> Any:
        return value or None if isinstance(value, list) and not null_lists else value

    return sorted(repr(sorted((name, shown(value)) for name, value in row.items())) for row in table.to_pylist())


def check_all_engines(lake: lakeward.Lake, spark: SparkSession, name: str, expected: pa.Table) -> None:
    """Spark SQL, PyIceberg and lake.scan each read exactly the expected rows."""
    by_spark = spark.table(f"lakeward.{name}").toArrow()
    columns = expected.column_names
    wanted = as_rows(expected)
    assert as_rows(lake.scan(name).read_all().select(columns)) == wanted
    assert as_rows(by_spark.select(columns)) == wanted
    # PyIceberg (0.12) gives an empty list or map for a null one.
    by_pyiceberg = read_by_pyiceberg(lake, name).select(columns)
    assert as_rows(by_pyiceberg, null_lists=False) == as_rows(expected, null_lists=False)


# What is written ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_version", [2, 3])
def test_an_append_is_registered_without_a_snapshot_and_read_by_every_engine(
    lake: lakeward.Lake, spark: SparkSession, format_version: int
) -> None:
    lake.create_table("sales.orders", SCHEMA, format_version=format_version)
    result = lake.append("sales.orders", orders(spark))
    assert result.rows == 4
    assert lake.snapshots("sales.orders") == []
    check_all_engines(lake, spark, "sales.orders", orders(spark).toArrow())
    assert len(lake.snapshots("sales.orders")) == 1


def test_a_write_commits_nothing_of_others_that_is_pending(lake: lakeward.Lake, spark: SparkSession) -> None:
    lake.create_table("sales.orders", SCHEMA)
    for _ in range(3):
        lake.append("sales.orders", orders(spark))
    assert lake.snapshots("sales.orders") == []
    assert lake.table("sales.orders").row_count == 12
    assert spark.table("lakeward.sales.orders").count() == 12
    assert len(lake.snapshots("sales.orders")) == 1


def test_there_is_no_file_but_the_registered_ones(lake: lakeward.Lake, spark: SparkSession) -> None:
    lake.create_table("sales.orders", SCHEMA, partition_by=["name"])
    lake.append("sales.orders", orders(spark))
    assert objects(lake, "sales.orders") == sorted(file.file_path for file in lake.files("sales.orders"))


TRANSFORMS = [
    "id",
    "name",
    "day",
    "price",
    "year(day)",
    "month(day)",
    "day(day)",
    "hour(ts)",
    "day(ts)",
    "bucket(4, id)",
]
TRANSFORMS += [
    "bucket(4, name)",
    "bucket(3, price)",
    "truncate(10, id)",
    "truncate(2, name)",
    "truncate(100, price)",
    "flag",
]


@pytest.mark.parametrize("format_version", [2, 3])
def test_every_partition_transform_gives_the_partitions_that_iceberg_computes(
    lake: lakeward.Lake, spark: SparkSession, format_version: int
) -> None:
    schema = {**SCHEMA, "id": "long", "ts": "timestamptz", "flag": "boolean"}
    rows = [
        (None if i == 5 else i - 7, None if i % 4 == 3 else f"näme{i % 5}", None if i == 3 else dt.date(1969, 12, 28 + i % 4),
         None if i == 2 else Decimal(i - 6) / 4, None if i == 1 else dt.datetime(1970, 1, 1, i, 59, tzinfo=dt.UTC), i % 3 == 0)
        for i in range(14)
    ]  # fmt: skip
    frame = spark.createDataFrame(
        rows, "id bigint, name string, day date, price decimal(9,2), ts timestamp, flag boolean"
    )
    for number, transform in enumerate(TRANSFORMS):
        name = f"t.p{number}"
        lake.create_table(name, schema, partition_by=[transform], format_version=format_version)
        lake.append(name, frame)
        # The same rows through the other writer, whose partitions are computed elsewhere.
        lake.create_table(f"{name}a", schema, partition_by=[transform], format_version=format_version)
        lake.append(f"{name}a", frame.toArrow())
        by_spark, by_arrow = (
            {file.partition_path: file.partition for file in lake.files(each)} for each in (name, f"{name}a")
        )
        assert by_spark == by_arrow, transform
        assert spark.table(f"lakeward.{name}").count() == 14
        assert read_by_pyiceberg(lake, name).num_rows == 14


def test_partition_values_may_hold_anything_and_stand_in_no_path(lake: lakeward.Lake, spark: SparkSession) -> None:
    lake.create_table("t.odd", {"n": "long", "odd name %/`": "string"}, partition_by=["`odd name %/```"])
    frame = spark.createDataFrame(list(enumerate(ODD_TEXTS)), "n bigint, `odd name %/``` string")
    lake.append("t.odd", frame)
    files = lake.files("t.odd")
    assert len(files) == len(ODD_TEXTS)
    below = len(lake.table("t.odd").location)
    assert all(set(file.file_path[below:]) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") for file in files)  # fmt: skip
    check_all_engines(lake, spark, "t.odd", frame.toArrow())
    one = spark.table("lakeward.t.odd").where(f.col("`odd name %/```") == "a/b").select("n").collect()
    assert [row.n for row in one] == [2]


@pytest.mark.parametrize("format_version", [2, 3])
def test_nested_types_come_back_whole(lake: lakeward.Lake, spark: SparkSession, format_version: int) -> None:
    frame = spark.createDataFrame(
        [
            (1, [1, None], {"k": (1, ["x"])}, (1.5, dt.datetime.fromisoformat("2024-01-01T12:00:00"))),
            (2, [], {}, (None, None)),
            (3, None, None, None),
        ],
        "id bigint, a array<int>, m map<string, struct<x: int, y: array<string>>>, s struct<d: double, t: timestamp_ntz>",
    )
    lake.create_table("t.nested", frame.schema, format_version=format_version)
    lake.append("t.nested", frame)
    check_all_engines(lake, spark, "t.nested", frame.toArrow())


def test_every_leaf_column_of_a_file_has_its_field_id(lake: lakeward.Lake, spark: SparkSession) -> None:
    lake.create_table("t.ids", {"id": "long", "a": "list<struct<x: int>>", "m": "map<string, list<long>>"})
    lake.append("t.ids", spark.createDataFrame([(1, [(1,)], {"k": [1]})], "id bigint, a array<struct<x:int>>, m map<string, array<bigint>>"))  # fmt: skip
    [file] = lake.files("t.ids")
    text = str(pq.read_metadata(local_path(file.file_path)).schema)
    leaves = [line for line in text.splitlines() if "optional" in line or "required" in line or "repeated" in line]
    assert leaves
    assert all("field_id=" in line for line in leaves if "group" not in line)


def test_statistics_are_those_that_the_arrow_writer_computes(lake: lakeward.Lake, spark: SparkSession) -> None:
    frame = orders(spark, 50, 1).withColumn(
        "x", f.when(f.col("id") % 2 == 0, f.lit(float("nan"))).otherwise(f.col("id"))
    )
    for name, data in (("t.s", frame), ("t.a", frame.toArrow())):
        lake.create_table(name, {**SCHEMA, "x": "double"})
        lake.append(name, data)
    [by_spark], [by_arrow] = lake.files("t.s"), lake.files("t.a")
    for part in ("value_counts", "null_counts", "lower", "upper"):
        assert getattr(by_spark.statistics, part) == getattr(by_arrow.statistics, part), part
    assert by_spark.statistics.nan_counts == {5: 25}


def test_all_columns_of_a_wide_table_have_statistics(lake: lakeward.Lake, spark: SparkSession) -> None:
    lake.create_table("t.wide", {f"c{number}": "long" for number in range(2000)})
    lake.append("t.wide", spark.range(3).selectExpr(*(f"id AS c{number}" for number in reversed(range(2000)))))
    statistics = [file.statistics for file in lake.files("t.wide")]
    assert all(len(each.value_counts) == len(each.lower) == 2000 for each in statistics)


def test_a_sorted_table_gets_files_that_are_each_sorted_and_say_so(lake: lakeward.Lake, spark: SparkSession) -> None:
    lake.create_table("t.sorted", {"id": "long", "name": "string"}, sort_by=["id desc"])
    lake.append("t.sorted", spark.range(0, 1000, 1, 2).selectExpr("id", "'x' AS name"))
    files = lake.files("t.sorted")
    assert [file.sort_order_id for file in files] == [1, 1]
    for file in files:
        ids = pq.read_table(local_path(file.file_path))["id"].to_pylist()
        assert ids == sorted(ids, reverse=True)


def test_nothing_is_shuffled_unless_the_table_asks_for_it(lake: lakeward.Lake, spark: SparkSession) -> None:
    frame = spark.range(0, 100, 1, 2).selectExpr("id", "CAST(id % 2 AS int) AS p")
    for name, properties, files in (("t.none", {}, 4), ("t.hash", {"write.distribution-mode": "hash"}, 2)):
        lake.create_table(name, {"id": "long", "p": "int"}, partition_by=["p"], properties=properties)
        lake.append(name, frame)
        assert len(lake.files(name)) == files


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4", "none"])
def test_the_tables_compression_is_used(lake: lakeward.Lake, spark: SparkSession, codec: str) -> None:
    lake.create_table("t.c", {"id": "long"}, compression=codec)
    lake.append("t.c", spark.range(0, 100, 1, 1))
    [file] = lake.files("t.c")
    found = pq.read_metadata(local_path(file.file_path)).row_group(0).column(0).compression
    assert found == {"none": "UNCOMPRESSED"}.get(codec, codec.upper())
    assert file.is_compressed == (codec != "none")
    assert spark.table("lakeward.t.c").count() == read_by_pyiceberg(lake, "t.c").num_rows == 100


def test_a_batch_seen_before_is_not_appended_again(lake: lakeward.Lake, spark: SparkSession) -> None:
    lake.create_table("sales.orders", SCHEMA)
    first = lake.append("sales.orders", orders(spark), batch=("s", "1"))
    again = lake.append("sales.orders", orders(spark), batch=("s", "1"))
    assert (first.replayed, again.replayed) == (False, True)
    assert again.files == first.files
    assert lake.table("sales.orders").row_count == 4
    assert objects(lake, "sales.orders") == sorted(first.files)


def test_rows_written_before_and_after_a_change_of_schema_read_as_one_table(
    lake: lakeward.Lake, spark: SparkSession
) -> None:
    lake.create_table("t.e", {"id": "int", "name": "string"})
    lake.append("t.e", spark.createDataFrame([(1, "a")], "id int, name string"))
    lake.widen_column("t.e", "id", "long")
    lake.rename_column("t.e", "name", "label")
    lake.add_column("t.e", "price", "double")
    lake.append("t.e", spark.createDataFrame([(1 << 40, "b", 2.5)], "id bigint, label string, price double"))
    lake.drop_column("t.e", "label")
    lake.append("t.e", spark.createDataFrame([(3, 3.5)], "id bigint, price double"))
    expected = pa.table({"id": [1, 1 << 40, 3], "price": [None, 2.5, 3.5]})
    check_all_engines(lake, spark, "t.e", expected)
    assert [file.schema_id for file in lake.files("t.e")] == sorted({file.schema_id for file in lake.files("t.e")})


# What is refused ----------------------------------------------------------------------------------------------------------


def test_columns_are_matched_by_name(lake: lakeward.Lake, spark: SparkSession) -> None:
    lake.create_table("sales.orders", SCHEMA)
    lake.append("sales.orders", orders(spark).selectExpr("day AS DAY", "CAST(id AS int) AS id", "name"))
    check_all_engines(
        lake, spark, "sales.orders", orders(spark).withColumn("price", f.lit(None).cast("decimal(9,2)")).toArrow()
    )


def test_fields_of_structs_are_matched_by_name_and_widened(lake: lakeward.Lake, spark: SparkSession) -> None:
    lake.create_table(
        "t.n", {"id": "long", "a": "list<struct<x: long, y: string>>", "m": "map<string, struct<z: double>>"}
    )
    frame = spark.createDataFrame(
        [(1, [("u", 1), None], {"k": (0.5,)}), (2, None, None)],
        "id int, a array<struct<y: string, X: int>>, m map<string, struct<z: float>>",
    )
    lake.append("t.n", frame)
    expected = spark.createDataFrame(
        [(1, [(1, "u"), None], {"k": (0.5,)}), (2, None, None)],
        "id bigint, a array<struct<x: bigint, y: string>>, m map<string, struct<z: double>>",
    )
    check_all_engines(lake, spark, "t.n", expected.toArrow())


REFUSED: list[tuple[str, str, Callable[[DataFrame], DataFrame]]] = [
    ("unknown_column", "colour", lambda frame: frame.withColumn("colour", f.lit("red"))),
    ("missing_column", "id", lambda frame: frame.drop("id")),
    ("missing_column", "day", lambda frame: frame.drop("day")),
    ("wrong_type", "id", lambda frame: frame.withColumn("id", f.concat(f.lit("n"), f.col("id")))),
    ("wrong_type", "price", lambda frame: frame.withColumn("price", f.col("price").cast("decimal(20,2)") + 10**12)),
    ("null_in_required", "id", lambda frame: frame.withColumn("id", f.when(f.col("id") != 3, f.col("id")))),
]


@pytest.mark.parametrize(("reason", "column", "spoil"), REFUSED, ids=[f"{r}-{c}" for r, c, _ in REFUSED])
def test_what_does_not_fit_is_refused_by_name_and_leaves_nothing(
    lake: lakeward.Lake, spark: SparkSession, reason: str, column: str, spoil: Callable[[DataFrame], DataFrame]
) -> None:
    lake.create_table("sales.orders", SCHEMA, partition_by=["day"])
    with pytest.raises(FileRefused, match=repr(column)) as refused:
        lake.append("sales.orders", spoil(orders(spark, 40)))
    assert refused.value.reason == reason
    assert objects(lake, "sales.orders") == []
    assert lake.files("sales.orders") == []
    assert lake.table("sales.orders").row_count == 0


def test_an_error_of_a_persons_own_function_comes_as_it_is_and_leaves_nothing(
    lake: lakeward.Lake, spark: SparkSession
) -> None:
    @f.udf(LongType())
    def failing(value: int) -> int:
        if value == 30:
            raise ValueError("thirty is too much")
        return value

    lake.create_table("t.u", {"id": "long"})
    with pytest.raises(Exception, match="thirty is too much"):
        lake.append("t.u", spark.range(0, 40, 1, 2).select(failing("id").alias("id")))
    assert objects(lake, "t.u") == []


def test_two_columns_of_one_name_are_refused(lake: lakeward.Lake, spark: SparkSession) -> None:
    lake.create_table("t.d", {"id": "long"})
    with pytest.raises(InvalidInput, match="both stand for 'id'"):
        lake.append("t.d", spark.range(3).selectExpr("id", "id AS ID"))


def test_a_dataframe_without_rows_makes_no_file(lake: lakeward.Lake, spark: SparkSession) -> None:
    for name, partition_by in (("t.e", []), ("t.p", ["id"])):
        lake.create_table(name, {"id": "long"}, partition_by=partition_by)
        result = lake.append(name, spark.range(0))
        assert (result.rows, result.files) == (0, [])
        assert objects(lake, name) == []


# Sessions -----------------------------------------------------------------------------------------------------------------


def test_a_session_without_the_catalogs_options_is_told_of_them(
    lake: lakeward.Lake, spark_process: SparkSession
) -> None:
    lake.create_table("t.x", {"id": "long"})
    with pytest.raises(InvalidSetting, match=r"lake\.spark_conf\(\)"):
        lake.append("t.x", spark_process.newSession().range(3))


def test_a_session_of_ones_own_works_with_the_catalogs_options(
    lake: lakeward.Lake, spark_process: SparkSession
) -> None:
    own = spark_process.newSession()
    for key, value in lake.spark_conf().items():
        if key.startswith("spark.sql.catalog."):
            own.conf.set(key, value)
    lake.create_table("t.x", {"id": "long"})
    lake.append("t.x", own.range(3))
    assert own.table("lakeward.t.x").count() == 3


def test_two_lakes_in_one_process_keep_apart(
    lake: lakeward.Lake, spark: SparkSession, spark_process: SparkSession, tmp_path: Path
) -> None:
    with lakeward.connect(registry=tmp_path / "other.db", warehouse=tmp_path / "other") as other:
        beside = other.spark()
        assert beside is not spark
        for each in (lake, other):
            each.create_table("t.x", {"id": "long"})
        other.append("t.x", beside.range(5))
        lake.append("t.x", spark.range(3))
        assert spark.table("lakeward.t.x").count() == 3
        assert beside.table("lakeward.t.x").count() == 5
        with pytest.raises(TableNotFound, match=r"another lake|another of that name"):
            lake.append("t.x", beside.range(1))


def test_a_session_of_a_closed_lake_says_that_no_server_answers_and_where_another_session_is(
    spark_process: SparkSession, tmp_path: Path
) -> None:
    places: dict[str, Any] = {"registry": tmp_path / "r.db", "warehouse": tmp_path / "w"}
    with lakeward.connect(**places) as first:
        old = first.spark()
        first.create_table("t.x", {"id": "long"})
    with lakeward.connect(**places) as second:
        with pytest.raises(ServerUnavailable, match=r"take a session from lake\.spark\(\)"):
            second.append("t.x", old.range(3))
        second.append("t.x", second.spark().range(3))
        assert second.table("t.x").row_count == 3


def test_the_same_lake_gives_the_same_session(lake: lakeward.Lake, spark: SparkSession) -> None:
    spark.sql("SELECT 1").collect()
    assert lake.spark().conf.get("spark.sql.catalog.lakeward.uri") == lake.catalog_url


def test_spark_sql_names_tables_with_and_without_the_catalog(lake: lakeward.Lake, spark: SparkSession) -> None:
    lake.create_table("sales.orders", SCHEMA)
    lake.append("sales.orders", orders(spark))
    assert spark.sql("SELECT count(*) FROM sales.orders").first()[0] == 4  # type: ignore[index]
    assert spark.sql("SELECT count(*) FROM lakeward.sales.orders").first()[0] == 4  # type: ignore[index]
    assert [row.namespace for row in spark.sql("SHOW NAMESPACES").collect()] == ["sales"]
    assert [row.tableName for row in spark.sql("SHOW TABLES IN sales").collect()] == ["orders"]


def test_an_append_of_a_dataframe_is_a_run(lake: lakeward.Lake, spark: SparkSession) -> None:
    lake.create_table("sales.runs", {"id": "long"})
    result = lake.append("sales.runs", spark.range(100), batch=("s", "1"))
    assert lake.append("sales.runs", spark.range(100), batch=("s", "1")).replayed
    with pytest.raises(FileRefused):
        lake.append("sales.runs", spark.range(10).selectExpr("cast(id AS string) || 'x' AS id"))
    failed, replayed, done = runs.list_runs(lake.registry)
    assert (done.status, done.schema_name, done.source_info) == (SyncStatus.COMPLETED, "sales", {"kind": "dataframe"})
    assert (done.records_processed, done.records_inserted, done.bytes_processed) == (100, 100, result.bytes)
    assert (replayed.status, replayed.records_inserted) == (SyncStatus.COMPLETED, 0)
    assert (failed.status, failed.records_inserted) == (SyncStatus.FAILED, 0)
    (error,) = error_log.list_errors(lake.registry)
    assert (error.sync_run_id, error.table_name) == (failed.id, "runs")
    assert "write_spark" in (error.stack_trace or "")


def test_an_error_of_a_persons_own_function_is_written_down_with_its_run(
    lake: lakeward.Lake, spark: SparkSession
) -> None:
    @f.udf(LongType())
    def failing(value: int) -> int:
        raise ValueError(f"{value} is too much")

    lake.create_table("sales.runs", {"id": "long"})
    with pytest.raises(Exception, match="is too much"):
        lake.append("sales.runs", spark.range(10).select(failing("id").alias("id")))
    (run,) = runs.list_runs(lake.registry)
    (error,) = error_log.list_errors(lake.registry)
    assert (run.status, error.sync_run_id) == (SyncStatus.FAILED, run.id)
    assert error.error_type == ErrorType.TRANSFORMATION, error
