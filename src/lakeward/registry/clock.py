"""Times in a registry that cannot be by its own clock: that was ahead for a while, and is right, or behind, now."""

from __future__ import annotations

from lakeward.db import dialect
from lakeward.db.database import Database
from lakeward.registry.sql import intents, leases
from lakeward.registry.sql.leases import is_impossible


def impossible(database: Database) -> list[str]:
    """What ends later than it can, if it began now; empty if all is well. Recovery and who asks for a lease cut it."""
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
