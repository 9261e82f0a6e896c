"""Heartbeats: one thread for each handle of a registry, since to start and to join one for each run takes longer than the
run's own transactions."""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from typing import Protocol

from lakeward.registry.handle import Registry

IDLE_SECONDS = (
    10.0  # without a run, after which the thread ends: the handle may have been forgotten without being closed
)


class Beating(Protocol):
    heartbeat_seconds: float

    def beat(self) -> None:
        """Never raises."""


class Pulse:
    """Calls `beat` of those that were added, each in its own time, until they are discarded.

    A run holds its registry, so that one with a run under way is never forgotten; and one without has no thread for long.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: dict[Beating, float] = {}
        self._wakes = math.inf
        self._thread: threading.Thread | None = None
        self._stopped = False

    def add(self, run: Beating) -> None:
        """Raises RuntimeError: no thread can be started; the next run tries again, for this one too."""
        with self._changed:
            due = self._due[run] = time.monotonic() + run.heartbeat_seconds
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="lakeward-runs", daemon=True)
                thread.start()
                self._thread = thread
            elif due < self._wakes:
                self._changed.notify()

    def discard(self, run: Beating) -> None:
        with self._changed:
            self._due.pop(run, None)

    def stop(self) -> None:
        """No beat begins after this one that is under way."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _run(self) -> None:
        while (due := self._next()) is not None:
            for run in due:
                run.beat()

    def _next(self) -> list[Beating] | None:
        with self._changed:
            self._wakes = math.inf
            self._changed.wait_for(lambda: self._due or self._stopped, IDLE_SECONDS)
            if self._stopped or not self._due:
                self._thread = None  # the next run starts another
                return None
            self._wakes = min(self._due.values())
            self._changed.wait(max(0.0, self._wakes - time.monotonic()))
            now = time.monotonic()
            due = [run for run, at in self._due.items() if at <= now]
            for run in due:
                self._due[run] = now + run.heartbeat_seconds
            return due


_lock = threading.Lock()
_pulses: weakref.WeakKeyDictionary[Registry, Pulse] = weakref.WeakKeyDictionary()


def pulse_of(registry: Registry) -> Pulse:
    """The handle's own, which stops when that is closed."""
    with _lock:
        found = _pulses.get(registry)
        if found is None:
            found = _pulses[registry] = Pulse()
            registry.before_close(found.stop)
        return found


def _forget_in_child() -> None:
    """Its threads are not there, and their locks may be held for ever."""
    global _lock
    _lock = threading.Lock()
    _pulses.clear()


os.register_at_fork(after_in_child=_forget_in_child)
