"""Work that is done again and again while a server runs: by one process at a time, the one that has the lease."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lakeward.errors import LeaseHeld
from lakeward.logs import log
from lakeward.ops.error_types import log_and_go_on
from lakeward.registry import Registry, leases

LEASE_SECONDS = 30.0
STOP_SECONDS = 9.0  # for what is in hand when a program ends


class Deadline:
    """When all that is stopped together has to be over: so long after the first asks."""

    def __init__(self, seconds: float = STOP_SECONDS) -> None:
        self._seconds = seconds
        self._end: float | None = None

    def left(self) -> float:
        """Seconds. The clock runs from the first call on."""
        if self._end is None:
            self._end = time.monotonic() + self._seconds
        return max(0.0, self._end - time.monotonic())


@contextmanager
def repeated(
    registry: Registry,
    name: str,
    seconds: float,
    action: Callable[[Registry], object],
    *,
    deadline: Deadline | None = None,
) -> Iterator[None]:
    """While the block runs, do `action` every so many seconds in a thread. What goes wrong is logged, and tried again.

    At its end what is in hand is waited for until the deadline, and then left behind: it is safe to kill.
    """
    done = threading.Event()

    def run() -> None:
        _once(registry, name, action)
        while not done.wait(seconds):
            _once(registry, name, action)

    thread = threading.Thread(target=run, name=f"lakeward-{name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join((deadline or Deadline()).left())


def _once(registry: Registry, name: str, action: Callable[[Registry], object]) -> None:
    try:
        with leases.held(registry, f"background:{name}", seconds=LEASE_SECONDS):
            action(registry)
    except LeaseHeld:  # another process is at it
        pass
    except Exception as error:  # the next round tries again
        log_and_go_on(log, "background_failed", error, work=name)
