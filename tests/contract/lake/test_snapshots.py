"""Flush: everything that is pending becomes one snapshot, judged by PyIceberg."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from lakeward import Lake, StorageManager
from lakeward.errors import LeaseHeld
from lakeward.registry import leases
from lakeward.snapshots import snapshot_commit
from lakeward.tables.records.tables import Table
from lakeward.tables.snapshots import hold_name
from tests.contract.db import processes
from tests.support.lakes import ROWS, assert_nothing_left_over, make_table, open_lake

pytestmark = pytest.mark.on("sqlite")

NAME = "sales.orders"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def lake(made_url: str, tmp_path: Path):  # type: ignore[no-untyped-def]
    with open_lake(made_url, tmp_path) as opened:
        yield opened


def ids(lake: Lake, table: Table) -> list[int]:
    """What an Iceberg reader sees in the current metadata file."""
    location = lake.table(table.identifier).metadata_location
    assert location is not None
    rows = StaticTable.from_metadata(location).scan().to_arrow()
    return sorted(rows["id"].to_pylist())


def test_a_table_without_rows_has_metadata_and_no_snapshot(lake: Lake) -> None:
    table = make_table(lake, NAME)
    assert lake.flush(NAME).snapshot_id is None
    assert ids(lake, table) == []
    assert lake.snapshots(NAME) == []


def test_many_appends_become_one_snapshot(lake: Lake) -> None:
    table = make_table(lake, NAME, partition_by=["name"])
    for _ in range(5):
        lake.append(NAME, ROWS)
    flushed = lake.flush(NAME)
    assert (flushed.files, flushed.rows) == (15, 30)
    assert ids(lake, table) == sorted([row["id"] for row in ROWS] * 5)
    (snapshot,) = lake.snapshots(NAME)
    assert snapshot.summary["added-records"] == snapshot.summary["total-records"] == "30"
    assert snapshot.operation == "append"


def test_a_flush_with_nothing_pending_changes_nothing(lake: Lake) -> None:
    make_table(lake, NAME)
    lake.append(NAME, ROWS)
    first, second = lake.flush(NAME), lake.flush(NAME)
    assert second.metadata_location == first.metadata_location
    assert second.snapshot_id is None
    assert len(lake.snapshots(NAME)) == 1


def test_a_snapshot_has_the_time_of_its_newest_registration(lake: Lake) -> None:
    make_table(lake, NAME)
    lake.append(NAME, ROWS)
    newest = max(file.registered_at for file in lake.files(NAME))
    lake.flush(NAME)
    assert lake.snapshots(NAME)[0].timestamp_ms == int(newest.timestamp() * 1000)


def test_a_sync_connection_returns_with_the_snapshot(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, metadata_updates="sync") as lake:
        make_table(lake, NAME)
        result = lake.append(NAME, ROWS)
        assert result.snapshot_id == lake.snapshots(NAME)[0].snapshot_id
        assert set(result.seconds) == {"write", "register", "snapshot"}


def test_schema_changes_and_properties_reach_the_metadata(lake: Lake) -> None:
    make_table(lake, NAME)
    lake.append(NAME, ROWS)
    lake.rename_column(NAME, "name", "label")
    lake.add_column(NAME, "amount", "decimal(9,2)")
    lake.set_properties(NAME, {"owner": "me"})
    lake.append(NAME, [{"id": 7, "label": "x", "amount": None}])
    lake.flush(NAME)
    read = StaticTable.from_metadata(lake.table(NAME).metadata_location or "")
    assert [field.name for field in read.schema().fields] == ["id", "label", "amount"]
    assert read.properties["owner"] == "me"
    assert sorted(read.scan().to_arrow()["label"].to_pylist()) == sorted([row["name"] for row in ROWS] + ["x"])


def test_a_metadata_rollback_brings_the_earlier_schema_back_and_no_id_is_given_twice(lake: Lake) -> None:
    make_table(lake, NAME)
    lake.add_column(NAME, "extra", "int")
    lake.rollback_metadata(NAME, 1)
    lake.add_column(NAME, "other", "int")
    lake.flush(NAME)
    read = StaticTable.from_metadata(lake.table(NAME).metadata_location or "")
    assert {field.name: field.field_id for field in read.schema().fields} == {"id": 1, "name": 2, "other": 4}


def test_a_file_that_cannot_be_committed_is_set_aside_and_the_rest_is_served(lake: Lake) -> None:
    table = make_table(lake, NAME, partition_by=["name"])
    lake.append(NAME, ROWS)
    with lake.registry.database.transaction() as connection:  # a file that registration would have refused
        connection.exec_driver_sql(
            "UPDATE table_files SET schema_id = 77 WHERE file_id = (SELECT min(file_id) FROM table_files)"
        )
    flushed = lake.flush(NAME)
    assert (flushed.files, flushed.rejected) == (2, 1)
    (aside,) = lake.files(NAME, set_aside=True)
    assert aside.set_aside_reason is not None and "schema 77" in aside.set_aside_reason
    assert len(ids(lake, table)) == 4
    assert lake.table(NAME).row_count == 4
    assert lake.scan(NAME).read_all().num_rows == 4
    assert lake.flush(NAME).rejected == 0


@pytest.mark.on("sqlite", "postgresql")
def test_a_file_that_was_set_aside_is_tried_again_or_retired_on_request(lake: Lake) -> None:
    table = make_table(lake, NAME, partition_by=["name"])
    lake.append(NAME, ROWS)
    break_one = "UPDATE table_files SET schema_id = 77 WHERE file_id = (SELECT min(file_id) FROM table_files)"
    with lake.registry.database.transaction() as connection:
        connection.exec_driver_sql(break_one)
    assert lake.flush(NAME).rejected == 1
    assert lake.retry_set_aside(NAME) == 1
    assert lake.table(NAME).row_count == len(ROWS)
    assert lake.flush(NAME).rejected == 1  # its cause is still there
    with lake.registry.database.transaction() as connection:
        connection.exec_driver_sql("UPDATE table_files SET schema_id = 0 WHERE schema_id = 77")
    assert lake.retry_set_aside(NAME) == 1
    assert lake.flush(NAME).files == 1
    assert len(ids(lake, table)) == len(ROWS)
    assert (lake.retry_set_aside(NAME), lake.retire_set_aside(NAME)) == (0, 0)
    lake.append(NAME, ROWS[:1])
    with lake.registry.database.transaction() as connection:
        connection.exec_driver_sql(break_one.replace("min", "max"))
    assert lake.flush(NAME).rejected == 1
    assert lake.retire_set_aside(NAME) == 1
    assert lake.files(NAME, set_aside=True) == []
    assert lake.audit(NAME).findings == []


@pytest.mark.on("sqlite", "postgresql")
def test_a_file_of_format_version_3_knows_the_id_of_its_first_row(lake: Lake) -> None:
    make_table(lake, NAME, partition_by=["name"], format_version=3)
    lake.append(NAME, ROWS)
    lake.flush(NAME)
    lake.append(NAME, ROWS[:1])
    assert [file.first_row_id for file in lake.files(NAME)][-1] is None
    lake.flush(NAME)
    found = sorted((file.first_row_id or 0, file.row_count) for file in lake.files(NAME))
    assert found == [(0, 2), (2, 2), (4, 2), (6, 1)]


def test_a_held_table_takes_appends_and_its_snapshot_comes_when_it_is_let_go(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, hold_timeout_seconds=0.2) as lake:
        make_table(lake, NAME)
        with lake.hold(NAME, seconds=30):
            lake.append(NAME, ROWS)
            with pytest.raises(LeaseHeld):
                lake.flush(NAME)
            with pytest.raises(LeaseHeld), lake.hold(NAME):
                pass
        assert lake.flush(NAME).files == 1


def test_a_held_table_answers_an_error_and_never_an_older_view(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, hold_timeout_seconds=0.2) as lake:
        table = make_table(lake, NAME)
        lake.append(NAME, ROWS)
        with leases.held(lake.registry, hold_name(table), seconds=30), pytest.raises(LeaseHeld):
            lake.flush(NAME)
        assert lake.flush(NAME).files == 1


def test_threads_that_flush_at_once_commit_each_file_once(lake: Lake) -> None:
    table = make_table(lake, NAME)
    expected = 0
    for _ in range(3):
        for _ in range(4):
            lake.append(NAME, ROWS)
            expected += len(ROWS)
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda _: snapshot_commit.flush(lake.registry, table.table_id), range(4)))
        assert sum(result.files for result in results) == 4
    assert len(ids(lake, table)) == expected
    assert_nothing_left_over(lake, NAME)


def append_and_flush(url: str, folder: Path) -> None:
    with open_lake(url, folder) as lake:
        for _ in range(8):
            lake.append(NAME, ROWS)
            lake.flush(NAME)


@pytest.mark.on("sqlite", "postgresql")
def test_processes_that_append_and_flush_at_once_lose_and_double_nothing(
    lake: Lake, made_url: str, tmp_path: Path
) -> None:
    table = make_table(lake, NAME, partition_by=["name"])
    processes.expect_success(processes.start(append_and_flush, [(made_url, tmp_path)] * 3))
    lake.flush(NAME)
    assert len(ids(lake, table)) == lake.table(NAME).row_count == 3 * 8 * len(ROWS)
    assert_nothing_left_over(lake, NAME)


def test_metadata_stays_small_and_what_it_drops_goes_through_quarantine(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, keep_snapshots=3, keep_metadata_files=2) as lake:
        table = make_table(lake, NAME)
        for _ in range(8):
            lake.append(NAME, ROWS)
            lake.flush(NAME)
        read = StaticTable.from_metadata(lake.table(NAME).metadata_location or "")
        assert len(read.metadata.snapshots) == len(lake.snapshots(NAME)) == 3
        assert len(read.metadata.metadata_log) == 2
        assert lake.clean().files == (7 - 2) + (8 - 3)  # metadata files out of the log, manifest lists out of the list
        assert len(ids(lake, table)) == 8 * len(ROWS)
        assert_nothing_left_over(lake, NAME)


@pytest.mark.on("sqlite", "postgresql")
def test_the_write_path_has_its_names(lake: Lake) -> None:
    make_table(lake, NAME)
    manager = StorageManager(lake)
    manager.insert_data("sales", "orders", ROWS)
    (info,) = manager.table_files("sales", "orders")
    assert (info.row_count, info.checksum is not None) == (len(ROWS), True)
    snapshot = manager.create_iceberg_snapshot("sales", "orders", [info])
    assert snapshot is not None
    assert manager.update_iceberg_metadata("sales", "orders", snapshot) == lake.table(NAME).metadata_location
    assert manager.update_table_statistics("sales", "orders", len(ROWS), info.size).row_count == len(ROWS)
    assert manager.load_partition_metadata(info.path).num_rows == len(ROWS)
