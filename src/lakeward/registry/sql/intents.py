from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa

from lakeward.db import lock_order
from lakeward.db.dialect import begins, in_texts, insert_of
from lakeward.db.pipeline import Answer
from lakeward.db.prepared import Prepared, Row
from lakeward.db.rows import columns, record, records
from lakeward.db.schema import pending_writes, tables, topics
from lakeward.db.types import Int64, Text, UtcTime
from lakeward.log.records import Topic
from lakeward.registry.sql.leases import is_impossible, latest
from lakeward.tables.records.files import Intent
from lakeward.tables.records.tables import Table

_c = pending_writes.c
_SELECT = sa.select(*columns(pending_writes, Intent))
_OPEN = _c.recovered_at.is_(None)
_TAKE = Prepared(pending_writes.delete().where(_c.intent_id == sa.bindparam("id"), _OPEN))


@cache
def insertion(dialect_name: str, is_topics: bool) -> Prepared:
    """Declare a write of a table or a topic that lives, by one statement. PostgreSQL takes its own time, gives back when the lease
    ends, and may run it twice."""
    values: dict[str, Any] = {
        name: sa.bindparam(name, type_=Text) for name in ("intent_id", "kind", "prefix", "owner")
    } | {
        "metadata_version": sa.bindparam("metadata_version", type_=Int64),
        "lease_ms": sa.bindparam("lease_ms", type_=Int64),
    }
    if dialect_name == "sqlite":
        values["started_at"] = sa.bindparam("started_at", type_=UtcTime())
        values["lease_until"] = sa.bindparam("lease_until", type_=UtcTime())
    else:
        length = sa.cast(sa.bindparam("lease_ms", type_=Int64), sa.Float) * sa.literal_column("interval '1 ms'")
        values["started_at"] = sa.func.clock_timestamp()
        values["lease_until"] = sa.func.clock_timestamp() + length
    if is_topics:
        values["topic_id"] = topics.c.topic_id
        lives = sa.and_(topics.c.topic_id == sa.bindparam("owner_id"), topics.c.deleted_at.is_(None))
    else:
        values["table_id"] = tables.c.table_id
        lives = sa.and_(tables.c.table_id == sa.bindparam("owner_id"), tables.c.dropped_at.is_(None))
    statement = insert_of(dialect_name, pending_writes).from_select(
        list(values), sa.select(*values.values()).where(lives)
    )
    if dialect_name == "sqlite":
        return Prepared(statement)
    again = statement.on_conflict_do_update(
        index_elements=["intent_id"], set_={"lease_until": statement.excluded.lease_until}
    )
    return Prepared(again.returning(_c.lease_until))


def parameters_of(intent: Intent, lease_ms: int) -> Row:
    """What `insertion` takes on PostgreSQL."""
    is_topics = intent.topic_id is not None
    return {
        "intent_id": intent.intent_id,
        "kind": intent.kind,
        "prefix": intent.prefix,
        "owner": intent.owner,
        "metadata_version": intent.metadata_version,
        "lease_ms": lease_ms,
        "owner_id": intent.topic_id if is_topics else intent.table_id,
    }


def insert(connection: sa.Connection, intent: Intent, now: datetime) -> datetime | None:
    """Declare a write; when its lease ends. None if its table or topic is gone."""
    length = round((intent.lease_until - now).total_seconds() * 1000)
    parameters = parameters_of(intent, length)
    statement = insertion(connection.dialect.name, intent.topic_id is not None)
    if connection.dialect.name == "sqlite":
        made = statement.run(connection, {**parameters, "started_at": now, "lease_until": intent.lease_until})
        return intent.lease_until if made else None
    row = statement.one(connection, parameters)
    return None if row is None else row["lease_until"]


def load(connection: sa.Connection, intent_id: str, *, lock: bool = False) -> Intent | None:
    """An open intent. With `lock` who has taken it and is not yet done is waited for."""
    query = _SELECT.where(_c.intent_id == intent_id, _OPEN)
    return record(Intent, connection.execute(query.with_for_update(key_share=True) if lock else query).one_or_none())


def of_table(connection: sa.Connection, table_id: int) -> list[Intent]:
    return records(Intent, connection.execute(_SELECT.where(_c.table_id == table_id, _OPEN)))


def writing(connection: sa.Connection, table_id: int, now: datetime) -> list[Intent]:
    """The writes of a table that are under way, with the version of its metadata that they go by."""
    query = _SELECT.where(_c.table_id == table_id, _OPEN, _c.lease_until >= now, _c.metadata_version.is_not(None))
    return records(Intent, connection.execute(query))


def take(connection: sa.Connection, intent_id: str) -> bool:
    """Delete an open intent. False if it is gone or has been recovered."""
    return _TAKE.run(connection, {"id": intent_id}) == 1


def send_take(connection: sa.Connection, intent_id: str) -> Answer:
    """As `take`, answered later: a count of 1 or 0."""
    return _TAKE.send(connection, {"id": intent_id})


def renew(connection: sa.Connection, intent_ids: Iterable[str], until: datetime) -> int:
    """Extend open intents; returns how many of them still are. Those that a registration holds just now are passed over:
    it takes them, and may take several in another order than a wait here would.
    """
    ours = sa.select(_c.intent_id).where(in_texts(connection, _c.intent_id, intent_ids), _OPEN)
    change = pending_writes.update().where(_c.intent_id.in_(ours.with_for_update(key_share=True, skip_locked=True)))
    return connection.execute(change.values(lease_until=until)).rowcount


def current(connection: sa.Connection, now: datetime) -> list[Any]:
    """(intent_id, lease_until, lease_ms, prefix) of the open ones whose lease has not run out."""
    query = sa.select(_c.intent_id, _c.lease_until, _c.lease_ms, _c.prefix).where(_c.lease_until > now, _OPEN)
    return list(connection.execute(query))


def shorten_impossible(connection: sa.Connection, below: str, now: datetime, seconds: float) -> int:
    """Let leases of open intents below a location end no later than their length (`seconds` where none is kept) from now: they
    were set by a clock that was ahead. How many were."""
    shortened = 0
    for found in current(connection, now):
        if found.prefix.startswith(below) and is_impossible(found.lease_until, now, found.lease_ms, seconds):
            change = pending_writes.update().where(_c.intent_id == found.intent_id, _c.lease_until == found.lease_until)
            last = latest(now, found.lease_ms, seconds)
            shortened += connection.execute(change.values(lease_until=last)).rowcount
    return shortened


def expired(
    connection: sa.Connection, below: str, now: datetime, limit: int | None, *, lock: bool = False
) -> list[Intent]:
    """Those whose prefix stands below a location, that of a warehouse.

    With `lock` those that others have locked are left out: a registration takes them, maybe several in another order, or
    another recovery has them.
    """
    query = _SELECT.where(_c.lease_until < now, _OPEN, begins(_c.prefix, below)).order_by(_c.lease_until).limit(limit)
    return records(
        Intent, connection.execute(query.with_for_update(key_share=True, skip_locked=True) if lock else query)
    )


def mark_recovered(connection: sa.Connection, intent_id: str, now: datetime, sweep_after: datetime) -> bool:
    """From now on the intent's registration fails. False if it was registered or recovered meanwhile."""
    change = pending_writes.update().where(_c.intent_id == intent_id, _OPEN)
    return connection.execute(change.values(recovered_at=now, sweep_after=sweep_after)).rowcount == 1


def recover_of_table(connection: sa.Connection, table_id: int, now: datetime, sweep_after: datetime) -> int:
    return _recover(connection, _c.table_id == table_id, now, sweep_after)


def recover_of_topic(connection: sa.Connection, topic_id: int, now: datetime, sweep_after: datetime) -> int:
    return _recover(connection, _c.topic_id == topic_id, now, sweep_after)


def _recover(connection: sa.Connection, is_owners: sa.ColumnElement[bool], now: datetime, sweep_after: datetime) -> int:
    lock_order.rows(connection, _c.intent_id, is_owners, _OPEN)
    change = pending_writes.update().where(is_owners, _OPEN)
    return connection.execute(change.values(recovered_at=now, sweep_after=sweep_after)).rowcount


def to_sweep(connection: sa.Connection, below: str, now: datetime) -> list[Intent]:
    """Recovered intents below a location whose prefix is due for its last sweep."""
    query = _SELECT.where(_c.sweep_after <= now, begins(_c.prefix, below)).order_by(_c.sweep_after)
    return records(Intent, connection.execute(query))


def any_of(connection: sa.Connection, owner: Table | Topic) -> bool:
    is_owners = _c.topic_id == owner.topic_id if isinstance(owner, Topic) else _c.table_id == owner.table_id
    return connection.execute(sa.select(_c.intent_id).where(is_owners).limit(1)).first() is not None


def sweep_at(connection: sa.Connection, intent_id: str, time: datetime) -> None:
    """When a recovered intent's prefix is due for its next sweep."""
    connection.execute(pending_writes.update().where(_c.intent_id == intent_id).values(sweep_after=time))


def forget(connection: sa.Connection, intent_id: str, recovered_before: datetime) -> bool:
    """Delete an intent that was recovered before a time. False if it was later."""
    change = pending_writes.delete().where(_c.intent_id == intent_id, _c.recovered_at <= recovered_before)
    return connection.execute(change).rowcount == 1


def is_known(connection: sa.Connection, intent_id: str) -> bool:
    """Whether there is a row, of a recovered intent too."""
    return connection.execute(sa.select(_c.intent_id).where(_c.intent_id == intent_id)).first() is not None


def still_open(connection: sa.Connection, intent_ids: Iterable[str]) -> list[str]:
    query = sa.select(_c.intent_id).where(in_texts(connection, _c.intent_id, intent_ids), _OPEN)
    return list(connection.execute(query).scalars())
