"""Compaction by Spark: the same rows before and after for every reader, in fewer files, sorted, with row ids kept."""

from __future__ import annotations

import contextlib
import itertools
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from lakeward import Lake
from lakeward.components.compactor import Compactor, CompactorConfig
from lakeward.ops import error_log, runs
from lakeward.ops.records.operations import SyncRunStatistics, SyncStatus
from lakeward.tables import compaction
from lakeward.tables.records import properties
from tests.support.lakes import assert_nothing_left_over
from tests.support.waiting import until

NAME = "sales.orders"
SCHEMA = {"id": "long", "name": "string", "tags": "list<string>", "place": "struct<city: string, no: int>"}


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
    result = lake.compact(NAME, spark)
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
    assert lake.compact(NAME, spark).rows == 60_000
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
    assert lake.compact(NAME, spark).files_after == 1
    assert spark.sql(query).collect() == before
    lake.append(NAME, rows(1_000))
    after = spark.sql(query).collect()
    assert after[: len(before)] == before
    assert len({row["_row_id"] for row in after}) == len(after) == 210


def test_many_tiny_files_are_read_by_several_tasks_into_one_sorted_file_with_the_rows_ids(
    lake: Lake, spark: SparkSession
) -> None:
    lake.create_table(NAME, {"id": "long"}, sort_by=["id"], format_version=3)
    lake.append(NAME, spark.range(0, 1_200, 1, 120))
    lake.flush(NAME)
    query = f"SELECT id, _row_id FROM {NAME} ORDER BY id"
    before = spark.sql(query).collect()
    result = lake.compact(NAME, spark)
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
    assert lake.compact(NAME, spark).files_after == 1
    assert seen(lake, spark) == expected
    assert expected[0] == {"id": 1, "more": None, "new": "a"}
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
    assert (lake.compact(NAME, spark).files_before, lake.compact(NAME, spark).jobs) == (18, 0)
    assert sorted(file.spec_id for file in lake.files(NAME)) == [0] * 6 + [1] * 3
    lake.set_properties(NAME, {properties.COMPACTION_SPECS.name: "true"})
    result = lake.compact(NAME, spark)
    assert (result.files_before, result.files_after, result.rows) == (6, 3, 180)
    assert {file.spec_id for file in lake.files(NAME)} == {1}
    lake.flush(NAME)
    assert seen(lake, spark) == expected
    assert_nothing_left_over(lake, NAME)


def test_json_lines_become_parquet_and_so_are_seen_by_engines(lake: Lake, spark: SparkSession) -> None:
    fill(lake, 2, format="json", partition_by=["name"])
    expected = by_id(lake.scan(NAME).read_all())
    assert spark.table(NAME).count() == 0
    result = lake.compact(NAME, spark)
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
    done = [lake.compact(NAME, spark) for _ in range(4)]
    stop.set()
    thread.join()
    done.append(lake.compact(NAME, spark))
    assert not failed
    assert sum(result.jobs for result in done) >= 2
    ids = [row["id"] for row in seen(lake, spark)]
    assert ids == list(range(len(ids)))
    assert len(ids) >= 180
    assert_nothing_left_over(lake, NAME)


def test_a_partition_that_leaves_during_the_rewrite_costs_its_own_part_of_the_job_and_nothing_else(
    lake: Lake, spark: SparkSession
) -> None:
    fill(lake, partition_by=["name"])
    left: list[int] = []
    tried: list[tuple[int, int, int]] = []

    def session() -> SparkSession:
        left.append(lake.retire_partitions(NAME, [{"name": "n1"}]))  # after the plan, before the rewrite
        lake.registry.engine(lake.table(NAME).location).delete([gone], below=lake.table(NAME).location)
        return spark

    (gone, *_) = [file.file_path for file in lake.files(NAME) if file.partition_path == "name=n1"]
    from lakeward.maintenance.compaction import compact_table

    compact_table(
        lake.registry,
        lake.table(NAME),
        session,
        on_job=lambda job, done: tried.append((len(job.files), done.conflicts, done.files_after)),
    )
    # The job of all partitions has lost; then each is tried by itself, and the one that has left loses alone.
    assert tried == [(18, 1, 0), (6, 0, 1), (6, 1, 0), (6, 0, 1)]
    assert left == [6, 0, 0]  # what has left already is seen before Spark is asked for
    assert sorted(file.partition_path for file in lake.files(NAME)) == ["name=n0", "name=n2"]
    assert lake.plan_compaction(NAME).jobs == []
    assert len(seen(lake, spark)) == 120
    assert_nothing_left_over(lake, NAME)


def test_names_and_values_with_odd_characters_are_compacted(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    name = ("odd ns", "a.b`c")
    lake.create_table(name, {"id": "long", "we ird": "string"}, partition_by=["`we ird`"])
    for i in range(5):
        lake.append(name, [{"id": i, "we ird": "a/b %=é"}, {"id": i, "we ird": None}])
    assert lake.compact(name, spark).files_after == 2
    assert lake.audit(name).findings == []
    assert lake.scan(name).read_all().num_rows == 10
    assert compaction.candidates(lake.registry, lake.table(name), 1 << 30) == []


def test_a_compaction_by_spark_is_one_run(lake: Lake, spark: SparkSession) -> None:
    fill(lake, partition_by=["name"])
    lake.flush(NAME)
    result = lake.compact(NAME, spark)
    run, *appends = runs.list_runs(lake.registry)
    assert (run.status, run.source_info) == (SyncStatus.COMPLETED, {"component": "compactor"})
    assert run.statistics == SyncRunStatistics(records_processed=180, bytes_processed=result.bytes_before)
    lake.compact(NAME, spark)
    assert runs.list_runs(lake.registry) == [run, *appends], "where there is nothing to do, there is no run"


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
