"""What is done in threads: again and again by a Worker, or once by `begin`. They keep no program from its end."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from lakeward.logs import log, log_and_go_on
from lakeward.retry import RetryConfig

T = TypeVar("T")

RETRY = RetryConfig(initial_delay=1.0, max_delay=60.0)


class Worker:
    """Does a step again and again until it is stopped, in a thread that the first `wake` starts."""

    def __init__(
        self,
        name: str,
        step: Callable[[], float | None],
        *,
        threads: int = 1,
        linger: float = 0.0,
        retry: RetryConfig = RETRY,
        failed: Callable[[Exception], object] | None = None,
    ) -> None:
        """
        Args:
            name: of the thread; of several, with their numbers.
            step: gives the seconds until it is done again, math.inf for not before somebody wakes it. With none the thread
                ends, unless it is woken meanwhile or within the seconds of `linger`; a later `wake` starts another.
            retry: when a step that raised is done again.
            failed: told what a step raised; by itself that is logged.
        """
        self.name = name
        self.is_stopped = False
        self._step = step
        self._count = threads
        self._linger = linger
        self._retry = retry
        self._failed = failed or self._log
        self._changed = threading.Condition()
        self._running: list[_Thread] = []

    @property
    def is_alive(self) -> bool:
        """Whether all its threads run."""
        return len(self._running) == self._count

    def wake(self, after: float = 0.0) -> None:
        """Have the step done so many seconds from now at the latest; one that is under way is done once more.

        Raises RuntimeError: no thread can be started.
        """
        at = time.monotonic() + after
        with self._changed:
            if self.is_stopped:
                return
            is_sooner = [each.wake(at) for each in self._running]
            if any(is_sooner):
                self._changed.notify_all()
            for number in range(len(self._running), self._count):
                each = _Thread(at)
                name = self.name if self._count == 1 else f"{self.name}-{number}"
                each.thread = threading.Thread(target=self._run, args=(each,), name=name, daemon=True)
                each.thread.start()
                self._running.append(each)

    def stop(self, seconds: float | None = None) -> bool:
        """Begin no step any more, for good, and wait for what is in hand; whether that ended within so many seconds."""
        with self._changed:
            self.is_stopped = True
            self._changed.notify_all()
        return self.join(seconds)

    def join(self, seconds: float | None = None) -> bool:
        """Wait until all its threads but the caller's have ended; whether they did within so many seconds."""
        end = None if seconds is None else time.monotonic() + seconds
        with self._changed:
            threads = [each.thread for each in self._running if each.thread is not threading.current_thread()]
        for thread in threads:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _run(self, me: _Thread) -> None:
        failures = 0
        try:
            while self._wait(me):
                began = time.monotonic()
                again: float | None
                try:
                    again = self._step()
                    failures = 0
                except Exception as error:
                    # What has gone on for long before it failed has worked.
                    failures = 1 if time.monotonic() - began > self._retry.max_delay else failures + 1
                    self._failed(error)
                    again = self._retry.delay(failures)
                with self._changed:
                    me.plan(again, self._linger)
        finally:
            with self._changed:
                if me in self._running:
                    self._running.remove(me)

    def _wait(self, me: _Thread) -> bool:
        """Whether there is another step to do, once it is time for it."""
        with self._changed:
            while not self.is_stopped:
                left = me.left()
                if left > 0:
                    self._changed.wait(min(left, threading.TIMEOUT_MAX))
                elif me.is_ending:
                    self._running.remove(me)  # in one with the look: whoever wakes it from now on starts another
                    return False
                else:
                    me.at = math.inf
                    return True
        return False

    def _log(self, error: Exception) -> None:
        log_and_go_on(log, "background_failed", error, work=self.name.removeprefix("lakeward-"))


class _Thread:
    """One of a worker's threads: when it does its next step, or ends."""

    thread: threading.Thread

    def __init__(self, at: float) -> None:
        self.at = at
        self._ends_at = math.inf

    @property
    def is_ending(self) -> bool:
        return self.at == math.inf

    def wake(self, at: float) -> bool:
        """Whether that is sooner than what was planned."""
        is_sooner = at < self.at
        self.at = min(self.at, at)
        return is_sooner

    def plan(self, again: float | None, linger: float) -> None:
        now = time.monotonic()
        self._ends_at = now + linger if again is None else math.inf
        if again is not None:
            self.at = min(self.at, now + again)

    def left(self) -> float:
        return (self._ends_at if self.at == math.inf else self.at) - time.monotonic()


def begin(name: str, action: Callable[[], T]) -> Future[T]:
    """Do it once, in a thread of its own; what it gives or raises, once it is done."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(action())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return result
