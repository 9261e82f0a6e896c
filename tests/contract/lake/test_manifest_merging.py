"""Merging manifests in a lakehouse: nobody reads another row, nothing is left over, and ingest never loses to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable

from lakeward import Lake
from lakeward.errors import InvalidInput, LeaseHeld
from lakeward.iceberg import metadata, snapshot_writer
from lakeward.registry import intents, leases
from lakeward.snapshots import manifest_merging, snapshot_commit
from lakeward.tables import snapshots
from lakeward.tables.records.tables import Table
from tests.support import duck
from tests.support.lakes import assert_nothing_left_over, make_table, objects, open_lake

pytestmark = pytest.mark.on("sqlite")

NAME = "sales.orders"
FEW = {"commit.manifest.min-count-to-merge": "3"}


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path) as opened:
        yield opened


def make(lake: Lake, **options: Any) -> Table:
    return make_table(lake, NAME, **{"partition_by": ["name"], "properties": FEW, **options})


def append(lake: Lake, *ids: int) -> None:
    lake.append(NAME, [{"id": i, "name": f"n{i % 3}"} for i in ids])
    lake.flush(NAME)


def read(lake: Lake) -> StaticTable:
    location = lake.table(NAME).metadata_location
    assert location is not None
    return StaticTable.from_metadata(location)


def manifests(lake: Lake) -> int:
    table = read(lake)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return len(snapshot.manifests(table.io))


def ids(lake: Lake) -> list[int]:
    """What PyIceberg, DuckDB and the scan of the registry agree on."""
    iceberg = sorted(read(lake).scan().to_arrow()["id"].to_pylist())
    with duck.connect() as connection:
        location = lake.table(NAME).metadata_location
        found = connection.execute(f"select id from iceberg_scan('{location}') order by id").fetchall()
    assert iceberg == [i for (i,) in found] == sorted(lake.scan(NAME).read_all()["id"].to_pylist())
    return iceberg


@pytest.mark.parametrize("version", [2, 3])
def test_many_manifests_become_one_and_every_reader_sees_the_same_rows(lake: Lake, version: int) -> None:
    table = make(lake, format_version=version)
    for n in range(0, 12, 3):
        append(lake, n, n + 1, n + 2)
    lake.retire_partitions(NAME, [{"name": "n1"}])
    lake.flush(NAME)
    before = ids(lake)
    files = {file.file_path: (file.snapshot_id, file.sequence_number, file.first_row_id) for file in lake.files(NAME)}
    merged = manifest_merging.merge_manifests(lake.registry, table.table_id)
    assert (merged.replaced, merged.created, merged.entries, merged.conflicts) == (4, 1, 8, 0)
    assert manifests(lake) == 1
    assert ids(lake) == before == [0, 2, 3, 5, 6, 8, 9, 11]
    assert {f.file_path: (f.snapshot_id, f.sequence_number, f.first_row_id) for f in lake.files(NAME)} == files
    newest = lake.snapshots(NAME)[-1]
    assert (newest.operation, newest.trigger, newest.snapshot_id) == ("replace", "size", merged.snapshot_id)
    assert newest.summary["total-records"] == "8"
    assert lake.table(NAME).current_snapshot_id == merged.snapshot_id
    assert_nothing_left_over(lake, NAME)
    append(lake, 12)
    assert ids(lake) == [*before, 12]


def test_too_few_manifests_are_left_alone(lake: Lake) -> None:
    table = make(lake)
    assert manifest_merging.merge_manifests(lake.registry, table.table_id).snapshot_id is None
    append(lake, 1)
    append(lake, 2)
    location = lake.table(NAME).metadata_location
    assert manifest_merging.merge_manifests(lake.registry, table.table_id).snapshot_id is None
    assert lake.table(NAME).metadata_location == location
    assert_nothing_left_over(lake, NAME)


def test_the_tables_properties_say_whether_and_when(lake: Lake) -> None:
    table = make(lake, properties={})
    for n in range(3):
        append(lake, n)
    assert manifest_merging.merge_manifests(lake.registry, table.table_id).snapshot_id is None
    lake.set_properties(NAME, {**FEW, "commit.manifest-merge.enabled": "false"})
    lake.flush(NAME)
    assert manifest_merging.merge_manifests(lake.registry, table.table_id).snapshot_id is None
    with pytest.raises(InvalidInput, match="'three'"):
        lake.set_properties(NAME, {"commit.manifest.min-count-to-merge": "three"})
    with pytest.raises(InvalidInput, match="'0'"):
        make_table(lake, "sales.other", properties={"commit.manifest.target-size-bytes": "0"})
    lake.set_properties(NAME, {"commit.manifest-merge.enabled": None})
    lake.flush(NAME)
    assert manifest_merging.merge_manifests(lake.registry, table.table_id).replaced == 3


def test_superseded_manifests_wait_in_quarantine_until_no_retained_snapshot_lists_them(
    made_url: str, tmp_path: Path
) -> None:
    with open_lake(made_url, tmp_path, keep_snapshots=3, keep_metadata_files=1) as lake:
        table = make(lake)
        for n in range(3):
            append(lake, n)
        past = read(lake).current_snapshot()
        assert past is not None
        manifest_merging.merge_manifests(lake.registry, table.table_id)
        lake.clean()
        assert read(lake).scan(snapshot_id=past.snapshot_id).to_arrow()["id"].to_pylist() == [2, 1, 0]
        for n in range(3, 6):
            append(lake, n)
        assert past.snapshot_id not in {s.snapshot_id for s in lake.snapshots(NAME)}
        lake.clean()
        assert ids(lake) == list(range(6))
        kept = {path for path in objects(lake, table) if "-m" in path and "/metadata/" in path}
        assert len(kept) == 4, "the merged one and those of three flushes; the three that were merged are gone"
        assert_nothing_left_over(lake, NAME)


def test_a_table_goes_back_before_a_merge_and_on_from_there(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, keep_snapshots=4) as lake:
        table = make(lake)
        for n in range(3):
            append(lake, n)
        past = lake.snapshots(NAME)[-1].snapshot_id
        lake.merge_manifests(NAME)
        append(lake, 3)
        lake.rollback(NAME, past)
        assert ids(lake) == [0, 1, 2]
        lake.clean()
        append(lake, 4)
        assert ids(lake) == [0, 1, 2, 4]
        assert lake.merge_manifests(NAME).replaced == 4
        for n in range(5, 10):  # all that is before the second merge leaves the metadata
            append(lake, n)
        lake.clean()
        assert ids(lake) == [0, 1, 2, *range(4, 10)]
        assert_nothing_left_over(lake, NAME)
        kept = {path for path in objects(lake, table) if "-m" in path and "/metadata/" in path}
        assert len(kept) == manifests(lake)


def test_a_tag_keeps_the_manifests_that_were_merged(lake: Lake) -> None:
    table = make(lake)
    for n in range(3):
        append(lake, n)
    tagged = lake.snapshots(NAME)[-1].snapshot_id
    lake.create_tag(NAME, "before", tagged)
    lake.merge_manifests(NAME)
    append(lake, 3)
    lake.expire_snapshots(NAME, older_than=timedelta(0))
    lake.clean()
    assert ids(lake) == [0, 1, 2, 3]
    assert sorted(read(lake).scan(snapshot_id=tagged).to_arrow()["id"].to_pylist()) == [0, 1, 2]
    assert table.table_id == lake.table(NAME).table_id


def test_commits_that_come_between_do_not_cost_the_merged_manifests(lake: Lake) -> None:
    table = make(lake)
    for n in range(3):
        append(lake, n)
    registry = lake.registry
    engine = registry.engine(table.location)
    document = metadata.decode(engine.read(lake.table(NAME).metadata_location or ""))
    rows = manifest_merging.listed(document, engine.read)
    intent = intents.open_intent(registry, table, "flush")
    merged = manifest_merging.write_merged(engine, document, [rows], intent, snapshot_writer.fresh_id(document))
    append(lake, 3)
    lake.add_column(NAME, "extra", "string")
    with leases.held(registry, "merge", seconds=60) as lease:
        made = manifest_merging.commit(registry, table, intent, merged, 77, lease)
    assert made is not None
    assert manifests(lake) == 2
    assert ids(lake) == [0, 1, 2, 3]
    assert "extra" in read(lake).schema().column_names
    assert lake.table(NAME).iceberg_version == 2
    assert_nothing_left_over(lake, NAME)


def test_a_merge_is_given_up_and_leaves_nothing_when_one_of_its_files_has_left(lake: Lake) -> None:
    table = make(lake)
    for n in range(3):
        append(lake, n)
    registry = lake.registry
    engine = registry.engine(table.location)
    document = metadata.decode(engine.read(lake.table(NAME).metadata_location or ""))
    intent = intents.open_intent(registry, table, "flush")
    rows = manifest_merging.listed(document, engine.read)
    merged = manifest_merging.write_merged(engine, document, [rows], intent, 77)
    lake.retire_partitions(NAME, [{"name": "n0"}])
    lake.flush(NAME)
    with leases.held(registry, "merge", seconds=60) as lease:
        assert manifest_merging.commit(registry, table, intent, merged, 77, lease) is None
    intents.give_up(registry, intent)
    assert ids(lake) == [1, 2]
    assert_nothing_left_over(lake, NAME)


def test_a_lost_race_leaves_no_object_and_the_next_try_wins(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(lake)
    for n in range(3):
        append(lake, n)
    real, tries = snapshots.commit, [0]

    def quicker(registry: Any, table: Any, intent: Any, *rest: Any, **named: Any) -> None:
        """Another process flushes between the merge's look at the table and its commit."""
        tries[0] += 1
        if tries[0] == 1:
            lake.append(NAME, [{"id": 3, "name": "n0"}])
            state = snapshots.pending(registry, table.table_id)
            other = intents.open_intent(registry, table, "flush")
            real(registry, state.table, other, snapshot_commit.build(registry, state, other), "query")
        real(registry, table, intent, *rest, **named)

    monkeypatch.setattr(snapshots, "commit", quicker)
    merged = manifest_merging.merge_manifests(lake.registry, table.table_id)
    assert (merged.conflicts, merged.replaced) == (1, 3)
    assert ids(lake) == [0, 1, 2, 3]
    assert_nothing_left_over(lake, NAME)


def test_a_held_table_is_not_merged(lake: Lake) -> None:
    table = make(lake)
    for n in range(3):
        append(lake, n)
    location = lake.table(NAME).metadata_location
    with lake.hold(NAME):
        merged = manifest_merging.merge_manifests(lake.registry, table.table_id)
    assert (merged.snapshot_id, merged.conflicts) == (None, 1)
    assert lake.table(NAME).metadata_location == location
    assert_nothing_left_over(lake, NAME)
    assert manifest_merging.merge_manifests(lake.registry, table.table_id).replaced == 3


def test_two_merges_of_a_table_are_not_made_at_once(lake: Lake) -> None:
    table = make(lake)
    for n in range(3):
        append(lake, n)
    with (
        leases.held(lake.registry, f"merge:{table.table_uuid}", seconds=60),
        pytest.raises(LeaseHeld),
    ):
        manifest_merging.merge_manifests(lake.registry, table.table_id)


def test_while_writers_go_on_merges_lose_no_row_and_fail_no_write(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, durable=False) as lake:
        table = make(lake)
        errors: list[BaseException] = []
        done = threading.Event()

        def write(start: int) -> None:
            try:
                for n in range(start, start + 15):
                    append(lake, n)
            except BaseException as error:
                errors.append(error)

        def merge() -> None:
            try:
                while not done.is_set():
                    manifest_merging.merge_manifests(lake.registry, table.table_id)
            except BaseException as error:
                errors.append(error)

        writers = [threading.Thread(target=write, args=(start,)) for start in (0, 100)]
        merger = threading.Thread(target=merge)
        for thread in (*writers, merger):
            thread.start()
        for thread in writers:
            thread.join()
        done.set()
        merger.join()
        assert errors == []
        assert ids(lake) == [*range(15), *range(100, 115)]
        assert any(snapshot.operation == "replace" for snapshot in lake.snapshots(NAME))
        manifest_merging.merge_manifests(lake.registry, table.table_id)
        assert manifests(lake) < 15
        assert lake.table(NAME).row_count == 30
        assert_nothing_left_over(lake, NAME)
