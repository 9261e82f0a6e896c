"""How far behind a component is: what waits in memory and what it has not read, counted by what it hears of."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa

from lakeward.astha import feed, load_status
from lakeward.astha.feed import Behind, Place, Reader
from lakeward.astha.sql.changes import Wanted
from lakeward.maintenance import status
from lakeward.registry import Registry
from tests.contract.astha.conftest import Start
from tests.support.asthas import Recorder, component, make_tables, touch
from tests.support.waiting import until

WANTED = Wanted(["table_files", "table_stats"])


def behind(registry: Registry, place: Place, wanted: Wanted) -> Behind:
    with registry.database.read() as connection:
        return feed.behind(connection, place, wanted)


def test_lag_is_what_waits_in_memory_and_what_a_full_queue_has_left_in_the_feed(
    registry: Registry, start: Start
) -> None:
    make_tables(registry)
    go = threading.Event()
    told = Recorder(act=lambda event: go.wait(60))
    astha = start(told, queue_limit=5, batch_size=5)
    touch(registry, 1, 30)
    until(lambda: component(astha).queue_length >= 5, astha.status)
    found = component(astha)
    assert found.queue_length < 30 and found.lag_events == 30
    assert found.lag_seconds > 0
    go.set()
    until(lambda: component(astha).lag_events == 0, astha.status)
    assert (component(astha).delivered, component(astha).lag_seconds) == (30, 0.0)


def test_only_what_the_component_hears_of_is_behind(registry: Registry, start: Start) -> None:
    make_tables(registry, 3)
    go = threading.Event()
    told = Recorder(act=lambda event: go.wait(60))
    astha = start(told, register={"operations": ["UPDATE"], "tables": [1, 2]}, queue_limit=1, batch_size=1)
    for table_id in (1, 2, 3):
        touch(registry, table_id, 4)
    with registry.database.transaction() as connection:
        connection.exec_driver_sql("DELETE FROM table_stats WHERE table_id = 1")
        connection.exec_driver_sql("UPDATE tables SET version = version + 1 WHERE table_id = 1")
    until(lambda: component(astha).lag_events == 8, astha.status)
    go.set()
    until(lambda: component(astha).lag_events == 0, astha.status)


def test_the_stored_cursor_tells_the_lag_when_nobody_is_active(registry: Registry, start: Start) -> None:
    make_tables(registry)
    told = Recorder()
    astha = start(told)
    touch(registry, 1, 2)
    until(lambda: len(told.events) == 2)
    astha.stop()
    (stored,) = load_status(registry)
    assert (stored["lag_events"], stored["lag_seconds"]) == (0, 0.0)
    touch(registry, 1, 7)
    (stored,) = load_status(registry)
    assert stored["lag_events"] == 7 and stored["lag_seconds"] > 0


def test_how_a_lakehouse_is_is_read_in_one_transaction(registry: Registry, start: Start) -> None:
    make_tables(registry)
    told = Recorder()
    astha = start(told)
    touch(registry, 1, 2)
    until(lambda: len(told.events) == 2)
    assert astha.stop()
    begun: list[object] = []
    sa.event.listen(registry.database.engine, "begin", begun.append)
    found = status.status(registry)
    assert len(begun) == 1
    assert [(each["name"], each["status"]) for each in found.components] == [("compactor", "dead")]


def test_what_is_met_in_any_place_of_the_way_through_the_feed_is_not_behind(registry: Registry) -> None:
    """On PostgreSQL a place is two snapshots and a number: each step of it counts what is left, and nothing twice."""
    make_tables(registry)
    reader = Reader(registry.database)
    position = reader.head()
    touch(registry, 1, 5)
    touch(registry, 1, 5, at_once=True)
    left, met = 10, 0
    while left:
        assert behind(registry, position, WANTED).count == left
        page = reader.read(position, 3)
        met += len(page.changes)
        position, left = page.after, 10 - met
    assert behind(registry, position, WANTED).count == 0
    page = reader.read(position, 3)
    assert not page.changes and behind(registry, page.after, WANTED).oldest is None


def test_what_is_not_committed_is_not_behind(registry: Registry) -> None:
    make_tables(registry)
    position = Reader(registry.database).head()
    if registry.database.is_sqlite:
        touch(registry, 1, 1)
        assert behind(registry, position, WANTED).count == 1
        return
    with registry.database.transaction() as open_:
        open_.exec_driver_sql("UPDATE table_stats SET row_count = row_count + 1 WHERE table_id = 1")
        assert behind(registry, position, WANTED).count == 0
    assert behind(registry, position, WANTED).count == 1


def test_counting_stops_after_a_bound(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tables(registry)
    position = Reader(registry.database).head()
    touch(registry, 1, 6)
    monkeypatch.setattr(feed, "COUNT_LIMIT", 4)
    assert behind(registry, position, WANTED).count == 4
