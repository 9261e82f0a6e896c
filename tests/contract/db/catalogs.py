"""What a database says of its own tables, as text to compare."""

from __future__ import annotations

import re

import sqlalchemy as sa

from lakeward.db import schema
from lakeward.db.database import METADATA_SCHEMA

# Alembic's own, and what the schema does not tell: it is on PostgreSQL only.
ONLY_IN_HISTORY = "alembic_version"

_PG_COLUMNS = """
SELECT c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
       || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
       || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '')
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relkind = 'r' AND c.relnamespace IN (current_schema()::regnamespace, to_regnamespace('lakeward')) AND c.relname <> 'alembic_version'
"""
_PG_CONSTRAINTS = """
SELECT conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace IN (current_schema()::regnamespace, to_regnamespace('lakeward')) AND conrelid::regclass::text <> 'alembic_version'
"""
_PG_INDEXES = """
SELECT indexdef FROM pg_indexes WHERE schemaname IN (current_schema(), 'lakeward') AND tablename <> 'alembic_version'
"""


def describe(connection: sa.Connection) -> set[str]:
    """Every column, constraint and index of every table, in no order: columns that came later stand last."""
    if connection.dialect.name == "sqlite":
        found = connection.exec_driver_sql(
            "SELECT sql FROM sqlite_master WHERE type IN ('table', 'index') AND sql IS NOT NULL "
            "AND name NOT IN ('alembic_version', 'sqlite_sequence')"
        )
        return {part for statement in found.scalars() for part in _parts(re.sub(r"\s+", " ", statement))}
    return {
        line
        for query in (_PG_COLUMNS, _PG_CONSTRAINTS, _PG_INDEXES)
        for line in connection.exec_driver_sql(query).scalars()
        # The writing transaction's id: types.py has no name for its type.
        if "xid" not in line
    }


def _parts(statement: str) -> set[str]:
    """What stands between the commas of SQLite's CREATE TABLE, each with the table; an index whole."""
    if not statement.startswith("CREATE TABLE"):
        return {statement}
    head, _, rest = statement.partition("(")
    body, _, tail = rest.rpartition(")")
    parts, depth = [""], 0
    for character in body:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return {f"{head.strip()}{tail.strip()}: {part.strip()}" for part in parts}


def drop_all(connection: sa.Connection) -> None:
    schema.metadata.drop_all(connection, checkfirst=False)
    connection.exec_driver_sql(f"DROP TABLE {ONLY_IN_HISTORY}")


def create_all(connection: sa.Connection) -> None:
    """Every table as db/schema says it: on PostgreSQL the operations tables in their own schema."""
    # The schema names a partial index's rows once, as an option of SQLite's.
    for index in (each for table in schema.metadata.tables.values() for each in table.indexes):
        index.dialect_options["postgresql"]["where"] = index.dialect_options["sqlite"]["where"]
    operations = [table for table in schema.metadata.sorted_tables if table.name in schema.OPERATIONS]
    others = [table for table in schema.metadata.sorted_tables if table.name not in schema.OPERATIONS]
    if connection.dialect.name == "postgresql":  # what partial_index leaves to migrations
        for index in (each for table in schema.metadata.sorted_tables for each in table.indexes):
            index.dialect_options["postgresql"]["where"] = index.dialect_options["sqlite"]["where"]
    schema.metadata.create_all(connection, tables=others, checkfirst=False)
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL search_path = {METADATA_SCHEMA}")
    schema.metadata.create_all(connection, tables=operations, checkfirst=False)
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL search_path = public, {METADATA_SCHEMA}")


def table_names(connection: sa.Connection) -> list[str]:
    inspector = sa.inspect(connection)
    own = [] if connection.dialect.name == "sqlite" else inspector.get_table_names(METADATA_SCHEMA)
    return sorted({*inspector.get_table_names(), *own} - {ONLY_IN_HISTORY})
