"""Processes that append, flush, rename, drop and purge at once: nothing is lost, doubled, or taken from another."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from lakeward import Lake
from lakeward.errors import LakewardError, TableAlreadyExists, TableNotFound
from lakeward.registry import warehouse_marker
from tests.contract.db import processes
from tests.support.lakes import ROWS, assert_nothing_left_over, make_table, objects, open_lake
from tests.support.registries import assert_exact, changes, rows_of

SHARED = "sales.shared"
CONTESTED = "sales.contested"
OLD, KEPT = "sales.orders", "sales.kept"


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path, durable=False) as opened:
        yield opened


def warehouse_objects(folder: Path) -> set[str]:
    """Every object in the warehouse but the one, which must be there, that says whose it is."""
    found = {f"file://{path}" for path in (folder / "warehouse").rglob("*") if path.is_file()}
    mark = f"file://{folder / 'warehouse' / warehouse_marker.NAME}"
    assert mark in found
    return found - {mark}


def settle(lake: Lake) -> None:
    """Everything that is to be deleted is, after the sweep that follows a recovery."""
    for _ in range(3):
        lake.clean()
    assert rows_of(lake.registry, "pending_writes") == []
    assert rows_of(lake.registry, "retired_files") == []


def append_flush_and_drop(url: str, folder: Path, rounds: int) -> None:
    with open_lake(url, folder, durable=False) as lake:
        for _ in range(rounds):
            lake.append(SHARED, ROWS)
            with contextlib.suppress(TableAlreadyExists, TableNotFound):  # whichever step the other was quicker at
                make_table(lake, CONTESTED)
            with contextlib.suppress(TableNotFound):
                lake.append(CONTESTED, ROWS)
                lake.flush(CONTESTED)
            lake.flush(SHARED)
            with contextlib.suppress(TableNotFound):
                lake.drop_table(CONTESTED, purge=True)


def test_processes_that_append_flush_and_drop_at_once_lose_and_leave_nothing(
    lake: Lake, made_url: str, tmp_path: Path
) -> None:
    rounds = 12
    shared = make_table(lake, SHARED, partition_by=["name"])
    started = processes.start(append_flush_and_drop, [(made_url, tmp_path, rounds)] * 2)
    processes.expect_success(started)
    lake.flush(SHARED)
    expected = 2 * rounds * len(ROWS)
    found = StaticTable.from_metadata(lake.table(SHARED).metadata_location or "").scan().to_arrow()
    assert found.num_rows == lake.scan(SHARED).read_all().num_rows == lake.table(SHARED).row_count == expected
    assert_exact(lake.registry, lake.table(SHARED))
    with pytest.raises(TableNotFound):
        lake.table(CONTESTED)
    made = [row for row in changes(lake.registry) if (row["table_name"], row["operation"]) == ("tables", "INSERT")]
    assert len(made) >= 1 + rounds, "each round of a process drops the table that it began with"
    settle(lake)
    assert_nothing_left_over(lake, SHARED)
    assert [row["table_id"] for row in rows_of(lake.registry, "tables")] == [shared.table_id]
    assert warehouse_objects(tmp_path) == objects(lake, shared)  # of the dropped ones nothing is left


def append_to_kept(url: str, folder: Path, rounds: int) -> None:
    with open_lake(url, folder, durable=False) as lake:
        for _ in range(rounds):
            lake.append(KEPT, ROWS)
            lake.flush(KEPT)


def use_the_old_name(url: str, folder: Path, rounds: int) -> None:
    with open_lake(url, folder, durable=False) as lake:
        for _ in range(rounds):
            make_table(lake, OLD)
            lake.append(OLD, ROWS)
            lake.flush(OLD)
            lake.drop_table(OLD, purge=True)


def test_a_name_used_again_and_purged_takes_nothing_from_the_table_that_had_it(
    lake: Lake, made_url: str, tmp_path: Path
) -> None:
    table = make_table(lake, OLD)
    lake.append(OLD, ROWS)
    lake.flush(OLD)
    lake.rename_table(OLD, KEPT)
    rounds = 10
    started = processes.start(append_to_kept, [(made_url, tmp_path, rounds)])
    started += processes.start(use_the_old_name, [(made_url, tmp_path, rounds)])
    processes.expect_success(started)
    assert lake.table(KEPT).table_uuid == table.table_uuid
    expected = (rounds + 1) * len(ROWS)
    assert lake.table(KEPT).row_count == lake.scan(KEPT).read_all().num_rows == expected
    lake.flush(KEPT)
    found = StaticTable.from_metadata(lake.table(KEPT).metadata_location or "").scan().to_arrow()
    assert found.num_rows == expected
    settle(lake)
    assert_nothing_left_over(lake, KEPT)
    assert warehouse_objects(tmp_path) == objects(lake, table)


def rename_back_and_forth(url: str, folder: Path, rounds: int) -> None:
    with open_lake(url, folder, durable=False) as lake:
        for _ in range(rounds):
            with contextlib.suppress(TableNotFound):
                lake.rename_table(OLD, KEPT)
            with contextlib.suppress(TableNotFound):
                lake.rename_table(KEPT, OLD)


def append_under_either_name(url: str, folder: Path, batches: int) -> None:
    """Each batch until it is in the table; under which name, nobody can say beforehand."""
    with open_lake(url, folder, durable=False) as lake:
        for batch in range(batches):
            done = False
            while not done:
                for name in (OLD, KEPT):
                    with contextlib.suppress(TableNotFound):
                        lake.append(name, ROWS, batch=("s", str(batch), batch, batch + 1))
                        done = True
                        break


def test_a_table_that_is_renamed_all_the_time_gets_every_batch_once(lake: Lake, made_url: str, tmp_path: Path) -> None:
    make_table(lake, OLD)
    batches = 15
    started = processes.start(rename_back_and_forth, [(made_url, tmp_path, 40)])
    started += processes.start(append_under_either_name, [(made_url, tmp_path, batches)])
    processes.expect_success(started)
    (table,) = lake.tables()
    assert table.row_count == batches * len(ROWS)
    assert_exact(lake.registry, table)
    assert_nothing_left_over(lake, table.identifier)


def same_batches(url: str, folder: Path, batches: int) -> None:
    with open_lake(url, folder, durable=False) as lake:
        for batch in range(batches):
            lake.append(SHARED, ROWS, batch=("s", str(batch), batch, batch + 1))


def test_processes_that_apply_the_same_batches_apply_each_once(lake: Lake, made_url: str, tmp_path: Path) -> None:
    table = make_table(lake, SHARED, partition_by=["name"])
    batches = 15
    processes.expect_success(processes.start(same_batches, [(made_url, tmp_path, batches)] * 2))
    assert lake.table(SHARED).row_count == batches * len(ROWS)
    assert objects(lake, table) == {file.file_path for file in lake.files(SHARED)}
    assert rows_of(lake.registry, "pending_writes") == []
    assert_nothing_left_over(lake, SHARED)


def clean_all_the_time(url: str, folder: Path, rounds: int) -> None:
    with open_lake(url, folder, durable=False) as lake:
        for _ in range(rounds):
            result = lake.clean()
            if result.failed:
                raise LakewardError(f"not deleted: {result.failed}")


def test_a_clean_up_beside_living_writers_takes_nothing_of_theirs(lake: Lake, made_url: str, tmp_path: Path) -> None:
    make_table(lake, SHARED, partition_by=["name"])
    make_table(lake, KEPT)
    started = processes.start(append_flush_and_drop, [(made_url, tmp_path, 8)])
    started += processes.start(append_to_kept, [(made_url, tmp_path, 8)])
    started += processes.start(clean_all_the_time, [(made_url, tmp_path, 30)])
    processes.expect_success(started)
    for name in (SHARED, KEPT):
        assert lake.scan(name).read_all().num_rows == lake.table(name).row_count == 8 * len(ROWS)
        assert_nothing_left_over(lake, name)
