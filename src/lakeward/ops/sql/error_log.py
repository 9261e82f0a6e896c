from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa

from lakeward.db import dialect
from lakeward.db.conditions import at_least, below, equal
from lakeward.db.prepared import Prepared
from lakeward.db.schema import error_log
from lakeward.ops.records.operations import ErrorFilter, ErrorRecord, ErrorStatus
from lakeward.ops.sql.rows import Rows

_c = error_log.c
_rows = Rows(error_log, ErrorRecord)
insert, load, update = _rows.insert, _rows.load, _rows.update
# Literals, so that a plan sees that the index of what is due serves.
_DUE = sa.and_(_c.status == sa.literal_column("'open'"), _c.next_retry_at.is_not(None))
_HAS_KEY = sa.and_(_c.failure_key.is_not(None), _c.status == sa.literal_column("'open'"))
OPEN_OF_KEY = Prepared(sa.select(_c.id).where(_HAS_KEY, _c.failure_key == sa.bindparam("failure_key")))


def insert_or_count(connection: sa.Connection, values: Mapping[str, Any]) -> ErrorRecord:
    """A failure of a key. If that has an open error, it has occurred once more: it is as it was the last time."""
    statement = dialect.insert(connection, error_log).values(values)
    new = ("sync_run_id", "error_type", "error_code", "error_message", "error_details", "stack_trace", "operation_type")
    changed = {
        **{name: statement.excluded[name] for name in new},
        "occurrences": _c.occurrences + 1,
        "last_occurred_at": statement.excluded.occurred_at,
    }
    upsert = statement.on_conflict_do_update(index_elements=[_c.failure_key], index_where=_HAS_KEY, set_=changed)
    return _rows.record(connection.execute(upsert.returning(*_rows.columns)).mappings().one())


def page(connection: sa.Connection, *, since: datetime | None = None, **options: Any) -> list[ErrorRecord]:
    """The newest first, that occurred then or later; `options` as Rows.page."""
    return _rows.page(connection, at_least(_c.occurred_at, since), **options)


def open_ids(connection: sa.Connection, chosen: ErrorFilter, after: int, limit: int) -> list[int]:
    """Ids of open ones, ascending from `after` on, locked."""
    values = msgspec.structs.asdict(chosen)
    is_open = _c.status == sa.literal_column("'open'")
    earlier = below(_c.occurred_at, values.pop("before"))
    query = sa.select(_c.id).where(is_open, _c.id > after, earlier, *_rows.having(values))
    return list(connection.execute(query.order_by(_c.id).limit(limit).with_for_update(key_share=True)).scalars())


def take_due(
    connection: sa.Connection, now: datetime, until: datetime, limit: int, schema_name: str | None = None
) -> list[ErrorRecord]:
    """Hand out open errors whose time has come and that nobody has: the longest due first. They are taken until `until`."""
    query = sa.select(_c.id).where(_DUE, _c.next_retry_at <= now)
    query = query.where(sa.or_(_c.claimed_until.is_(None), _c.claimed_until <= now), equal(_c.schema_name, schema_name))
    ids = list(
        connection.execute(
            query.order_by(_c.next_retry_at).limit(limit).with_for_update(key_share=True, skip_locked=True)
        ).scalars()
    )
    if not ids:
        return []
    chosen = dialect.in_integers(connection, _c.id, ids)
    taken = error_log.update().where(chosen).values(claimed_until=until, claim=_c.claim + 1).returning(*_rows.columns)
    return sorted(_rows.records(connection, taken), key=lambda error: (error.next_retry_at or now, error.id))


def end(
    connection: sa.Connection, error_ids: Iterable[int], status: ErrorStatus, now: datetime, resolution: str | None
) -> int:
    """Resolve or ignore open errors; how many there were."""
    change = error_log.update().where(dialect.in_integers(connection, _c.id, error_ids), _c.status == "open")
    values = {"status": status.value, "resolved_at": now, "resolution": resolution}
    return connection.execute(change.values({**values, "next_retry_at": None, "claimed_until": None})).rowcount


def by_retry() -> sa.ColumnElement[bool]:
    """Whether it was a retry that resolved an error, and nobody by hand: both times are then one."""
    return sa.and_(_c.status == "resolved", _c.resolved_at == _c.last_retry_at)


def since(connection: sa.Connection, moment: datetime, schema_name: str | None = None) -> list[Mapping[str, Any]]:
    """Hour by hour and type by type: errors, those tried again, and of them those that a retry resolved."""
    hour = sa.func.substr(_c.occurred_at, 1, 13) if dialect.is_sqlite(connection) else _hour_of_postgresql()
    retried = _c.retry_count > 0
    query = sa.select(
        hour.label("hour"),
        _c.error_type,
        sa.func.count().label("errors"),
        sa.func.sum(sa.case((retried, 1), else_=0)).label("retried"),
        sa.func.sum(sa.case((by_retry(), 1), else_=0)).label("resolved_by_retry"),
    ).where(_c.occurred_at >= moment, equal(_c.schema_name, schema_name))
    grouped = query.group_by(sa.text("1"), _c.error_type).order_by(sa.text("1"), _c.error_type)
    return [dict(row) for row in connection.execute(grouped).mappings()]


def _hour_of_postgresql() -> Any:
    return sa.func.to_char(sa.func.timezone("UTC", _c.occurred_at), 'YYYY-MM-DD"T"HH24')


def delete_ended(connection: sa.Connection, before: datetime, limit: int) -> int:
    """Delete those resolved or ignored before a time, the oldest first."""
    old = sa.select(_c.id).where(_c.resolved_at < before).order_by(_c.resolved_at).limit(limit)
    old = old.with_for_update(skip_locked=True)  # whoever changes many takes them in another order
    return connection.execute(error_log.delete().where(_c.id.in_(old))).rowcount
