"""Tables that were dropped: whose time in quarantine is over, and the end of their rows."""

from __future__ import annotations

from lakeward.db import dialect, lock_order
from lakeward.db.retry import retried
from lakeward.registry.handle import Registry
from lakeward.registry.sql import intents, leases
from lakeward.tables.records.tables import Table
from lakeward.tables.sql import footers, tables


def due(registry: Registry) -> list[Table]:
    """Those of this handle's warehouse, the longest dropped first."""
    with registry.database.read() as connection:
        return tables.dropped_before(connection, registry.below, dialect.now(connection))


@retried
def forget(registry: Registry, table: Table) -> bool:
    """Delete a table's rows, whose folder is gone; whether they are.

    While a write of it may still be under way somewhere they stay, so that recovery finds the write's prefix.
    """
    with registry.database.transaction() as connection:
        lock_order.tables(connection, [table.table_id], keys=True)
        if intents.any_of(connection, table):
            return False
        leases.delete_of(connection, table.table_uuid)
        footers.delete_of_table(connection, table.table_id)
        tables.delete(connection, table.table_id)
    return True
