"""The swap of a compaction: rows, counters, footers, conflicts, and the snapshots that follow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from pyiceberg.table import StaticTable

from lakeward import Lake
from lakeward.errors import DataLoss, IntentLost, LeaseLost, PartitionMetadataNotFound
from lakeward.registry import intents, leases
from lakeward.tables import compaction, footers, retirement
from lakeward.tables.records.files import COMPACTED
from tests.support.compacting import rewritten, swapped
from tests.support.lakes import ROWS, assert_nothing_left_over, make_table, open_lake
from tests.support.registries import assert_exact

pytestmark = pytest.mark.on("sqlite")

NAME = "sales.orders"


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path) as opened:
        yield opened


def fill(lake: Lake, times: int = 3, **options: object) -> None:
    make_table(lake, NAME, **options)
    for _ in range(times):
        lake.append(NAME, ROWS)


def ids(lake: Lake) -> list[int]:
    return sorted(lake.scan(NAME).read_all()["id"].to_pylist())


def seen_by_iceberg(lake: Lake) -> list[int]:
    table = StaticTable.from_metadata(lake.table(NAME).metadata_location or "")
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def operations(lake: Lake) -> list[str]:
    return [snapshot.operation for snapshot in lake.snapshots(NAME)]


@pytest.mark.parametrize("is_flushed", [True, False])
def test_a_swap_keeps_the_rows_and_the_counters_and_moves_the_footers(lake: Lake, is_flushed: bool) -> None:
    fill(lake, partition_by=["name"])
    if is_flushed:
        lake.flush(NAME)
    before, old = ids(lake), lake.files(NAME)
    swapped(lake, NAME)
    assert ids(lake) == before
    assert [file.row_count for file in lake.files(NAME)] == [6, 6, 6]
    assert_exact(lake.registry, lake.table(NAME))
    for file in lake.files(NAME):
        assert footers.load_partition_metadata(lake.registry, file.file_path).num_rows == 6
    lake.flush(NAME)
    assert seen_by_iceberg(lake) == before
    assert_nothing_left_over(lake, NAME)
    lake.clean()
    if not is_flushed:  # no snapshot reaches the old ones
        with pytest.raises(PartitionMetadataNotFound):
            footers.load_partition_metadata(lake.registry, old[0].file_path)
    assert ids(lake) == before
    assert_nothing_left_over(lake, NAME)


def test_pending_files_are_swapped_before_any_snapshot_holds_them(lake: Lake) -> None:
    fill(lake)
    swapped(lake, NAME)
    lake.flush(NAME)
    (snapshot,) = lake.snapshots(NAME)
    assert (snapshot.operation, snapshot.summary["added-data-files"]) == ("append", "1")


def test_what_compaction_swapped_is_a_replace_snapshot_of_its_own_after_what_was_appended(lake: Lake) -> None:
    fill(lake)
    lake.flush(NAME)
    swapped(lake, NAME)
    lake.append(NAME, [{"id": 100, "name": "new"}])
    result = lake.flush(NAME)
    assert operations(lake) == ["append", "append", "replace"]
    appended, replaced = lake.snapshots(NAME)[1:]
    assert (appended.summary["added-data-files"], appended.summary["total-data-files"]) == ("1", "4")
    assert (replaced.summary["added-data-files"], replaced.summary["deleted-data-files"]) == ("1", "3")
    assert replaced.summary["total-records"] == str(len(ids(lake))) == "19"
    assert (result.files, result.removed, result.snapshot_id) == (2, 3, replaced.snapshot_id)
    assert seen_by_iceberg(lake) == ids(lake)
    assert_nothing_left_over(lake, NAME)


def test_pending_files_that_a_flush_commits_during_the_rewrite_are_swapped_all_the_same(lake: Lake) -> None:
    fill(lake)
    old = lake.files(NAME)
    table, intent, made = rewritten(lake, NAME, old)
    lake.flush(NAME)
    compaction.swap(lake.registry, table, intent, old, made)
    lake.flush(NAME)
    assert operations(lake) == ["append", "replace"]
    assert seen_by_iceberg(lake) == ids(lake) == sorted([row["id"] for row in ROWS] * 3)


def test_in_format_version_3_a_flush_during_the_rewrite_is_a_conflict_since_it_gave_the_rows_ids(lake: Lake) -> None:
    fill(lake, format_version=3)
    old = lake.files(NAME)
    table, intent, made = rewritten(lake, NAME, old)
    lake.flush(NAME)
    with pytest.raises(intents.Overtaken):
        compaction.swap(lake.registry, table, intent, old, made)
    intents.give_up(lake.registry, intent)
    assert [file.file_id for file in lake.files(NAME)] == [file.file_id for file in old]
    assert_nothing_left_over(lake, NAME)


def test_a_file_that_left_meanwhile_makes_the_swap_change_nothing(lake: Lake) -> None:
    fill(lake, partition_by=["name"])
    old = lake.files(NAME)
    table, intent, made = rewritten(lake, NAME, old)
    lake.retire_partitions(NAME, [{"name": "n0"}])
    kept = ids(lake)
    with pytest.raises(intents.Overtaken):
        compaction.swap(lake.registry, table, intent, old, made)
    intents.give_up(lake.registry, intent)
    assert ids(lake) == kept
    assert_exact(lake.registry, lake.table(NAME))
    assert_nothing_left_over(lake, NAME)


def test_a_compaction_that_recovery_has_taken_changes_nothing(lake: Lake) -> None:
    fill(lake)
    old = lake.files(NAME)
    table, intent, made = rewritten(lake, NAME, old)
    intents.abort(lake.registry, intent)
    with pytest.raises(IntentLost):
        compaction.swap(lake.registry, table, intent, old, made)
    assert [file.file_id for file in lake.files(NAME)] == [file.file_id for file in old]


def test_a_compactor_whose_lease_another_has_taken_changes_nothing(lake: Lake) -> None:
    fill(lake)
    old = lake.files(NAME)
    table, intent, made = rewritten(lake, NAME, old)
    lease = leases.acquire(lake.registry, "compact", seconds=30)
    leases.release(lake.registry, lease)
    leases.acquire(lake.registry, "compact", seconds=30)
    with pytest.raises(LeaseLost):
        compaction.swap(lake.registry, table, intent, old, made, lease=lease)
    assert [file.file_id for file in lake.files(NAME)] == [file.file_id for file in old]


def test_files_with_fewer_rows_than_they_replace_are_refused(lake: Lake) -> None:
    fill(lake)
    old = lake.files(NAME)
    table, intent, made = rewritten(lake, NAME, old)
    short = [msgspec.structs.replace(made[0], row_count=made[0].row_count - 1)]
    with pytest.raises(DataLoss, match="1 rows fewer"):
        compaction.swap(lake.registry, table, intent, old, short)
    intents.give_up(lake.registry, intent)
    assert_nothing_left_over(lake, NAME)


def test_rows_that_would_change_their_partition_are_refused(lake: Lake) -> None:
    fill(lake, partition_by=["name"])
    old = lake.files(NAME)
    table, intent, made = rewritten(lake, NAME, old)
    moved = [*made[:-1], msgspec.structs.replace(made[-1], partition={1000: "elsewhere"})]
    with pytest.raises(DataLoss, match="partition"):
        compaction.swap(lake.registry, table, intent, old, moved)


def test_a_partition_grows_no_younger_by_compaction(lake: Lake) -> None:
    fill(lake)
    newest = max(file.registered_at for file in lake.files(NAME))
    swapped(lake, NAME)
    assert [file.registered_at for file in lake.files(NAME)] == [newest]


def test_what_was_compacted_and_then_retired_before_a_flush_is_no_replace(lake: Lake) -> None:
    fill(lake, partition_by=["name"])
    lake.flush(NAME)
    swapped(lake, NAME)
    lake.retire_partitions(NAME, [{"name": "n0"}])
    lake.flush(NAME)
    assert operations(lake) == ["append", "overwrite"]
    assert seen_by_iceberg(lake) == ids(lake)
    assert len(ids(lake)) == 12
    assert_nothing_left_over(lake, NAME)


def test_small_files_are_found_by_partition_and_those_that_compaction_just_made_are_left_out(lake: Lake) -> None:
    fill(lake, partition_by=["name"])
    lake.flush(NAME)
    found = compaction.candidates(lake.registry, lake.table(NAME), 1 << 20)
    assert sorted((each.partition_path, len(each.files), each.file_count) for each in found) == [
        ("name=n0", 3, 3),
        ("name=n1", 3, 3),
        ("name=n2", 3, 3),
    ]
    key = (0, '{"1000":"n1"}')
    (only,) = compaction.candidates(lake.registry, lake.table(NAME), 1 << 20, {key})
    assert (only.spec_id, only.partition_key) == key
    swapped(lake, NAME, only.files)
    lake.append(NAME, [{"id": 1, "name": "n1"}])
    (one,) = compaction.candidates(lake.registry, lake.table(NAME), 1 << 20, {key})
    assert [file.row_count for file in one.files] == [1]
    lake.flush(NAME)
    (both,) = compaction.candidates(lake.registry, lake.table(NAME), 1 << 20, {key})
    assert [file.row_count for file in both.files] == [6, 1]
    assert compaction.candidates(lake.registry, lake.table(NAME), 1, {key}) == []


def test_retired_files_say_what_they_were_compacted_by(lake: Lake) -> None:
    fill(lake)
    intent_id = swapped(lake, NAME)
    with lake.registry.database.read() as connection:
        rows = connection.exec_driver_sql("SELECT DISTINCT reason FROM retired_files").scalars().all()
    assert rows == [COMPACTED + intent_id]
    assert retirement.end_quarantine(lake.registry).files == 3
