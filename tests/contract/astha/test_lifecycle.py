"""Starting, stopping, starting again; two at once; a loop that fails; what is trimmed meanwhile."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from lakeward.astha import Astha, Event, RetryConfig, feed, load_status
from lakeward.astha import astha as astha_module
from lakeward.astha.sql import cursors
from lakeward.astha.watcher import Watcher
from lakeward.errors import DatabaseError, LeaseLost, RegistryUnavailable
from lakeward.registry import Registry, leases
from tests.contract.astha.conftest import Start
from tests.support.asthas import Mirror, Recorder, component, load_cursors, make_tables, quick, touch
from tests.support.registries import changes, rows_of
from tests.support.waiting import until


def cursor(registry: Registry, name: str = "compactor") -> feed.Place | None:
    return {each.subscriber: each.place for each in load_cursors(registry)}.get(name)


def test_stop_finishes_what_is_in_hand_and_the_next_start_goes_on_after_it(registry: Registry, start: Start) -> None:
    make_tables(registry)
    go, inside = threading.Event(), threading.Event()

    def wait(event: Event[Any]) -> None:
        inside.set()
        go.wait(60)

    first = Recorder(act=wait)
    astha = start(first, workers=1)
    touch(registry, 1, 3)
    until(inside.is_set)
    stopped: list[bool] = []
    stopper = threading.Thread(target=lambda: stopped.append(astha.stop()))
    stopper.start()
    until(lambda: astha._lanes["compactor"].is_stopping)
    go.set()
    stopper.join(30)
    assert stopped == [True] and len(first.events) == 1
    second = Recorder()
    start(second)
    until(lambda: len(second.events) == 2)
    assert first.sequences() + second.sequences() == [row["sequence"] for row in changes(registry)[-3:]]


def test_a_component_may_stop_astha_in_an_event_of_its_own(registry: Registry) -> None:
    make_tables(registry)
    astha = Astha(registry, quick())
    answers: list[bool] = []
    one, other = Recorder("compactor", act=lambda _: answers.append(astha.stop())), Recorder("schema_manager")
    astha.register(one)
    astha.register(other)
    astha.start()
    until(lambda: one.refreshes and other.refreshes)
    touch(registry, 1, 2)
    until(lambda: len(one.events) == 1)
    assert answers == [True]
    assert astha.state == "stopped"
    assert component(astha).retried == 0


def test_what_happened_while_nobody_ran_is_delivered_at_the_next_start(registry: Registry, start: Start) -> None:
    make_tables(registry)
    first = Mirror(registry)
    astha = start(first)
    until(lambda: cursor(registry, "snapshotter") is not None)
    astha.stop()
    with registry.database.transaction() as connection:
        connection.exec_driver_sql("UPDATE table_files SET row_count = row_count + 1")
    second = Mirror(registry)
    start(second)
    until(lambda: len(second.events) == 1)
    second.expect_true()


def test_one_astha_of_a_name_is_active_and_another_takes_over_at_once_when_it_stops(
    registry: Registry, start: Start
) -> None:
    make_tables(registry)
    first, second = Recorder(), Recorder()
    active = start(first)
    standby = Astha(registry, quick(lease_seconds=1.0))
    standby.register(second)
    standby.start()
    until(lambda: standby.status().state == "standby")
    touch(registry, 1)
    until(lambda: len(first.events) == 1)
    until(lambda: component(active).queue_length == 0)
    assert (second.refreshes, second.events) == (0, [])
    with pytest.raises(LeaseLost), registry.database.transaction() as connection:
        standby.check(connection)
    with registry.database.transaction() as connection:
        active.check(connection)
    active.stop()
    touch(registry, 1)
    until(lambda: len(second.events) == 1, standby.status)
    assert second.refreshes == 1 and second.sequences()[0] > first.sequences()[-1]
    standby.stop()


def test_asthas_of_two_names_do_not_know_of_each_other(registry: Registry, start: Start) -> None:
    make_tables(registry)
    first, second = Recorder(), Recorder()
    start(first, name="first")
    start(second, name="second")
    touch(registry, 1)
    until(lambda: len(first.events) == len(second.events) == 1)
    until(lambda: {each["astha"] for each in load_status(registry)} == {"first", "second"})
    assert [each["astha"] for each in load_status(registry, "second")] == ["second"]


def test_one_that_has_lost_its_lease_hands_out_nothing_more_and_becomes_active_again(
    registry: Registry, start: Start
) -> None:
    make_tables(registry)
    mirror = Mirror(registry, "compactor")
    astha = start(mirror, lease_seconds=1.0)
    with registry.database.transaction() as connection:  # as if it had been away, and another had come and gone
        connection.exec_driver_sql("UPDATE leases SET fence = fence + 1 WHERE name = 'astha:lakeward'")
    touch(registry, 1)
    until(lambda: astha.restarts >= 1 and astha.status().state == "active", astha.status)
    until(lambda: mirror.refreshes >= 2, astha.status)
    mirror.expect_true()
    touch(registry, 1)
    mirror.expect_true()


def test_what_is_stored_under_an_old_fence_is_refused(registry: Registry) -> None:
    old = leases.acquire(registry, "astha:lakeward", seconds=60)
    leases.release(registry, old)
    leases.acquire(registry, "astha:lakeward", seconds=60)
    with pytest.raises(LeaseLost):
        feed.save_cursors(registry, old, "lakeward", {"compactor": (None, {})})
    with pytest.raises(LeaseLost):
        feed.take_up(registry, old, "lakeward", ["compactor"])
    assert rows_of(registry, "subscriber_cursors") == []


def test_a_loop_that_fails_begins_again_after_a_while_and_says_so(
    registry: Registry, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch over the feed breaks three times, with errors that nobody foresaw; then all is as before."""
    make_tables(registry)
    mirror = Mirror(registry, "compactor")
    astha = start(mirror)
    broken = [MemoryError("one"), RegistryUnavailable("two"), ZeroDivisionError("three")]
    read = Watcher.read

    def fail(*arguments: Any) -> Any:
        if broken:
            raise broken.pop(0)
        return read(*arguments)

    monkeypatch.setattr(Watcher, "read", fail)
    touch(registry, 1, 3)
    until(lambda: astha.restarts == 3 and astha.status().state == "active", astha.status)
    assert astha.status().last_error == "ZeroDivisionError: three"
    mirror.expect_true()
    touch(registry, 1)
    mirror.expect_true()


def test_cursors_that_cannot_be_stored_for_a_while_stop_nobody(
    registry: Registry, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tables(registry)
    told = Recorder()
    astha = start(told)
    failed: list[int] = []
    save = feed.save_cursors

    def fail(*arguments: Any) -> None:
        if len(failed) < 2:
            failed.append(1)
            raise DatabaseError("disk full")
        save(*arguments)

    monkeypatch.setattr(feed, "save_cursors", fail)
    touch(registry, 1, 5)
    until(lambda: len(told.events) == 5)
    until(lambda: len(failed) == 2 and covers(registry, told.sequences()[-1]), astha.status)
    assert astha.status().restarts == 0


def covers(registry: Registry, sequence: int) -> bool:
    position = cursor(registry)
    reader = feed.Reader(registry.database)
    return position is not None and all(each.sequence > sequence for each in reader.read(position, 10).changes)


def test_cursors_are_stored_while_events_flow_and_move_only_past_what_is_done(registry: Registry, start: Start) -> None:
    make_tables(registry, 2)
    go = threading.Event()
    told = Recorder(act=lambda event: event.table_id == 2 or go.wait(60))
    start(told, workers=2)
    touch(registry, 1)
    (undone,) = [row["sequence"] for row in changes(registry)[-1:]]
    touch(registry, 2, 5)
    until(lambda: len(told.events) == 5)
    until(lambda: covers(registry, undone - 1))
    assert not covers(registry, undone)
    go.set()
    until(lambda: covers(registry, told.sequences(2)[-1]))


def test_an_event_that_waits_for_its_next_try_is_not_passed_over_by_the_cursor(
    registry: Registry, start: Start
) -> None:
    make_tables(registry, 2)

    def fail(event: Event[Any]) -> None:
        if event.table_id == 1:
            raise ValueError("no")

    first = Recorder(act=fail)
    astha = start(first, retry=_patient())
    touch(registry, 1)
    touch(registry, 2, 3)
    until(lambda: len(first.events) == 3 and component(astha).retried == 1)
    assert astha.stop()
    second = Recorder()
    start(second)
    until(lambda: len(second.sequences(1)) == 1)


def _patient() -> Any:
    return RetryConfig(max_retries=30, initial_delay=3600.0, max_delay=3600.0)


def test_a_position_of_another_server_is_not_gone_by(registry: Registry, start: Start) -> None:
    """As after a restore: the component takes its state from the registry, and goes on from the feed's head."""
    make_tables(registry)
    lease = leases.acquire(registry, "astha:lakeward", seconds=60)
    elsewhere = feed.Place("another-registry", 10**9, "1", "99999999:99999999:", "")
    feed.save_cursors(registry, lease, "lakeward", {"compactor": (elsewhere, {})})
    leases.release(registry, lease)
    mirror = Mirror(registry, "compactor")
    start(mirror)
    touch(registry, 1)
    until(lambda: len(mirror.events) == 1)
    mirror.expect_true()


def test_one_that_was_away_until_its_events_were_trimmed_refreshes(registry: Registry, start: Start) -> None:
    make_tables(registry)
    first = Mirror(registry, "compactor")
    astha = start(first)
    until(lambda: cursor(registry) is not None)
    astha.stop()
    touch(registry, 1, 3)
    feed.trim(registry, keep_seconds=0.0)
    assert changes(registry) == [] and cursor(registry) is None
    second = Mirror(registry, "compactor")
    start(second)
    second.expect_true()
    touch(registry, 1)
    until(lambda: len(second.events) == 1)
    second.expect_true()


def test_nothing_is_trimmed_between_a_refresh_and_the_first_read_after_it(registry: Registry, start: Start) -> None:
    """A new component refreshes slowly, while another has passed all there is: what comes meanwhile is kept for it."""
    make_tables(registry)
    go, inside = threading.Event(), threading.Event()
    other = Recorder("snapshotter")
    start(other, name="other")
    slow = Recorder("iceberg_updater")

    def refresh() -> None:
        inside.set()
        go.wait(60)

    slow.refresh_act = refresh
    astha = Astha(registry, quick(name="mine", queue_limit=1, batch_size=1))
    astha.register(slow)
    with astha:
        until(inside.is_set)
        with registry.database.transaction() as connection:
            connection.exec_driver_sql("UPDATE table_files SET row_count = row_count + 1")
            connection.exec_driver_sql("UPDATE table_files SET row_count = row_count + 1")
        wanted = [row["sequence"] for row in changes(registry)[-2:]]
        until(lambda: other.sequences()[-2:] == wanted)
        feed.trim(registry)
        go.set()
        until(lambda: slow.sequences() == wanted, astha.status)


def test_a_refresh_that_began_before_another_was_asked_for_does_not_count_for_it(registry: Registry) -> None:
    """It hung while this Astha lost its lease, and may have read what another one has since gone past."""
    make_tables(registry)
    go, inside = threading.Event(), threading.Event()
    mirror = Mirror(registry, "compactor")

    def refresh() -> None:
        if not inside.is_set():
            inside.set()
            go.wait(60)

    mirror.refresh_act = refresh
    astha = Astha(registry, quick(lease_seconds=1.0))
    astha.register(mirror)
    with astha:
        until(inside.is_set)
        with registry.database.transaction() as connection:
            connection.exec_driver_sql("UPDATE leases SET fence = fence + 1 WHERE name = 'astha:lakeward'")
        until(lambda: astha.restarts >= 1 and astha.status().state == "active", astha.status)
        go.set()
        until(lambda: mirror.refreshes == 2, astha.status)
        until(lambda: component(astha).reason is None, astha.status)
        mirror.expect_true()


def test_status_is_shown_while_the_registry_does_not_answer(
    registry: Registry, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    astha = start(Recorder())

    def fail(*_: Any) -> Any:
        raise RegistryUnavailable("gone")

    monkeypatch.setattr(cursors, "count_parked", fail)
    assert component(astha).parked == 0


def test_other_processes_see_the_status_that_was_stored_last(registry: Registry, start: Start) -> None:
    make_tables(registry)
    told = Recorder()
    astha = start(told)
    touch(registry, 1, 2)
    until(lambda: [each["delivered"] for each in load_status(registry)] == [2])
    (stored,) = load_status(registry)
    assert (stored["name"], stored["astha"], stored["breaker"], stored["parked"]) == (
        "compactor",
        "lakeward",
        "closed",
        0,
    )
    assert stored["seen_at"].tzinfo is not None and astha.status().state == "active"
    assert stored["status"] == "active"
    assert astha.stop()
    (stored,) = load_status(registry)
    assert stored["status"] == "dead" and "lakeward serve" in stored["reason"] and stored["delivered"] == 2


def test_the_feed_is_trimmed_while_astha_runs(
    registry: Registry, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(astha_module, "TRIM_SECONDS", 0.02)
    make_tables(registry)
    told = Recorder()
    start(told)
    touch(registry, 1, 100, at_once=True)
    until(lambda: len(told.events) == 100)
    until(lambda: changes(registry) == [])
