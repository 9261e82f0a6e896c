"""Reads operations metadata out of a database that is not a registry, and knows again what has been brought over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from lakeward.store.schema import dead_letter_queue, error_log, metadata, sync_runs

PAGE = 500
_ORDER = ("started_at", "occurred_at", "created_at", "version", "id")  # by the first that a table has
_IMPORTED = {table.name: table for table in (sync_runs, error_log, dead_letter_queue)}


def names(connection: sa.Connection, schema: str) -> set[str]:
    """The tables of a PostgreSQL schema; none for one that is not there."""
    return set(sa.inspect(connection).get_table_names(schema))


def rows(connection: sa.Connection, schema: str, name: str) -> Iterator[dict[str, Any]]:
    """All rows of a table, fetched some at a time; documents as their text."""
    kinds = {each["name"]: each["type"] for each in sa.inspect(connection).get_columns(name, schema)}
    table = sa.table(name, *(sa.column(each) for each in kinds), schema=schema)
    shown = [
        sa.cast(column, sa.Text).label(column.name) if isinstance(kinds[column.name], sa.JSON) else column
        for column in table.columns
    ]
    order = [table.c[each] for each in _ORDER if each in table.c]
    result = connection.execution_options(yield_per=PAGE).execute(sa.select(*shown).order_by(*order))
    for row in result.mappings():
        yield dict(row)


def imported_id(connection: sa.Connection, name: str, key: str) -> int | None:
    """The id under which a row was brought over."""
    table = _IMPORTED[name]
    found: int | None = connection.execute(sa.select(table.c.id).where(table.c.import_key == key)).scalar_one_or_none()
    return found


def insert(connection: sa.Connection, name: str, values: dict[str, Any]) -> None:
    """A row of one of the operations tables, as it is. In a savepoint: one that is refused undoes nothing else."""
    with connection.begin_nested():
        connection.execute(metadata.tables[name].insert().values(values))


def has_source_record(connection: sa.Connection, schema_name: str, table_name: str, source_record_id: str) -> bool:
    c = dead_letter_queue.c
    query = sa.select(c.id).where(
        c.schema_name == schema_name, c.table_name == table_name, c.source_record_id == source_record_id
    )
    return connection.execute(query.limit(1)).first() is not None
