from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from lakeward.db.rows import columns, record, records
from lakeward.db.schema import warehouses
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
