"""Reads operations metadata out of a database that is not a registry, and knows again what has been brought over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from lakeward.db.schema import dead_letter_queue, error_log, metadata, sync_runs

PAGE = 500
_ORDER = ("started_at", "occurred_at", "created_at", "version", "id")  # by the first that a table has
_IMPORTED = {table.name: table for table in (sync_runs, error_log, dead_letter_queue)}


def names(connection: sa.Connection, schema: str) -> set[str]:
    """The tables of a PostgreSQL schema; None for one that is not there."""
    return set(sa.inspect(connection).get_table_names(schema))


def rows(connection: sa.Connection, schema: str, name: str) -> Iterator[dict[str, Any]]:
    """All rows of a table, fetched some at a time; documents as their text, and times too, in UTC: there are some that
    Python cannot hold."""
    connection.exec_driver_sql("SELECT set_config('timezone', 'UTC', true), set_config('datestyle', 'ISO', true)")
    kinds = {each["name"]: each["type"] for each in sa.inspect(connection).get_columns(name, schema)}
    table = sa.table(name, *(sa.column(each) for each in kinds), schema=schema)
    shown = [
        sa.cast(column, sa.Text).label(column.name)
        if isinstance(kinds[column.name], (sa.JSON, sa.DateTime))
        else column
        for column in table.columns
    ]
    order = [table.c[each] for each in _ORDER if each in table.c]
    result = connection.execution_options(yield_per=PAGE).execute(sa.select(*shown).order_by(*order))
    for row in result.mappings():
        yield dict(row)


def imported(connection: sa.Connection, name: str, key: str) -> tuple[int, str] | None:
    """The id under which a row was brought over, and the status that it has now."""
    c = _IMPORTED[name].c
    found = connection.execute(sa.select(c.id, c.status).where(c.import_key == key)).one_or_none()
    return None if found is None else (found.id, found.status)


def insert(connection: sa.Connection, name: str, values: dict[str, Any]) -> None:
    """A row of one of the operations tables, as it is."""
    connection.execute(metadata.tables[name].insert().values(values))


def update(connection: sa.Connection, name: str, row_id: int, values: dict[str, Any]) -> None:
    c = _IMPORTED[name].c
    connection.execute(_IMPORTED[name].update().where(c.id == row_id).values(values))


def has_source_record(
    connection: sa.Connection, schema_name: str, table_name: str, source_record_id: str, *, but: str
) -> bool:
    """Whether there is a dead letter of a source record that was not brought over under the key `but`."""
    c = dead_letter_queue.c
    query = sa.select(c.id).where(
        c.schema_name == schema_name,
        c.table_name == table_name,
        c.source_record_id == source_record_id,
        c.import_key.is_distinct_from(but),
    )
    return connection.execute(query.limit(1)).first() is not None
