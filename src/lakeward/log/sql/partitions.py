from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lakeward.db import lock_order
from lakeward.db.dialect import in_integers, is_sqlite
from lakeward.db.prepared import Prepared
from lakeward.db.rows import from_row, records
from lakeward.db.schema import partitions, topics
from lakeward.db.types import UtcTime
from lakeward.log.records import Partition

_c = partitions.c
_CREATED = sa.func.coalesce(_c.created_at, topics.c.created_at, type_=UtcTime())
_SELECT = sa.select(
    topics.c.name.label("topic"),
    _c.partition_id,
    _c.high_watermark,
    _c.log_start_offset,
    _CREATED.label("created_at"),
    sa.func.coalesce(_c.updated_at, _CREATED, type_=UtcTime()).label("updated_at"),
).join_from(topics, partitions, topics.c.topic_id == _c.topic_id)
BY_NAME = Prepared(
    _SELECT.where(
        topics.c.warehouse_id == sa.bindparam("warehouse_id"),
        topics.c.name == sa.bindparam("name"),
        topics.c.deleted_at.is_(None),
        _c.partition_id == sa.bindparam("partition_id"),
    )
)
BY_ID = Prepared(
    _SELECT.where(_c.topic_id == sa.bindparam("topic_id"), _c.partition_id == sa.bindparam("partition_id"))
)
_INSERT = Prepared(partitions.insert())
_IS = sa.and_(_c.topic_id == sa.bindparam("topic"), _c.partition_id == sa.bindparam("partition"))
_UPDATE = partitions.update().execution_options(**lock_order.HELD)
_RAISE = Prepared(
    _UPDATE.where(_IS, _c.high_watermark < sa.bindparam("mark")).values(
        high_watermark=sa.bindparam("mark"), updated_at=sa.bindparam("now", type_=UtcTime())
    )
)
_START = Prepared(
    _UPDATE.where(_IS, _c.log_start_offset < sa.bindparam("start")).values(
        log_start_offset=sa.bindparam("start"), updated_at=sa.bindparam("now", type_=UtcTime())
    )
)


def insert(connection: sa.Connection, topic_id: int, partition_ids: Iterable[int], now: datetime) -> None:
    rows: list[dict[str, Any]] = [
        {"topic_id": topic_id, "partition_id": number, "created_at": now} for number in partition_ids
    ]
    if rows:
        _INSERT.insert(connection, rows)


def load(connection: sa.Connection, topic_id: int, partition_id: int) -> Partition | None:
    return from_row(Partition, BY_ID.one(connection, {"topic_id": topic_id, "partition_id": partition_id}))


def of_topic(connection: sa.Connection, topic_id: int) -> list[Partition]:
    query = _SELECT.where(_c.topic_id == topic_id).order_by(_c.partition_id)
    return records(Partition, connection.execute(query))


def lock(
    connection: sa.Connection,
    topic_id: int,
    partition_ids: Iterable[int],
    *,
    share: bool = False,
    keys: bool = False,
) -> dict[int, Partition]:
    """The partitions as they are now, by number; on PostgreSQL their rows are locked, in order.

    Whoever refers to a locked partition may go on, a committed offset say. With `share` others may advance it too: it is
    kept from being deleted, no more. With `keys` they may be deleted here.
    """
    numbers = sorted(set(partition_ids))
    if is_sqlite(connection):
        rows = [BY_ID.one(connection, {"topic_id": topic_id, "partition_id": number}) for number in numbers]
        found = [Partition(**row) for row in rows if row is not None]
    else:
        chosen = _SELECT.where(_c.topic_id == topic_id, in_integers(connection, _c.partition_id, numbers))
        locked = chosen.order_by(_c.partition_id).with_for_update(of=partitions, key_share=not keys, read=share)
        found = records(Partition, connection.execute(locked))
    return {each.partition_id: each for each in found}


def raise_watermark(connection: sa.Connection, topic_id: int, partition_id: int, to: int, now: datetime) -> None:
    """Unless it stands there or further already."""
    _RAISE.send(connection, {"topic": topic_id, "partition": partition_id, "mark": to, "now": now})


def raise_start(connection: sa.Connection, topic_id: int, partition_id: int, to: int, now: datetime) -> bool:
    """False if it stands there or further already."""
    return _START.run(connection, {"topic": topic_id, "partition": partition_id, "start": to, "now": now}) == 1


def delete_of_topic(connection: sa.Connection, topic_id: int) -> None:
    """Those that are locked; segments and committed offsets go with them."""
    connection.execute(partitions.delete().where(_c.topic_id == topic_id), execution_options=lock_order.HELD)
