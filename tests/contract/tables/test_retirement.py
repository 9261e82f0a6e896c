"""Leaving a table when things go wrong on the way: lost leases, objects that cannot be deleted, rows left half-way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward import Lake
from lakeward.arrow.target import TableTarget, table_target
from lakeward.arrow.write import write_arrow
from lakeward.db import dialect
from lakeward.errors import LeaseLost, PartitionMetadataNotFound
from lakeward.lake import writes
from lakeward.registry import intents
from lakeward.registry.sql import leases as lease_store
from lakeward.storage.locations import local_path
from lakeward.tables import footers, retirement, tables
from lakeward.tables.records.files import DataFile
from lakeward.tables.records.tables import Table
from lakeward.tables.sql import retired as retired_store
from tests.support.lakes import ROWS, assert_nothing_left_over, make_table, objects, open_lake

NAME = "sales.orders"


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path) as opened:
        yield opened


def retire_one(lake: Lake) -> tuple[Table, str]:
    """A table one of whose partitions has left it, and the path of the file that did."""
    table = make_table(lake, NAME, partition_by=["name"])
    lake.append(NAME, ROWS)
    (path,) = [file.file_path for file in lake.files(NAME) if file.partition_path == "name=n0"]
    assert lake.retire_partitions(NAME, [{"name": "n0"}]) == 1
    return table, path


def test_a_replacement_whose_lease_another_has_taken_changes_nothing_and_leaves_no_file(lake: Lake) -> None:
    table = make_table(lake, NAME, partition_by=["name"])
    lake.append(NAME, ROWS)
    before = objects(lake, table)

    def make(target: TableTarget) -> list[DataFile]:
        with lake.registry.database.transaction() as connection:
            now = dialect.now(connection)
            name = retirement.partition_lease(table, 0, '{"1000":"n0"}')
            lease_store.set_owner(connection, name, "another", 77, now)
        return write_arrow(target, [{"id": 1, "name": "n0"}])

    with pytest.raises(LeaseLost):
        writes.write(lake.registry, NAME, make, partition={"name": "n0"})
    assert objects(lake, table) == before
    assert lake.scan(NAME).read_all().num_rows == len(ROWS)
    assert_nothing_left_over(lake, NAME)


def test_a_retired_files_row_is_kept_whole(lake: Lake) -> None:
    make_table(lake, NAME)
    lake.append(NAME, ROWS)
    (file,) = lake.files(NAME)
    with lake.registry.database.transaction() as connection:
        table = lake.table(NAME)
        assert retirement.retire(connection, lake.registry, table, [file], "test", dialect.now(connection)) == 1
        assert retirement.retire(connection, lake.registry, table, [file], "test", dialect.now(connection)) == 0
    with lake.registry.database.read() as connection:
        (row,) = retired_store.of_table(connection, lake.table(NAME).table_id)
    assert row.record is not None
    # JSON's keys are texts.
    assert row.record["statistics"]["value_counts"] == {str(i): n for i, n in file.statistics.value_counts.items()}
    assert (row.record["row_count"], row.record["partition_key"]) == (file.row_count, file.partition_key)
    assert lake.table(NAME).row_count == lake.table(NAME).file_count == 0


def test_an_object_that_cannot_be_deleted_keeps_its_row_and_is_tried_again(lake: Lake) -> None:
    _, path = retire_one(lake)
    in_the_way = Path(local_path(path))
    in_the_way.unlink()
    (in_the_way / "folder").mkdir(parents=True)  # what is no file cannot be deleted as one
    assert lake.clean().failed == [path]
    with pytest.raises(PartitionMetadataNotFound):
        footers.load_partition_metadata(lake.registry, path)
    (in_the_way / "folder").rmdir()
    in_the_way.rmdir()
    again = lake.clean()
    assert (again.files, again.failed) == (1, [])
    assert lake.clean().files == 0
    assert_nothing_left_over(lake, NAME)


def test_rows_that_a_dead_cleaner_has_marked_are_taken_up_again(lake: Lake) -> None:
    table, path = retire_one(lake)
    with lake.registry.database.transaction() as connection:
        rows = retired_store.of_table(connection, table.table_id)
        assert retired_store.mark_ended(connection, [row.retired_id for row in rows], dialect.now(connection)) == 1
    assert lake.clean().files == 1
    assert not lake.registry.engine(path).exists(path)
    assert_nothing_left_over(lake, NAME)


def test_a_dropped_tables_metadata_stays_for_its_time_though_it_has_no_rows(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, quarantine_seconds=3600) as lake:
        table = make_table(lake, NAME)
        location = lake.flush(NAME).metadata_location
        lake.drop_table(NAME)
        assert lake.clean().tables == 0
        assert objects(lake, table) == {location}
        with lake.registry.database.transaction() as connection:
            retired_store.expire_table(connection, table.table_id, dialect.now(connection), 0)
        assert lake.clean().tables == 1
        assert objects(lake, table) == set()


def test_a_table_dropped_while_a_write_is_under_way_is_forgotten_only_after_the_writes_sweep(
    made_url: str, tmp_path: Path
) -> None:
    with open_lake(made_url, tmp_path, sweep_after_seconds=3600) as lake:
        table = make_table(lake, NAME)
        metadata = tables.metadata(lake.registry, table)
        intent = intents.open_intent(lake.registry, table)
        lake.drop_table(NAME, purge=True)
        late = table_target(table, metadata, intent, lake.registry.engine(table.location))
        write_arrow(late, ROWS)  # the writer lives, and knows nothing of it yet
        lake.clean()
        assert tables.load_by_id(lake.registry, table.table_id).dropped_at is not None
        with lake.registry.database.transaction() as connection:
            connection.exec_driver_sql("UPDATE pending_writes SET sweep_after = recovered_at")
        lake.clean()
        assert objects(lake, table) == set()
