"""Routes events to components: one lane for each, in which events wait by lakehouse table.

Within a lakehouse table events keep their order; tables and components do not wait for each other. A lane that is full is
simply not read for: its events stay in the feed, and it goes on where it stopped. Nobody else waits for it.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Literal

from lakeward.astha.config import AsthaConfig
from lakeward.astha.entries import Batch, Counts, Entry, Task, Waiting
from lakeward.astha.events import Subscriber
from lakeward.astha.feed import Page, Place
from lakeward.astha.health import Breaker
from lakeward.astha.sql.changes import Wanted
from lakeward.astha.watcher import Item

RUN = 100  # events of one table that a worker handles before it looks for another table
IDLE_SECONDS = 0.1  # how long a worker waits where nobody will wake it


class Lane:
    """What one component waits for, and where it stands. All state is under `lock`."""

    def __init__(
        self, subscriber: Subscriber[Any], wanted: Wanted, config: AsthaConfig, *, folds: bool = False
    ) -> None:
        """`folds`: of the waiting events of a lakehouse table the newest is enough."""
        self.subscriber = subscriber
        self.name = subscriber.name
        self.wanted = wanted
        self._folds = folds
        self.config = config
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.breaker = Breaker(config.open_seconds)
        self.health_failures = 0  # in a row
        self.counts = Counts()
        self.place: Place | None = None  # read up to here; None: not known before the refresh that is due
        self.generation = 0
        self.started: dict[int, tuple[float, Entry]] = {}  # by thread: since when an on_event runs, and of what
        self.last_error: str | None = None
        self._batches: deque[Batch] = deque()
        self._queues: dict[int, deque[Entry]] = {}  # by lakehouse table; each is ready, busy or delayed
        self._ready: deque[int] = deque()
        self._delayed: list[tuple[float, int]] = []  # (when, lakehouse table)
        self._busy: set[int] = set()
        self.length = 0  # entries that are not done
        self.moves = 0  # grows with all that moves the cursor
        self._done = Place("", 0)  # all before it is done
        self._held: Place | None = None  # while a refresh is due: the feed is kept from here on
        self._refresh: str | None = "start"  # why a refresh is due
        self._refresh_at = 0.0  # not before
        self._refresh_failures = 0
        self.is_refreshing = False
        self._refreshing_since = 0.0
        self._must_rebase = True  # the refresh moves `place` to the feed's head
        self.is_stopping = False
        self.was_skipped = False  # the last read was not for this lane

    # What the main loop does ------------------------------------------------------------------------------------------
    def begin(self, place: Place | None) -> None:
        """Start anew, with a refresh: from a stored place, or from the feed's head as it is at the refresh."""
        with self.lock:
            self._drop()
            self.place = place
            self._must_rebase = place is None
            if place is not None:
                self._done = place
            self._refresh, self._refresh_at, self._refresh_failures = "start", 0.0, 0
            self.changed.notify_all()

    def wants(self) -> Place | None:
        """Where to read on for this lane; None while it takes nothing."""
        with self.lock:
            self.was_skipped = not self._takes()
            if self.was_skipped:
                if not self._must_rebase and not self.breaker.is_closed:
                    self._ask_refresh(f"more than {self.config.queue_limit} events waited while its circuit was open")
                return None
            return self.place

    def takes_again(self) -> bool:
        """Whether it has to catch up, since it took nothing at the last read."""
        return self.was_skipped and self._takes()  # without the lock: it is asked anew at the next look

    def _takes(self) -> bool:
        return not self._must_rebase and self.length < self.config.queue_limit

    def put(self, read: Page[Item], start: Place) -> None:
        """Take what was read from `start`, if the lane still stands there."""
        with self.lock:
            if self._must_rebase or self.place != start:
                return
            self.place = read.after
            self.moves += len(read.changes)
            entries = [entry for entry in map(self._entry, read.changes) if entry is not None]
            if self._must_rebase:  # one of them cannot be read
                return
            for entry in entries:
                self._enqueue(entry)
            if entries:
                self._batches.append(Batch(entries, read.within, read.after))
                self.changed.notify(min(len(entries), self.config.workers))
            elif self._batches:
                self._batches[-1].after = read.after
            else:
                self._done = read.after

    def _entry(self, item: Item) -> Entry | None:
        change, event = item
        if not self.wanted.includes(change):
            return None
        if event is None:
            self._ask_refresh(f"event {change.sequence} of {change.table_name} cannot be read by this version")
            return None
        return Entry(change, event)

    def _enqueue(self, entry: Entry) -> None:
        table_id = entry.change.table_id
        queue = self._queues.get(table_id)
        if queue is None:
            self._queues[table_id] = deque((entry,))
            self._ready.append(table_id)
        else:
            if self._folds:
                for folded in queue:
                    self._fold(folded, entry)
                queue.clear()
            queue.append(entry)
        self.length += 1

    def _fold(self, older: Entry, newer: Entry) -> None:
        """The newer one says all that the older does; how often the table has failed stays known."""
        older.done = True
        newer.attempts = max(newer.attempts, older.attempts)
        self.counts.folded += 1
        self.length -= 1

    def done_up_to(self) -> Place | None:
        """All before it is done; None while a refresh is due: the feed need not be kept for it before that begins."""
        with self.lock:
            if self._must_rebase:
                return self._held
            while self._batches and self._batches[0].is_done():
                self._done = self._batches.popleft().after
            return self._batches[0].place() if self._batches else self._done

    def check(self, now: float) -> None:
        """Look for an on_event or on_refresh that hangs, and for events that have waited for too long."""
        with self.lock:
            limit = self.config.refresh_timeout
            if self.is_refreshing and now - self._refreshing_since > limit and self.breaker.is_closed:
                self._ask_refresh(f"its on_refresh took longer than {limit} s")  # what it read is old when it returns
                self.breaker.open("unresponsive: an on_refresh has not returned")
            for started, entry in list(self.started.values()):
                if now - started > self.config.event_timeout and self.breaker.is_closed:
                    self._ask_refresh(f"event {entry.change.sequence} took longer than {self.config.event_timeout} s")
                    self.breaker.open("unresponsive: an on_event has not returned")
            oldest = self._batches[0] if self._batches else None
            if oldest is not None and not oldest.is_done() and now - oldest.put_at > self.config.drain_timeout:
                self._ask_refresh(f"its events waited for more than {self.config.drain_timeout} s")

    def ask_refresh(self, reason: str) -> None:
        """Drop what waits: the component takes its state from the registry instead."""
        with self.lock:
            self._ask_refresh(reason)

    def _ask_refresh(self, reason: str) -> None:
        if self._refresh is None:
            self._refresh_at, self._refresh_failures = 0.0, 0
        self._refresh = reason
        self._must_rebase = True
        self.place = None
        self.moves += 1
        self._drop()
        self.changed.notify_all()

    def _drop(self) -> None:
        self.generation += 1
        self._held = None
        self._batches.clear()
        self._queues.clear()
        self._ready.clear()
        self._delayed.clear()
        self.length = 0

    # What workers do --------------------------------------------------------------------------------------------------
    def take(self, is_current: Callable[[], bool]) -> Task | None:
        """Wait for something to do; None when the lane stops."""
        with self.lock:
            while not self.is_stopping:
                now = time.monotonic()
                wait: float | None = None
                if not is_current():
                    wait = IDLE_SECONDS
                elif not self.breaker.is_closed or self.is_refreshing:
                    pass  # whoever closes the circuit or ends the refresh wakes us
                elif self._refresh is not None:
                    if not self._busy and now >= self._refresh_at:
                        self.is_refreshing, self._refreshing_since = True, now
                        return Task(self.generation, None)
                    wait = max(self._refresh_at - now, 0.001) if not self._busy else None
                else:
                    while self._delayed and self._delayed[0][0] <= now:
                        self._ready.append(heapq.heappop(self._delayed)[1])
                    if self._ready:
                        table_id = self._ready.popleft()
                        self._busy.add(table_id)
                        return Task(self.generation, table_id)
                    wait = self._delayed[0][0] - now if self._delayed else None
                self.changed.wait(wait)
            return None

    def next(self, task: Task, done: Entry | None, turn: int) -> Entry | None:
        """The task's next entry, after `done`; None when the task is over."""
        table_id = task.table_id
        assert table_id is not None
        with self.lock:
            if done is not None:
                self.counts.delivered += 1
                self.moves += 1
                if self.generation == task.generation:
                    done.done = True
                    self.length -= 1
            queue = self._queues.get(table_id) if self.generation == task.generation else None
            if queue and turn < RUN and not self.is_stopping and self.breaker.is_closed:
                return queue.popleft()
            self._busy.discard(table_id)
            if queue:
                self._ready.append(table_id)
            elif queue is not None:
                del self._queues[table_id]
            if queue or self._refresh is not None:
                self.changed.notify()
            return None

    def put_back(self, task: Task, entry: Entry, delay: float, *, is_retry: bool = False) -> None:
        """The entry failed, or may not be handled now: it comes first again, after `delay` seconds."""
        table_id = task.table_id
        assert table_id is not None
        with self.lock:
            self.counts.retried += is_retry
            self._busy.discard(table_id)
            if self.generation == task.generation:
                self._put_back(table_id, entry, delay)
            self.changed.notify()

    def _put_back(self, table_id: int, entry: Entry, delay: float) -> None:
        queue = self._queues[table_id]
        if self._folds and queue:
            self._fold(entry, queue[0])
        else:
            queue.appendleft(entry)
        heapq.heappush(self._delayed, (time.monotonic() + delay, table_id))

    def refresh_reason(self) -> str:
        with self.lock:
            return self._refresh or "start"

    @property
    def must_rebase(self) -> bool:
        """Whether the refresh that is due moves the lane to the feed's head."""
        return self._must_rebase

    def hold(self, task: Task, head: Place) -> None:
        """Before the rebase: once this is stored, the feed is kept from `head` on."""
        with self.lock:
            if self.generation == task.generation:
                self._held = head

    def rebase(self, task: Task, head: Place) -> None:
        """Before the refresh: events from `head` on are handled after it. What falls between comes twice."""
        with self.lock:
            if self._must_rebase and self.generation == task.generation:
                self.place = self._done = head
                self._must_rebase = False

    def refreshed(self, task: Task) -> None:
        """The refresh is over. Where another was asked for since it began, that is still due: this one may not have seen why."""
        with self.lock:
            self.is_refreshing = False
            self.counts.refreshes += 1
            self.moves += 1
            self._refresh_failures = 0
            if self.generation == task.generation and not self._must_rebase:
                self._refresh = None
            self.changed.notify_all()

    def refresh_failed(self, error: str) -> None:
        """Try again after a while; after all tries the circuit opens, and each probe tries once more."""
        retry = self.config.retry
        with self.lock:
            self.is_refreshing = False
            self.last_error = error
            self._refresh_failures += 1
            self._refresh_at = time.monotonic() + retry.delay(self._refresh_failures)
            if self._refresh_failures > retry.max_retries:
                self.breaker.open(f"on_refresh failed: {error}")
            self.changed.notify_all()

    # What the health check does ---------------------------------------------------------------------------------------
    def judged(self, error: str | None, is_stale: bool) -> None:
        """After a health check: open the circuit, or close it."""
        with self.lock:
            self.health_failures = 0 if error is None else self.health_failures + 1
            is_well = self.health_failures < self.config.max_failures
            if self.breaker.state == "half_open":
                self._probed(error)
            elif self.breaker.is_closed and (is_stale or not is_well):
                self.breaker.open("it has not answered on_health for too long" if is_stale else f"unhealthy: {error}")

    def _probed(self, error: str | None) -> None:
        hangs = "on_event" if self.started else "on_refresh" if self.is_refreshing else None
        if error is not None or hangs is not None:
            self.breaker.open(error or f"unresponsive: an {hangs} has not returned")
            return
        self.breaker.close()
        self.changed.notify_all()

    def try_probe(self) -> bool:
        with self.lock:
            return self.breaker.try_half_open()

    # Being looked at ---------------------------------------------------------------------------------------------------
    def waiting(self) -> Waiting:
        with self.lock:
            undone = (batch.entries[batch.at].change for batch in self._batches if not batch.is_done())
            return Waiting(self.length, next(undone, None), None if self._must_rebase else self.place)

    def reason(self) -> str | None:
        with self.lock:
            return self.breaker.reason or self._refresh

    # Ending -----------------------------------------------------------------------------------------------------------
    def stop(self) -> None:
        with self.lock:
            self.is_stopping = True
            self.changed.notify_all()

    def status(self) -> Literal["active", "degraded", "error"]:
        with self.lock:
            if self.breaker.state == "open":
                return "error"
            is_well = self.health_failures == 0 and not self._delayed and self._refresh is None
            return "active" if is_well and self.breaker.is_closed else "degraded"


def groups(lanes: Iterable[Lane]) -> dict[Place, list[Lane]]:
    """The lanes that take more, by where they stand: for those that stand together the feed is read, and decoded, once."""
    found: dict[Place, list[Lane]] = {}
    for lane in lanes:
        place = lane.wants()
        if place is not None:
            found.setdefault(place, []).append(lane)
    return found
