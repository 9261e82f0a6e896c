from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lakeward.db.conditions import at_least
from lakeward.db.pipeline import Answer
from lakeward.db.prepared import Prepared
from lakeward.db.schema import dead_letter_queue, error_log, sync_runs
from lakeward.ops.records.operations import SyncRun
from lakeward.ops.sql.rows import Rows

_c = sync_runs.c
_rows = Rows(sync_runs, SyncRun)
insert, load, update = _rows.insert, _rows.load, _rows.update
_RUNNING = _c.status == sa.literal_column("'running'")
_INSERT_WHOLE = Prepared(sync_runs.insert().returning(_c.id))


def send_whole(connection: sa.Connection, values: Mapping[str, Any]) -> Answer:
    """Insert a run that has ended; its `id`. Prepared: it is part of small appends. Give the same columns each time."""
    return _INSERT_WHOLE.send(connection, values)


def add(connection: sa.Connection, run_id: int, counts: Mapping[str, int], now: datetime) -> bool:
    """Let a run's counts grow, which is a sign of life too; false if it is not there. One that has ended counts too: what is
    committed was done."""
    grown = {name: _c[name] + count for name, count in counts.items()}
    seen = sa.case((_c.last_seen_at < now, sa.literal(now, _c.last_seen_at.type)), else_=_c.last_seen_at)
    change = sync_runs.update().where(_c.id == run_id).values({**grown, "last_seen_at": seen})
    return connection.execute(change).rowcount > 0


def page(
    connection: sa.Connection, *, since: datetime | None = None, table_name: str | None = None, **options: Any
) -> list[SyncRun]:
    """The newest first, that started then or later; of those that write a table, its own. `options` as Rows.page."""
    written = [] if table_name is None else [_writes(table_name)]
    return _rows.page(connection, at_least(_c.started_at, since), *written, **options)


def _writes(table_name: str) -> sa.ColumnElement[bool]:
    """Whether a run's destination is a table, named with its namespace or without."""
    destination: sa.ColumnElement[str] = sa.type_coerce(_c.destination_info, sa.JSON)["table"].as_string()
    return destination.in_([table_name, _c.schema_name + "." + table_name])


def silent(connection: sa.Connection, since: datetime, *, with_heartbeats: bool, limit: int) -> list[SyncRun]:
    """Running ones without a sign of life since a time, locked; the longest silent first. Those locked are left out.

    With `with_heartbeats`, of those alone that have sent one.
    """
    query = sa.select(*_rows.columns).where(_RUNNING, _c.last_seen_at < since)
    if with_heartbeats:
        query = query.where(_c.heartbeat_at.is_not(None))
    query = query.order_by(_c.last_seen_at).limit(limit).with_for_update(key_share=True, skip_locked=True)
    return _rows.records(connection, query)


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
