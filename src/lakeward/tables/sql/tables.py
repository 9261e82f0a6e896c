from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa

from lakeward.db import lock_order
from lakeward.db.dialect import begins
from lakeward.db.pipeline import Answer
from lakeward.db.prepared import Prepared, Row
from lakeward.db.rows import columns, record, records
from lakeward.db.schema import namespaces, table_columns, table_metadata, table_stats, tables
from lakeward.names import SEPARATOR
from lakeward.tables.records.tables import Table, TableMetadata

_c = tables.c
# A dropped table has no namespace any more: its levels are then empty.
_SELECT = sa.select(
    *[column for column in columns(tables, Table) if column.name != "namespace_id"],
    sa.func.coalesce(_c.namespace_id, 0).label("namespace_id"),
    namespaces.c.path,
).select_from(tables.outerjoin(namespaces, namespaces.c.namespace_id == _c.namespace_id))
_BY_ID = _SELECT.where(_c.table_id == sa.bindparam("table_id"))
BY_ID = Prepared(_BY_ID)
_UPDATE = tables.update().execution_options(**lock_order.HELD)


def _table(row: sa.Row[*tuple[Any, ...]] | None) -> Table | None:
    return None if row is None else table_of_row(row._asdict())


def table_of_row(row: Row) -> Table:
    """Of what BY_ID and BY_NAME give."""
    values = dict(row)
    path = values.pop("path")
    return Table(**values, namespace=tuple(path.split(SEPARATOR)) if path is not None else ())


def _locked(connection: sa.Connection, query: sa.Select[Any], key: Mapping[str, Any], keys: bool) -> Table | None:
    """Read a table's row and lock it: one way to the server in place of two."""
    query = query.with_for_update(of=tables, key_share=not keys)
    if (table := _table(connection.execute(query, key).one_or_none())) is not None:
        lock_order.note_table(connection, table.table_id)
    return table


def by_id(connection: sa.Connection, table_id: int) -> Table | None:
    return _table(connection.execute(_BY_ID, {"table_id": table_id}).one_or_none())


def locked_by_id(connection: sa.Connection, table_id: int, *, keys: bool = False) -> Table | None:
    """As it is now that nobody else changes it. With `keys` its name may be changed."""
    return _locked(connection, _BY_ID, {"table_id": table_id}, keys)


# The current metadata version of a table, if it is live.
LIVE_VERSION = Prepared(sa.select(_c.version).where(_c.table_id == sa.bindparam("table_id"), _c.dropped_at.is_(None)))


def live_version(connection: sa.Connection, table_id: int) -> int | None:
    """The current metadata version of a table; None if it is gone or dropped."""
    return version_of_answer(send_live_version(connection, table_id))


def send_live_version(connection: sa.Connection, table_id: int) -> Answer:
    """As `live_version`; `version_of_answer` reads what is answered later."""
    return LIVE_VERSION.send(connection, {"table_id": table_id})


def version_of_answer(answer: Answer) -> int | None:
    row = answer.row()
    return None if row is None else int(row["version"])


_HAS_NAME = (
    namespaces.c.warehouse_id == sa.bindparam("warehouse_id"),
    namespaces.c.path == sa.bindparam("namespace_path"),
    _c.name == sa.bindparam("table_name"),
)
_BY_NAME = _SELECT.where(*_HAS_NAME)
BY_NAME = Prepared(_BY_NAME)
# (table_id, version) of the table of a name.
HEAD_BY_NAME = Prepared(
    sa.select(_c.table_id, _c.version)
    .select_from(tables.join(namespaces, namespaces.c.namespace_id == _c.namespace_id))
    .where(*_HAS_NAME)
)


def name_key(warehouse_id: int, namespace_path: str, name: str) -> Row:
    """What BY_NAME and HEAD_BY_NAME go by."""
    return {"warehouse_id": warehouse_id, "namespace_path": namespace_path, "table_name": name}


def by_name(connection: sa.Connection, warehouse_id: int, namespace_path: str, name: str) -> Table | None:
    return _table(connection.execute(_BY_NAME, name_key(warehouse_id, namespace_path, name)).one_or_none())


def locked_by_name(
    connection: sa.Connection, warehouse_id: int, namespace_path: str, name: str, *, keys: bool = False
) -> Table | None:
    """As `locked_by_id`. On PostgreSQL nothing is found, either, where the name went to another table while this waited."""
    return _locked(connection, _BY_NAME, name_key(warehouse_id, namespace_path, name), keys)


def in_namespace(
    connection: sa.Connection, namespace_id: int, after: str = "", limit: int | None = None
) -> list[Table]:
    """By name; `after` is the name that the page before ended with."""
    query = _SELECT.where(_c.namespace_id == namespace_id, _c.name > after).order_by(_c.name).limit(limit)
    return [table for row in connection.execute(query) if (table := _table(row)) is not None]


def live(connection: sa.Connection, warehouse_id: int, after: int, limit: int) -> list[Table]:
    """Those of a warehouse by table_id, from the one after `after` on; without those that were dropped."""
    query = _SELECT.where(_c.table_id > after, namespaces.c.warehouse_id == warehouse_id).order_by(_c.table_id)
    return [table for row in connection.execute(query.limit(limit)) if (table := _table(row)) is not None]


def any_in_namespace(connection: sa.Connection, namespace_id: int) -> bool:
    query = sa.select(_c.table_id).where(_c.namespace_id == namespace_id).limit(1)
    return connection.execute(query).first() is not None


def dropped_before(connection: sa.Connection, below: str, time: datetime) -> list[Table]:
    """Those whose location is below another, that of a warehouse."""
    query = _SELECT.where(_c.dropped_at <= time, begins(_c.location, below)).order_by(_c.dropped_at)
    return [table for row in connection.execute(query) if (table := _table(row)) is not None]


def insert(connection: sa.Connection, values: Mapping[str, Any]) -> int:
    table_id = int(connection.execute(tables.insert().returning(_c.table_id), values).scalar_one())
    lock_order.note_table(connection, table_id)
    return table_id


def update(connection: sa.Connection, table_id: int, values: Mapping[str, Any]) -> None:
    lock_order.watched(connection, table_id)
    connection.execute(_UPDATE.where(_c.table_id == table_id).values(values))


COUNTERS = ("row_count", "total_size", "file_count", "landing_row_count", "landing_size", "landing_file_count")
_ADD = Prepared(
    _UPDATE.where(_c.table_id == sa.bindparam("id")).values(
        {name: _c[name] + sa.bindparam(f"add_{name}") for name in COUNTERS} | {"last_modified": sa.bindparam("now")}
    )
)


def add_counts(connection: sa.Connection, table_id: int, now: datetime, counts: Mapping[str, int]) -> None:
    """Add `counts` (of row_count, total_size, file_count and the landing ones; negative to take away)."""
    lock_order.watched(connection, table_id)
    _ADD.send(connection, {"id": table_id, "now": now, **{f"add_{name}": counts.get(name, 0) for name in COUNTERS}})


def swap_metadata(connection: sa.Connection, table_id: int, expected: str | None, values: Mapping[str, Any]) -> bool:
    """Set metadata_location and what goes with it, only if it still is `expected`."""
    lock_order.watched(connection, table_id)
    is_expected = _c.metadata_location.is_(None) if expected is None else _c.metadata_location == expected
    result = connection.execute(_UPDATE.where(_c.table_id == table_id, is_expected).values(values))
    return result.rowcount == 1


def delete(connection: sa.Connection, table_id: int) -> None:
    lock_order.watched(connection, table_id)
    connection.execute(tables.delete().where(_c.table_id == table_id).execution_options(**lock_order.HELD))


# Metadata versions -----------------------------------------------------------------------------------------------------
_METADATA = sa.select(*columns(table_metadata, TableMetadata))
_m = table_metadata.c
_OF_LIVE = _METADATA.join(tables, _c.table_id == _m.table_id).where(_c.dropped_at.is_(None))
# One version, and those of a range (`after` is left out, `last` is not), of a table that is live.
LIVE_METADATA = Prepared(
    _OF_LIVE.where(_m.table_id == sa.bindparam("table_id"), _m.metadata_version == sa.bindparam("version"))
)
LIVE_METADATA_RANGE = Prepared(
    _OF_LIVE.where(
        _m.table_id == sa.bindparam("table_id"),
        _m.metadata_version > sa.bindparam("after"),
        _m.metadata_version <= sa.bindparam("last"),
    ).order_by(_m.metadata_version)
)
# The current version of each live table, the newest table first.
CURRENT_METADATA = Prepared(
    _OF_LIVE.where(_c.table_id < sa.bindparam("before"), _m.metadata_version == _c.version)
    .order_by(_c.table_id.desc())
    .limit(sa.bindparam("most"))
)


def version_from_row(row: Row) -> TableMetadata:
    return TableMetadata(**row)


def metadata_version(connection: sa.Connection, table_id: int, version: int) -> TableMetadata | None:
    query = _METADATA.where(table_metadata.c.table_id == table_id, table_metadata.c.metadata_version == version)
    return record(TableMetadata, connection.execute(query).one_or_none())


def metadata_versions(connection: sa.Connection, table_id: int, after: int = 0) -> list[TableMetadata]:
    """By version, those later than `after`."""
    query = _METADATA.where(table_metadata.c.table_id == table_id, table_metadata.c.metadata_version > after)
    return records(TableMetadata, connection.execute(query.order_by(table_metadata.c.metadata_version)))


def current_properties(
    connection: sa.Connection, after: int, limit: int
) -> list[sa.Row[int, str, int, dict[str, str]]]:
    """(table_id, location, version, properties) of tables that are not dropped, by id, those after `after`."""
    m = table_metadata.c
    # Looked up row by row: a join may be made by reading all versions of all tables.
    properties = sa.select(m.properties).where(m.table_id == _c.table_id, m.metadata_version == _c.version)
    query = sa.select(_c.table_id, _c.location, _c.version, properties.scalar_subquery().label("properties"))
    query = query.where(_c.table_id > after, _c.dropped_at.is_(None)).order_by(_c.table_id).limit(limit)
    return list(connection.execute(query))


def insert_metadata(connection: sa.Connection, version: TableMetadata) -> None:
    lock_order.watched(connection, version.table_id)
    connection.execute(table_metadata.insert(), msgspec.structs.asdict(version))


# Columns ---------------------------------------------------------------------------------------------------------------
def replace_columns(connection: sa.Connection, table_id: int, fields: Sequence[Mapping[str, Any]]) -> None:
    """Make table_columns say `fields` (top-level fields of an Iceberg schema), touching only rows that differ."""
    lock_order.watched(connection, table_id)
    wanted = {
        field["id"]: {
            "position": position,
            "name": field["name"],
            "type": field["type"],
            "required": bool(field["required"]),
            "doc": field.get("doc"),
        }
        for position, field in enumerate(fields)
    }
    c = table_columns.c
    rows = connection.execute(sa.select(table_columns).where(c.table_id == table_id)).mappings()
    present = {
        row["field_id"]: {name: row[name] for name in ("position", "name", "type", "required", "doc")} for row in rows
    }
    for field_id in present.keys() - wanted.keys():
        connection.execute(table_columns.delete().where(c.table_id == table_id, c.field_id == field_id))
    for field_id in wanted.keys() & present.keys():
        if wanted[field_id] != present[field_id]:
            change = table_columns.update().where(c.table_id == table_id, c.field_id == field_id)
            connection.execute(change.values(wanted[field_id]))
    new = [{"table_id": table_id, "field_id": i, **wanted[i]} for i in wanted if i not in present]
    if new:
        connection.execute(table_columns.insert(), new)


def delete_stats(connection: sa.Connection, table_id: int) -> None:
    lock_order.watched(connection, table_id)
    connection.execute(table_stats.delete().where(table_stats.c.table_id == table_id))
