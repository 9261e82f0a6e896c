"""Reads the feed of PostgreSQL by the difference of two snapshots: what became visible between them, by sequence.

A sequence number is drawn before its transaction commits, so going by the number alone misses what commits later.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lakeward.store import schema

_NOW = sa.text("SELECT pg_current_snapshot()::text")
_BETWEEN = sa.text(
    "SELECT sequence, table_id, data FROM registry_changes "
    "WHERE xid >= pg_snapshot_xmin(CAST(:old AS pg_snapshot)) "
    "AND NOT pg_visible_in_snapshot(xid, CAST(:old AS pg_snapshot)) "
    "AND pg_visible_in_snapshot(xid, CAST(:new AS pg_snapshot)) ORDER BY sequence"
).columns(schema.registry_changes.c.sequence, schema.registry_changes.c.table_id, schema.registry_changes.c.data)


def position(connection: sa.Connection) -> str:
    found: str = connection.execute(_NOW).scalar_one()
    return found


def read_since(connection: sa.Connection, old: str) -> tuple[str, list[Any]]:
    """The changes that have become visible since `old`, in the order of each table, and the next position."""
    new = position(connection)
    return new, list(connection.execute(_BETWEEN, {"old": old, "new": new}))
