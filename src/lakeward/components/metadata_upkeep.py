"""What operations metadata needs done again and again: silent runs are given up, old rows are deleted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from lakeward.components.background import repeated
from lakeward.registry import Registry, housekeeping, runs
from lakeward.store import dialect

RECOVERY_SECONDS = 60.0  # between two looks for runs of which nothing was heard
CLEANUP_SECONDS = 3_600.0
HEARTBEAT_LIMIT_SECONDS = 900.0  # a run that sends heartbeats is given up after this silence
RETENTION_DAYS = 30.0
ALWAYS = housekeeping.schedule(None)


@contextmanager
def running(
    registry: Registry,
    *,
    enable_cleanup: bool = True,
    retention_days: float = RETENTION_DAYS,
    schedule: housekeeping.Schedule = ALWAYS,
    heartbeat_seconds: float = HEARTBEAT_LIMIT_SECONDS,
) -> Iterator[None]:
    """Give up silent runs every minute; clean up every hour that the schedule allows. One process at a time does either."""

    def recover(registry: Registry) -> None:
        runs.recover(registry, heartbeat_seconds=heartbeat_seconds)

    def clean(registry: Registry) -> None:
        with registry.database.read() as connection:
            now = dialect.now(connection)
        if schedule.allows(now):
            housekeeping.cleanup(registry, retention_days, wait=0)

    with ExitStack() as stack:
        stack.enter_context(repeated(registry, "metadata-recovery", RECOVERY_SECONDS, recover))
        if enable_cleanup:
            # Short programs never need it.
            stack.enter_context(repeated(registry, "metadata-cleanup", CLEANUP_SECONDS, clean, at_once=False))
        yield
