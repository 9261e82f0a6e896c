"""kill -9 at each step of a write and of a flush: all or nothing, nothing left over, counters exact."""

from __future__ import annotations

import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable

from lakeward import Lake, MetadataStore, TopicConfig
from lakeward.ops import dead_letters, runs
from tests.contract.db import processes
from tests.faults import steps
from tests.faults.steps import (
    CLEAN_STEPS,
    COMPACT_STEPS,
    EXPIRE_STEPS,
    FLUSH_STEPS,
    LETTER_STEPS,
    LOG_STEPS,
    MANIFEST_STEPS,
    MERGE_STEPS,
    NAME,
    RECORDS,
    REPLACE_STEPS,
    ROLLBACK_STEPS,
    TOPIC,
    WRITE_STEPS,
)
from tests.support.lakes import ROWS, assert_nothing_left_over, make_table, objects, open_lake, run_out
from tests.support.registries import rows_of


def run_step(made_url: str, folder: Path, step: str) -> None:
    [dying] = processes.start(steps.take, [(made_url, folder, step)])
    dying.join(100)
    assert dying.exitcode == -signal.SIGKILL


def recovered(lake: Lake) -> None:
    """Recovery once the dead process's leases have run out, and the sweep after it."""
    run_out(lake)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        lake.recover()
        if not rows_of(lake.registry, "pending_writes"):
            return
        time.sleep(0.01)
    raise AssertionError("an intent is left")


@pytest.mark.parametrize("step", WRITE_STEPS)
def test_a_write_that_is_killed_happens_whole_or_not_at_all(made_url: str, tmp_path: Path, step: str) -> None:
    with open_lake(made_url, tmp_path) as lake:
        table = make_table(lake, NAME, partition_by=["name"])
        lake.append(NAME, ROWS)
        run_step(made_url, tmp_path, step)
        recovered(lake)
        expected = 2 * len(ROWS) if step == "registered" else len(ROWS)
        assert lake.table(NAME).row_count == expected
        assert lake.scan(NAME).read_all().num_rows == expected
        assert_nothing_left_over(lake, NAME)
        assert len(objects(lake, table)) == lake.table(NAME).file_count


@pytest.mark.parametrize("step", LETTER_STEPS)
def test_rows_and_dead_letters_of_a_write_that_is_killed_are_both_there_or_neither_and_once_when_it_is_sent_again(
    made_url: str, tmp_path: Path, step: str
) -> None:
    with open_lake(made_url, tmp_path) as lake:
        make_table(lake, NAME, partition_by=["name"], properties={"lakeward.invalid-rows": "dead-letter"})
        run_step(made_url, tmp_path, step)
        recovered(lake)
        is_there = step == "letters registered"
        assert lake.table(NAME).row_count == lake.scan(NAME).read_all().num_rows == is_there * len(ROWS)
        assert len(dead_letters.list_dead_letters(lake.registry)) == is_there
        assert [run.records_inserted for run in runs.list_runs(lake.registry)] == [len(ROWS)] * is_there
        assert_nothing_left_over(lake, NAME)
        bad_row: dict[str, Any] = {"id": "no number", "name": "n0"}
        again = lake.append(NAME, [*ROWS, bad_row], batch=("s", "1"))
        assert (again.rows, again.dead_letters, again.replayed) == (len(ROWS), 1, is_there)
        assert lake.table(NAME).row_count == len(ROWS)
        assert [x.record_data for x in dead_letters.list_dead_letters(lake.registry)] == [bad_row]
        assert_nothing_left_over(lake, NAME)


@pytest.mark.parametrize("step", FLUSH_STEPS)
def test_a_flush_that_is_killed_loses_no_row_and_leaves_nothing(made_url: str, tmp_path: Path, step: str) -> None:
    with open_lake(made_url, tmp_path) as lake:
        make_table(lake, NAME, partition_by=["name"])
        lake.append(NAME, ROWS)
        lake.flush(NAME)
        lake.append(NAME, ROWS)
        run_step(made_url, tmp_path, step)
        recovered(lake)
        assert_nothing_left_over(lake, NAME)
        assert len(lake.snapshots(NAME)) == (2 if step == "flushed" else 1)
        lake.flush(NAME)
        assert lake.snapshots(NAME)[-1].summary["total-records"] == str(2 * len(ROWS))
        assert lake.table(NAME).row_count == 2 * len(ROWS)
        assert_nothing_left_over(lake, NAME)


@pytest.mark.parametrize("step", MANIFEST_STEPS)
def test_a_merge_of_manifests_that_is_killed_is_whole_or_nothing_and_loses_no_row(
    made_url: str, tmp_path: Path, step: str
) -> None:
    with open_lake(made_url, tmp_path) as lake:
        make_table(lake, NAME, partition_by=["name"], properties={"commit.manifest.min-count-to-merge": "3"})
        for _ in range(3):
            lake.append(NAME, ROWS)
            lake.flush(NAME)
        lake.append(NAME, ROWS)
        run_step(made_url, tmp_path, step)
        recovered(lake)
        assert_nothing_left_over(lake, NAME)
        assert [each.operation for each in lake.snapshots(NAME)].count("replace") == (step == "manifests merged")
        flushed = lake.flush(NAME)
        assert StaticTable.from_metadata(flushed.metadata_location).scan().to_arrow().num_rows == 4 * len(ROWS)
        assert lake.table(NAME).row_count == 4 * len(ROWS)
        assert_nothing_left_over(lake, NAME)


@pytest.mark.parametrize("step", REPLACE_STEPS)
def test_a_partition_whose_replacement_is_killed_is_the_old_one_or_the_new_one(
    made_url: str, tmp_path: Path, step: str
) -> None:
    with open_lake(made_url, tmp_path) as lake:
        make_table(lake, NAME, partition_by=["name"])
        lake.append(NAME, ROWS)
        lake.flush(NAME)
        run_step(made_url, tmp_path, step)
        recovered(lake)
        there = lake.scan(NAME, filter="name = 'n0'").read_all()["id"].to_pylist()
        assert sorted(there) == ([100] if step == "replaced" else [0, 3])
        assert_nothing_left_over(lake, NAME)
        lake.flush(NAME)
        assert lake.snapshots(NAME)[-1].summary["total-records"] == str(lake.table(NAME).row_count)
        assert_nothing_left_over(lake, NAME)


def read_by_iceberg(lake: Lake) -> list[int]:
    location = lake.table(NAME).metadata_location
    assert location is not None
    return sorted(StaticTable.from_metadata(location).scan().to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("step", ROLLBACK_STEPS)
def test_a_table_whose_rollback_is_killed_stands_at_one_snapshot_or_the_other(
    made_url: str, tmp_path: Path, step: str
) -> None:
    with open_lake(made_url, tmp_path) as lake:
        make_table(lake, NAME, partition_by=["name"])
        lake.append(NAME, [{"id": 1, "name": "n0"}])
        lake.flush(NAME)
        lake.retire_partitions(NAME, [{"name": "n0"}])
        lake.append(NAME, [{"id": 2, "name": "n1"}])
        lake.flush(NAME)
        run_step(made_url, tmp_path, step)
        recovered(lake)
        expected = [1] if step == "rolled back" else [2]
        assert lake.scan(NAME).read_all()["id"].to_pylist() == read_by_iceberg(lake) == expected
        assert lake.table(NAME).row_count == 1
        assert_nothing_left_over(lake, NAME)
        first, second = lake.snapshots(NAME)
        for snapshot, rows in ((first, [1]), (second, [2])):  # the way is open in both directions
            lake.rollback(NAME, snapshot.snapshot_id)
            assert lake.scan(NAME).read_all()["id"].to_pylist() == read_by_iceberg(lake) == rows
        lake.clean()
        assert_nothing_left_over(lake, NAME)


@pytest.mark.parametrize("step", EXPIRE_STEPS)
def test_an_expiry_that_is_killed_has_happened_or_not_and_no_file_is_lost(
    made_url: str, tmp_path: Path, step: str
) -> None:
    with open_lake(made_url, tmp_path) as lake:
        make_table(lake, NAME, partition_by=["name"])
        lake.append(NAME, ROWS)
        lake.flush(NAME)
        lake.retire_partitions(NAME, [{"name": "n0"}])
        lake.flush(NAME)
        run_step(made_url, tmp_path, step)
        recovered(lake)
        is_done = step == "expired"
        assert len(lake.snapshots(NAME)) == (1 if is_done else 2)
        assert lake.clean().footers == (1 if is_done else 0)
        assert_nothing_left_over(lake, NAME)
        if not is_done:
            lake.rollback(NAME, lake.snapshots(NAME)[0].snapshot_id)
            assert len(read_by_iceberg(lake)) == len(ROWS)


@pytest.mark.parametrize("is_flushed", [True, False])
@pytest.mark.parametrize("step", COMPACT_STEPS)
def test_a_compaction_that_is_killed_leaves_the_old_files_or_the_new_ones(
    made_url: str, tmp_path: Path, step: str, is_flushed: bool
) -> None:
    with open_lake(made_url, tmp_path) as lake:
        make_table(lake, NAME, partition_by=["name"])
        for _ in range(2):
            lake.append(NAME, ROWS)
        if is_flushed:
            lake.flush(NAME)
        run_step(made_url, tmp_path, step)
        recovered(lake)
        assert lake.table(NAME).row_count == lake.scan(NAME).read_all().num_rows == 2 * len(ROWS)
        assert len(lake.files(NAME)) == (3 if step == "swapped" else 6)
        assert_nothing_left_over(lake, NAME)
        lake.flush(NAME)
        is_replaced = is_flushed and step == "swapped"
        assert [each.operation for each in lake.snapshots(NAME)] == ["append", *["replace"] * is_replaced]
        assert lake.snapshots(NAME)[-1].summary["total-records"] == str(2 * len(ROWS))
        assert_nothing_left_over(lake, NAME)


@pytest.mark.parametrize("step", CLEAN_STEPS)
def test_a_clean_up_that_is_killed_leaves_no_object_and_no_footer_to_the_next_one(
    made_url: str, tmp_path: Path, step: str
) -> None:
    with open_lake(made_url, tmp_path) as lake:
        table = make_table(lake, NAME, partition_by=["name"])
        lake.append(NAME, ROWS)
        lake.retire_partitions(NAME, [{"name": "n0"}, {"name": "n1"}])
        run_step(made_url, tmp_path, step)
        assert_nothing_left_over(lake, NAME)
        assert lake.clean().failed == []
        assert objects(lake, table) == {file.file_path for file in lake.files(NAME)}
        with lake.registry.database.read() as connection:
            for left in ("partition_metadata", "table_files"):
                assert connection.exec_driver_sql(f"SELECT count(*) FROM {left}").scalar_one() == 1
            assert connection.exec_driver_sql("SELECT count(*) FROM retired_files").scalar_one() == 0
        assert_nothing_left_over(lake, NAME)


def read_topic(lake: Lake) -> list[tuple[int, int, bytes]]:
    rows = [row for batch in lake.log.scan(TOPIC) for row in batch.to_pylist()]
    return [(row["partition"], row["offset"], row["value"]) for row in rows]


def topic_objects(lake: Lake) -> set[str]:
    topic = MetadataStore(lake).get_topic(TOPIC)
    assert topic is not None
    return {info.location for info in lake.registry.engine(topic.location).list(topic.location + "/")}


def segment_files(lake: Lake) -> set[str]:
    store = MetadataStore(lake)
    partitions = store.list_partitions(TOPIC)
    return {each.location for p in partitions for each in store.get_segments(TOPIC, p.partition_id)}


@pytest.mark.parametrize("step", LOG_STEPS)
def test_an_append_to_the_log_that_is_killed_happens_whole_or_not_at_all_and_once_when_it_is_sent_again(
    made_url: str, tmp_path: Path, step: str
) -> None:
    with open_lake(made_url, tmp_path) as lake:
        MetadataStore(lake).create_topic(TopicConfig(TOPIC, 3))
        lake.log.append(TOPIC, RECORDS)
        run_step(made_url, tmp_path, step)
        recovered(lake)
        assert len(read_topic(lake)) == len(RECORDS) * (2 if step == "appended" else 1)
        assert topic_objects(lake) == segment_files(lake)
        assert lake.log.append(TOPIC, RECORDS, producer=("p", 1)).replayed is (step == "appended")
        found = read_topic(lake)
        assert len(found) == 2 * len(RECORDS)
        for partition in MetadataStore(lake).list_partitions(TOPIC):
            offsets = [offset for number, offset, _ in found if number == partition.partition_id]
            assert offsets == list(range(partition.high_watermark))
        assert topic_objects(lake) == segment_files(lake)


@pytest.mark.parametrize("step", MERGE_STEPS)
def test_a_merge_of_segments_that_is_killed_leaves_the_old_ones_or_the_new_one(
    made_url: str, tmp_path: Path, step: str
) -> None:
    with open_lake(made_url, tmp_path) as lake:
        MetadataStore(lake).create_topic(TopicConfig(TOPIC))
        for start in range(0, 30, 10):
            lake.log.append(TOPIC, RECORDS[start : start + 10])
        before = read_topic(lake)
        run_step(made_url, tmp_path, step)
        recovered(lake)
        assert read_topic(lake) == before
        assert len(segment_files(lake)) == (1 if step == "merged" else 3)
        assert lake.clean().failed == []
        assert topic_objects(lake) == segment_files(lake)


def test_a_writer_that_lives_longer_than_its_lease_keeps_its_files(made_url: str, tmp_path: Path) -> None:
    lease_seconds = 1.0
    with open_lake(made_url, tmp_path) as lake:
        make_table(lake, NAME)
        ours, theirs = processes.CONTEXT.Pipe()
        writer = processes.start(steps.write_for_longer_than_its_lease, [(made_url, tmp_path, lease_seconds, theirs)])
        assert ours.poll(60) and ours.recv() == "written"
        [declared] = rows_of(lake.registry, "pending_writes")
        while rows_of(lake.registry, "pending_writes")[0]["lease_until"] < declared["lease_until"] + 2 * timedelta(
            seconds=lease_seconds
        ):
            assert lake.recover().intents == 0
            assert lake.clean().temporary == 0
            time.sleep(0.1)
        ours.send("register")
        processes.expect_success(writer)
        assert lake.table(NAME).row_count == len(ROWS)
        assert_nothing_left_over(lake, NAME)
