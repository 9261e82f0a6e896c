"""Work that is done again and again while a server runs: by one process at a time, the one that has the lease."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lakeward.errors import LeaseHeld
from lakeward.logs import log
from lakeward.registry import Registry, leases
from lakeward.registry.error_types import log_and_go_on

LEASE_SECONDS = 30.0


@contextmanager
def repeated(
    registry: Registry, name: str, seconds: float, action: Callable[[Registry], object], *, at_once: bool = True
) -> Iterator[None]:
    """While the block runs, do `action` every so many seconds in a thread. What goes wrong is logged, and tried again.

    Without `at_once` the first time comes after so many seconds: a program that starts has other things to do.
    """
    done = threading.Event()

    def run() -> None:
        if at_once:
            _once(registry, name, action)
        while not done.wait(seconds):
            _once(registry, name, action)

    thread = threading.Thread(target=run, name=f"lakeward-{name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _once(registry: Registry, name: str, action: Callable[[Registry], object]) -> None:
    try:
        with leases.held(registry, f"background:{name}", seconds=LEASE_SECONDS):
            action(registry)
    except LeaseHeld:  # another process is at it
        pass
    except Exception as error:  # the next round tries again
        log_and_go_on(log, "background_failed", error, work=name)
