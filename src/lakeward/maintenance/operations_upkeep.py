"""What operations metadata needs done again and again: silent runs are given up, old rows are deleted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from lakeward.ops import retention, runs
from lakeward.registry import Registry
from lakeward.registry.repeated import repeated
from lakeward.retry import Deadline

RECOVERY_SECONDS = 60.0  # between two looks for runs of which nothing was heard
CLEANUP_LOOK_SECONDS = 60.0  # between two looks whether a clean-up is due
HEARTBEAT_LIMIT_SECONDS = 900.0  # a run that sends heartbeats is given up after this silence


@contextmanager
def running(
    registry: Registry,
    *,
    enable_cleanup: bool | None = None,
    retention_days: float | None = None,
    schedule: retention.Schedule | None = None,
    heartbeat_seconds: float = HEARTBEAT_LIMIT_SECONDS,
    deadline: Deadline | None = None,
) -> Iterator[None]:
    """Give up silent runs every minute; clean up every hour that the schedule allows. One process at a time does either.

    What is not given is as the settings say. When a clean-up is due stands in the registry, so that programs that live for
    minutes do it too; so does the strictest retention that was asked for, and holds for every process.
    """
    settings = registry.settings
    enabled = settings.enable_cleanup if enable_cleanup is None else enable_cleanup
    days = settings.retention_days if retention_days is None else retention_days
    hours = schedule or retention.schedule(settings.cleanup_schedule)
    asked = retention_days is not None or days != type(settings)().retention_days
    if not enabled or asked:
        retention.keep_at_least(registry, days if enabled else None)

    def recover(registry: Registry) -> None:
        runs.recover(registry, heartbeat_seconds=heartbeat_seconds)

    def clean(registry: Registry) -> None:
        if retention.is_due(registry, hours):
            retention.cleanup(registry, days, wait=0)

    with ExitStack() as stack:
        stack.enter_context(repeated(registry, "metadata-recovery", RECOVERY_SECONDS, recover, deadline=deadline))
        if enabled:
            stack.enter_context(repeated(registry, "metadata-cleanup", CLEANUP_LOOK_SECONDS, clean, deadline=deadline))
        yield
