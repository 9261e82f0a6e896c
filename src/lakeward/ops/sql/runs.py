from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lakeward.db import lock_order
from lakeward.db.conditions import at_least, equal
from lakeward.db.prepared import Prepared
from lakeward.db.rows import columns
from lakeward.db.schema import dead_letter_queue, error_log, sync_runs
from lakeward.ops.records.operations import SyncMode, SyncRun, SyncStatus
from lakeward.validation import MAX_INTEGER

_c = sync_runs.c
_COLUMNS = columns(sync_runs, SyncRun)
_RUNNING = _c.status == sa.literal_column("'running'")
_INSERT_WHOLE = Prepared(sync_runs.insert().returning(_c.id))


def _record(row: Mapping[Any, Any]) -> SyncRun:
    return SyncRun(**{**row, "sync_mode": SyncMode(row["sync_mode"]), "status": SyncStatus(row["status"])})


def insert(connection: sa.Connection, values: Mapping[str, Any]) -> SyncRun:
    return _record(connection.execute(sync_runs.insert().values(values).returning(*_COLUMNS)).mappings().one())


def insert_whole(connection: sa.Connection, values: Mapping[str, Any]) -> int:
    """Insert a run that has ended; its id. Prepared: it is part of small appends. Give the same columns each time."""
    row = _INSERT_WHOLE.one(connection, values)
    assert row is not None
    return int(row["id"])


def load(connection: sa.Connection, run_id: int, *, lock: bool = False) -> SyncRun | None:
    query = sa.select(*_COLUMNS).where(_c.id == run_id)
    row = connection.execute(query.with_for_update(key_share=True) if lock else query).mappings().one_or_none()
    return None if row is None else _record(row)


def update(connection: sa.Connection, run_id: int, values: Mapping[str, Any]) -> SyncRun:
    """One that is locked."""
    change = sync_runs.update().where(_c.id == run_id).values(values).returning(*_COLUMNS)
    return _record(connection.execute(change, execution_options=lock_order.HELD).mappings().one())


def add(connection: sa.Connection, run_id: int, counts: Mapping[str, int], now: datetime) -> bool:
    """Let a run's counts grow, which is a sign of life too; false if it is not there. One that has ended counts too: what is
    committed was done."""
    grown = {name: _c[name] + count for name, count in counts.items()}
    seen = sa.case((_c.last_seen_at < now, sa.literal(now, _c.last_seen_at.type)), else_=_c.last_seen_at)
    change = sync_runs.update().where(_c.id == run_id).values({**grown, "last_seen_at": seen})
    return connection.execute(change).rowcount > 0


def page(
    connection: sa.Connection,
    *,
    schema_name: str | None = None,
    status: SyncStatus | None = None,
    sync_mode: SyncMode | None = None,
    since: datetime | None = None,
    table_name: str | None = None,
    before: int = MAX_INTEGER,
    limit: int | None = None,
) -> list[SyncRun]:
    """The newest first."""
    query = sa.select(*_COLUMNS).where(
        _c.id < before,
        equal(_c.schema_name, schema_name),
        equal(_c.status, status),
        equal(_c.sync_mode, sync_mode),
        at_least(_c.started_at, since),
        sa.true() if table_name is None else _writes(table_name),
    )
    return [_record(row) for row in connection.execute(query.order_by(_c.id.desc()).limit(limit)).mappings()]


def _writes(table_name: str) -> sa.ColumnElement[bool]:
    """Whether a run's destination is a table, named with its namespace or without."""
    destination: sa.ColumnElement[str] = sa.type_coerce(_c.destination_info, sa.JSON)["table"].as_string()
    return destination.in_([table_name, _c.schema_name + "." + table_name])


def silent(connection: sa.Connection, since: datetime, *, with_heartbeats: bool, limit: int) -> list[SyncRun]:
    """Running ones without a sign of life since a time, locked; the longest silent first. Those locked are left out.

    With `with_heartbeats`, of those alone that have sent one.
    """
    query = sa.select(*_COLUMNS).where(_RUNNING, _c.last_seen_at < since)
    if with_heartbeats:
        query = query.where(_c.heartbeat_at.is_not(None))
    query = query.order_by(_c.last_seen_at).limit(limit).with_for_update(key_share=True, skip_locked=True)
    return [_record(row) for row in connection.execute(query).mappings()]


def delete_ended(connection: sa.Connection, before: datetime, limit: int) -> int:
    """Delete those that ended before a time, the oldest first, but those that open errors and dead letters refer to."""
    errors, dead = error_log.c, dead_letter_queue.c
    kept = sa.or_(
        sa.exists().where(errors.sync_run_id == _c.id, errors.resolved_at.is_(None)),
        sa.exists().where(dead.sync_run_id == _c.id, dead.resolved_at.is_(None)),
    )
    old = sa.select(_c.id).where(_c.completed_at < before, ~kept).order_by(_c.completed_at).limit(limit)
    old = old.with_for_update(skip_locked=True, of=sync_runs)
    return connection.execute(sync_runs.delete().where(_c.id.in_(old))).rowcount
