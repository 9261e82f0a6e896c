"""What differs between SQLite and PostgreSQL; everything else in `store` is written once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from lakeward.db import pipeline


def is_sqlite(connection: sa.Connection) -> bool:
    return connection.dialect.name == "sqlite"


MOST_DIGITS = 20  # that follow each other in a text which is looked for by its beginning
Clock = Callable[[], datetime]
_PG_NOW = "SELECT clock_timestamp()"


def now(connection: sa.Connection) -> datetime:
    """The registry's clock: PostgreSQL's own; for SQLite, whose file is on one machine, that machine's."""
    return clock(connection)()


def clock(connection: sa.Connection) -> Clock:
    """`now` for later: when what was sent before it is done on PostgreSQL, which is asked together with that."""
    if is_sqlite(connection):
        time = datetime.now(UTC)
        return lambda: time
    if (gathering := pipeline.of(connection)) is None:
        time = connection.exec_driver_sql(_PG_NOW).scalar_one().astimezone(UTC)
        return lambda: time
    sent = gathering.send(connection, _PG_NOW, {}, _Time())
    known: list[datetime] = []

    def told() -> datetime:
        if not known and (row := sent.row()) is not None:
            known.append(row["now"])
        return known[0]

    return told


class _Time:
    def record(self, found: Sequence[Any]) -> Mapping[str, Any]:
        return {"now": found[0].astimezone(UTC)}


# For the driver: a schema's name, and whether for this transaction alone. The operations tables stand in a schema of their
# own on PostgreSQL, and are found behind all that the path had before. A user of the schema's name would find it before all
# others ("$user"), and so is kept from it, unless the whole registry stands there. Done again, it changes nothing.
EXTEND_PATH = """
WITH given AS (SELECT %s::text AS name, current_setting('search_path') AS path),
found AS (SELECT relnamespace::regnamespace::text AS name FROM pg_class WHERE oid = to_regclass('registry_info'))
SELECT set_config('search_path', CASE
    WHEN right(given.path, length(quote_ident(given.name)) + 2) = ', ' || quote_ident(given.name) THEN given.path
    WHEN current_user = given.name AND (found.name <> quote_ident(given.name)
        OR found.name IS NULL AND to_regnamespace(quote_ident(given.name)) IS NULL)
    THEN regexp_replace(given.path, '"[$]user"[ ,]*', '') || ', ' || quote_ident(given.name)
    ELSE given.path || ', ' || quote_ident(given.name) END, %s)
FROM given LEFT JOIN found ON true
"""


def see_metadata(connection: sa.Connection, metadata_schema: str) -> None:
    """Let a connection that is not ours find the operations tables until its transaction ends."""
    if not is_sqlite(connection):
        connection.exec_driver_sql(EXTEND_PATH, (metadata_schema, True))


def insert(connection: sa.Connection, table: sa.Table) -> Any:
    """An INSERT that knows ON CONFLICT, which both databases have under one syntax and SQLAlchemy under two names."""
    return insert_of(connection.dialect.name, table)


def insert_of(name: str, table: sa.Table) -> Any:
    if name == "sqlite":
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)


def begins(column: sa.ColumnElement[str], start: str) -> sa.ColumnElement[bool]:
    """Whether a text begins with another. LIKE would ignore case on SQLite, and take % and _ for more than they are."""
    return sa.func.substr(column, 1, len(start)) == start


def begins_then_digits(column: sa.ColumnElement[str], start: str) -> sa.ColumnElement[bool]:
    """Whether a text begins with another and goes on with a digit: what an index finds, whatever the collation."""
    return sa.and_(column.between(f"{start}0", start + "9" * MOST_DIGITS), begins(column, start))


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
    return column == sa.func.any(sa.bindparam(None, values, type_=sa.ARRAY(type_)))
