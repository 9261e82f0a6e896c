"""What engines left below a table's folder goes, and nothing that anything names."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward import Lake
from lakeward.maintenance import strays
from lakeward.storage.locations import local_path
from lakeward.tables.records.tables import Table
from tests.support.lakes import ROWS, assert_nothing_left_over, make_table, objects, open_lake

NAME = "sales.orders"


@pytest.fixture
def lake(registry_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(registry_url, tmp_path) as opened:
        yield opened


def a_table(lake: Lake) -> Table:
    """With snapshots, of which one reaches a file that has left, and with a pending file; all older than a week."""
    table = make_table(lake, NAME, partition_by=["name"])
    lake.append(NAME, ROWS)
    lake.flush(NAME)
    lake.retire_partitions(NAME, [{"name": "n0"}])
    lake.flush(NAME)
    lake.append(NAME, ROWS)
    make_old(Path(local_path(table.location)))
    return table


def make_old(folder: Path) -> None:
    before = time.time() - strays.STRAY_SECONDS - 60
    for path in folder.rglob("*"):
        os.utime(path, (before, before))


def put(table: Table, *names: str) -> list[str]:
    """Objects below a table's folder that nothing names."""
    made = [Path(local_path(table.location)) / name for name in names]
    for path in made:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"PAR1")
    return [f"file://{path}" for path in made]


LEFT = (
    "data/00000-1-abc.parquet",
    "data/name=n1/00001-2-abc.parquet",
    "metadata/abc-m0.avro",
    "metadata/snap-1-abc.avro",
)


def test_what_an_engine_left_a_week_ago_goes_and_nothing_else(lake: Lake) -> None:
    table = a_table(lake)
    named = objects(lake, table)
    put(table, *LEFT)
    make_old(Path(local_path(table.location)))
    fresh = put(table, "data/00000-2-def.parquet")
    assert lake.clean(dry_run=True).strays == len(LEFT)
    result = lake.clean()
    assert (result.strays, result.failed) == (len(LEFT), [])
    left = objects(lake, table)
    assert not left - named - set(fresh)
    assert set(fresh) <= left
    assert lake.scan(NAME).read_all().num_rows == 10
    lake.flush(NAME)
    assert [finding.what for finding in lake.audit(NAME).findings] == fresh
    assert lake.clean().strays == 0


def test_a_stray_waits_in_quarantine(registry_url: str, tmp_path: Path) -> None:
    with open_lake(registry_url, tmp_path, quarantine_seconds=3600) as lake:
        table = a_table(lake)
        left = put(table, *LEFT)
        make_old(Path(local_path(table.location)))
        assert lake.clean().strays == len(LEFT)
        assert set(left) <= objects(lake, table)
        assert lake.clean().strays == 0
        assert_nothing_left_over(lake, NAME)


def test_what_a_retained_snapshot_reaches_stays_though_the_registry_has_lost_it(lake: Lake) -> None:
    table = a_table(lake)
    named = objects(lake, table)
    with lake.registry.database.transaction() as connection:
        connection.exec_driver_sql("DELETE FROM retired_files")
    assert strays.find(lake.registry).objects == 0
    assert named == objects(lake, table)


def test_the_folder_of_a_write_is_left_to_recovery(lake: Lake) -> None:
    """After a registry was restored from a copy, these are rows that somebody may want back."""
    table = a_table(lake)
    put(table, "data/1f0c9a2e-0000-4000-8000-000000000000/00000.parquet")
    make_old(Path(local_path(table.location)))
    assert strays.quarantine(lake.registry).objects == 0


def test_a_table_whose_metadata_cannot_be_read_loses_nothing(lake: Lake) -> None:
    table = a_table(lake)
    (snapshot, *_) = lake.snapshots(NAME)
    Path(local_path(snapshot.manifest_list)).write_bytes(b"no list")
    put(table, *LEFT)
    make_old(Path(local_path(table.location)))
    assert strays.quarantine(lake.registry) == strays.Strays()


def test_the_folders_of_dropped_tables_and_neighbours_are_not_looked_through(lake: Lake) -> None:
    table = a_table(lake)
    folder = Path(local_path(table.location))
    beside = folder.with_name(folder.name + "-copy") / "data" / "old.parquet"
    beside.parent.mkdir(parents=True)
    beside.write_bytes(b"PAR1")
    make_old(folder.parent)
    assert strays.quarantine(lake.registry).objects == 0
    put(table, *LEFT)
    make_old(folder)
    lake.drop_table(NAME)
    assert strays.quarantine(lake.registry).objects == 0
    assert beside.exists()
