"""The threads of one component: they hand it its events one by one, try again what fails, park what fails for good, and
have it refresh.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from lakeward import logs
from lakeward.astha.entries import Entry, Task
from lakeward.astha.feed import Place
from lakeward.astha.health import Probe
from lakeward.astha.reasons import reason as reason_of
from lakeward.astha.router import Lane
from lakeward.astha.sql.changes import Change
from lakeward.background import Worker
from lakeward.errors import LakewardError
from lakeward.logs import log
from lakeward.retry import steady

IDLE_SECONDS = 0.1

Park = Callable[[Lane, Change, int, str], object]
Hold = Callable[[Lane, Task], Place]


class Delivery:
    """Runs one lane until `stop`."""

    def __init__(self, lane: Lane, *, is_current: Callable[[], bool], hold: Hold, park: Park) -> None:
        self.lane = lane
        self._is_current = is_current
        self._hold = hold
        self._park = park
        self._log: Any = log.bind(component=lane.name)
        self._tells = logs.is_configured()  # its default prints every level: thousands of lines a second
        config = lane.config
        self.probe = Probe(lane.name, lane.subscriber.on_health, config.health_timeout)
        self._said: tuple[str, str | None] = ("closed", None)
        self._watches = min(config.health_interval, config.open_seconds)
        self._workers = Worker(f"lakeward-{lane.name}", self._work, threads=config.workers)
        self._watcher = Worker(f"lakeward-{lane.name}-health", self._watch, retry=steady(self._watches))

    def start(self) -> None:
        self._started_at = time.monotonic()
        self._workers.wake()
        self._watcher.wake(self._watches)

    def stop(self, deadline: float) -> bool:
        """Finish what is in hand, until `deadline` (monotonic); false if something does not return.

        A component that calls this in an event of its own is not waited for.
        """
        self.lane.stop()
        have_ended = [each.stop(max(0.0, deadline - time.monotonic())) for each in (self._watcher, self._workers)]
        return all(have_ended)

    # Events -----------------------------------------------------------------------------------------------------------
    def _work(self) -> None:
        while (task := self.lane.take(self._is_current)) is not None:
            if task.table_id is None:
                self._refresh(task)
            else:
                self._handle(task)

    def _handle(self, task: Task) -> None:
        lane, me = self.lane, threading.get_ident()
        entry = lane.next(task, None, 0)
        turn = 0
        while entry is not None:
            if not self._is_current():
                lane.put_back(task, entry, IDLE_SECONDS)
                return
            lane.started[me] = (time.monotonic(), entry)
            try:
                lane.subscriber.on_event(entry.event)
            except BaseException as error:  # SystemExit too: a worker that ends would keep its table for ever
                self._failed(task, entry, error)
                return
            finally:
                del lane.started[me]
            self._told(entry, "done")
            turn += 1
            entry = lane.next(task, entry, turn)

    def _failed(self, task: Task, entry: Entry, error: BaseException) -> None:
        lane, retry = self.lane, self.lane.config.retry
        entry.attempts += 1
        lane.last_error = reason_of(error)
        self._told(entry, "failed", error=lane.last_error)
        if entry.attempts <= retry.max_retries:
            lane.put_back(task, entry, retry.delay(entry.attempts), is_retry=True)
            return
        try:
            self._park(lane, entry.change, entry.attempts, lane.last_error)
        except LakewardError as refused:  # it is parked before it is passed over: so it comes again
            self._log.warning("event_not_parked", sequence=entry.change.sequence, error=str(refused), code=refused.code)
            lane.put_back(task, entry, retry.max_delay)
            return
        self._log.error("event_parked", sequence=entry.change.sequence, attempts=entry.attempts, error=lane.last_error)
        lane.counts.parked += 1
        lane.ask_refresh(f"event {entry.change.sequence} was parked after {entry.attempts} tries")
        lane.put_back(task, entry, 0.0)  # it goes with all that waited

    def _told(self, entry: Entry, result: str, **more: str) -> None:
        if not self._tells:
            return
        change = entry.change
        self._log.debug(
            "event",
            table=change.table_name,
            table_id=change.table_id,
            sequence=change.sequence,
            attempt=entry.attempts if result == "failed" else entry.attempts + 1,
            result=result,
            **more,
        )

    def _refresh(self, task: Task) -> None:
        lane = self.lane
        reason = lane.refresh_reason()
        try:
            if lane.must_rebase:
                lane.rebase(task, self._hold(lane, task))
            lane.subscriber.on_refresh()
        except BaseException as error:
            self._log.warning("refresh_failed", reason=reason, error=reason_of(error))
            lane.refresh_failed(reason_of(error))
            return
        if reason != "start":
            self._log.warning("refreshed", reason=reason)
        lane.refreshed(task)

    # Health -----------------------------------------------------------------------------------------------------------
    def _watch(self) -> float:
        if self._due() if self.lane.breaker.is_closed else self.lane.try_probe():
            self._check()
        return self._watches

    def _due(self) -> bool:
        last = getattr(self, "_checked_at", 0.0)
        return time.monotonic() - last >= self.lane.config.health_interval * 0.99

    def _check(self) -> None:
        self._checked_at = time.monotonic()
        error = self.probe.check()
        since = self.probe.answered_at or self._started_at
        self.lane.judged(error, time.monotonic() - since > self.lane.config.stale_after)
        now = (self.lane.breaker.state, self.lane.breaker.reason)
        if now != self._said:  # not at each probe of one that stays open
            self._said = now
            self._log.warning("circuit", state=now[0], reason=now[1])
