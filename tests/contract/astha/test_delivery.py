"""What a component is told: everything of its tables, in order within a lakehouse table, and each record decoded once."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import structlog

from lakeward.astha import Astha, Event
from lakeward.db.database import Database
from lakeward.registry import Registry
from tests.contract.astha.conftest import Start
from tests.support.asthas import Mirror, Recorder, component, flood, load_cursors, make_tables, touch
from tests.support.registries import changes
from tests.support.waiting import until


def numbers(registry: Registry, table_id: int, *tables: str) -> list[int]:
    """Of the feed's rows that concern a lakehouse table, from some registry tables."""
    return [row["sequence"] for row in changes(registry) if row["table_id"] == table_id and row["table_name"] in tables]


def test_each_component_is_told_what_it_subscribes_to_and_nothing_else(registry: Registry, start: Start) -> None:
    manager, compactor = Recorder("schema_manager"), Recorder("compactor")
    start(manager, compactor)
    make_tables(registry, 2)
    until(lambda: len(manager.events) >= 6 and len(compactor.events) >= 4)
    assert {event.table for event in manager.events} == {"tables", "table_columns", "table_metadata"}
    assert {event.table for event in compactor.events} == {"table_files", "table_stats"}
    assert sorted(compactor.sequences(2)) == numbers(registry, 2, "table_files", "table_stats")


def test_the_record_is_typed_decoded_once_and_shared_by_all(registry: Registry, start: Start) -> None:
    first, second = Recorder("iceberg_updater"), Recorder("snapshotter")
    start(first, second)
    make_tables(registry)
    until(lambda: len(first.events) == 2 and len(second.events) == 3)
    shared = {event.sequence: event for event in second.events}
    assert all(shared[event.sequence].data is event.data for event in first.events)
    assert {type(event.data).__name__ for event in first.events} == {"TableMetadata", "TableFile"}
    with pytest.raises(AttributeError):
        first.events[0].data.table_id = 5


def test_events_of_a_table_keep_their_order_with_many_tables_and_workers(registry: Registry, start: Start) -> None:
    tables = make_tables(registry, 5)
    slow = Recorder("compactor", act=lambda event: threading.Event().wait(0.001 * (event.sequence % 3)))
    fast = Recorder("snapshotter")
    start(slow, fast, workers=4)
    writers = [threading.Thread(target=touch, args=(registry, table_id, 30)) for table_id in tables]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    until(lambda: len(slow.events) == 150)
    for table_id in tables:
        assert slow.sequences(table_id) == numbers(registry, table_id, "table_stats")[-30:]
    assert slow.clashes == []


def test_different_tables_of_a_component_are_handled_at_the_same_time(registry: Registry, start: Start) -> None:
    make_tables(registry, 2)
    meet = threading.Barrier(2, timeout=30)
    both = Recorder(act=lambda event: meet.wait())
    start(both, workers=2)
    touch(registry, 1)
    touch(registry, 2)
    until(lambda: len(both.events) == 2)


def test_one_worker_is_enough_for_all_tables_in_turn(registry: Registry, start: Start) -> None:
    make_tables(registry, 3)
    alone = Recorder()
    start(alone, workers=1)
    touch(registry, 1, 250, at_once=True)
    touch(registry, 2, 5)
    until(lambda: len(alone.events) == 255)
    assert alone.sequences(1) == sorted(alone.sequences(1))


def test_a_component_may_narrow_by_operation_and_by_table(registry: Registry, start: Start) -> None:
    narrowed = Recorder()
    start(narrowed, register={"operations": {"UPDATE"}, "tables": {2}})
    make_tables(registry, 2)
    touch(registry, 1)
    touch(registry, 2)
    until(lambda: len(narrowed.events) == 1)
    touch(registry, 2)
    until(lambda: len(narrowed.events) == 2)
    assert {(event.operation, event.table_id) for event in narrowed.events} == {("UPDATE", 2)}


def test_with_fold_the_newest_of_the_waiting_events_is_enough(registry: Registry, start: Start) -> None:
    make_tables(registry, 2)
    go = threading.Event()
    folding = Recorder(act=lambda event: go.wait(30))
    astha = start(folding, register={"fold": True}, workers=1)
    touch(registry, 1)
    until(lambda: folding._inside == {1})
    touch(registry, 1, 20)
    touch(registry, 2)
    until(lambda: component(astha).folded == 19, astha.status)
    go.set()
    until(lambda: len(folding.events) == 3)
    first, second = folding.sequences(1)
    assert second == numbers(registry, 1, "table_stats")[-1] and second - first >= 20
    until(lambda: component(astha).queue_length == 0)


def test_a_component_that_fails_on_each_of_a_stream_of_folded_events_is_still_given_up(
    registry: Registry, start: Start
) -> None:
    """Each try meets a newer event, which must not start the count of tries anew."""
    make_tables(registry)

    def fail(event: Event[Any]) -> None:
        touch(registry, 1)
        until(lambda: component(astha).queue_length >= 2 or component(astha).parked, astha.status)
        raise ValueError("no")

    broken = Recorder()
    astha = start(broken, register={"fold": True}, workers=1)
    broken.act = fail
    touch(registry, 1)
    until(lambda: component(astha).parked >= 1, astha.status)


def test_a_slow_component_delays_nobody_else_and_catches_up_without_loss(registry: Registry, start: Start) -> None:
    """Its queue is far smaller than what comes: what it cannot take waits in the feed."""
    tables = make_tables(registry, 3)
    go = threading.Event()
    slow = Recorder("compactor", act=lambda event: go.wait(30))
    fast = Mirror(registry, "snapshotter")
    other = Recorder("iceberg_updater")
    astha = start(slow, fast, other, queue_limit=10, batch_size=7)
    for table_id in tables:
        touch(registry, table_id, 40, at_once=True)
    make_tables_busy(registry)
    until(lambda: len(other.events) >= 60)
    fast.expect_true()
    assert slow.events == []
    assert component(astha).queue_length <= 10 + 7
    go.set()
    until(lambda: len(slow.events) == 180, astha.status)
    for table_id in tables:
        assert slow.sequences(table_id) == numbers(registry, table_id, "table_stats", "table_files")[-60:]
    assert slow.refreshes == 1


def make_tables_busy(registry: Registry) -> None:
    """Twenty changes of each file."""
    for _ in range(20):
        with registry.database.transaction() as connection:
            connection.exec_driver_sql("UPDATE table_files SET row_count = row_count + 1")


def test_commits_of_another_handle_are_noticed(registry: Registry, start: Start, made_url: str) -> None:
    """Nothing in this process tells of them, as if another process had made them."""
    make_tables(registry)
    told = Recorder()
    start(told)
    other = Database(made_url)
    with other.transaction() as connection:
        connection.exec_driver_sql("UPDATE table_stats SET row_count = 7")
    until(lambda: [event.data.row_count for event in told.events] == [7])
    other.close()


def test_50_000_waiting_events_are_caught_up_with_in_bounded_memory(registry: Registry, start: Start) -> None:
    make_tables(registry, 2)
    first = Recorder()
    astha = start(first)
    until(lambda: _cursor_is_stored(registry))
    astha.stop()
    for _ in range(5):
        flood(registry, 1, 5_000)
        flood(registry, 2, 5_000)
    longest = 0

    def look(_: Event[Any]) -> None:
        nonlocal longest
        longest = max(longest, lane.length)

    second = Recorder(act=look)
    astha = Astha(registry, astha.config)
    astha.register(second)
    lane = astha._lanes["compactor"]
    with astha:
        until(lambda: len(second.events) == 50_000, lambda: len(second.events), seconds=100)
        until(lambda: lane.length == 0)
    for table_id in (1, 2):
        assert second.sequences(table_id) == numbers(registry, table_id, "table_stats")[-25_000:]
    assert longest <= astha.config.queue_limit + astha.config.batch_size


def _cursor_is_stored(registry: Registry) -> bool:
    return any(cursor.place is not None for cursor in load_cursors(registry))


def test_each_event_is_logged_at_debug_level_with_its_tries(registry: Registry, start: Start) -> None:
    failed: list[Event[Any]] = []

    def fail_once(event: Event[Any]) -> None:
        if not failed:
            failed.append(event)
            raise ValueError("no")

    make_tables(registry)
    told = Recorder(act=fail_once)
    structlog.configure()
    with structlog.testing.capture_logs() as logged:
        start(told)
        touch(registry, 1)
        until(lambda: len([each for each in logged if each["event"] == "event"]) == 2, lambda: logged)
    (sequence,) = told.sequences()
    common = {"component": "compactor", "table": "table_stats", "table_id": 1, "sequence": sequence}
    assert [each for each in logged if each["event"] == "event"] == [
        {**common, "event": "event", "log_level": "debug", "attempt": 1, "result": "failed", "error": "ValueError: no"},
        {**common, "event": "event", "log_level": "debug", "attempt": 2, "result": "done"},
    ]


def test_structlog_by_itself_which_prints_every_level_is_not_given_each_event(
    registry: Registry, start: Start, capfd: pytest.CaptureFixture[str]
) -> None:
    make_tables(registry)
    told = Recorder()
    start(told)
    touch(registry, 1)
    until(lambda: len(told.events) == 1)
    assert "table_stats" not in "".join(capfd.readouterr())
