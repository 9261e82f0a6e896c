"""The triggers that write the feed: one row in registry_changes for each changed row of a watched table.

`data` is the row after the change (before it for DELETE) as a JSON object of every column but those that WATCHED leaves
out; both databases write the same values: booleans, documents as documents, times as '2026-01-02T03:04:05.000006Z',
bytes as hex. An UPDATE counts even if it leaves every value as it was: comparing would cost more than a spare row.

What a trigger cannot see is refused: TRUNCATE on PostgreSQL, REPLACE on SQLite (the row it removes fires no trigger
unless the connection asked for it). So is a change of a row's key, since a subscriber knows the row by it.
"""

from __future__ import annotations

import re
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from lakeward.db import schema
from lakeward.db.types import Bytes, Flag, Json, UtcTime

PREFIX = "feed_"  # of every trigger and function made here
LOCK_CLASS = 0x6C77_0002  # of the advisory locks, on a table's id, that put writers of one table in order

_SQLITE = sqlite.dialect()
_SQLITE_NOW = "strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z'"  # it counts in milliseconds


def statements(dialect_name: str) -> list[str]:
    """The statements that make the triggers of every watched table on 'sqlite' or 'postgresql'."""
    make = _sqlite if dialect_name == "sqlite" else _postgresql
    return [each for name in sorted(schema.WATCHED) for each in make(schema.metadata.tables[name])]


def _document(table: sa.Table, row: str, dialect_name: str) -> str:
    """SQL for the JSON object that stands for `row` ('NEW' or 'OLD')."""
    fed = [column for column in table.columns if column.name not in schema.WATCHED[table.name]]
    assert len(fed) <= 50, "a function takes at most 100 arguments on PostgreSQL"
    pairs = ", ".join(f"'{c.name}', {_value(c, f'{row}.{_quoted(c.name)}', dialect_name)}" for c in fed)
    return f"json_object({pairs})" if dialect_name == "sqlite" else f"json_build_object({pairs})"


def _value(column: sa.Column[object], value: str, dialect_name: str) -> str:
    kind = column.type
    on_sqlite = dialect_name == "sqlite"
    if isinstance(kind, UtcTime) and not on_sqlite:
        return f"""to_char({value} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
    if isinstance(kind, Flag) and on_sqlite:
        return f"json(CASE {value} WHEN 0 THEN 'false' WHEN 1 THEN 'true' END)"
    if isinstance(kind, Json) and on_sqlite:
        return f"json({value})"
    if isinstance(kind, type(Bytes)):
        return f"CASE WHEN {value} IS NOT NULL THEN lower(hex({value})) END" if on_sqlite else f"encode({value}, 'hex')"
    return value


# SQLite ---------------------------------------------------------------------------------------------------------------
def _sqlite(table: sa.Table) -> list[str]:
    name = table.name
    made = [
        _trigger(
            f"{operation.lower()}_{name}",
            f"AFTER {operation} ON {name}",
            "INSERT INTO registry_changes (table_name, operation, table_id, data, changed_at) VALUES "
            f"('{name}', '{operation}', {row}.table_id, {_document(table, row, 'sqlite')}, {_SQLITE_NOW});",
        )
        for operation, row in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD"))
    ]
    fixed = _fixed(table)
    # A key of one number is changed under its other names, such as rowid, too, of which no column list knows.
    of = "" if len(table.primary_key.columns) == 1 else f"OF {', '.join(fixed)} "
    made.append(
        _trigger(
            f"fixed_{name}",
            f"BEFORE UPDATE {of}ON {name} WHEN " + " OR ".join(f"NEW.{column} IS NOT OLD.{column}" for column in fixed),
            f"SELECT RAISE(ABORT, '{_fixed_message(table)}');",
        )
    )
    # A conflict is found before the row is written, so OR REPLACE gets no chance to remove a row. IGNORE and upserts are
    # refused with it. The message starts as SQLite's own does.
    keys = _unique_keys(table)
    made.append(_trigger(f"unseen_insert_{name}", f"BEFORE INSERT ON {name}", _refuse_conflicts(name, keys, "")))
    if changeable := [key for key in keys if not set(key) <= set(fixed)]:
        used = " ".join(new for key in changeable for new in key.values())
        columns = [_quoted(column.name) for column in table.columns if f"NEW.{_quoted(column.name)}" in used]
        made.append(
            _trigger(
                f"unseen_update_{name}",
                f"BEFORE UPDATE OF {', '.join(columns)} ON {name}",
                _refuse_conflicts(name, changeable, " AND rowid <> OLD.rowid"),
            )
        )
    return made


def _trigger(name: str, when: str, body: str) -> str:
    timing, _, condition = when.partition(" WHEN ")
    condition = f"WHEN {condition}\n" if condition else ""
    return f"CREATE TRIGGER {PREFIX}{name} {timing} FOR EACH ROW {condition}BEGIN\n  {body}\nEND"


def _refuse_conflicts(table: str, keys: list[dict[str, str]], others: str) -> str:
    def refuse(key: dict[str, str]) -> str:
        same = " AND ".join(f"{old} = {new}" for old, new in key.items())
        names = ", ".join(f"{table}.{column}".replace('"', "") for column in key)
        message = (
            f"UNIQUE constraint failed: {names} (REPLACE and ON CONFLICT are refused on {table}: the feed would not see "
            "the row that goes; update it or delete it first)"
        ).replace("'", "''")
        return f"SELECT RAISE(ABORT, '{message}') WHERE EXISTS (SELECT 1 FROM {table} WHERE {same}{others});"

    return "\n  ".join(refuse(key) for key in keys)


def _unique_keys(table: sa.Table) -> list[dict[str, str]]:
    """Each unique key as {expression over the stored row: the same over NEW}."""
    keys: list[list[Any]] = [list(table.primary_key.columns)]
    keys += [list(c.columns) for c in table.constraints if isinstance(c, sa.UniqueConstraint)]
    keys += [list(index.expressions) for index in table.indexes if index.unique]
    found = [{_sql(part, table, ""): _sql(part, table, "NEW.") for part in key} for key in keys]
    return sorted(found, key=list)


def _sql(part: sa.ColumnElement[object], table: sa.Table, row: str) -> str:
    if isinstance(part, sa.Column):
        return row + _quoted(part.name)
    text = str(part.compile(dialect=_SQLITE))
    for column in table.columns:
        text = re.sub(rf"\b{table.name}\.{column.name}\b", row + _quoted(column.name), text)
    return text


# PostgreSQL -----------------------------------------------------------------------------------------------------------
def _postgresql(table: sa.Table) -> list[str]:
    name, lock, fixed = table.name, LOCK_CLASS, _fixed(table)
    changed = " OR ".join(f"NEW.{column} IS DISTINCT FROM OLD.{column}" for column in fixed)
    document = {row: _document(table, row, "postgresql") for row in ("NEW", "OLD")}

    def feed(row: str) -> str:
        # First the lock, which is held until the transaction ends, then the number: so numbers of one table rise in the
        # order of commits. The number is drawn by the INSERT.
        return f"""
    PERFORM pg_advisory_xact_lock({lock}, ({row}.table_id & 2147483647)::int4);
    INSERT INTO registry_changes (table_name, operation, table_id, data, changed_at) VALUES
      ('{name}', TG_OP, {row}.table_id, {document[row]}, clock_timestamp());"""

    return [
        f"""CREATE FUNCTION {PREFIX}{name}() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  IF TG_OP = 'DELETE' THEN{feed("OLD")}
  ELSE{feed("NEW")}
  END IF;
  RETURN NULL;
END $$""",
        f"CREATE TRIGGER {PREFIX}{name} AFTER INSERT OR UPDATE OR DELETE ON {name} "
        f"FOR EACH ROW EXECUTE FUNCTION {PREFIX}{name}()",
        # BEFORE, so that it speaks before a foreign key does.
        *_refusal(
            f"fixed_{name}",
            f"BEFORE UPDATE OF {', '.join(fixed)} ON {name} FOR EACH ROW WHEN ({changed})",
            "integrity_constraint_violation",
            _fixed_message(table),
        ),
        *_refusal(
            f"truncate_{name}",
            f"BEFORE TRUNCATE ON {name} FOR EACH STATEMENT",
            "feature_not_supported",
            f"TRUNCATE is refused on {name}: the feed would not see the rows that go; use DELETE",
        ),
    ]


def _refusal(name: str, when: str, code: str, message: str) -> list[str]:
    return [
        f"""CREATE FUNCTION {PREFIX}{name}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = '{code}', MESSAGE = '{message}';
END $$""",
        f"CREATE TRIGGER {PREFIX}{name} {when} EXECUTE FUNCTION {PREFIX}{name}()",
    ]


# Both -----------------------------------------------------------------------------------------------------------------
def _fixed(table: sa.Table) -> list[str]:
    """The columns by which a row is known, and which it keeps for life."""
    names = {column.name for column in table.primary_key.columns} | {"table_id"}
    return [_quoted(column.name) for column in table.columns if column.name in names]


def _fixed_message(table: sa.Table) -> str:
    names = ", ".join(name.strip('"') for name in _fixed(table))
    return f"a row of {table.name} keeps its {names} for life; delete it and insert another"


def _quoted(name: str) -> str:
    return f'"{name}"'
