from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sa

from lakeward.db import lock_order
from lakeward.db.dialect import in_integers
from lakeward.db.schema import file_pages

IDS = 0  # in a field's place: the ids of a page's files

_c = file_pages.c


def insert(
    connection: sa.Connection, table_id: int, last_file_id: int, file_count: int, columns: Mapping[int, bytes]
) -> None:
    lock_order.watched(connection, table_id)
    row = {"table_id": table_id, "last_file_id": last_file_id, "file_count": file_count}
    connection.execute(file_pages.insert(), [{**row, "field_id": i, "data": data} for i, data in columns.items()])


def last(connection: sa.Connection, table_id: int) -> int:
    """The id of the last file that is in a page; 0 if there is none."""
    query = sa.select(sa.func.max(_c.last_file_id)).where(_c.table_id == table_id, _c.field_id == IDS)
    return connection.execute(query).scalar_one() or 0


def ends(connection: sa.Connection, table_id: int) -> list[int]:
    """The last file's id of each page, ascending."""
    query = sa.select(_c.last_file_id).where(_c.table_id == table_id, _c.field_id == IDS)
    return list(connection.execute(query.order_by(_c.last_file_id)).scalars())


def file_count(connection: sa.Connection, table_id: int) -> int:
    """How many files are in pages, those that have left the table since included."""
    query = sa.select(sa.func.coalesce(sa.func.sum(_c.file_count), 0))
    return int(connection.execute(query.where(_c.table_id == table_id, _c.field_id == IDS)).scalar_one())


def load(
    connection: sa.Connection, table_id: int, last_file_ids: Sequence[int], field_ids: Iterable[int]
) -> list[dict[int, bytes]]:
    """Some pages that follow each other, by their ends: by field, and the ids of their files at IDS."""
    query = sa.select(_c.field_id, _c.last_file_id, _c.data).where(
        _c.table_id == table_id,
        in_integers(connection, _c.field_id, [IDS, *field_ids]),
        _c.last_file_id.between(last_file_ids[0], last_file_ids[-1]),
    )
    found: dict[int, dict[int, bytes]] = {end: {} for end in last_file_ids}
    for field_id, end, data in connection.execute(query):
        found[end][field_id] = data
    return list(found.values())


def delete_from(connection: sa.Connection, table_id: int, file_id: int) -> None:
    """Delete the pages that have a file, or would, and all later ones."""
    lock_order.watched(connection, table_id)
    connection.execute(file_pages.delete().where(_c.table_id == table_id, _c.last_file_id >= file_id))
