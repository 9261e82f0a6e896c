from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa

from lakeward.db import dialect
from lakeward.db.conditions import at_least
from lakeward.db.schema import dead_letter_queue
from lakeward.ops.records.operations import DeadLetter, DeadLetterFilter, DeadLetterStatus
from lakeward.ops.sql.rows import Rows
from lakeward.validation import MAX_INTEGER

_c = dead_letter_queue.c
_rows = Rows(dead_letter_queue, DeadLetter)
insert, load, update = _rows.insert, _rows.load, _rows.update
# Literals, so that a plan sees that the partial indexes serve.
_PENDING = _c.status == sa.literal_column("'pending'")
_PROCESSING = _c.status == sa.literal_column("'processing'")
_HAS_SOURCE = _c.source_record_id.is_not(None)


def insert_all(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    connection.execute(dead_letter_queue.insert(), rows)


def insert_or_count(connection: sa.Connection, values: Mapping[str, Any]) -> DeadLetter:
    """A row of a source record. If it has one, that has failed once more: it is pending again, as it failed last."""
    statement = dialect.insert(connection, dead_letter_queue).values(values)
    new = ("operation_type", "record_data", "envelope", "sync_run_id", "error_log_id", "error_message",
           "last_failed_at")  # fmt: skip
    changed = {
        **{name: statement.excluded[name] for name in new},
        "error_count": _c.error_count + 1,
        "status": "pending",
        **dict.fromkeys(("claimed_by", "claimed_until", "resolved_at", "resolution"), sa.null()),
    }
    upsert = statement.on_conflict_do_update(
        index_elements=[_c.schema_name, _c.table_name, _c.source_record_id], index_where=_HAS_SOURCE, set_=changed
    )
    return _rows.record(connection.execute(upsert.returning(*_rows.columns)).mappings().one())


def of_error(connection: sa.Connection, error_log_id: int, *, lock: bool = False) -> DeadLetter | None:
    """The first one that names an error."""
    query = sa.select(*_rows.columns).where(_c.error_log_id == error_log_id).order_by(_c.id).limit(1)
    return _rows.first(connection, query, lock=lock)


def of_source(
    connection: sa.Connection, schema_name: str, table_name: str, source: str, statuses: Iterable[str]
) -> list[DeadLetter]:
    """Those in one of these states whose source_record_id is `source`, a colon and a number, locked, by id."""
    query = sa.select(*_rows.columns).where(
        _c.schema_name == schema_name,
        _c.table_name == table_name,
        _HAS_SOURCE,
        dialect.begins_then_digits(_c.source_record_id, f"{source}:"),
        _c.status.in_(list(statuses)),
    )
    return _rows.records(connection, query.order_by(_c.id).with_for_update(key_share=True))


def _chosen(chosen: DeadLetterFilter) -> list[sa.ColumnElement[bool]]:
    values = msgspec.structs.asdict(chosen)
    return [at_least(_c.error_count, values.pop("min_error_count")), *_rows.having(values)]


def page(
    connection: sa.Connection, chosen: DeadLetterFilter, *, before: int = MAX_INTEGER, limit: int | None = None
) -> list[DeadLetter]:
    """The newest first."""
    return _rows.page(connection, *_chosen(chosen), before=before, limit=limit)


def counts(connection: sa.Connection, chosen: DeadLetterFilter) -> dict[str, int]:
    """By status."""
    query = sa.select(_c.status, sa.func.count().label("number")).where(
        _c.status.in_(list(DeadLetterStatus)), *_chosen(chosen)
    )
    return {row.status: row.number for row in connection.execute(query.group_by(_c.status))}


def ids(
    connection: sa.Connection, chosen: DeadLetterFilter, statuses: Iterable[str], *, after: int, limit: int
) -> list[int]:
    """Of those in one of these states, ascending."""
    query = sa.select(_c.id).where(_c.id > after, _c.status.in_(list(statuses)), *_chosen(chosen))
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
    taken = _rows.records(connection, change.values(values).returning(*_rows.columns))
    return sorted(taken, key=lambda each: each.id)


def _taken(connection: sa.Connection, query: Any, chosen: DeadLetterFilter, limit: int) -> list[int]:
    narrowed = query.where(*_chosen(chosen)).limit(limit).with_for_update(key_share=True, skip_locked=True)
    return list(connection.execute(narrowed).scalars())


def delete_ended(connection: sa.Connection, before: datetime, limit: int) -> int:
    """Delete those resolved or discarded before a time, the oldest first."""
    old = sa.select(_c.id).where(_c.resolved_at < before).order_by(_c.resolved_at).limit(limit)
    old = old.with_for_update(skip_locked=True)  # whoever changes many takes them in another order
    return connection.execute(dead_letter_queue.delete().where(_c.id.in_(old))).rowcount
