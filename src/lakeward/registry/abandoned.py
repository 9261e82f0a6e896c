"""Writes whose writers are gone, and what may be left below the prefixes of those that were registered: what is due, and
what was done about it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from lakeward.db import dialect
from lakeward.db.database import Database
from lakeward.db.retry import retried
from lakeward.registry.handle import Registry
from lakeward.registry.sql import intents, leases, orphan_sweeps
from lakeward.registry.sql.leases import is_impossible
from lakeward.registry.sql.orphan_sweeps import OrphanSweep as OrphanSweep
from lakeward.tables.records.files import Intent

BATCH = 100


def expired(registry: Registry) -> tuple[Sequence[Intent], Sequence[Intent], Sequence[OrphanSweep]]:
    """(writes whose lease has run out, writes whose last sweep is due, prefixes that are due), and nothing is changed."""
    with registry.database.read() as connection:
        now = dialect.now(connection)
        return (
            intents.expired(connection, registry.below, now, limit=None),
            intents.to_sweep(connection, registry.below, now),
            orphan_sweeps.due(connection, registry.below, now, limit=None),
        )


def impossible(database: Database) -> list[str]:
    """What ends later than it can, if it began now: its time was set by a clock that was ahead. Recovery and who asks for a
    lease cut it."""
    with database.read() as connection:
        now = dialect.now(connection)
        found = [(f"the lease {row.name!r}", row.expires_at, row.lease_ms) for row in leases.current(connection, now)]
        found += [
            (f"the lease of the write {row.intent_id}", row.lease_until, row.lease_ms)
            for row in intents.current(connection, now)
        ]
    return [
        f"{what} ends at {end.isoformat(timespec='seconds')}, later than it can"
        for what, end, length in found
        if is_impossible(end, now, length)
    ]


@retried
def shorten(registry: Registry) -> int:
    """Cut leases that end later than they can, which a clock that was ahead has set; how many."""
    with registry.database.transaction() as connection:
        now = dialect.now(connection)
        return intents.shorten_impossible(connection, registry.below, now, registry.settings.lease_seconds)


@retried
def mark_batch(registry: Registry) -> list[Intent]:
    """Mark up to BATCH writes whose lease has run out: from then on their registration fails."""
    with registry.database.transaction() as connection:
        now = dialect.now(connection)
        later = now + timedelta(seconds=registry.settings.sweep_after_seconds)
        found = intents.expired(connection, registry.below, now, BATCH, lock=True)
        for intent in found:
            intents.mark_recovered(connection, intent.intent_id, now, later)
        return found


def due(registry: Registry) -> list[Intent]:
    """Writes whose last sweep is due."""
    with registry.database.read() as connection:
        return intents.to_sweep(connection, registry.below, dialect.now(connection))


@retried
def finish(registry: Registry, swept: list[Intent], failed: list[Intent]) -> int:
    """Forget the writes whose last sweep is done; those that failed are due again at once."""
    if not swept and not failed:
        return 0
    forgotten = 0
    with registry.database.transaction() as connection:
        now = dialect.now(connection)
        wait = timedelta(seconds=registry.settings.sweep_after_seconds)
        for intent in sorted([*failed, *swept], key=lambda each: each.intent_id):  # as another recovery does
            if intent in failed:
                intents.sweep_at(connection, intent.intent_id, now)
            # One that failed at first may have been swept too early to be the last time.
            elif intents.forget(connection, intent.intent_id, now - wait):
                forgotten += 1
            else:
                intents.sweep_at(connection, intent.intent_id, now + wait)
    return forgotten


# What lost tasks of registered writes left ----------------------------------------------------------------------------------
def due_sweeps(registry: Registry) -> tuple[list[OrphanSweep], datetime]:
    """(up to BATCH prefixes that are due, the registry's time)."""
    with registry.database.read() as connection:
        now = dialect.now(connection)
        return orphan_sweeps.due(connection, registry.below, now, BATCH), now


def owned(registry: Registry, locations: Collection[str]) -> set[str]:
    """Those of the locations that a row of the registry names."""
    with registry.database.read() as connection:
        return orphan_sweeps.owned(connection, locations)


@retried
def finish_sweeps(registry: Registry, done: list[OrphanSweep], now: datetime) -> int:
    """Forget the sweeps that were the last of their prefix; how many. The others are due once more, for tasks that were only
    slow."""
    wait = timedelta(seconds=registry.settings.sweep_after_seconds)
    last = [sweep for sweep in done if sweep.registered_at + wait <= now]
    if not done:
        return 0
    with registry.database.transaction() as connection:
        for sweep in sorted(done, key=lambda each: each.prefix):  # as another recovery does
            if sweep in last:
                orphan_sweeps.forget(connection, sweep.prefix)
            else:
                orphan_sweeps.sweep_at(connection, sweep.prefix, sweep.registered_at + wait)
    return len(last)
