"""The feed as its readers meet it: positions, pages, values; what is trimmed; who is told to refresh."""

from __future__ import annotations

import json
import subprocess
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from lakeward.astha import events, feed, watcher
from lakeward.astha.feed import Place, Reader
from lakeward.astha.sql import changes as store_changes
from lakeward.astha.sql import cursors
from lakeward.astha.sql.changes import Change
from lakeward.cli import development
from lakeward.db import dialect, lock_order, schema
from lakeward.db.database import Database
from lakeward.errors import LeaseLost
from lakeward.maintenance import cleaner
from lakeward.registry import Registry, leases
from lakeward.registry.leases import Lease
from tests.contract.db import rows
from tests.support import postgres
from tests.support.asthas import flood, key_of, load_cursors, make_tables, registry_rows, touch
from tests.support.registries import changes, make_table, open_at, rows_of

TIME = rows.TIME


def count_parked(registry: Registry, astha: str) -> dict[str, int]:
    with registry.database.read() as connection:
        return cursors.count_parked(connection, astha)


def everything(reader: Reader, position: Place, count: int = 1000) -> tuple[Place, list[Change]]:
    found: list[Change] = []
    while True:
        page = reader.read(position, count)
        found += page.changes
        position = page.after
        if page.is_last:
            return position, found


@pytest.fixture
def reader(registry: Registry) -> Reader:
    return Reader(registry.database)


@pytest.fixture
def lease(registry: Registry) -> Lease:
    return leases.acquire(registry, "astha:lakeward", seconds=600)


# Positions and pages --------------------------------------------------------------------------------------------------
def test_from_the_head_there_is_nothing_until_something_is_committed(registry: Registry, reader: Reader) -> None:
    make_tables(registry)
    head = reader.head()
    page = reader.read(head, 10)
    assert (list(page.changes), page.is_last) == ([], True)
    touch(registry, 1)
    (change,) = everything(reader, head)[1]
    assert (change.table_name, change.operation, change.table_id) == ("table_stats", "UPDATE", 1)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 1000])
def test_pages_of_any_size_give_each_change_once_in_order(registry: Registry, reader: Reader, count: int) -> None:
    head = reader.head()
    make_tables(registry, 3)
    position, found = everything(reader, head, count)
    assert [change.sequence for change in found] == [row["sequence"] for row in changes(registry)]
    assert everything(reader, position)[1] == []


def test_one_can_stop_after_any_change_of_a_page_and_go_on_there(registry: Registry, reader: Reader) -> None:
    head = reader.head()
    make_tables(registry)
    page = reader.read(head, 4)
    for at, change in enumerate(page.changes):
        stopped = msgspec.structs.replace(page.within, sequence=change.sequence)
        rest = everything(reader, stopped)[1]
        assert [each.sequence for each in rest] == [row["sequence"] for row in changes(registry)][at + 1 :]


def test_a_position_outlives_being_stored(registry: Registry, reader: Reader, lease: Lease) -> None:
    head = reader.head()
    make_tables(registry)
    for position in (head, reader.read(head, 2).after):
        feed.save_cursors(registry, lease, "lakeward", {"compactor": (position, {"lag": 1})})
        (cursor,) = load_cursors(registry)
        assert (cursor.place, cursor.state, cursor.subscriber) == (position, {"lag": 1}, "compactor")
        assert everything(Reader(registry.database), position) == everything(reader, position)


def test_a_reader_knows_positions_of_its_own_registry_and_server_alone(reader: Reader) -> None:
    head = reader.head()
    assert reader.knows(head)
    assert not reader.knows(msgspec.structs.replace(head, registry="another"))
    assert not reader.knows(msgspec.structs.replace(head, server="another"))


# Values ---------------------------------------------------------------------------------------------------------------
BIG = 2**63 - 1
LATE = datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
ODD = "quote ' double \" percent % backslash \\ snow ☃ 🦆 tab \t end"


def test_events_come_back_equal_to_the_rows(registry: Registry, reader: Reader) -> None:
    """Booleans, NULLs, 64-bit numbers, times to the microsecond, documents, odd text: each row as its typed record."""
    make_tables(registry)
    head = reader.head()
    with registry.database.transaction() as connection:
        rows.insert(
            connection,
            "tables",
            table_id=9,
            table_uuid=ODD,
            name=ODD,
            location=ODD,
            row_count=BIG,
            last_modified=LATE,
        )
        rows.insert(connection, "table_metadata", table_id=9, metadata_version=BIG, properties={ODD: ODD, "": ""})
        for field, (required, doc) in enumerate([(True, None), (False, ""), (True, ODD)], 1):
            values = {"field_id": field, "required": required, "doc": doc, "type": {"a": [1, None, False, 1.5]}}
            rows.insert(connection, "table_columns", table_id=9, **values)
        for file_id, compressed in ((BIG, True), (BIG - 1, False)):
            file = {"file_id": file_id, "file_path": f"/{file_id}", "is_compressed": compressed, "checksum": None}
            rows.insert(connection, "table_files", table_id=9, snapshot_id=-(2**63), **file)
        rows.insert(connection, "table_stats", table_id=9, row_count=BIG, last_modified=LATE)
        rows.insert(connection, "table_snapshots", table_id=9, snapshot_id=BIG, expired_at=LATE)
    _, found = everything(reader, head)
    decoded = {key_of(c.table_name, e.data): e.data for c in found if (e := watcher.decode(c)) is not None}
    stored = {k: v for k, v in registry_rows(registry, events.WATCHED).items() if v.table_id == 9}
    assert decoded == stored and len(decoded) == 9


def test_each_operation_carries_its_row_and_its_time(registry: Registry, reader: Reader) -> None:
    """After an INSERT or UPDATE the new row, for a DELETE the old one; by the registry's clock."""
    make_tables(registry)
    head = reader.head()
    with registry.database.transaction() as connection:
        before = dialect.now(connection)
        rows.insert(connection, "table_columns", field_id=7, doc="first")
        connection.exec_driver_sql("UPDATE table_columns SET doc = 'second' WHERE field_id = 7")
        connection.exec_driver_sql("DELETE FROM table_columns WHERE field_id = 7")
        after = dialect.now(connection)
    found = [watcher.decode(change) for change in everything(reader, head)[1]]
    assert [(each.operation, each.data.doc) for each in found if each] == [
        ("INSERT", "first"),
        ("UPDATE", "second"),
        ("DELETE", "second"),
    ]
    floor = before.replace(microsecond=before.microsecond // 1000 * 1000)  # SQLite's own clock counts milliseconds
    assert all(floor <= each.timestamp <= after for each in found if each)


def test_unknown_columns_are_skipped_and_what_cannot_be_read_is_none() -> None:
    whole = {name: rows.VALID["table_columns"].get(name) for name in events.TableColumn.__struct_fields__}

    def change(**data: Any) -> Change:
        return Change(1, "table_columns", "INSERT", 1, msgspec.json.encode({**whole, **data}).decode(), TIME)

    newer = watcher.decode(change(newer={"a": [1]}))
    assert newer is not None and newer.data == msgspec.convert(whole, events.TableColumn)
    assert watcher.decode(change(required="perhaps")) is None
    assert watcher.decode(change()._replace(data="{}")) is None
    assert watcher.decode(change()._replace(table_name="table_of_a_newer_version")) is None


# Order on PostgreSQL --------------------------------------------------------------------------------------------------
@pytest.mark.on("postgresql")  # on SQLite writers come one after the other
def test_a_transaction_that_drew_its_numbers_early_and_commits_late_is_not_passed_over(
    registry: Registry, reader: Reader
) -> None:
    """On PostgreSQL its xid and its sequence numbers are lower than those of transactions that were read long before."""
    make_tables(registry, 3)
    position = reader.head()
    with registry.database.transaction() as late:
        lock_order.tables(late, [1])
        late.exec_driver_sql("UPDATE table_stats SET row_count = 1 WHERE table_id = 1")
        with late.begin_nested() as undone:
            late.exec_driver_sql("UPDATE table_stats SET row_count = 2 WHERE table_id = 1")
            undone.rollback()
        seen: list[int] = []
        for _ in range(3):
            touch(registry, 2)
            position, found = everything(reader, position)
            seen += [change.table_id for change in found]
        with late.begin_nested():
            late.exec_driver_sql("UPDATE table_stats SET row_count = 3 WHERE table_id = 1")
        touch(registry, 3)
        position, found = everything(reader, position)
        assert [*seen, *(change.table_id for change in found)] == [2, 2, 2, 3]
    position, found = everything(reader, position, 1)
    assert [msgspec.json.decode(change.data)["row_count"] for change in found] == [1, 3]
    assert found[0].sequence < max(row["sequence"] for row in changes(registry))
    assert everything(reader, position)[1] == []


@pytest.mark.on("postgresql")
def test_a_page_that_is_stopped_in_meets_late_transactions_afterwards(registry: Registry, reader: Reader) -> None:
    """The position within a page goes by the snapshots of its page, however much was committed since."""
    make_tables(registry, 2)
    position = reader.head()
    with registry.database.transaction() as late:
        late.exec_driver_sql("UPDATE table_stats SET row_count = 1 WHERE table_id = 1")
        touch(registry, 2, 3)
        page = reader.read(position, 1)
        assert not page.is_last and len(page.changes) == 1
    position, rest = everything(reader, page.after, 1)
    assert [change.table_id for change in rest] == [2, 2]
    assert [change.table_id for change in everything(reader, position)[1]] == [1]


def test_a_transaction_that_is_rolled_back_late_leaves_no_gap(registry: Registry, reader: Reader) -> None:
    make_tables(registry, 2)
    position = reader.head()
    with pytest.raises(ZeroDivisionError), registry.database.transaction() as connection:
        connection.exec_driver_sql("UPDATE table_stats SET row_count = 1 WHERE table_id = 1")
        1 / 0
    touch(registry, 2)
    assert [change.table_id for change in everything(reader, position)[1]] == [2]


@pytest.mark.on("postgresql")
def test_trimming_waits_for_what_a_late_transaction_will_bring(
    registry: Registry, reader: Reader, lease: Lease
) -> None:
    make_tables(registry, 2)
    with registry.database.transaction() as late:
        late.exec_driver_sql("UPDATE table_stats SET row_count = 1 WHERE table_id = 1")
        touch(registry, 2, 3)
        position, _ = everything(reader, reader.head())
        feed.save_cursors(registry, lease, "lakeward", {"compactor": (position, {})})
        feed.trim(registry)
    feed.trim(registry)
    assert [change.table_id for change in everything(reader, position)[1]] == [1]


# Trimming -------------------------------------------------------------------------------------------------------------
def test_what_every_subscriber_has_passed_is_trimmed_and_nothing_else(
    registry: Registry, reader: Reader, lease: Lease
) -> None:
    make_tables(registry, 2)
    early = reader.head()
    touch(registry, 1, 3)
    late = everything(reader, early)[0]
    touch(registry, 1, 2)
    feed.save_cursors(registry, lease, "lakeward", {"compactor": (late, {}), "snapshotter": (early, {})})
    feed.trim(registry)
    assert len(changes(registry)) == 5
    feed.save_cursors(registry, lease, "lakeward", {"snapshotter": (late, {})})
    assert feed.trim(registry) == 3
    assert len(changes(registry)) == 2 == len(everything(reader, late)[1])
    assert feed.trim(registry) == 0


def test_one_that_is_to_refresh_anyway_is_not_waited_for(registry: Registry, reader: Reader, lease: Lease) -> None:
    make_tables(registry)
    head = reader.head()
    feed.save_cursors(registry, lease, "lakeward", {"compactor": (head, {}), "snapshotter": (None, {})})
    feed.trim(registry)
    assert changes(registry) == []


def test_one_that_is_gone_is_waited_for_until_the_feed_is_too_old_and_then_told_to_refresh(
    registry: Registry, reader: Reader, lease: Lease
) -> None:
    gone = reader.head()
    make_tables(registry)
    feed.save_cursors(registry, lease, "lakeward", {"compactor": (gone, {})})
    feed.trim(registry, keep_seconds=3600)
    assert len(changes(registry)) == 6
    feed.save_cursors(registry, lease, "lakeward", {"snapshotter": (reader.head(), {})})
    _make_old(registry, "compactor")
    feed.trim(registry, keep_seconds=3600)
    assert changes(registry) == []
    positions = {cursor.subscriber: cursor.place for cursor in load_cursors(registry)}
    assert positions["compactor"] is None and positions["snapshotter"] is not None


def _make_old(registry: Registry, subscriber: str) -> None:
    c = schema.subscriber_cursors.c
    with registry.database.transaction() as connection:
        connection.execute(
            schema.subscriber_cursors.update()
            .where(c.subscriber == subscriber)
            .values(seen_at=datetime(2026, 1, 1, tzinfo=UTC))
        )


def test_one_that_comes_back_is_waited_for_again(registry: Registry, reader: Reader, lease: Lease) -> None:
    gone = reader.head()
    make_tables(registry)
    feed.save_cursors(registry, lease, "lakeward", {"compactor": (gone, {}), "snapshotter": (gone, {})})
    _make_old(registry, "compactor")
    _make_old(registry, "snapshotter")
    taken = feed.take_up(registry, lease, "lakeward", ["compactor"])
    assert {cursor.subscriber: cursor.place for cursor in taken}["compactor"] == gone
    feed.trim(registry, keep_seconds=3600)
    positions = {cursor.subscriber: cursor.place for cursor in load_cursors(registry)}
    assert positions == {"compactor": gone, "snapshotter": None}
    assert len(changes(registry)) == 6


def test_where_nobody_subscribes_the_feed_is_trimmed_by_age(registry: Registry) -> None:
    make_tables(registry)
    c = schema.registry_changes.c
    middle = changes(registry)[3]["sequence"]
    with registry.database.transaction() as connection:
        old = schema.registry_changes.update().where(c.sequence < middle)
        connection.execute(old.values(changed_at=datetime(2026, 1, 1, tzinfo=UTC)))
    assert feed.trim(registry, keep_seconds=3600) == 3
    assert len(changes(registry)) == 3
    assert feed.trim(registry) == 0


def test_a_clean_up_trims_the_feed_where_no_astha_runs(made_url: str, tmp_path: Path) -> None:
    with open_at(made_url, tmp_path, feed_keep_seconds=0) as opened:
        make_table(opened)
        written = len(rows_of(opened, "registry_changes"))
        assert written > 0
        assert cleaner.clean(opened).changes == written
        assert rows_of(opened, "registry_changes") == []
        assert cleaner.clean(opened).changes == 0


def test_more_than_one_transactions_worth_is_trimmed(registry: Registry, reader: Reader, lease: Lease) -> None:
    make_tables(registry)
    flood(registry, 1, 2 * feed.TRIM_BATCH + 1)
    feed.save_cursors(registry, lease, "lakeward", {"compactor": (reader.head(), {})})
    assert feed.trim(registry) == 2 * feed.TRIM_BATCH + 7


def test_trimming_beside_writers_and_a_reader_loses_nothing(registry: Registry, reader: Reader, lease: Lease) -> None:
    make_tables(registry, 2)
    position = reader.head()
    writers = [threading.Thread(target=touch, args=(registry, table_id, 60)) for table_id in (1, 2)]
    for writer in writers:
        writer.start()
    met: list[Change] = []
    while any(writer.is_alive() for writer in writers) or len(met) < 120:
        position, found = everything(reader, position, 5)
        met += found
        feed.save_cursors(registry, lease, "lakeward", {"compactor": (position, {})})
        feed.trim(registry)
        assert len(met) < 120 or not found or len(met) == 120
    counts = {
        table_id: [msgspec.json.decode(c.data)["row_count"] for c in met if c.table_id == table_id]
        for table_id in (1, 2)
    }
    assert counts == {1: list(range(11, 71)), 2: list(range(11, 71))}


def test_cursors_are_stored_by_who_has_the_lease_alone(registry: Registry, reader: Reader, lease: Lease) -> None:
    leases.release(registry, lease)
    with pytest.raises(LeaseLost):
        feed.save_cursors(registry, lease, "lakeward", {"compactor": (reader.head(), {})})
    assert load_cursors(registry) == []


# Parked events --------------------------------------------------------------------------------------------------------
def test_an_event_is_parked_once_for_each_subscriber(registry: Registry, reader: Reader, lease: Lease) -> None:
    head = reader.head()
    make_tables(registry)
    change = everything(reader, head)[1][0]
    for subscriber in ("compactor", "snapshotter", "compactor"):
        feed.park(registry, lease, "lakeward", subscriber, change, 31, "ValueError: no")
    assert [(each.subscriber, each.sequence) for each in feed.list_parked(registry)] == [
        ("compactor", change.sequence),
        ("snapshotter", change.sequence),
    ]
    assert count_parked(registry, "lakeward") == {"compactor": 1, "snapshotter": 1}
    assert feed.list_parked(registry, "other") == [] and count_parked(registry, "other") == {}
    feed.discard(registry, feed.list_parked(registry)[0].parked_id)
    assert [each.subscriber for each in feed.list_parked(registry)] == ["snapshotter"]


def test_a_parked_event_outlives_the_trimming_of_the_feed(registry: Registry, reader: Reader, lease: Lease) -> None:
    head = reader.head()
    make_tables(registry)
    change = everything(reader, head)[1][0]
    feed.park(registry, lease, "lakeward", "compactor", change, 31, "no")
    feed.trim(registry, keep_seconds=0)
    (parked,) = feed.list_parked(registry)
    assert changes(registry) == [] and parked.data == msgspec.json.decode(change.data)


# A restore ------------------------------------------------------------------------------------------------------------
@pytest.mark.on("postgresql")
def test_a_registry_that_was_restored_on_another_server_starts_from_its_state(
    registry: Registry, reader: Reader, lease: Lease, tmp_path: Path
) -> None:
    """Transaction numbers of the old server mean nothing on the new one: its positions are not known there, and rows of
    the feed that it wrote, which would one day look new, are gone."""
    _use_transaction_numbers(registry, 5_000)  # the new server has not come to them
    make_tables(registry)
    position = reader.head()
    touch(registry, 1, 3)
    feed.save_cursors(registry, lease, "lakeward", {"compactor": (position, {})})
    with postgres.running_server(log_min_messages="warning") as server:
        url = server.create_database()
        _copy(registry.database, url)
        with open_at(url, tmp_path) as restored:
            there = Reader(restored.database)
            assert not there.knows(position) and there.knows(there.head())
            assert restored.database is not registry.database and len(changes(restored)) == len(changes(registry))
            again = leases.acquire(restored, "astha:restored", seconds=60)
            (cursor,) = feed.take_up(restored, again, "lakeward", ["compactor"])
            assert cursor.place == position
            head = there.head()
            _use_transaction_numbers(restored, 5_000)
            touch(restored, 1)
            found = everything(there, head)[1]
            assert [change.sequence for change in found] == [changes(restored)[-1]["sequence"]]


def _use_transaction_numbers(registry: Registry, count: int) -> None:
    with registry.database.outside_transactions() as connection:
        connection.exec_driver_sql(
            f"DO $$ BEGIN FOR i IN 1..{count:d} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
        )


def _copy(source: Database, url: str) -> None:
    """As a person does it: pg_dump and psql."""
    binaries = development.postgres_binaries()
    assert binaries is not None
    names = [
        each.set(drivername="postgresql").render_as_string(hide_password=False)
        for each in (source.url, sa.make_url(url))
    ]
    dump = subprocess.run([binaries / "pg_dump", names[0]], capture_output=True, check=True)
    subprocess.run(
        [binaries / "psql", "-q", "-v", "ON_ERROR_STOP=1", names[1]], input=dump.stdout, check=True, capture_output=True
    )


@pytest.mark.on("postgresql")
def test_beside_a_transaction_of_hours_a_reader_looks_at_what_is_new_alone(registry: Registry) -> None:
    """One of any database of the server: snapshots name it, and see what was committed since all the same."""
    database = registry.database
    make_tables(registry, 1)
    with database.engine.connect() as long:
        long.execute(sa.text("SELECT pg_current_xact_id()"))
        flood(registry, 1, 20_000)
        old = store_changes.current_snapshot(database)
        touch(registry, 1)
        target, first = store_changes.head(database, old)
        assert first is not None
        between = {"old": old, "target": target, "after": first - 1, "count": 100}
        assert len(store_changes.between(database, old, target, first - 1, 100)) == 1
        own = database.lookups._own().connection
        for statement, values in ((store_changes._HEAD, {"old": old}), (store_changes._BETWEEN, between)):
            ready = statement.ready(database.engine.dialect, values)
            ((plan,),) = own.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {ready.text}", ready.named(values)).fetchall()
            assert _rows_met(json.loads(plan) if isinstance(plan, str) else plan) < 100


def _rows_met(plan: Any) -> int:
    """How many rows the nodes of a plan have read, with those that a filter took out."""
    if isinstance(plan, list):
        return sum(map(_rows_met, plan))
    if not isinstance(plan, dict):
        return 0
    own = (
        plan.get("Actual Rows", 0)
        + plan.get("Rows Removed by Filter", 0)
        + plan.get("Rows Removed by Index Recheck", 0)
    )
    return int(own) + sum(_rows_met(each) for each in plan.values())
