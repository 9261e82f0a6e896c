from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lakeward.db import dialect, lock_order
from lakeward.db.conditions import at_least, equal
from lakeward.db.rows import columns
from lakeward.db.schema import dead_letter_queue
from lakeward.ops.records.operations import DeadLetter, DeadLetterFilter, DeadLetterStatus, OperationType
from lakeward.validation import MAX_INTEGER

_c = dead_letter_queue.c
_COLUMNS = columns(dead_letter_queue, DeadLetter)
# Literals, so that a plan sees that the partial indexes serve.
_PENDING = _c.status == sa.literal_column("'pending'")
_PROCESSING = _c.status == sa.literal_column("'processing'")
_HAS_SOURCE = _c.source_record_id.is_not(None)


def _record(row: Mapping[Any, Any]) -> DeadLetter:
    return DeadLetter(
        **{
            **row,
            "operation_type": OperationType(row["operation_type"]),
            "status": DeadLetterStatus(row["status"]),
        }
    )


def insert(connection: sa.Connection, values: Mapping[str, Any]) -> DeadLetter:
    made = connection.execute(dead_letter_queue.insert().values(values).returning(*_COLUMNS)).mappings().one()
    return _record(made)


def insert_all(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    connection.execute(dead_letter_queue.insert(), rows)


def insert_or_count(connection: sa.Connection, values: Mapping[str, Any]) -> DeadLetter:
    """A row of a source record. If it has one, that has failed once more: it is pending again, as it failed last."""
    statement = dialect.insert(connection, dead_letter_queue).values(values)
    new = (
        "operation_type",
        "record_data",
        "envelope",
        "sync_run_id",
        "error_log_id",
        "error_message",
        "last_failed_at",
    )
    changed = {
        **{name: statement.excluded[name] for name in new},
        "error_count": _c.error_count + 1,
        "status": "pending",
        **dict.fromkeys(("claimed_by", "claimed_until", "resolved_at", "resolution"), sa.null()),
    }
    upsert = statement.on_conflict_do_update(
        index_elements=[_c.schema_name, _c.table_name, _c.source_record_id], index_where=_HAS_SOURCE, set_=changed
    )
    return _record(connection.execute(upsert.returning(*_COLUMNS)).mappings().one())


def load(connection: sa.Connection, dead_letter_id: int, *, lock: bool = False) -> DeadLetter | None:
    query = sa.select(*_COLUMNS).where(_c.id == dead_letter_id)
    row = connection.execute(query.with_for_update(key_share=True) if lock else query).mappings().one_or_none()
    return None if row is None else _record(row)


def of_error(connection: sa.Connection, error_log_id: int, *, lock: bool = False) -> DeadLetter | None:
    """The first one that names an error."""
    query = sa.select(*_COLUMNS).where(_c.error_log_id == error_log_id).order_by(_c.id).limit(1)
    row = connection.execute(query.with_for_update(key_share=True) if lock else query).mappings().one_or_none()
    return None if row is None else _record(row)


def of_source(
    connection: sa.Connection, schema_name: str, table_name: str, source: str, statuses: Iterable[str]
) -> list[DeadLetter]:
    """Those in one of these states whose source_record_id is `source`, a colon and a number, locked, by id."""
    query = sa.select(*_COLUMNS).where(
        _c.schema_name == schema_name,
        _c.table_name == table_name,
        _HAS_SOURCE,
        dialect.begins_then_digits(_c.source_record_id, f"{source}:"),
        _c.status.in_(list(statuses)),
    )
    locked = query.order_by(_c.id).with_for_update(key_share=True)
    return [_record(row) for row in connection.execute(locked).mappings()]


def update(connection: sa.Connection, dead_letter_id: int, values: Mapping[str, Any]) -> DeadLetter:
    """One that is locked."""
    change = dead_letter_queue.update().where(_c.id == dead_letter_id).values(values).returning(*_COLUMNS)
    return _record(connection.execute(change, execution_options=lock_order.HELD).mappings().one())


def _narrowed(query: Any, chosen: DeadLetterFilter) -> Any:
    return query.where(
        equal(_c.schema_name, chosen.schema_name),
        equal(_c.table_name, chosen.table_name),
        equal(_c.status, chosen.status),
        equal(_c.operation_type, chosen.operation_type),
        equal(_c.sync_run_id, chosen.sync_run_id),
        equal(_c.error_log_id, chosen.error_log_id),
        equal(_c.source_record_id, chosen.source_record_id),
        at_least(_c.error_count, chosen.min_error_count),
    )


def page(
    connection: sa.Connection, chosen: DeadLetterFilter, *, before: int = MAX_INTEGER, limit: int | None = None
) -> list[DeadLetter]:
    """The newest first."""
    query = _narrowed(sa.select(*_COLUMNS).where(_c.id < before), chosen)
    return [_record(row) for row in connection.execute(query.order_by(_c.id.desc()).limit(limit)).mappings()]


def counts(connection: sa.Connection, chosen: DeadLetterFilter) -> dict[str, int]:
    """By status."""
    query = _narrowed(
        sa.select(_c.status, sa.func.count().label("count")).where(_c.status.in_(list(DeadLetterStatus))), chosen
    )
    return {row["status"]: row["count"] for row in connection.execute(query.group_by(_c.status)).mappings()}


def ids(
    connection: sa.Connection, chosen: DeadLetterFilter, statuses: Iterable[str], *, after: int, limit: int
) -> list[int]:
    """Of those in one of these states, ascending."""
    query = _narrowed(sa.select(_c.id).where(_c.id > after, _c.status.in_(list(statuses))), chosen)
    return list(connection.execute(query.order_by(_c.id).limit(limit)).scalars())


def claim(
    connection: sa.Connection, owner: str, now: datetime, until: datetime, limit: int, chosen: DeadLetterFilter
) -> list[DeadLetter]:
    """Take pending ones, and those whose claim has run out, for `owner`. Those that another takes at once are left out."""
    free = sa.select(_c.id).where(_PROCESSING, _c.claimed_until <= now).order_by(_c.claimed_until)
    found = _taken(connection, free, chosen, limit)
    if len(found) < limit:
        pending = sa.select(_c.id).where(_PENDING, _c.id > 0).order_by(_c.id)
        found += _taken(connection, pending, chosen, limit - len(found))
    if not found:
        return []
    change = dead_letter_queue.update().where(dialect.in_integers(connection, _c.id, found))
    values = {"status": "processing", "claimed_by": owner, "claimed_until": until, "claim": _c.claim + 1}
    taken = [_record(row) for row in connection.execute(change.values(values).returning(*_COLUMNS)).mappings()]
    return sorted(taken, key=lambda each: each.id)


def _taken(connection: sa.Connection, query: Any, chosen: DeadLetterFilter, limit: int) -> list[int]:
    narrowed = _narrowed(query, chosen).limit(limit).with_for_update(key_share=True, skip_locked=True)
    return list(connection.execute(narrowed).scalars())


def delete_ended(connection: sa.Connection, before: datetime, limit: int) -> int:
    """Delete those resolved or discarded before a time, the oldest first."""
    old = sa.select(_c.id).where(_c.resolved_at < before).order_by(_c.resolved_at).limit(limit)
    old = old.with_for_update(skip_locked=True)  # whoever changes many takes them in another order
    return connection.execute(dead_letter_queue.delete().where(_c.id.in_(old))).rowcount
