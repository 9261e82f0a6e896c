"""Old operations metadata goes, in small transactions, one process at a time; what somebody still needs stays."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, time

import msgspec
import sqlalchemy as sa

from lakeward.errors import InvalidInput
from lakeward.registry import arguments, leases
from lakeward.registry.handle import Registry
from lakeward.store import dead_letters, dialect, error_log, runs, schema_versions

LEASE = "metadata:cleanup"
LEASE_SECONDS = 30.0
WAIT_SECONDS = 10.0
BATCH = 200  # rows that one transaction deletes: a writer waits for one of these at most
KEPT_VERSIONS = 10  # of each table's schema


def cleanup(registry: Registry, retention_days: float = 30.0, *, wait: float = WAIT_SECONDS) -> dict[str, int]:
    """Delete what ended more than `retention_days` ago; how many rows of each table.

    Runs that have ended, errors that are resolved or ignored, dead letters that are resolved or discarded, and versions of
    schemas but the last 10 of each table. Positions, running runs, open errors and waiting dead letters stay however old,
    and so do runs that these name.

    Raises:
        InvalidInput: days that are not above 0.
        LeaseHeld: another process is at it.
        LeaseLost: this one was held up so long that another may be at it; what it deleted until then is deleted.
    """
    age = arguments.span(retention_days, "retention_days", "days")
    with leases.held(registry, LEASE, seconds=LEASE_SECONDS, wait=wait) as lease:
        with registry.database.read() as connection:
            before = dialect.now(connection) - age
        return {
            # In this order: dead letters name errors, and both name runs.
            "dead_letter_queue": _emptied(registry, lease, before, dead_letters.delete_ended),
            "error_log": _emptied(registry, lease, before, error_log.delete_ended),
            "sync_runs": _emptied(registry, lease, before, runs.delete_ended),
            "schema_registry": _old_versions(registry, lease, before),
        }


def _emptied(
    registry: Registry,
    lease: leases.Lease,
    before: datetime,
    delete: Callable[[sa.Connection, datetime, int], int],
) -> int:
    total = 0
    while True:
        with registry.database.transaction() as connection:
            leases.check(connection, lease)
            gone = delete(connection, before, BATCH)
        total += gone
        if gone < BATCH:
            return total


def _old_versions(registry: Registry, lease: leases.Lease, before: datetime) -> int:
    total = after = 0
    while True:
        with registry.database.transaction() as connection:
            leases.check(connection, lease)
            gone, after = schema_versions.delete_old(connection, before, KEPT_VERSIONS, BATCH, after)
        total += gone
        if not after:
            return total


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
