"""Old operations metadata goes, in small transactions, one process at a time; what somebody still needs stays."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, time, timedelta
from functools import partial

import msgspec
import sqlalchemy as sa

from lakeward import validation
from lakeward.batching import done_in_batches
from lakeward.db import dialect, lock_order
from lakeward.db.retry import retried
from lakeward.errors import InvalidInput
from lakeward.ops.sql import dead_letters, error_log, runs, schema_versions, upkeep
from lakeward.registry import leases
from lakeward.registry.handle import Registry

LEASE = "metadata:cleanup"
LEASE_SECONDS = 30.0
WAIT_SECONDS = 10.0
BATCH = 200  # rows that one transaction deletes: a writer waits for one of these at most
KEPT_VERSIONS = 10  # of each table's schema
CLEANUP = "metadata-cleanup"
CLEANUP_SECONDS = 3_600.0  # between two in the background
FOREVER = 1 << 62  # seconds that are kept where nothing is to be deleted


@retried
def keep_at_least(registry: Registry, days: float | None) -> None:
    """From now on no process deletes operations metadata that ended less than `days` ago; None: nothing at all.

    The strictest that anybody has asked for holds, until `set_retention`.

    Raises InvalidInput: days that are not above 0.
    """
    seconds = _seconds(days)
    with registry.database.read() as connection:
        row = upkeep.load(connection, CLEANUP)
    if row is None or (row.keep_seconds or 0) < seconds:
        with registry.database.transaction() as connection:
            lock_order.name(connection, LEASE)
            upkeep.set_keep(connection, CLEANUP, max(seconds, _kept(connection)))


@retried
def set_retention(registry: Registry, days: float | None) -> None:
    """Say how long operations metadata is kept, less than before too; None: for ever.

    Raises InvalidInput: days that are not above 0.
    """
    with registry.database.transaction() as connection:
        lock_order.name(connection, LEASE)
        upkeep.set_keep(connection, CLEANUP, _seconds(days))


def retention(registry: Registry) -> float | None:
    """The days for which operations metadata is kept whoever deletes it: none for ever, 0 where nobody has asked."""
    with registry.database.read() as connection:
        seconds = _kept(connection)
    return None if seconds >= FOREVER else seconds / 86_400


def is_due(registry: Registry, hours: Schedule) -> bool:
    """Whether it is one of the `hours` by the registry's clock, and the last clean-up in the background, whoever did it, was
    long enough ago.
    """
    with registry.database.read() as connection:
        now = dialect.now(connection)
        row = upkeep.load(connection, CLEANUP)
        return hours.allows(now) and (row is None or row.due_at is None or row.due_at <= now)


def _seconds(days: float | None) -> int:
    return FOREVER if days is None else int(validation.span(days, "retention_days", "days").total_seconds())


def _kept(connection: sa.Connection) -> int:
    row = upkeep.load(connection, CLEANUP)
    return 0 if row is None else int(row.keep_seconds or 0)


def cleanup(registry: Registry, retention_days: float = 30.0, *, wait: float = WAIT_SECONDS) -> dict[str, int]:
    """Delete what ended more than `retention_days` ago; how many rows of each table.

    Runs that have ended, errors that are resolved or ignored, dead letters that are resolved or discarded, and versions of
    schemas but the last 10 of each table. What somebody has asked to be kept longer (`keep_at_least`) stays as long as that.
    Positions, running runs, open errors and waiting dead letters stay however old, and so do runs that these name.

    Raises:
        InvalidInput: days that are not above 0.
        LeaseHeld: another process is at it.
        LeaseLost: this one was held up so long that another may be at it; what it deleted until then is deleted.
    """
    age = validation.span(retention_days, "retention_days", "days")
    with leases.held(registry, LEASE, seconds=LEASE_SECONDS, wait=wait) as lease:
        done = {
            # In this order: dead letters name errors, and both name runs.
            "dead_letter_queue": _deleted(registry, lease, age, partial(_ended, dead_letters.delete_ended)),
            "error_log": _deleted(registry, lease, age, partial(_ended, error_log.delete_ended)),
            "sync_runs": _deleted(registry, lease, age, partial(_ended, runs.delete_ended)),
            "schema_registry": _deleted(registry, lease, age, _old_versions),
        }
        _done(registry, lease)
        return done


def _before(connection: sa.Connection, age: timedelta) -> datetime | None:
    """What ended before may go, as of this transaction; None where nothing may. Waits for who changes the retention."""
    lock_order.name(connection, LEASE)
    seconds = _kept(connection)
    if seconds >= FOREVER:
        return None
    return dialect.now(connection) - max(age, timedelta(seconds=seconds))


# Deletes some of what may go, being from before a time, after an id: how many, and where to go on, None at the end.
Delete = Callable[[sa.Connection, datetime, int], tuple[int, int | None]]


def _ended(
    delete: Callable[[sa.Connection, datetime, int], int], connection: sa.Connection, before: datetime, _: int
) -> tuple[int, int | None]:
    gone = delete(connection, before, BATCH)
    return gone, 0 if gone == BATCH else None


def _old_versions(connection: sa.Connection, before: datetime, after: int) -> tuple[int, int | None]:
    gone, last = schema_versions.delete_old(connection, before, KEPT_VERSIONS, BATCH, after)
    return gone, last or None


def _deleted(registry: Registry, lease: leases.Lease, age: timedelta, delete: Delete) -> int:
    return done_in_batches(lambda after: _delete_batch(registry, lease, age, delete, after))


@retried
def _delete_batch(
    registry: Registry, lease: leases.Lease, age: timedelta, delete: Delete, after: int
) -> tuple[int, int | None]:
    with registry.database.transaction() as connection:
        before = _before(connection, age)
        leases.check(connection, lease)
        return (0, None) if before is None else delete(connection, before, after)


@retried
def _done(registry: Registry, lease: leases.Lease) -> None:
    with registry.database.transaction() as connection:
        lock_order.name(connection, LEASE)
        leases.check(connection, lease)
        upkeep.set_due(connection, CLEANUP, dialect.now(connection) + timedelta(seconds=CLEANUP_SECONDS))


# When -----------------------------------------------------------------------------------------------------------------------
class Schedule(msgspec.Struct, frozen=True):
    """Spans of the day, UTC, in which the background may clean up; without any, always."""

    spans: tuple[tuple[time, time], ...] = ()

    def allows(self, moment: datetime) -> bool:
        now = moment.timetz().replace(tzinfo=None)
        return not self.spans or any(
            start <= now < end if start < end else now >= start or now < end for start, end in self.spans
        )


_SPAN = re.compile(r"\s*(\d{1,2})(?::(\d{2}))?\s*-\s*(\d{1,2})(?::(\d{2}))?\s*")


def schedule(text: str | None) -> Schedule:
    """'02:00-05:00', '22-6', '1-3, 13-14': hours of the day, UTC; a span may pass midnight. None: always.

    Raises InvalidInput.
    """
    if text is None:
        return Schedule()
    return Schedule(tuple(_span(part, text) for part in text.split(",")))


def _span(part: str, text: str) -> tuple[time, time]:
    match = _SPAN.fullmatch(part)
    try:
        if match is None:
            raise ValueError
        start, end = (
            time(int(match[i]) % 24 if match[i] == "24" else int(match[i]), int(match[i + 1] or 0)) for i in (1, 3)
        )
    except ValueError:
        raise InvalidInput(
            f"cleanup_schedule {text!r} is no span of hours; write '02:00-05:00' or '22-6', UTC"
        ) from None
    return start, end
