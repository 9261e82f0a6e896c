"""Heartbeats: one thread for each handle of a registry, since to start and to join one for each run takes longer than the
run's own transactions."""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Protocol

from lakeward.background import Worker
from lakeward.registry.handle import Registry

IDLE_SECONDS = 10.0  # without a run the thread ends then: the handle may have been forgotten without being closed


class Beating(Protocol):
    heartbeat_seconds: float

    def beat(self) -> None:
        """Never raises."""


class Heartbeats:
    """Calls `beat` of those that were added, each in its own time, until they are discarded.

    A run holds its registry, so that one with a run under way is never forgotten; and one without has no thread for long.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: dict[Beating, float] = {}
        self._worker = Worker("lakeward-runs", self._beat, linger=IDLE_SECONDS)

    def add(self, run: Beating) -> None:
        """Raises RuntimeError: no thread can be started; the next run tries again, for this one too."""
        with self._lock:
            now = time.monotonic()
            self._due[run] = now + run.heartbeat_seconds
            wait = min(self._due.values()) - now
        self._worker.wake(max(0.0, wait))

    def discard(self, run: Beating) -> None:
        with self._lock:
            self._due.pop(run, None)

    def stop(self) -> None:
        """No beat begins after those that are under way."""
        self._worker.stop(0)

    @property
    def is_alive(self) -> bool:
        """Whether its thread runs."""
        return self._worker.is_alive

    def _beat(self) -> float | None:
        with self._lock:
            now = time.monotonic()
            due = [run for run, at in self._due.items() if at <= now]
            for run in due:
                self._due[run] = now + run.heartbeat_seconds
        for run in due:
            run.beat()
        del due
        with self._lock:
            return max(0.0, min(self._due.values()) - time.monotonic()) if self._due else None


_lock = threading.Lock()
_heartbeats: weakref.WeakKeyDictionary[Registry, Heartbeats] = weakref.WeakKeyDictionary()


def heartbeats_of(registry: Registry) -> Heartbeats:
    """The handle's own, which stops when that is closed."""
    with _lock:
        found = _heartbeats.get(registry)
        if found is None:
            found = _heartbeats[registry] = Heartbeats()
            registry.before_close(found.stop)
        return found


def _forget_in_child() -> None:
    """Its threads are not there, and their locks may be held for ever."""
    global _lock
    _lock = threading.Lock()
    _heartbeats.clear()


os.register_at_fork(after_in_child=_forget_in_child)
