"""What a call says is what happened: names that nest, writes that lose their table, snapshots that must wait."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from lakeward import Lake, StorageManager
from lakeward.arrow.target import TableTarget
from lakeward.arrow.write import write_arrow
from lakeward.db.schema import pending_writes
from lakeward.errors import InvalidInput, TableNotFound
from lakeward.lake import writes
from lakeward.registry import intents, leases
from lakeward.tables.records.files import DataFile
from lakeward.tables.snapshots import hold_name
from tests.support.lakes import ROWS, assert_nothing_left_over, make_table, objects, open_lake
from tests.support.registries import rows_of
from tests.support.waiting import until

NAME = "sales.orders"


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path) as opened:
        yield opened


def test_a_namespace_named_like_a_tables_folder_stands_beside_it(lake: Lake) -> None:
    table = make_table(lake, NAME)
    folder = table.location.rpartition("/")[2]
    victim = lake.create_table(("sales", folder, "kept"), {"id": "long"})
    lake.append(victim.identifier, [{"id": 1}])
    lake.drop_table(NAME, purge=True)
    assert lake.scan(victim.identifier).read_all()["id"].to_pylist() == [1]


def test_a_sync_append_that_can_make_no_snapshot_says_that_its_rows_are_registered(
    made_url: str, tmp_path: Path
) -> None:
    with open_lake(made_url, tmp_path, metadata_updates="sync", hold_timeout_seconds=0.1) as lake:
        table = make_table(lake, NAME)
        with leases.held(lake.registry, hold_name(table), seconds=30):
            result = lake.append(NAME, ROWS)
        assert (result.rows, result.snapshot_id) == (len(ROWS), None)
        assert lake.table(NAME).row_count == len(ROWS)
        assert lake.flush(NAME).rows == len(ROWS)


def test_a_write_whose_table_is_dropped_leaves_no_file(lake: Lake) -> None:
    table = make_table(lake, NAME)

    def make(target: TableTarget) -> list[DataFile]:
        files = write_arrow(target, ROWS)
        lake.drop_table(NAME, purge=True)
        return files

    with pytest.raises(TableNotFound):
        writes.write(lake.registry, NAME, make)
    lake.clean()
    assert objects(lake, table) == set()
    with lake.registry.database.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM pending_writes").scalar_one() == 0


def leases_of(lake: Lake) -> dict[str, datetime]:
    return {row["intent_id"]: row["lease_until"] for row in rows_of(lake.registry, "pending_writes")}


def test_an_intent_that_was_let_go_is_recovered_while_its_process_lives(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, lease_seconds=3) as lake:
        table = make_table(lake, NAME)
        kept, left = intents.open_intent(lake.registry, table), intents.open_intent(lake.registry, table)
        lake.registry.let_go(left.intent_id)
        until(lambda: leases_of(lake)[kept.intent_id] > kept.lease_until)
        assert leases_of(lake)[left.intent_id] == left.lease_until
        with lake.registry.database.transaction() as connection:  # as if its time were over
            is_left = pending_writes.c.intent_id == left.intent_id
            connection.execute(
                pending_writes.update().where(is_left).values(lease_until=left.lease_until - timedelta(days=1))
            )
        assert lake.recover().intents == 1
        with lake.registry.database.read() as connection:
            assert intents.is_open(connection, kept)
            assert not intents.is_open(connection, left)


def test_statistics_of_a_dropped_column_stay_right(lake: Lake) -> None:
    make_table(lake, NAME, schema={"id": "long", "x": "int"})
    lake.append(NAME, [{"id": 1, "x": 1}])
    lake.append(NAME, [{"id": 2, "x": 256}])
    lake.drop_column(NAME, "x")
    assert_nothing_left_over(lake, NAME)
    StorageManager(lake).update_table_statistics("sales", "orders")
    lake.rollback_metadata(NAME, 1)
    assert_nothing_left_over(lake, NAME)


def test_a_partition_named_twice_is_retired_once(lake: Lake) -> None:
    make_table(lake, NAME, partition_by=["name"])
    lake.append(NAME, ROWS)
    assert lake.retire_partitions(NAME, [{"name": "n0"}, {"name": "n0"}]) == 1
    assert_nothing_left_over(lake, NAME)


def test_no_secret_is_kept_in_properties(lake: Lake) -> None:
    secret = {"s3.secret-access-key": "xyzzy"}
    make_table(lake, NAME)
    for attempt in (
        lambda: make_table(lake, "sales.more", properties=secret),
        lambda: lake.set_properties(NAME, secret),
        lambda: lake.create_namespace("other", secret),
    ):
        with pytest.raises(InvalidInput) as refused:
            attempt()
        assert "xyzzy" not in str(refused.value)
