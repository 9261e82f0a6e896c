"""Objects below a table's folder that may be nobody's: which of them the registry names, and the others sent to quarantine."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from lakeward.db import dialect, lock_order
from lakeward.db.retry import retried
from lakeward.registry.handle import Registry
from lakeward.storage.engine import ObjectInfo
from lakeward.tables.records.tables import Table
from lakeward.tables.sql import files, retired, snapshots, tables


def named(registry: Registry, table: Table, paths: Collection[str]) -> tuple[set[str], Table | None]:
    """(locations that the registry names, the table as it is now; None if it is gone)."""
    with registry.database.read() as connection:
        named = _with_rows(connection, paths)
        made = snapshots.of_table(connection, table.table_id)
        current = tables.by_id(connection, table.table_id)
    return named | {path for each in made for path in (each.manifest_list, each.metadata_location)}, current


def _with_rows(connection: sa.Connection, paths: Collection[str]) -> set[str]:
    live = {file.file_path for file in files.by_paths(connection, paths)}
    return live | {file.file_path for file in retired.by_paths(connection, paths)}


@retried
def quarantine(registry: Registry, table: Table, found: list[ObjectInfo]) -> list[ObjectInfo]:
    """Send to quarantine what the registry does not name still; what was sent."""
    with registry.database.transaction() as connection:
        lock_order.tables(connection, [table.table_id])
        current = tables.by_id(connection, table.table_id)
        if current is None or current.dropped_at is not None:
            return []
        known = _with_rows(connection, [info.location for info in found])  # of another clean-up, meanwhile
        now = dialect.now(connection)
        taken = [info for info in found if info.location not in known]
        retired.insert(
            connection,
            table.table_id,
            [{"file_path": info.location, "file_size": info.size} for info in taken],
            kind="stray",
            reason="nothing names it: left by an engine whose commit failed",
            now=now,
            expires_at=registry.quarantine_ends(now),
        )
        return taken
