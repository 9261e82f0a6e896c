from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

import msgspec
import sqlalchemy as sa

from lakeward.db import dialect
from lakeward.db.conditions import equal
from lakeward.db.prepared import Prepared
from lakeward.db.rows import record, records
from lakeward.db.schema import consumer_groups, consumer_offsets, stream_plans, topics
from lakeward.db.types import UtcTime
from lakeward.log.records import ConsumerGroup, ConsumerOffset

_g, _o, _p = consumer_groups.c, consumer_offsets.c, stream_plans.c
_BY_NAME = sa.select(_g.group_key).where(
    _g.warehouse_id == sa.bindparam("warehouse_id"), _g.group_id == sa.bindparam("group_id")
)
_KEY = Prepared(_BY_NAME)
_SHARED_KEY = Prepared(_BY_NAME.with_for_update(read=True, key_share=True))
_OFFSETS = (
    sa.select(
        _g.group_id,
        topics.c.name.label("topic"),
        _o.partition_id,
        _o.committed_offset,
        _o.metadata,
        _o.committed_at,
    )
    .join_from(consumer_groups, consumer_offsets, _g.group_key == _o.group_key)
    .join(topics, topics.c.topic_id == _o.topic_id)
)
_OF_PARTITION = _OFFSETS.where(
    _g.warehouse_id == sa.bindparam("warehouse_id"),
    _g.group_id == sa.bindparam("group_id"),
    _o.partition_id == sa.bindparam("partition_id"),
)
COMMITTED = Prepared(
    _OF_PARTITION.where(
        topics.c.warehouse_id == sa.bindparam("warehouse_id"),
        topics.c.name == sa.bindparam("name"),
        topics.c.deleted_at.is_(None),
    )
)
COMMITTED_BY_ID = Prepared(_OF_PARTITION.where(_o.topic_id == sa.bindparam("topic_id")))


_TOUCH = Prepared(
    consumer_groups.update()
    .where(_g.group_key == sa.bindparam("of_group"))
    .values(updated_at=sa.bindparam("now", type_=UtcTime()))
)


@cache
def _set_offset(dialect_name: str) -> Prepared:
    statement = dialect.insert_of(dialect_name, consumer_offsets)
    changed = {name: statement.excluded[name] for name in ("committed_offset", "metadata", "committed_at")}
    keys = ["group_key", "topic_id", "partition_id"]
    return Prepared(statement.on_conflict_do_update(index_elements=keys, set_=changed))


def key(connection: sa.Connection, warehouse_id: int, group_id: str, *, share: bool = False) -> int | None:
    """With `share`, on PostgreSQL, the group is not deleted before the transaction ends."""
    row = (_SHARED_KEY if share else _KEY).one(connection, {"warehouse_id": warehouse_id, "group_id": group_id})
    return None if row is None else int(row["group_key"])


def insert(connection: sa.Connection, warehouse_id: int, group_id: str, now: datetime) -> None:
    """Nothing where the group is there already, be it since a moment."""
    values = {"warehouse_id": warehouse_id, "group_id": group_id, "created_at": now}
    connection.execute(dialect.insert(connection, consumer_groups).values(values).on_conflict_do_nothing())


def load(connection: sa.Connection, warehouse_id: int, group_id: str) -> ConsumerGroup | None:
    updated = sa.func.coalesce(_g.updated_at, _g.created_at, type_=UtcTime()).label("updated_at")
    query = sa.select(_g.group_id, _g.created_at, updated)
    chosen = query.where(_g.warehouse_id == warehouse_id, _g.group_id == group_id)
    return record(ConsumerGroup, connection.execute(chosen).one_or_none())


def touch(connection: sa.Connection, group_key: int, now: datetime) -> None:
    """Note that the group commits; on PostgreSQL its offsets are locked with it."""
    _TOUCH.send(connection, {"of_group": group_key, "now": now})


def names(connection: sa.Connection, warehouse_id: int) -> list[str]:
    query = sa.select(_g.group_id).where(_g.warehouse_id == warehouse_id).order_by(_g.group_id)
    return list(connection.execute(query).scalars())


def delete(connection: sa.Connection, group_key: int) -> int:
    """Its committed offsets go with it."""
    return connection.execute(consumer_groups.delete().where(_g.group_key == group_key)).rowcount


# Committed offsets --------------------------------------------------------------------------------------------------------
def set_offsets(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows of group_key, topic_id, partition_id, committed_offset, metadata, committed_at; a partition once at most."""
    for row in rows:
        _set_offset(connection.dialect.name).send(connection, row)


def offsets(connection: sa.Connection, group_key: int, topic_id: int | None = None) -> list[ConsumerOffset]:
    """What a group has committed, by topic and partition."""
    query = _OFFSETS.where(_o.group_key == group_key, equal(_o.topic_id, topic_id))
    return records(ConsumerOffset, connection.execute(query.order_by(topics.c.name, _o.partition_id)))


def offsets_of_partition(connection: sa.Connection, topic_id: int, partition_id: int) -> list[ConsumerOffset]:
    """What every group has committed in one partition."""
    query = _OFFSETS.where(_o.topic_id == topic_id, _o.partition_id == partition_id)
    return records(ConsumerOffset, connection.execute(query))


# Plans of streams ---------------------------------------------------------------------------------------------------------
def plan(connection: sa.Connection, group_key: int, topic_id: int) -> dict[int, int] | None:
    query = sa.select(_p.offsets).where(_p.group_key == group_key, _p.topic_id == topic_id)
    found = connection.execute(query).scalar_one_or_none()
    return None if found is None else msgspec.convert(found, dict[int, int], strict=False)


def set_plan(
    connection: sa.Connection, group_key: int, topic_id: int, offsets: Mapping[int, int], now: datetime
) -> None:
    statement = dialect.insert(connection, stream_plans)
    values = {"offsets": {str(k): v for k, v in offsets.items()}, "updated_at": now}
    upsert = statement.values(group_key=group_key, topic_id=topic_id, **values)
    connection.execute(upsert.on_conflict_do_update(index_elements=["group_key", "topic_id"], set_=values))
