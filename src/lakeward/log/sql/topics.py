from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lakeward.db import lock_order
from lakeward.db.dialect import begins
from lakeward.db.prepared import Prepared
from lakeward.db.rows import columns, record, records
from lakeward.db.schema import topics
from lakeward.db.types import UtcTime
from lakeward.log.records import Topic

_c = topics.c
_UPDATED = sa.func.coalesce(_c.updated_at, _c.created_at, type_=UtcTime())
_SELECT = sa.select(*(c for c in columns(topics, Topic) if c is not _c.updated_at), _UPDATED.label("updated_at"))
_UPDATE = topics.update().execution_options(**lock_order.HELD)
_EXISTS = _c.deleted_at.is_(None)
BY_NAME = Prepared(
    _SELECT.where(_c.warehouse_id == sa.bindparam("warehouse_id"), _c.name == sa.bindparam("name"), _EXISTS)
)
BY_ID = Prepared(_SELECT.where(_c.topic_id == sa.bindparam("topic_id"), _EXISTS))


def by_id(connection: sa.Connection, topic_id: int) -> Topic | None:
    """A deleted one too."""
    return record(Topic, connection.execute(_SELECT.where(_c.topic_id == topic_id)).one_or_none())


def every(connection: sa.Connection, warehouse_id: int) -> list[Topic]:
    """By name."""
    query = _SELECT.where(_c.warehouse_id == warehouse_id, _EXISTS).order_by(_c.name)
    return records(Topic, connection.execute(query))


def insert(connection: sa.Connection, values: Mapping[str, Any]) -> int:
    return int(connection.execute(topics.insert().returning(_c.topic_id), values).scalar_one())


def update(connection: sa.Connection, topic_id: int, values: Mapping[str, Any]) -> None:
    connection.execute(_UPDATE.where(_c.topic_id == topic_id).values(values))


def lock(connection: sa.Connection, topic_id: int) -> Topic | None:
    """The topic as it is now, its row locked on PostgreSQL; None if it is gone or deleted."""
    query = _SELECT.where(_c.topic_id == topic_id, _EXISTS).with_for_update(key_share=True)
    return record(Topic, connection.execute(query).one_or_none())


def lock_deleted(connection: sa.Connection, topic_id: int) -> None:
    """One that is going for good."""
    connection.execute(_SELECT.where(_c.topic_id == topic_id).with_for_update()).all()


def deleted(connection: sa.Connection, below: str, time: datetime) -> list[Topic]:
    """Topics that were deleted up to a time, and whose location is below another, that of a warehouse."""
    query = _SELECT.where(_c.deleted_at <= time, begins(_c.location, below)).order_by(_c.deleted_at)
    return records(Topic, connection.execute(query))


def delete(connection: sa.Connection, topic_id: int) -> None:
    connection.execute(topics.delete().where(_c.topic_id == topic_id), execution_options=lock_order.HELD)
