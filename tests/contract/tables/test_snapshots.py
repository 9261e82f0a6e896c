"""The flush's commit: what it waits for, what it refuses, and what it leaves to others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from lakeward import Lake
from lakeward.db import dialect
from lakeward.iceberg import metadata
from lakeward.registry import intents, leases
from lakeward.registry.sql import intents as intent_store
from lakeward.snapshots import snapshot_commit
from lakeward.tables import retirement, snapshots
from lakeward.tables.records.files import Intent
from lakeward.tables.records.properties import METADATA_COMPRESSION, PARQUET_COMPRESSION
from lakeward.tables.records.tables import Table
from lakeward.tables.snapshots import Conflict, hold_name
from lakeward.tables.sql import retired
from tests.support import duck
from tests.support.lakes import ROWS, assert_nothing_left_over, make_table, objects, open_lake

NAME = "sales.orders"


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path) as opened:
        yield opened


def half_flushed(lake: Lake, table: Table) -> tuple[snapshots.Pending, snapshots.Made, Intent]:
    """A flush whose objects are written, and that is not committed."""
    state = snapshots.pending(lake.registry, table.table_id)
    intent = intents.open_intent(lake.registry, table, "flush")
    return state, snapshot_commit.build(lake.registry, state, intent), intent


def test_a_hold_taken_while_a_flush_was_made_stops_its_commit(lake: Lake) -> None:
    table = make_table(lake, NAME)
    lake.append(NAME, ROWS)
    state, made, intent = half_flushed(lake, table)
    with leases.held(lake.registry, hold_name(table), seconds=30), pytest.raises(Conflict):
        snapshots.commit(lake.registry, state.table, intent, made, "manual")
    assert lake.snapshots(NAME) == []
    snapshots.commit(lake.registry, state.table, intent, made, "manual")
    assert len(lake.snapshots(NAME)) == 1


def test_a_hold_does_not_keep_a_change_of_the_schema_from_being_served(lake: Lake) -> None:
    table = make_table(lake, NAME)
    lake.append(NAME, ROWS)
    with leases.held(lake.registry, hold_name(table), seconds=30):
        lake.add_column(NAME, "extra", "int")
        flushed = snapshot_commit.flush(lake.registry, table.table_id, files=False)
    assert flushed.snapshot_id is None
    assert lake.table(NAME).iceberg_version == lake.table(NAME).version == 2
    assert snapshots.count_pending(lake.registry, table) == 1


def test_a_file_that_leaves_while_a_flush_was_made_stops_its_commit_and_nothing_is_lost(lake: Lake) -> None:
    table = make_table(lake, NAME, partition_by=["name"])
    lake.append(NAME, ROWS)
    state, made, intent = half_flushed(lake, table)
    lake.retire_partitions(NAME, [{"name": "n1"}])
    with pytest.raises(Conflict):
        snapshots.commit(lake.registry, state.table, intent, made, "manual")
    intents.abort(lake.registry, intent)
    assert lake.flush(NAME).files == 2
    lake.clean()
    assert_nothing_left_over(lake, NAME)


def test_of_two_flushes_of_the_same_files_the_second_commits_nothing(lake: Lake) -> None:
    table = make_table(lake, NAME)
    lake.append(NAME, ROWS)
    first, second = half_flushed(lake, table), half_flushed(lake, table)
    snapshots.commit(lake.registry, first[0].table, first[2], first[1], "manual")
    with pytest.raises(Conflict):
        snapshots.commit(lake.registry, second[0].table, second[2], second[1], "manual")
    intents.abort(lake.registry, second[2])
    assert [s.snapshot_id for s in lake.snapshots(NAME)] == [lake.table(NAME).current_snapshot_id]
    assert_nothing_left_over(lake, NAME)


def test_a_flush_that_recovery_has_taken_for_dead_commits_nothing(lake: Lake) -> None:
    table = make_table(lake, NAME)
    lake.append(NAME, ROWS)
    state, made, intent = half_flushed(lake, table)
    with lake.registry.database.transaction() as connection:
        now = dialect.now(connection)
        assert intent_store.mark_recovered(connection, intent.intent_id, now, now)
    with pytest.raises(Conflict):
        snapshots.commit(lake.registry, state.table, intent, made, "manual")
    assert lake.table(NAME).metadata_location is None


def test_giving_up_waits_for_a_commit_that_is_under_way_and_then_leaves_its_objects(lake: Lake) -> None:
    """The answer of a commit was lost: the caller gives up while the database still commits."""
    table = make_table(lake, NAME)
    lake.append(NAME, ROWS)
    _, _, intent = half_flushed(lake, table)
    taken, go_on = threading.Event(), threading.Event()

    def commit() -> None:
        with lake.registry.database.transaction() as connection:
            assert intent_store.take(connection, intent.intent_id)
            taken.set()
            go_on.wait(30)

    committing = threading.Thread(target=commit)
    committing.start()
    assert taken.wait(30)
    giving_up = threading.Thread(target=intents.abort, args=(lake.registry, intent))
    giving_up.start()
    giving_up.join(0.5)
    assert giving_up.is_alive()
    go_on.set()
    committing.join()
    giving_up.join()
    assert any(location.startswith(intent.prefix) for location in objects(lake, table))


def test_a_caller_that_waited_is_served_the_winners_metadata_though_more_is_pending_since(lake: Lake) -> None:
    table = make_table(lake, NAME)
    lake.append(NAME, ROWS)
    waiting = threading.Event()
    served: list[snapshot_commit.FlushResult] = []

    def query() -> None:
        waiting.set()
        served.append(snapshot_commit.flush(lake.registry, table.table_id, "query"))

    with snapshot_commit.metadata_lock(lake.registry, table.table_id):  # as a flush in another thread holds it
        thread = threading.Thread(target=query)
        thread.start()
        assert waiting.wait(30)
        thread.join(0.5)  # it has seen what is pending, and waits
        state, made, intent = half_flushed(lake, table)
        snapshots.commit(lake.registry, state.table, intent, made, "manual")
        lake.append(NAME, ROWS)
    thread.join()
    assert served[0].snapshot_id is None
    assert served[0].metadata_location == made.metadata_location
    assert snapshots.count_pending(lake.registry, table) == 1


def test_the_log_gives_each_metadata_file_its_own_time(lake: Lake) -> None:
    table = make_table(lake, NAME)
    engine = lake.registry.engine(table.location)
    seen = []
    for _ in range(3):
        lake.append(NAME, ROWS)
        location = lake.flush(NAME).metadata_location
        seen.append((location, metadata.decode(engine.read(location))))
    log = seen[-1][1]["metadata-log"]
    assert [(e["metadata-file"], e["timestamp-ms"]) for e in log] == [
        (location, document["last-updated-ms"]) for location, document in seen[:-1]
    ]


def test_a_tables_compression_is_told_to_engines_unless_its_properties_name_one(lake: Lake) -> None:
    for name, options, expected in (
        ("s.a", {"compression": "none"}, "uncompressed"),
        ("s.b", {"compression": "snappy"}, "snappy"),
        ("s.c", {"properties": {PARQUET_COMPRESSION.name: "gzip"}}, "gzip"),
    ):
        table = make_table(lake, name, **options)
        document = metadata.decode(lake.registry.engine(table.location).read(lake.flush(name).metadata_location))
        assert document["properties"][PARQUET_COMPRESSION.name] == expected


def test_metadata_files_are_compressed_and_named_so_unless_the_table_says_otherwise(lake: Lake) -> None:
    for name, properties, is_compressed in (
        ("s.a", {}, True),
        ("s.b", {METADATA_COMPRESSION.name: "gzip"}, True),
        ("s.c", {METADATA_COMPRESSION.name: "none"}, False),
    ):
        table = make_table(lake, name, properties=properties)
        lake.append(name, ROWS)
        location = lake.flush(name).metadata_location
        data = lake.registry.engine(table.location).read(location)
        assert location.endswith(".gz.metadata.json") == data.startswith(b"\x1f\x8b") == is_compressed
        assert StaticTable.from_metadata(location).scan().to_arrow().num_rows == len(ROWS)
        with duck.connect() as connection:
            found = connection.execute(f"select count(*) from iceberg_scan('{location}')").fetchone()
            assert found == (len(ROWS),)


def test_superseded_metadata_of_a_busy_table_waits_for_minutes_and_that_of_a_quiet_one_for_its_time(
    made_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"metadata_quarantine_seconds": 86_400, "metadata_quarantine_objects": 3}
    with open_lake(made_url, tmp_path, keep_metadata_files=1, keep_snapshots=2, **settings) as lake:
        busy, quiet = make_table(lake, NAME), make_table(lake, "sales.quiet")
        for table, commits in ((busy, 8), (quiet, 3)):
            for _ in range(commits):
                lake.append(table.identifier, ROWS)
                lake.flush(table.identifier)
        before = {table.table_id: objects(lake, table) for table in (busy, quiet)}
        assert retirement.end_metadata_quarantine(lake.registry).files == 0  # none is ten minutes old
        monkeypatch.setattr(retirement, "HASTENED_AFTER_SECONDS", 0)
        ended = retirement.end_metadata_quarantine(lake.registry)
        assert ended.files > 0
        assert len(before[busy.table_id]) - len(objects(lake, busy)) == ended.files
        assert objects(lake, quiet) == before[quiet.table_id]
        with lake.registry.database.read() as connection:
            assert len(retired.of_table(connection, busy.table_id)) == 3
        for table in (busy, quiet):
            assert_nothing_left_over(lake, table.identifier)
        assert StaticTable.from_metadata(lake.table(NAME).metadata_location or "").scan().to_arrow().num_rows == 48
