"""Compaction by Spark and without: the same rows before and after for every reader, in fewer files, sorted, with row ids kept."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

import lakeward
from lakeward import Lake
from lakeward.arrow import merge
from lakeward.components.compactor import Compactor, CompactorConfig
from lakeward.config import Settings
from lakeward.maintenance.compaction import Compacted, compact_table
from lakeward.names import TableName
from lakeward.ops import error_log, runs
from lakeward.ops.records.operations import SyncRunStatistics, SyncStatus
from lakeward.tables import compaction
from lakeward.tables.records import properties
from lakeward.tables.records.files import RegisteredFile
from tests.support.lakes import assert_nothing_left_over
from tests.support.waiting import until

NAME = "sales.orders"
SCHEMA = {"id": "long", "name": "string", "tags": "list<string>", "place": "struct<city: string, no: int>"}


@pytest.fixture(params=["spark", "here"])
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lake]:
    """One that merges everything by Spark, or nothing."""
    limit = {"spark": 0, "here": Settings().merge_in_process_bytes}[request.param]
    with lakeward.connect(tmp_path / "registry.db", tmp_path / "warehouse", merge_in_process_bytes=limit) as opened:
        yield opened


BY_SPARK = pytest.mark.parametrize("lake", ["spark"], indirect=True)


def compact(lake: Lake, spark: SparkSession, name: TableName = NAME, **options: Any) -> Compacted:
    """Compaction by Spark where the lake says so, else without any."""

    def session() -> SparkSession:
        assert lake.registry.settings.merge_in_process_bytes == 0, "Spark was asked for"
        return spark

    return compact_table(lake.registry, lake.table(name), session, **options)


def rows(start: int, count: int = 30) -> list[dict[str, Any]]:
    return [
        {"id": i, "name": f"n{i % 3}", "tags": ["a", None], "place": {"city": "Ø'%", "no": i}}
        for i in range(start, start + count)
    ]


def fill(lake: Lake, times: int = 6, **options: Any) -> None:
    lake.create_table(NAME, options.pop("schema", SCHEMA), **options)
    for number in range(times):
        lake.append(NAME, rows(number * 30))


def by_id(table: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.select(sorted(table.column_names)).sort_by("id").to_pylist()
    return found


def seen(lake: Lake, spark: SparkSession) -> list[dict[str, Any]]:
    """The rows as Spark reads them, which are those of PyIceberg and of lake.scan."""
    by_spark = by_id(spark.table(NAME).toArrow())
    by_scan = by_id(lake.scan(NAME).read_all())
    static = StaticTable.from_metadata(lake.table(NAME).metadata_location or "")
    assert by_spark == by_scan == by_id(static.scan().to_arrow())
    return by_spark


@pytest.mark.parametrize("format_version", [2, 3])
@pytest.mark.parametrize("is_flushed", [True, False])
def test_rows_are_the_same_in_one_file_a_partition_for_spark_pyiceberg_and_scan(
    lake: Lake, spark: SparkSession, format_version: int, is_flushed: bool
) -> None:
    fill(lake, partition_by=["name"], format_version=format_version)
    expected = by_id(lake.scan(NAME).read_all())
    if is_flushed:
        lake.flush(NAME)
    result = compact(lake, spark)
    assert (result.jobs, result.files_before, result.files_after, result.rows) == (1, 18, 3, 180)
    assert result.bytes_after < result.bytes_before
    assert sorted(file.partition_path for file in lake.files(NAME)) == ["name=n0", "name=n1", "name=n2"]
    assert seen(lake, spark) == expected
    assert [snapshot.operation for snapshot in lake.snapshots(NAME)] == ["append", *(["replace"] * is_flushed)]
    assert lake.plan_compaction(NAME).jobs == []
    assert_nothing_left_over(lake, NAME)
    lake.clean()
    assert seen(lake, spark) == expected


def test_files_are_sorted_as_the_table_says_and_those_of_one_partition_do_not_overlap(
    lake: Lake, spark: SparkSession
) -> None:
    lake.create_table(NAME, {"id": "long", "text": "string"}, sort_by=["id desc"])
    for number in range(6):
        values = [(i * 7919 + number) % 100_003 for i in range(10_000)]
        lake.append(NAME, pa.table({"id": values, "text": [f"{v * 2654435761 % 2**32:x}" * 4 for v in values]}))
    size = sum(file.file_size for file in lake.files(NAME))
    lake.set_properties(NAME, {properties.COMPACTION_SIZE.name: str(size * 10 // 23)})  # 2.3 files of it
    assert compact(lake, spark).rows == 60_000
    found = lake.files(NAME)
    assert 1 < len(found) < 6
    assert {file.sort_order_id for file in found} == {1}
    ranges = []
    for file in found:
        ids = pq.read_table(file.file_path.removeprefix("file://"), partitioning=None)["id"].to_pylist()
        assert ids == sorted(ids, reverse=True)
        ranges.append((min(ids), max(ids)))
    ranges.sort()
    assert all(left[1] <= right[0] for left, right in itertools.pairwise(ranges))
    assert_nothing_left_over(lake, NAME)


def test_in_format_version_3_rows_keep_their_ids_and_when_they_last_changed(lake: Lake, spark: SparkSession) -> None:
    fill(lake, format_version=3)
    lake.flush(NAME)
    query = f"SELECT id, _row_id, _last_updated_sequence_number FROM {NAME} ORDER BY id"
    before = spark.sql(query).collect()
    assert compact(lake, spark).files_after == 1
    assert spark.sql(query).collect() == before
    lake.append(NAME, rows(1_000))
    after = spark.sql(query).collect()
    assert after[: len(before)] == before
    assert len({row["_row_id"] for row in after}) == len(after) == 210
    for number in range(5):
        lake.append(NAME, rows(2_000 + number * 30))
    lake.flush(NAME)
    before = spark.sql(query).collect()
    result = compact(lake, spark)
    assert (result.files_before, result.files_after) == (7, 1)
    assert spark.sql(query).collect() == before
    assert lake.files(NAME)[0].statistics.value_counts.keys() <= {1, 2, 3, 4, 5, 6, 7}, "of the table's columns alone"


def test_many_tiny_files_are_read_by_several_tasks_into_one_sorted_file_with_the_rows_ids(
    lake: Lake, spark: SparkSession
) -> None:
    lake.create_table(NAME, {"id": "long"}, sort_by=["id"], format_version=3)
    lake.append(NAME, spark.range(0, 1_200, 1, 120))
    lake.flush(NAME)
    query = f"SELECT id, _row_id FROM {NAME} ORDER BY id"
    before = spark.sql(query).collect()
    result = compact(lake, spark)
    assert (result.files_before, result.files_after) == (120, 1)
    (file,) = lake.files(NAME)
    ids = pq.read_table(file.file_path.removeprefix("file://"), partitioning=None)["id"].to_pylist()
    assert ids == list(range(1_200))
    assert spark.sql(query).collect() == before
    assert_nothing_left_over(lake, NAME)


def test_files_of_earlier_schemas_are_merged_by_field_id(lake: Lake, spark: SparkSession) -> None:
    lake.create_table(NAME, {"id": "int", "old": "string", "gone": "long"})
    lake.append(NAME, pa.table({"id": pa.array([1, 2], pa.int32()), "old": ["a", "b"], "gone": [7, 8]}))
    lake.rename_column(NAME, "old", "new")
    lake.widen_column(NAME, "id", "long")
    lake.drop_column(NAME, "gone")
    lake.add_column(NAME, "more", "double")
    for i in range(4):
        lake.append(NAME, [{"id": 2**40 + i, "new": "c", "more": 1.5}])
    expected = by_id(lake.scan(NAME).read_all())
    assert compact(lake, spark).files_after == 1
    assert seen(lake, spark) == expected
    assert expected[0] == {"id": 1, "more": None, "new": "a"}
    assert_nothing_left_over(lake, NAME)


@BY_SPARK
@pytest.mark.parametrize("sort_by", [["name desc", "n"], ["bucket(3, id)", "ratio"], []])
def test_both_ways_make_the_same_files_of_the_same_rows(lake: Lake, spark: SparkSession, sort_by: list[str]) -> None:
    schema = {
        "id": "long", "n": "int", "ratio": "double", "name": "string", "at": "timestamptz", "day": "date", "code": "uuid",
        "price": "decimal(9, 2)", "raw": "binary", "tags": "list<string>", "place": "struct<city: string, no: int>",
        "more": "map<string, double>",
    }  # fmt: skip
    for name in ("sales.spark", "sales.here"):
        lake.create_table(name, schema, partition_by=["truncate(1, name)"], sort_by=sort_by)
        for number in range(6):
            lake.append(name, [various(number * 40 + i) for i in range(40)])
    settings = lake.registry.settings
    with lakeward.connect(settings.registry, settings.warehouse) as other:
        results = [compact(lake, spark, "sales.spark"), compact(other, spark, "sales.here")]
    assert [(each.files_before, each.files_after, each.rows) for each in results] == [(18, 3, 240)] * 2
    by_spark, by_us = made(lake, "sales.spark"), made(lake, "sales.here")
    for ours, theirs in zip(by_us, by_spark, strict=True):
        # As with appends, Spark's writer tells nothing of uuids, nor of what is below lists and maps.
        assert ours["statistics"]["value_counts"].keys() - theirs["statistics"]["value_counts"].keys() == {
            7,
            13,
            16,
            17,
        }
        for name, known in ours["statistics"].items():
            ours["statistics"][name] = {key: known[key] for key in known if key not in (7, 13, 16, 17)}
    assert by_us == by_spark


def various(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "n": None if number % 7 == 0 else number % 11,
        "ratio": math.nan if number % 5 == 0 else -number / 3,
        "name": f"{'abc'[number % 3]}-{number * 7919 % 101:03}-{'long' * 9}",
        "at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=number * 37 % 1_000),
        "day": date(1969, 12, 1) + timedelta(days=number),
        "code": UUID(int=(number * 7919 % 256) << 120),
        "price": Decimal(number * 7 - 500).scaleb(-2),
        "raw": bytes([255 - number]) * 20,
        "tags": ["x"] * (number % 3) or None,
        "place": {"city": f"c{number % 4}", "no": None},
        "more": {"k": 1.5},
    }


def made(lake: Lake, name: str) -> list[dict[str, Any]]:
    """What files are but for their sizes, with their rows in the order that these have."""
    found = []
    for file in lake.files(name):
        statistics = msgspec.structs.asdict(file.statistics)
        del statistics["column_sizes"]
        rows = pq.read_table(file.file_path.removeprefix("file://"), partitioning=None).to_pylist()
        if not file.sort_order_id:
            rows.sort(key=lambda row: row["id"])
        found.append(
            {"partition": file.partition_key, "order": file.sort_order_id, "rows": repr(rows), "statistics": statistics}
        )
    return sorted(found, key=lambda each: (each["partition"], each["rows"]))


@pytest.mark.parametrize("lake", ["here"], indirect=True)
def test_groups_that_take_too_much_memory_to_sort_are_merged_by_spark(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create_table(NAME, {"id": "long", "name": "string"}, partition_by=["name"], sort_by=["id"])
    for number in range(6):
        lake.append(NAME, [{"id": i, "name": "few"} for i in range(number, number + 2)])
        lake.append(NAME, [{"id": i, "name": "many"} for i in range(number, number + 500)])
    expected = by_id(lake.scan(NAME).read_all())
    monkeypatch.setattr(merge, "MAX_HELD_BYTES", 4_000)
    result = lake.compact(NAME, spark)
    assert (result.jobs, result.files_after, result.rows) == (1, 2, 3_012)
    lake.flush(NAME)
    assert sorted(seen(lake, spark), key=repr) == sorted(expected, key=repr)
    assert_nothing_left_over(lake, NAME)


def test_files_of_an_earlier_partition_spec_are_left_alone_until_the_table_asks_for_their_rewriting(
    lake: Lake, spark: SparkSession
) -> None:
    fill(lake)
    lake.flush(NAME)
    lake.set_partition_spec(NAME, ["name"])
    for number in range(6, 12):
        lake.append(NAME, rows(number * 30))
    expected = by_id(lake.scan(NAME).read_all())
    (left,) = lake.plan_compaction(NAME).left
    assert (left.files, left.state) == (6, "committed") and "earlier partition spec 0" in left.why
    assert (compact(lake, spark).files_before, compact(lake, spark).jobs) == (18, 0)
    assert sorted(file.spec_id for file in lake.files(NAME)) == [0] * 6 + [1] * 3
    lake.set_properties(NAME, {properties.COMPACTION_SPECS.name: "true"})
    result = compact(lake, spark)
    assert (result.files_before, result.files_after, result.rows) == (6, 3, 180)
    assert {file.spec_id for file in lake.files(NAME)} == {1}
    lake.flush(NAME)
    assert seen(lake, spark) == expected
    assert_nothing_left_over(lake, NAME)


@BY_SPARK
def test_json_lines_become_parquet_and_so_are_seen_by_engines(lake: Lake, spark: SparkSession) -> None:
    fill(lake, 2, format="json", partition_by=["name"])
    expected = by_id(lake.scan(NAME).read_all())
    assert spark.table(NAME).count() == 0
    result = compact(lake, spark)
    assert (result.jobs, result.files_before, result.files_after, result.rows) == (1, 6, 3, 60)
    table = lake.table(NAME)
    assert (table.row_count, table.landing_row_count, table.landing_file_count) == (60, 0, 0)
    assert seen(lake, spark) == expected
    lake.append(NAME, rows(500))
    assert (lake.table(NAME).landing_row_count, lake.scan(NAME).read_all().num_rows) == (30, 90)
    assert lake.dataframe(NAME, spark).count() == 90
    assert_nothing_left_over(lake, NAME)


def test_appends_and_flushes_go_on_during_compaction_and_no_row_is_lost_or_doubled(
    lake: Lake, spark: SparkSession
) -> None:
    fill(lake, partition_by=["name"])
    failed: list[BaseException] = []
    stop = threading.Event()

    def ingest() -> None:
        number = 6
        try:
            while not stop.is_set() and number < 60:
                lake.append(NAME, rows(number * 30))
                if number % 5 == 0:
                    lake.flush(NAME)
                number += 1
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=ingest)
    thread.start()
    done = [compact(lake, spark) for _ in range(4)]
    stop.set()
    thread.join()
    done.append(compact(lake, spark))
    assert not failed
    assert sum(result.jobs for result in done) >= 2
    ids = [row["id"] for row in seen(lake, spark)]
    assert ids == list(range(len(ids)))
    assert len(ids) >= 180
    assert_nothing_left_over(lake, NAME)


def test_a_partition_that_leaves_during_the_rewrite_costs_its_own_part_of_the_job_and_nothing_else(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake, partition_by=["name"])
    left: list[int] = []
    tried: list[tuple[int, int, int]] = []

    real = compaction.rows_of

    def rows_of(*given: Any) -> list[RegisteredFile]:
        found = real(*given)
        left.append(lake.retire_partitions(NAME, [{"name": "n1"}]))  # before the rewrite
        lake.registry.engine(lake.table(NAME).location).delete([gone], below=lake.table(NAME).location)
        return found

    monkeypatch.setattr(compaction, "rows_of", rows_of)
    (gone, *_) = [file.file_path for file in lake.files(NAME) if file.partition_path == "name=n1"]
    compact(
        lake,
        spark,
        on_job=lambda job, done: tried.append((len(job.files), done.conflicts, done.files_after)),
    )
    # The job of all partitions has lost; then each is tried by itself, and the one that has left loses alone.
    assert tried == [(18, 1, 0), (6, 0, 1), (6, 1, 0), (6, 0, 1)]
    assert left == [6, 0, 0]  # what has left already is seen before anything is read
    assert sorted(file.partition_path for file in lake.files(NAME)) == ["name=n0", "name=n2"]
    assert lake.plan_compaction(NAME).jobs == []
    assert len(seen(lake, spark)) == 120
    assert_nothing_left_over(lake, NAME)


def test_names_and_values_with_odd_characters_are_compacted(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    name = ("odd ns", "a.b`c")
    lake.create_table(name, {"id": "long", "we ird": "string"}, partition_by=["`we ird`"])
    for i in range(5):
        lake.append(name, [{"id": i, "we ird": "a/b %=é"}, {"id": i, "we ird": None}])
    assert compact(lake, spark, name).files_after == 2
    assert lake.audit(name).findings == []
    assert lake.scan(name).read_all().num_rows == 10
    assert compaction.candidates(lake.registry, lake.table(name), 1 << 30) == []


def test_a_compaction_is_one_run(lake: Lake, spark: SparkSession) -> None:
    fill(lake, partition_by=["name"])
    lake.flush(NAME)
    result = compact(lake, spark)
    run, *appends = runs.list_runs(lake.registry)
    assert (run.status, run.source_info) == (SyncStatus.COMPLETED, {"component": "compactor"})
    assert run.statistics == SyncRunStatistics(records_processed=180, bytes_processed=result.bytes_before)
    compact(lake, spark)
    assert runs.list_runs(lake.registry) == [run, *appends], "where there is nothing to do, there is no run"


@BY_SPARK
def test_a_stop_gives_up_what_spark_has_not_begun_and_leaves_all_as_it_was(lake: Lake, spark: SparkSession) -> None:
    fill(lake)
    before = {file.file_path for file in lake.files(NAME)}
    has_begun = threading.Event()

    def session() -> SparkSession:
        has_begun.set()
        return spark

    compactor = Compactor(lake.registry, CompactorConfig(interval_seconds=0.05, spark=session))
    busy = threading.Thread(target=occupy, args=(spark,))
    busy.start()
    try:
        until(lambda: len(spark.sparkContext.statusTracker().getActiveStageIds()) == 1)
        compactor.on_refresh()
        compactor.start()
        assert has_begun.wait(60)
        until(lambda: len(spark.sparkContext.statusTracker().getActiveJobsIds()) > 1)
        compactor.stop()
    finally:
        spark.sparkContext.cancelJobGroup(BUSY)
        busy.join()
    until(lambda: not [each for each in threading.enumerate() if each.name.startswith("lakeward-compaction-")])
    run = next(run for run in runs.list_runs(lake.registry) if run.source_info == {"component": "compactor"})
    assert (run.status, run.records_processed) == (SyncStatus.CANCELLED, 0)
    assert error_log.list_errors(lake.registry) == []
    assert {file.file_path for file in lake.files(NAME)} == before
    assert_nothing_left_over(lake, NAME)


BUSY = "busy"


def occupy(spark: SparkSession) -> None:
    """Keep every core of Spark's busy until the group is cancelled."""
    spark.sparkContext.setJobGroup(BUSY, "a long job", interruptOnCancel=True)
    cores = spark.sparkContext.defaultParallelism
    with contextlib.suppress(Exception):
        spark.range(0, cores, 1, cores).selectExpr("java_method('java.lang.Thread', 'sleep', 600000L)").collect()
