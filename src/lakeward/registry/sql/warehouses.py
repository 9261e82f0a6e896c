from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from lakeward.db.rows import columns, record, records
from lakeward.db.schema import tables, topics, warehouses
from lakeward.tables.records.tables import Warehouse

_SELECT = sa.select(*columns(warehouses, Warehouse))


def by_name(connection: sa.Connection, name: str) -> Warehouse | None:
    return record(Warehouse, connection.execute(_SELECT.where(warehouses.c.name == name)).one_or_none())


def others(connection: sa.Connection, name: str) -> list[Warehouse]:
    """All but the one of a name. There are few."""
    return records(Warehouse, connection.execute(_SELECT.where(warehouses.c.name != name)))


def insert(connection: sa.Connection, warehouse_uuid: str, name: str, location: str, now: datetime) -> None:
    connection.execute(
        warehouses.insert().values(warehouse_uuid=warehouse_uuid, name=name, location=location, created_at=now)
    )


# Whose folder an object is in ---------------------------------------------------------------------------------------------
class Owner(NamedTuple):
    kind: str  # table or topic
    is_live: bool


def owner_of(connection: sa.Connection, folders: Sequence[str]) -> Owner | None:
    """The table or topic whose folder is one of these; folders of two never stand in one another."""
    of_table = sa.select(sa.literal("table"), tables.c.dropped_at.is_(None)).where(tables.c.location.in_(folders))
    of_topic = sa.select(sa.literal("topic"), topics.c.deleted_at.is_(None)).where(topics.c.location.in_(folders))
    row = connection.execute(of_table.union_all(of_topic)).first()
    return None if row is None else Owner(row[0], bool(row[1]))
