from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from lakeward.db.rows import columns, record, records
from lakeward.db.schema import namespaces
from lakeward.names import SEPARATOR
from lakeward.tables.records.tables import Namespace

_SELECT = sa.select(*columns(namespaces, Namespace))
_c = namespaces.c


def path(levels: tuple[str, ...]) -> str:
    return SEPARATOR.join(levels)


def by_levels(connection: sa.Connection, warehouse_id: int, levels: tuple[str, ...]) -> Namespace | None:
    query = _SELECT.where(_c.warehouse_id == warehouse_id, _c.path == path(levels))
    return record(Namespace, connection.execute(query).one_or_none())


def insert(
    connection: sa.Connection, warehouse_id: int, levels: tuple[str, ...], properties: dict[str, str], now: datetime
) -> None:
    connection.execute(
        namespaces.insert().values(
            warehouse_id=warehouse_id, levels=levels, path=path(levels), properties=properties, created_at=now
        )
    )


def below(
    connection: sa.Connection, warehouse_id: int, parent: tuple[str, ...], after: str = "", limit: int | None = None
) -> list[Namespace]:
    """All namespaces below `parent`, at any depth, by path; `after` is the path that the page before ended with."""
    query = _SELECT.where(_c.warehouse_id == warehouse_id, _c.path > after).order_by(_c.path)
    if parent:
        start = path(parent) + SEPARATOR
        query = query.where(_c.path >= start, _c.path < start[:-1] + chr(ord(SEPARATOR) + 1))
    return records(Namespace, connection.execute(query.limit(limit)))


def set_properties(connection: sa.Connection, namespace_id: int, properties: dict[str, str]) -> None:
    connection.execute(namespaces.update().where(_c.namespace_id == namespace_id).values(properties=properties))


def delete(connection: sa.Connection, namespace_id: int) -> None:
    connection.execute(namespaces.delete().where(_c.namespace_id == namespace_id))
