"""What differs between SQLite and PostgreSQL; everything else in `store` is written once."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql


def is_sqlite(connection: sa.Connection) -> bool:
    return connection.dialect.name == "sqlite"


_PG_NOW = sa.text("SELECT clock_timestamp()")


def now(connection: sa.Connection) -> datetime:
    """The registry's clock: PostgreSQL's own; for SQLite, whose file is on one machine, that machine's."""
    if is_sqlite(connection):
        return datetime.now(UTC)
    value: datetime = connection.execute(_PG_NOW).scalar_one()
    return value.astimezone(UTC)


def lock_tables(connection: sa.Connection, table_ids: Iterable[int]) -> None:
    """Lock rows of `tables`, ids ascending, before the first watched change: two writers then never deadlock.

    On SQLite a writing transaction has the whole database already.
    """
    if is_sqlite(connection):
        return
    ids = sorted(set(table_ids))
    connection.execute(
        sa.text("SELECT table_id FROM tables WHERE table_id = ANY(:ids) ORDER BY table_id FOR UPDATE"), {"ids": ids}
    )


def begins(column: sa.ColumnElement[str], start: str) -> sa.ColumnElement[bool]:
    """Whether a text begins with another. LIKE would ignore case on SQLite, and take % and _ for more than they are."""
    return sa.func.substr(column, 1, len(start)) == start


def in_integers(connection: sa.Connection, column: sa.ColumnElement[int], values: Iterable[int]) -> Any:
    """`column IN (values)` for any number of values, as one parameter."""
    return _in(connection, column, list(values), sa.BigInteger)


def in_texts(connection: sa.Connection, column: sa.ColumnElement[str], values: Iterable[str]) -> Any:
    """`column IN (values)` for any number of values, as one parameter."""
    return _in(connection, column, list(values), sa.Text)


def _in(connection: sa.Connection, column: sa.ColumnElement[Any], values: list[Any], type_: type[Any]) -> Any:
    if is_sqlite(connection):
        each = sa.func.json_each(msgspec.json.encode(values).decode()).table_valued("value")
        return column.in_(sa.select(each.c.value))
    return column == sa.func.any(sa.bindparam(None, values, type_=postgresql.ARRAY(type_)))
