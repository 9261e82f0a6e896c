from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa

from lakeward.db import dialect
from lakeward.db.conditions import equal
from lakeward.db.prepared import Prepared, Row
from lakeward.db.rows import columns
from lakeward.db.schema import sync_markers
from lakeward.ops.records.operations import MarkerType, SyncMarker

_c = sync_markers.c
_COLUMNS = columns(sync_markers, SyncMarker)
# The literals let a plan see that the unique index serves.
_table_key = sa.func.coalesce(_c.table_name, sa.literal_column("''"))
_KEY = sa.and_(
    _c.schema_name == sa.bindparam("schema_name"),
    _table_key == sa.bindparam("table_key", type_=sa.Text),
    _c.marker_type == sa.bindparam("marker_type"),
)
POSITION = Prepared(sa.select(_c.position_data).where(_KEY))
_CHANGED = ("position_data", "last_updated", "sync_run_id")
_VALUES: dict[str, sa.BindParameter[Any]] = {
    name: sa.bindparam(name) for name in ("schema_name", "table_name", "marker_type", *_CHANGED)
}


@cache  # made at first use: SQLAlchemy's PostgreSQL is long to load, and a program on SQLite does without
def _statements(name: str) -> dict[str, Prepared]:
    """What writes a marker; the databases have one syntax for it, and SQLAlchemy two names."""
    insert = dialect.insert_of(name, sync_markers).values(_VALUES)
    key = [_c.schema_name, sa.text("coalesce(table_name, '')"), _c.marker_type]
    changed = {each: insert.excluded[each] for each in _CHANGED}
    return {
        "insert": Prepared(insert.on_conflict_do_nothing(index_elements=key).returning(_c.id)),
        "upsert": Prepared(insert.on_conflict_do_update(index_elements=key, set_=changed).returning(_c.id)),
    }


@cache
def upsert_at_once() -> Prepared:
    """PostgreSQL: by the server's clock, so that one statement is all."""
    values = {name: value for name, value in _VALUES.items() if name != "last_updated"}
    insert = dialect.insert_of("postgresql", sync_markers).values({**values, "last_updated": sa.func.clock_timestamp()})
    key = [_c.schema_name, sa.text("coalesce(table_name, '')"), _c.marker_type]
    changed = {each: insert.excluded[each] for each in _CHANGED}
    return Prepared(insert.on_conflict_do_update(index_elements=key, set_=changed).returning(_c.id, _c.last_updated))


def from_row(row: Row | None) -> SyncMarker | None:
    return None if row is None else SyncMarker(**{**row, "marker_type": MarkerType(row["marker_type"])})


def load(
    connection: sa.Connection, schema_name: str, table_name: str | None, marker_type: MarkerType, *, lock: bool = False
) -> SyncMarker | None:
    """A marker; with `lock`, until the transaction ends it stays as it is."""
    query = sa.select(*_COLUMNS).where(_KEY)
    key = {"schema_name": schema_name, "table_key": table_name or "", "marker_type": marker_type.value}
    found = connection.execute(query.with_for_update(key_share=True) if lock else query, key).one_or_none()
    return None if found is None else from_row(dict(found._mapping))


def as_written(row: Row, written: Row) -> SyncMarker:
    """The marker of what was given to a statement, and of what that gave back."""
    made = from_row({**row, **written, "position_data": dict(row["position_data"])})
    assert made is not None
    return made


def _row(
    schema_name: str,
    table_name: str | None,
    marker_type: MarkerType,
    position: Any,
    now: datetime,
    sync_run_id: int | None,
) -> Row:
    return {
        "schema_name": schema_name,
        "table_name": table_name,
        "marker_type": marker_type.value,
        "position_data": position,
        "last_updated": now,
        "sync_run_id": sync_run_id,
    }


def insert(
    connection: sa.Connection,
    schema_name: str,
    table_name: str | None,
    marker_type: MarkerType,
    position: Any,
    now: datetime,
    sync_run_id: int | None,
) -> SyncMarker | None:
    """None where there is one already, be it since a moment."""
    row = _row(schema_name, table_name, marker_type, position, now, sync_run_id)
    written = _statements(connection.dialect.name)["insert"].one(connection, row)
    return None if written is None else as_written(row, written)


def upsert(
    connection: sa.Connection,
    schema_name: str,
    table_name: str | None,
    marker_type: MarkerType,
    position: Any,
    now: datetime,
    sync_run_id: int | None,
) -> SyncMarker:
    row = _row(schema_name, table_name, marker_type, position, now, sync_run_id)
    written = _statements(connection.dialect.name)["upsert"].one(connection, row)
    assert written is not None
    return as_written(row, written)


def delete(connection: sa.Connection, schema_name: str, table_name: str | None, marker_type: MarkerType) -> bool:
    key = {"schema_name": schema_name, "table_key": table_name or "", "marker_type": marker_type.value}
    return connection.execute(sync_markers.delete().where(_KEY), key).rowcount == 1


def page(
    connection: sa.Connection, schema_name: str | None = None, marker_type: MarkerType | None = None, after: int = 0
) -> list[SyncMarker]:
    """By id."""
    query = sa.select(*_COLUMNS).where(
        _c.id > after, equal(_c.schema_name, schema_name), equal(_c.marker_type, marker_type)
    )
    rows = connection.execute(query.order_by(_c.id)).mappings()
    return [marker for row in rows if (marker := from_row(dict(row))) is not None]
