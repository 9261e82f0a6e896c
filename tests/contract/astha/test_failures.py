"""Components that fail: tried again, parked, refreshed; that hang; that are unhealthy. Nobody else notices."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import msgspec
import pytest

from lakeward.astha import Astha, Event, RetryConfig, feed
from lakeward.errors import ParkedEventNotFound
from lakeward.registry import Registry
from tests.contract.astha.conftest import Start
from tests.support.asthas import Mirror, Recorder, component, load_cursors, make_tables, quick, touch
from tests.support.registries import changes
from tests.support.waiting import until


class Failing:
    """Fails for the first `times` calls about one lakehouse table."""

    def __init__(self, times: float, table_id: int = 1, error: BaseException | None = None) -> None:
        self.left = times
        self.table_id = table_id
        self.error = error or ValueError("no")
        self.met: list[int] = []

    def __call__(self, event: Event[Any]) -> None:
        if event.table_id == self.table_id and self.left > 0:
            self.left -= 1
            self.met.append(event.sequence)
            raise self.error


def test_what_fails_is_tried_again_and_its_tables_order_is_kept(registry: Registry, start: Start) -> None:
    make_tables(registry, 2)
    told = Recorder(act=Failing(3))
    astha = start(told)
    touch(registry, 1, 5)
    until(lambda: len(told.events) == 5, astha.status)
    assert told.sequences() == [row["sequence"] for row in changes(registry)[-5:]]
    found = component(astha)
    assert (found.retried, found.parked, found.refreshes) == (3, 0, 1)
    assert found.last_error == "ValueError: no"


def test_while_one_table_is_tried_again_others_go_on(registry: Registry, start: Start) -> None:
    make_tables(registry, 2)
    told = Recorder(act=Failing(1))
    start(told, retry=RetryConfig(max_retries=3, initial_delay=3600.0, max_delay=3600.0), workers=1)
    touch(registry, 1, 2)
    touch(registry, 2, 3)
    until(lambda: len(told.sequences(2)) == 3)
    assert told.sequences(1) == []


def test_waits_grow_as_the_settings_say(registry: Registry, start: Start) -> None:
    """Each wait is at least what the settings say: 20, 40, then 40 ms."""
    make_tables(registry)
    met: list[float] = []

    def fail(event: Event[Any]) -> None:
        met.append(time.monotonic())
        if len(met) < 4:
            raise ValueError("no")

    told = Recorder(act=fail)
    start(told, retry=RetryConfig(max_retries=5, initial_delay=0.02, max_delay=0.04, jitter=0.0))
    touch(registry, 1)
    until(lambda: len(told.events) == 1)
    waits = [after - before for before, after in itertools.pairwise(met)]
    assert all(wait >= least for wait, least in zip(waits, (0.02, 0.04, 0.04), strict=True))


def test_what_failed_in_all_tries_is_parked_and_the_component_refreshes(registry: Registry, start: Start) -> None:
    make_tables(registry)
    failing = Failing(4)  # once, and three more times
    mirror = Mirror(registry, "compactor", act=failing)
    other = Mirror(registry, "snapshotter")
    astha = start(mirror, other)
    touch(registry, 1)
    until(lambda: mirror.refreshes == 2, astha.status)
    mirror.expect_true()
    (parked,) = feed.list_parked(registry)
    change = changes(registry)[-1]
    assert set(failing.met) == {change["sequence"]} and len(failing.met) == 4
    assert (parked.astha, parked.subscriber, parked.attempts, parked.error) == (
        "lakeward",
        "compactor",
        4,
        "ValueError: no",
    )
    for name in ("sequence", "table_name", "operation", "table_id", "data", "changed_at"):
        assert getattr(parked, name) == change[name]
    assert (component(astha).parked, component(astha, "snapshotter").parked) == (1, 0)
    touch(registry, 1, 3)
    until(lambda: len(mirror.events) == 3)
    assert mirror.sequences() == sorted(mirror.sequences())
    mirror.expect_true()
    other.expect_true()
    assert other.refreshes == 1
    feed.discard(registry, parked.parked_id)
    assert feed.list_parked(registry) == [] and component(astha).parked == 0
    with pytest.raises(ParkedEventNotFound, match=str(parked.parked_id)) as refused:
        feed.discard(registry, parked.parked_id)
    assert refused.value.code == "parked_event_not_found"


def test_one_that_always_fails_parks_each_event_and_its_state_is_still_right(registry: Registry, start: Start) -> None:
    make_tables(registry)
    mirror = Mirror(registry, "compactor", act=Failing(float("inf")))
    astha = start(mirror, retry=RetryConfig(max_retries=0, initial_delay=0.001, max_delay=0.001))
    for number in range(1, 4):
        touch(registry, 1)
        until(lambda number=number: mirror.refreshes == 1 + number, astha.status)  # type: ignore[misc]
    mirror.expect_true()
    assert len(feed.list_parked(registry)) == 3


def test_one_that_fails_now_and_then_has_the_right_state(registry: Registry, start: Start) -> None:
    tables = make_tables(registry, 3)
    calls = itertools.count()

    def sometimes(_: Event[Any]) -> None:
        if next(calls) % 3:
            raise ValueError("not this time")

    mirror = Mirror(registry, act=sometimes)
    start(mirror, workers=3)
    for table_id in tables:
        touch_files(registry, table_id, 10)
    mirror.expect_true()


def touch_files(registry: Registry, table_id: int, times: int) -> None:
    for _ in range(times):
        with registry.database.transaction() as connection:
            connection.exec_driver_sql(
                f"UPDATE table_files SET row_count = row_count + 1 WHERE table_id = {int(table_id)}"
            )


@pytest.mark.parametrize("error", [ValueError("a\x00b \udc80"), ValueError("x" * 100_000), SystemExit(1)], ids=repr)
def test_whatever_an_error_says_is_parked_and_shown(registry: Registry, start: Start, error: BaseException) -> None:
    """NUL, lone surrogates and endless messages are refused by some database; SystemExit ends a thread."""
    make_tables(registry)
    told = Recorder(act=Failing(4, error=error))
    astha = start(told, workers=1)
    touch(registry, 1)
    until(lambda: told.refreshes == 2, astha.status)
    (parked,) = feed.list_parked(registry)
    assert parked.error.startswith(type(error).__name__)
    touch(registry, 1)
    until(lambda: len(told.events) == 1, astha.status)
    assert component(astha).last_error == parked.error
    assert astha.status().restarts == 0


def test_a_refresh_that_fails_is_tried_again(registry: Registry, start: Start) -> None:
    make_tables(registry)
    left = [1, 2]

    def refresh() -> None:
        if left:
            left.pop()
            raise SystemExit("no")

    told = Recorder()
    told.refresh_act = refresh
    start(told)
    touch(registry, 1)
    until(lambda: len(told.events) == 1)
    assert left == [] and told.refreshes == 1


def test_a_refresh_that_always_fails_opens_the_circuit_and_is_tried_at_each_probe(
    registry: Registry, start: Start
) -> None:
    tries: list[int] = []
    works = threading.Event()

    def refresh() -> None:
        tries.append(1)
        if not works.is_set():
            raise ValueError("no")

    astha, told, other = Astha(registry, quick()), Recorder(), Recorder("snapshotter")
    told.refresh_act = refresh
    astha.register(told)
    astha.register(other)
    with astha:
        until(lambda: component(astha).breaker != "closed", astha.status)
        assert "on_refresh failed: ValueError: no" in str(component(astha).reason)
        opened = len(tries)
        until(lambda: len(tries) > opened + 1, astha.status)
        make_tables(registry)
        until(lambda: len(other.events) == 3)
        works.set()
        until(lambda: component(astha).status == "active", astha.status)
        assert told.refreshes == 1


# Health ---------------------------------------------------------------------------------------------------------------
def test_five_failed_health_checks_in_a_row_open_the_circuit_and_a_good_one_closes_it(
    registry: Registry, start: Start
) -> None:
    make_tables(registry)
    well = threading.Event()
    told, other = Recorder(), Recorder("snapshotter")
    asked = itertools.count(1)
    astha = start(told, other)
    told.is_well = lambda: bool(next(asked)) and well.is_set()
    until(lambda: component(astha).breaker == "open", astha.status)
    assert next(asked) > 5
    assert component(astha).status == "error"
    assert "on_health says that it does not work" in str(
        component(astha).reason
    )  # or so does the probe that came since
    touch(registry, 1, 2)
    touch_files(registry, 1, 1)
    until(lambda: len(other.events) == 1 and component(astha).queue_length == 3, astha.status)
    assert told.events == []
    well.set()
    until(lambda: len(told.events) == 3, astha.status)
    assert told.sequences() == [row["sequence"] for row in changes(registry)[-3:]]
    until(lambda: component(astha).status == "active", astha.status)
    assert told.refreshes == 1


def test_past_its_bound_the_queue_of_an_open_circuit_turns_into_a_refresh(registry: Registry, start: Start) -> None:
    make_tables(registry)
    well = threading.Event()
    mirror, other = Mirror(registry, "compactor"), Mirror(registry, "snapshotter")
    astha = start(mirror, other, queue_limit=10, batch_size=5)
    mirror.is_well = well.is_set
    until(lambda: component(astha).breaker == "open", astha.status)
    touch(registry, 1, 40, at_once=True)
    until(lambda: component(astha).queue_length == 0 and cursor_of(registry, "compactor") is None, astha.status)
    well.set()
    until(lambda: mirror.refreshes == 2, astha.status)
    mirror.expect_true()
    assert len(mirror.events) < 40
    touch(registry, 1)
    mirror.expect_true()
    assert other.refreshes == 1


def cursor_of(registry: Registry, name: str) -> feed.Place | None:
    return {cursor.subscriber: cursor.place for cursor in load_cursors(registry)}[name]


def test_one_whose_on_health_hangs_counts_as_unhealthy(registry: Registry, start: Start) -> None:
    make_tables(registry)
    go = threading.Event()
    told, other = Recorder(), Recorder("snapshotter")
    astha = start(told, other, health_timeout=0.01)
    told.is_well = lambda: go.wait(60)
    until(lambda: component(astha).breaker == "open", astha.status)
    touch_files(registry, 1, 1)
    until(lambda: len(other.events) == 1)
    go.set()
    until(lambda: len(told.events) == 1, astha.status)


def test_one_that_has_not_answered_for_too_long_counts_as_unhealthy_before_five_failures(
    registry: Registry, start: Start
) -> None:
    told = Recorder()
    told.is_well = lambda: False
    go = threading.Event()
    astha = start(told, health_timeout=0.01, stale_after=2.0, max_failures=10**6)
    told.is_well = lambda: go.wait(60)
    until(lambda: component(astha).breaker == "open", astha.status)
    go.set()
    until(lambda: component(astha).status == "active", astha.status)


# Hanging --------------------------------------------------------------------------------------------------------------
def test_an_on_event_that_hangs_opens_the_circuit_and_the_component_refreshes_when_it_is_back(
    registry: Registry, start: Start
) -> None:
    make_tables(registry, 2)
    go, hangs = threading.Event(), threading.Event()

    def hang(event: Event[Any]) -> None:
        if event.table_id == 1 and not go.is_set():
            hangs.set()
            go.wait(60)

    mirror, other = Mirror(registry, "compactor", act=hang), Mirror(registry, "snapshotter")
    astha = start(mirror, other, event_timeout=0.05)
    touch(registry, 1)
    until(hangs.is_set)
    until(lambda: component(astha).breaker == "open", astha.status)
    assert "unresponsive" in str(component(astha).reason)
    touch(registry, 2, 3)
    touch_files(registry, 2, 3)
    other.expect_true()
    assert len(other.events) == 3 and component(astha, "snapshotter").status == "active"
    assert mirror.refreshes == 1
    go.set()
    until(lambda: mirror.refreshes == 2, astha.status)
    mirror.expect_true()
    touch(registry, 1)
    mirror.expect_true()
    until(lambda: component(astha).status == "active", astha.status)


def test_an_on_refresh_that_hangs_opens_the_circuit_and_the_component_refreshes_when_it_is_back(
    registry: Registry, start: Start
) -> None:
    make_tables(registry)
    go, hangs = threading.Event(), threading.Event()

    def hang() -> None:
        if mirror.refreshes == 1:
            hangs.set()
            go.wait(100)

    mirror, other = Mirror(registry, "compactor", act=Failing(4)), Mirror(registry, "snapshotter")
    mirror.refresh_act = hang
    astha = start(mirror, other, refresh_timeout=0.2)
    touch(registry, 1)  # is parked, and so asks for a refresh
    until(hangs.is_set, astha.status)
    until(lambda: component(astha).breaker == "open", astha.status)
    until(lambda: "on_refresh has not returned" in str(component(astha).reason), astha.status)
    assert component(astha).status == "error"
    touch_files(registry, 1, 3)
    until(lambda: len(other.events) == 3)  # nobody else notices
    assert mirror.events == []
    go.set()
    until(lambda: component(astha).breaker == "closed" and mirror.refreshes >= 3, astha.status)
    mirror.expect_true()

    def comes() -> (
        bool
    ):  # a busy machine may take longer than the limit for a refresh, which comes again and covers a change
        touch(registry, 1)
        return bool(mirror.events)

    until(comes, astha.status)
    mirror.expect_true()
    until(lambda: component(astha).status == "active", astha.status)


def test_an_on_refresh_that_hangs_for_ever_does_not_keep_astha_from_stopping(registry: Registry) -> None:
    make_tables(registry)
    go, hangs = threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        go.wait(100)

    told = Recorder()
    told.refresh_act = hang
    astha = Astha(registry, quick(stop_timeout=0.5, refresh_timeout=0.1))
    astha.register(told)
    astha.start()
    until(hangs.is_set, astha.status)
    until(lambda: component(astha).status == "error", astha.status)
    assert astha.stop() is False
    assert astha.status().state == "stopped"
    go.set()


def test_a_late_return_is_only_late(registry: Registry, start: Start) -> None:
    """Slower than a health check, quicker than the limit: nothing happens but that it takes its time."""
    make_tables(registry)
    told = Recorder(act=lambda event: threading.Event().wait(0.2))
    astha = start(told, event_timeout=60.0)
    touch(registry, 1, 2)
    until(lambda: len(told.events) == 2)
    assert (told.refreshes, component(astha).retried) == (1, 0)


def test_a_component_that_hangs_for_ever_does_not_keep_astha_from_stopping(registry: Registry, start: Start) -> None:
    make_tables(registry)
    go = threading.Event()
    told, other = Recorder(act=lambda event: go.wait(100)), Recorder("snapshotter")
    astha = start(told, other, stop_timeout=0.5)
    touch(registry, 1)
    touch_files(registry, 1, 1)
    until(lambda: told._inside and len(other.events) == 1)
    assert astha.stop() is False
    assert astha.status().state == "stopped"
    follower = Recorder("snapshotter")
    start(follower)  # the lease is free
    go.set()


def test_events_that_wait_for_too_long_are_dropped_for_a_refresh(registry: Registry, start: Start) -> None:
    make_tables(registry)
    go = threading.Event()
    mirror = Mirror(registry, "compactor", act=lambda event: go.wait(60))
    astha = start(mirror, drain_timeout=0.1, workers=1)
    touch(registry, 1, 5)
    until(lambda: "waited for more than" in str(component(astha).reason), astha.status)
    assert component(astha).queue_length == 0
    go.set()
    until(lambda: mirror.refreshes == 2, astha.status)
    mirror.expect_true()
    assert len(mirror.events) < 5


def test_an_event_that_this_version_cannot_read_is_made_up_for_by_a_refresh(registry: Registry, start: Start) -> None:
    make_tables(registry)
    mirror, other = Mirror(registry, "compactor"), Recorder("schema_manager")
    astha = start(mirror, other)
    with registry.database.transaction() as connection:
        connection.exec_driver_sql(
            "INSERT INTO registry_changes (table_name, operation, table_id, data, changed_at) "
            "SELECT table_name, operation, table_id, '{\"table_id\": 1}', changed_at FROM registry_changes "
            "WHERE table_name = 'table_stats'"
        )
    until(lambda: mirror.refreshes == 2, astha.status)
    touch(registry, 1)
    until(lambda: mirror.sequences() and mirror.sequences()[-1] == changes(registry)[-1]["sequence"])
    mirror.expect_true()
    assert other.refreshes == 1


def test_columns_that_a_newer_version_added_are_skipped(registry: Registry, start: Start) -> None:
    make_tables(registry)
    told = Recorder()
    start(told)
    data = next(row["data"] for row in changes(registry) if row["table_name"] == "table_stats")
    newer = msgspec.json.encode({**data, "a_newer_column": {"deep": [1]}, "row_count": 2**63 - 1}).decode()
    with registry.database.transaction() as connection:
        connection.exec_driver_sql(
            "INSERT INTO registry_changes (table_name, operation, table_id, data, changed_at) "
            f"SELECT table_name, operation, table_id, '{newer}', changed_at FROM registry_changes "
            "WHERE table_name = 'table_stats'"
        )
    until(lambda: [event.data.row_count for event in told.events] == [2**63 - 1])
    assert told.refreshes == 1
