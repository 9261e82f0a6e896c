"""Counts over the whole registry, for who asks how it is."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lakeward.db.schema import PENDING, dead_letter_queue, error_log, pending_writes, sync_runs, table_files, tables


def sizes(connection: sa.Connection) -> dict[str, int]:
    """Tables, rows, files and bytes of the live tables, JSON lines included."""
    t = tables.c
    sums = {
        "rows": t.row_count + t.landing_row_count,
        "files": t.file_count + t.landing_file_count,
        "bytes": t.total_size + t.landing_size,
    }
    columns = [sa.func.coalesce(sa.func.sum(each), 0).label(name) for name, each in sums.items()]
    query = sa.select(sa.func.count().label("tables"), *columns).where(t.dropped_at.is_(None))
    return dict(connection.execute(query).mappings().one())


def pending(connection: sa.Connection) -> dict[str, Any]:
    """Of the files in no snapshot: how many, their bytes and tables, and when the oldest was registered."""
    f = table_files.c
    query = sa.select(
        sa.func.count().label("pending_files"),
        sa.func.coalesce(sa.func.sum(f.file_size), 0).label("pending_bytes"),
        sa.func.count(f.table_id.distinct()).label("pending_tables"),
        sa.func.min(f.registered_at).label("pending_since"),
    )
    return dict(connection.execute(query.where(PENDING)).mappings().one())


def set_aside(connection: sa.Connection) -> int:
    return _count(connection, table_files.c.set_aside_reason.is_not(None))


def dead_writes(connection: sa.Connection, now: datetime) -> int:
    """Writes whose lease has run out, and that no recovery has cleared."""
    w = pending_writes.c
    return _count(connection, sa.and_(w.lease_until < now, w.recovered_at.is_(None)))


def open_errors(connection: sa.Connection) -> int:
    return _count(connection, error_log.c.status == "open")


def dead_letters(connection: sa.Connection) -> int:
    """Those that wait, or are worked on."""
    return _count(connection, dead_letter_queue.c.status.in_(("pending", "processing")))


def runs(connection: sa.Connection, status: str, since: datetime | None = None) -> int:
    r = sync_runs.c
    return _count(connection, sa.and_(r.status == status, sa.true() if since is None else r.started_at >= since))


def _count(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> int:
    return int(connection.execute(sa.select(sa.func.count()).where(condition)).scalar_one())
