"""Work that is done again and again while a server runs: by one process at a time, the one that has the lease."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lakeward.background import Worker
from lakeward.errors import LeaseHeld
from lakeward.registry import leases
from lakeward.registry.handle import Registry
from lakeward.retry import Deadline, steady

LEASE_SECONDS = 30.0
STOP_SECONDS = 9.0  # for what is in hand when a program ends


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

    def step() -> float:
        try:
            with leases.held(registry, f"background:{name}", seconds=LEASE_SECONDS):
                action(registry)
        except LeaseHeld:  # another process is at it
            pass
        return seconds

    worker = Worker(f"lakeward-{name}", step, retry=steady(seconds))
    worker.wake()
    try:
        yield
    finally:
        worker.stop((deadline or Deadline(STOP_SECONDS)).left())
