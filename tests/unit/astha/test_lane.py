"""A lane alone, against a model: no event is lost, doubled within a generation, or out of order within a table."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lakeward.astha import TABLE_FILES, AsthaConfig, Event, RetryConfig, WatchedTable
from lakeward.astha.entries import Entry, Task
from lakeward.astha.feed import Page, Place
from lakeward.astha.router import Lane, groups
from lakeward.astha.sql.changes import Change, Wanted
from lakeward.astha.watcher import Item
from tests.contract.db.rows import TIME

LIMIT, PAGE, WORKERS = 6, 4, 2
AT_ONCE = RetryConfig(max_retries=10**6, initial_delay=1e-6, max_delay=1e-6, jitter=0.0)


class Stub:
    name = "compactor"
    version = "1"

    def get_subscribed_tables(self) -> Sequence[WatchedTable[Any]]:
        return [TABLE_FILES]

    def on_event(self, event: Event[Any]) -> None: ...

    def on_health(self) -> bool:
        return True

    def on_refresh(self) -> None: ...


class NothingToDo(Exception):
    pass


def at(sequence: int) -> Place:
    return Place("registry", sequence)


def item(sequence: int, table_id: int, *, is_readable: bool = True) -> Item:
    change = Change(sequence, "table_files", "INSERT", table_id, "{}", TIME)
    event: Event[Any] = Event("table_files", "INSERT", None, TIME, table_id, sequence)
    return Item(change, event if is_readable else None)


def make_lane(*, fold: bool = False) -> Lane:
    """A lane in which nobody waits: where there is nothing to do, NothingToDo says so."""
    lane = Lane(
        Stub(), Wanted([TABLE_FILES]), AsthaConfig(queue_limit=LIMIT, workers=WORKERS, retry=AT_ONCE), folds=fold
    )

    def refuse(_: float | None = None) -> bool:
        raise NothingToDo

    lane.changed.wait = refuse  # type: ignore[assignment, method-assign]
    return lane


class LaneModel(RuleBasedStateMachine):
    """The component mirrors the newest number of each lakehouse table. `feed` is the truth."""

    FOLD = False

    def __init__(self) -> None:
        super().__init__()
        self.feed: list[Item] = []
        self.lane = make_lane(fold=self.FOLD)
        self.in_hand: list[tuple[Task, Entry]] = []
        self.refreshing: Task | None = None
        self.state: dict[int, int] = {}
        self.known: set[int] = set()  # numbers that were handled, or that a refresh has seen
        self.handled: dict[tuple[int, int], list[int]] = defaultdict(list)  # by generation and table
        self.cursor: Place | None = None
        self.lane.begin(None)
        self.take()
        self.finish_refresh(True)

    # The main loop
    @rule(table_ids=st.lists(st.integers(1, 3), min_size=1, max_size=4), unreadable=st.integers(0, 20))
    def commit(self, table_ids: list[int], unreadable: int) -> None:
        for table_id in table_ids:
            self.feed.append(item(len(self.feed) + 1, table_id, is_readable=unreadable != 20))

    @rule(count=st.integers(1, PAGE))
    def read(self, count: int) -> None:
        for position, lanes in groups([self.lane]).items():
            found = self.feed[position.sequence : position.sequence + count]
            after = at(position.sequence + len(found))
            for lane in lanes:
                lane.put(Page(found, position, after, len(found) < count), position)
        self.take()

    @rule()
    def store_cursor(self) -> None:
        self.cursor = self.lane.done_up_to()
        if self.cursor is not None and self.refreshing is None and self.lane.reason() is None:
            missed = set(range(1, self.cursor.sequence + 1)) - self.known
            assert not missed or self.FOLD, f"the cursor passes over {missed}"

    @rule(what=st.integers(0, 20))
    def disturb(self, what: int) -> None:
        """Seldom, or nothing else would come about."""
        if what == 18:
            self.lane.ask_refresh("because")
        elif what == 19:  # the lease was lost, say; workers may still be at what they had
            self.lane.begin(self.cursor)
        elif what == 20:
            self.lane.begin(None)

    # Workers
    @rule()
    def take(self) -> None:
        if len(self.in_hand) + (self.refreshing is not None) >= WORKERS:
            return
        try:
            task = self.lane.take(lambda: True)
        except NothingToDo:
            return
        assert task is not None
        if task.table_id is None:
            assert self.refreshing is None and self.in_hand == [], "a refresh has the component for itself"
            self.refreshing = task
            return
        assert self.refreshing is None
        assert task.table_id not in {other.table_id for other, _ in self.in_hand}, "one event of a table at a time"
        self._go_on(task, self.lane.next(task, None, 0))

    def _go_on(self, task: Task, entry: Entry | None) -> None:
        if entry is not None:
            self.in_hand.append((task, entry))

    @precondition(lambda self: self.in_hand)
    @rule(which=st.integers(0, WORKERS), turn=st.sampled_from([1, 1, 1000]))
    def succeed(self, which: int, turn: int) -> None:
        task, entry = self.in_hand.pop(which % len(self.in_hand))
        sequence, table_id = entry.change.sequence, entry.change.table_id
        before = self.handled[task.generation, table_id]
        assert not before or before[-1] < sequence, f"{sequence} of table {table_id} after {before}"
        before.append(sequence)
        self.state[table_id] = sequence
        self.known.add(sequence)
        self._go_on(task, self.lane.next(task, entry, turn))

    @precondition(lambda self: self.in_hand)
    @rule(which=st.integers(0, WORKERS))
    def fail(self, which: int) -> None:
        task, entry = self.in_hand.pop(which % len(self.in_hand))
        self.lane.put_back(task, entry, 0.0)

    @precondition(lambda self: self.refreshing)
    @rule(works=st.sampled_from([True, True, True, False]))
    def finish_refresh(self, works: bool) -> None:
        task, self.refreshing = self.refreshing, None
        assert task is not None
        if self.lane.must_rebase:
            self.lane.hold(task, at(len(self.feed)))
            self.lane.rebase(task, at(len(self.feed)))
        if not works:
            self.lane.refresh_failed("no")
            return
        self.state = {each.change.table_id: each.change.sequence for each in self.feed}
        self.known.update(range(1, len(self.feed) + 1))
        self.lane.refreshed(task)

    @invariant()
    def the_queue_is_bounded_and_counted(self) -> None:
        entries = {id(e): e for batch in self.lane._batches for e in batch.entries if not e.done}
        assert self.lane.length == len(entries) <= LIMIT + PAGE

    def teardown(self) -> None:
        """Left alone, it comes to rest with the right state, and a cursor past everything."""
        deadline = time.monotonic() + 20
        while not self._is_at_rest():
            assert time.monotonic() < deadline, (self.lane.reason(), self.lane.length, self.in_hand)
            self.read(PAGE)
            if self.refreshing is not None:
                self.finish_refresh(True)
            while self.in_hand:
                self.succeed(0, 1)
            self.take()
        assert self.state == {each.change.table_id: each.change.sequence for each in self.feed}
        assert self.lane.done_up_to() == at(len(self.feed))

    def _is_at_rest(self) -> bool:
        lane = self.lane
        is_idle = not self.in_hand and self.refreshing is None and lane.reason() is None and lane.length == 0
        return is_idle and lane.place == at(len(self.feed))


class FoldingLaneModel(LaneModel):
    FOLD = True


RUNS = settings(max_examples=40, stateful_step_count=80, deadline=None)
TestLane = pytest.mark.timeout(300)(LaneModel.TestCase)
TestLane.settings = RUNS
TestFoldingLane = pytest.mark.timeout(300)(FoldingLaneModel.TestCase)
TestFoldingLane.settings = RUNS


def test_lanes_that_stand_together_are_read_for_once() -> None:
    lanes = [make_lane() for _ in range(3)]
    for lane, position in zip(lanes, (5, 5, 7), strict=True):
        lane.begin(at(position))
    assert groups(lanes) == {at(5): lanes[:2], at(7): lanes[2:]}


def test_what_was_read_from_elsewhere_is_not_taken() -> None:
    """The lane was moved between the read and the put."""
    lane = make_lane()
    lane.begin(at(5))
    lane.put(Page([item(4, 1)], at(3), at(4), True), at(3))
    assert (lane.length, lane.place) == (0, at(5))


def test_a_lane_of_which_nothing_is_wanted_in_a_page_still_moves_on() -> None:
    lane = make_lane()
    lane.begin(at(0))
    other = Change(1, "tables", "INSERT", 1, "{}", TIME)
    lane.put(Page([Item(other, None)], at(0), at(1), True), at(0))
    assert (lane.length, lane.done_up_to()) == (0, at(1))


def test_so_many_health_checks_that_fail_in_a_row_open_the_circuit_and_one_success_forgets_them() -> None:
    lane = Lane(Stub(), Wanted([TABLE_FILES]), AsthaConfig())
    for error in (*["no"] * 4, None, *["no"] * 4):
        lane.judged(error, is_stale=False)
        assert lane.breaker.is_closed
    assert lane.status() == "degraded"
    lane.judged("the fifth", is_stale=False)
    assert lane.status() == "error" and lane.breaker.reason == "unhealthy: the fifth"
