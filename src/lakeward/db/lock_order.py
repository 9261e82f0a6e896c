"""Locks of rows on PostgreSQL: the one order in which every transaction takes them, and what checks it.

Two transactions that lock the same rows in the same order wait for each other and never both. On SQLite a writing
transaction has the whole database, and nothing here does anything.

Rows that others refer to are locked FOR NO KEY UPDATE, which lets the others' foreign keys be checked meanwhile; FOR UPDATE,
by `keys=True`, is for rows that are going to be deleted, or to change a unique key.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from lakeward.db import pipeline
from lakeward.db.dialect import is_sqlite

CHECKED = "LAKEWARD_CHECK_LOCKS"  # the environment variable that has every statement checked, in tests

# Rows of a table are locked before those of the tables after it. Of one table, they are locked in the order of their keys.
ORDER = (
    "names",  # no table: advisory locks, on texts
    "tables",
    "topics",
    "partitions",
    "pending_writes",
    "orphan_sweeps",
    "leases",
    "retired_files",
    "partition_metadata",
    "sync_runs",
    "dead_letter_queue",
    "error_log",
    "sync_markers",
    "consumer_groups",
    "stream_plans",
    "subscriber_cursors",
    "registry_changes",
    "namespaces",
)
# Their rows belong to a row that whoever changes them has locked: nobody ever waits for them.
GUARDED = {
    "table_columns": "tables",
    "table_metadata": "tables",
    "table_files": "tables",
    "file_pages": "tables",
    "table_stats": "tables",
    "table_snapshots": "tables",
    "applied_batches": "tables",
    "stream_positions": "tables",
    "segments": "partitions",
    "producer_batches": "topics",
    "consumer_offsets": "consumer_groups",
    "upkeep": "names",
}
_RANKS = {name: rank for rank, name in enumerate(ORDER)}
_KEY = "lakeward_locks"  # in the connection's `info`
# Options of a statement about rows that this transaction has locked before: it waits for nobody.
HELD = {"lakeward_locks_held": True}


class LockOrderError(AssertionError):
    """Code of ours takes locks in another order, or changes rows without the lock that guards them."""


class _Taken:
    """What one transaction has locked so far."""

    __slots__ = ("last", "names", "saved", "tables", "transaction")

    def __init__(self, transaction: object) -> None:
        self.transaction = transaction
        self.tables: frozenset[int] = frozenset()
        self.names: frozenset[str] = frozenset()
        self.last = -1  # the highest rank
        self.saved: list[tuple[frozenset[int], frozenset[str], int]] = []  # at each savepoint, the innermost last

    def note(self, name: str, *table_ids: int) -> None:
        self.tables = self.tables.union(table_ids)
        self.names |= {name}
        self.last = max(self.last, _RANKS[name])


def _taken(connection: sa.Connection) -> _Taken:
    transaction = connection.get_transaction()
    found: _Taken | None = connection.info.get(_KEY)
    if found is None or found.transaction is not transaction:
        found = connection.info[_KEY] = _Taken(transaction)
    return found


def follow_savepoints(engine: sa.Engine) -> None:
    """What was locked since a savepoint is free again when that is rolled back: from now on this is known here."""

    def save(connection: sa.Connection, _name: None) -> None:
        taken = _taken(connection)
        taken.saved.append((taken.tables, taken.names, taken.last))

    def release(connection: sa.Connection, _name: str, _context: None) -> None:
        if not connection.invalidated:
            _taken(connection).saved.pop()

    def roll_back(connection: sa.Connection, _name: str, _context: None) -> None:
        if not connection.invalidated:  # a connection that is lost has no locks, and can be asked nothing
            taken = _taken(connection)
            taken.tables, taken.names, taken.last = taken.saved.pop()

    sa.event.listen(engine, "savepoint", save)
    sa.event.listen(engine, "release_savepoint", release)
    sa.event.listen(engine, "rollback_savepoint", roll_back)


# Taking -------------------------------------------------------------------------------------------------------------------
_TABLES = {
    keys: f"SELECT table_id FROM tables WHERE table_id = ANY(%(ids)s::bigint[]) ORDER BY table_id FOR {mode}"
    for keys, mode in ((False, "NO KEY UPDATE"), (True, "UPDATE"))
}
_NAME = sa.text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 4))")


def tables(connection: sa.Connection, table_ids: Iterable[int], *, keys: bool = False) -> None:
    """Lock rows of `tables`, ids ascending: whatever of a table's files, statistics, metadata and snapshots is read from
    here on is what a change can be built on."""
    send_tables(connection, table_ids, keys=keys)
    pipeline.flush(connection)


def send_tables(connection: sa.Connection, table_ids: Iterable[int], *, keys: bool = False) -> None:
    """As `tables`, with what the connection is asked next: not for work that reads anything by another way."""
    if is_sqlite(connection):
        return
    ids = sorted(set(table_ids))
    taken = _taken(connection)
    _check(taken, "tables")
    new = [table_id for table_id in ids if table_id not in taken.tables]
    if CHECKED in os.environ and new and taken.tables and new[0] < max(taken.tables):
        raise LockOrderError(f"tables {new} are locked after {sorted(taken.tables)}: lock all of them at once")
    if (gathering := pipeline.of(connection)) is not None:
        gathering.send(connection, _TABLES[keys], {"ids": ids})
    else:
        connection.exec_driver_sql(_TABLES[keys], {"ids": ids})
    taken.note("tables", *ids)


def watched(connection: sa.Connection, *table_ids: int) -> None:
    """The door of every change of a watched row: the rows of its tables are locked from here on, if they were not yet."""
    if not is_sqlite(connection) and not _taken(connection).tables.issuperset(table_ids):
        tables(connection, table_ids)


def note_table(connection: sa.Connection, table_id: int) -> None:
    """A table whose row this transaction has: it made the table, or locked the row as it read it."""
    if not is_sqlite(connection):
        _taken(connection).note("tables", table_id)


def name(connection: sa.Connection, text: str) -> None:
    """Wait for every other transaction that has locked this text."""
    if not is_sqlite(connection):
        taken = _taken(connection)
        _check(taken, "names")
        connection.execute(_NAME, {"name": text})
        taken.note("names")


def rows(connection: sa.Connection, key: sa.Column[Any], *conditions: sa.ColumnElement[bool]) -> None:
    """Lock the rows of a table that fulfil the conditions, in the order of their key, before one statement changes them all:
    by itself that would take them in whatever order it finds them."""
    if not is_sqlite(connection):
        locked = sa.select(key).where(*conditions).order_by(key).with_for_update(key_share=True)
        connection.execute(locked).all()


# Checking -----------------------------------------------------------------------------------------------------------------
def _check(taken: _Taken, name: str) -> None:
    if CHECKED in os.environ and _RANKS[name] < taken.last:
        raise LockOrderError(f"{name} is locked after {ORDER[taken.last]}; db/lock_order.py has the order")


def check_statements(engine: sa.Engine) -> None:
    """In tests, raise LockOrderError where a statement of Lakeward's own locks rows out of order, or changes guarded rows
    without their lock. Statements of others, and SQL that is given as text, are not looked at."""
    if CHECKED in os.environ:
        sa.event.listen(engine, "before_execute", _check_statement)


def _is_ours() -> bool:
    """Whether it is this package that has SQLAlchemy run a statement."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("sqlalchemy."):
        frame = frame.f_back
    return str(frame.f_globals["__name__"]).startswith("lakeward.")


def _check_statement(connection: sa.Connection, statement: Any, _many: Any, _parameters: Any, options: Any) -> None:
    if _is_ours():
        _check_one(connection, statement, options)


def check(connection: sa.Connection, statement: Any) -> None:
    """In tests, the same of one that does not go by SQLAlchemy."""
    if CHECKED in os.environ:
        _check_one(connection, statement, statement.get_execution_options())


def _check_one(connection: sa.Connection, statement: Any, options: Any) -> None:
    if isinstance(statement, (sa.Insert, sa.Update, sa.Delete)):
        changed = str(statement.table.description)
        if (guard := GUARDED.get(changed)) is not None and guard not in _taken(connection).names:
            raise LockOrderError(f"{changed} is changed while no row of {guard} is locked; see db/lock_order.py")
        is_upsert = getattr(statement, "_post_values_clause", None) is not None
        if is_upsert or not isinstance(statement, sa.Insert):
            _note(connection, changed, waits=not options.get("lakeward_locks_held"))
    elif isinstance(statement, sa.Select) and (locking := statement._for_update_arg) is not None:
        if locking.read and locking.key_share:  # it waits for a deletion alone
            return
        for each in locking.of or statement.get_final_froms():
            _note(connection, str(each.description), waits=not locking.skip_locked)


def _note(connection: sa.Connection, name: str, *, waits: bool) -> None:
    if name in _RANKS:
        taken = _taken(connection)
        if waits:
            _check(taken, name)
        taken.note(name)
