"""The triggers of a registry: those of the feed, and the rules of the log that no constraint can say."""

from __future__ import annotations

import sqlalchemy as sa

from lakeward.db import feed_triggers, log_triggers

PREFIXES = (feed_triggers.PREFIX, log_triggers.PREFIX)  # of every trigger and function made here


def install(connection: sa.Connection) -> None:
    """Make the triggers of the current schema anew, in the connection's transaction."""
    remove(connection)
    dialect = connection.dialect.name
    for statement in [*feed_triggers.statements(dialect), *log_triggers.statements(dialect)]:
        connection.exec_driver_sql(statement.replace("%", "%%") if dialect != "sqlite" else statement)


def remove(connection: sa.Connection) -> None:
    """Drop every trigger that `install` made, of any version."""
    for prefix in PREFIXES:
        (_remove_sqlite if connection.dialect.name == "sqlite" else _remove_postgresql)(connection, prefix)


def _remove_sqlite(connection: sa.Connection, prefix: str) -> None:
    names = connection.exec_driver_sql(
        f"SELECT name FROM sqlite_master WHERE type = 'trigger' AND substr(name, 1, {len(prefix)}) = '{prefix}'"
    ).scalars()
    for name in names.all():
        connection.exec_driver_sql(f'DROP TRIGGER "{name}"')


def _remove_postgresql(connection: sa.Connection, prefix: str) -> None:
    functions = connection.execute(
        sa.text(
            "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace "
            "AND starts_with(p.proname, :prefix) AND p.prorettype = 'trigger'::regtype"
        ),
        {"prefix": prefix},
    ).scalars()
    for function in functions.all():
        connection.exec_driver_sql(f"DROP FUNCTION {function.replace('%', '%%')} CASCADE")
