"""Reading the feed, and trimming it.

On SQLite writers come one after the other, so the numbers rise in the order of commits and a place is a number. On
PostgreSQL a number is drawn before its transaction commits: a reader goes by what became visible between two snapshots.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.types import UserDefinedType

from lakeward.db.database import Database
from lakeward.db.dialect import in_integers, is_sqlite
from lakeward.db.prepared import Prepared
from lakeward.db.schema import registry_changes

_c = registry_changes.c


class Change(NamedTuple):
    """A row of the feed; `data` is its JSON text."""

    sequence: int
    table_name: str
    operation: str
    table_id: int
    data: str
    changed_at: datetime


class _Snapshot(UserDefinedType[str]):
    cache_ok = True
    render_bind_cast = True

    def get_col_spec(self, **_: Any) -> str:
        return "pg_snapshot"


def _snapshot(name: str) -> sa.BindParameter[str]:
    return sa.bindparam(name, type_=_Snapshot())


_COLUMNS = (
    _c.sequence,
    _c.table_name,
    _c.operation,
    _c.table_id,
    sa.type_coerce(_c.data, sa.Text).label("data"),  # decoded once, into its record
    _c.changed_at,
)
_XID: sa.ColumnElement[Any] = sa.literal_column("registry_changes.xid")
_AFTER = Prepared(
    sa.select(*_COLUMNS)
    .where(_c.sequence > sa.bindparam("after"))
    .order_by(_c.sequence)
    .limit(sa.bindparam("count", type_=sa.Integer))
)
# What the old snapshot does not see: later transactions, and those that ran. Said so, the index finds both: with what is before
# or after the oldest that ran, all that was written since a transaction of hours began, in any of the server's databases,
# would be looked at each time.
_IS_LATER = sa.func.pg_snapshot_xmax(_snapshot("old")) <= _XID
_RAN = _XID.op("=")(sa.func.any(sa.func.array(sa.select(sa.func.pg_snapshot_xip(_snapshot("old"))).scalar_subquery())))
_IS_NEW = sa.or_(_IS_LATER, _RAN)


def _first(is_new: sa.ColumnElement[bool]) -> Any:
    """The sum keeps PostgreSQL from looking for the least number along the numbers, past all that is known."""
    return sa.select(sa.func.min(_c.sequence + 0)).where(is_new).scalar_subquery()


_BETWEEN = Prepared(
    sa.select(*_COLUMNS)
    .where(
        _c.sequence > sa.bindparam("after"),
        _IS_NEW,
        sa.func.pg_visible_in_snapshot(_XID, _snapshot("target")),
    )
    .order_by(_c.sequence)
    .limit(sa.bindparam("count", type_=sa.Integer))
)
# One statement, so one snapshot: what it is, and the first number that is visible in it and was not in the old one.
_SNAPSHOT = Prepared(sa.select(sa.cast(sa.func.pg_current_snapshot(), sa.Text).label("snapshot")))
_HEAD = Prepared(
    sa.select(
        sa.cast(sa.func.pg_current_snapshot(), sa.Text).label("snapshot"),
        sa.func.least(_first(_IS_LATER), _first(_RAN)).label("first"),
    )
)
# AUTOINCREMENT keeps the highest number ever given, also when all rows have been trimmed.
_LAST_GIVEN = Prepared(
    sa.text("SELECT seq FROM sqlite_sequence WHERE name = 'registry_changes'").columns(seq=sa.Integer)
)


def after(database: Database, sequence: int, count: int) -> list[Change]:
    """SQLite: up to `count` changes with a higher number, by number."""
    return [Change(**row) for row in database.lookups.all(_AFTER, {"after": sequence, "count": count})]


def last_given(database: Database) -> int:
    """SQLite: the highest number ever given; 0 for none."""
    row = database.lookups.one(_LAST_GIVEN, {})
    return 0 if row is None else int(row["seq"])


def current_snapshot(database: Database) -> str:
    """PostgreSQL: what is visible now."""
    row = database.lookups.one(_SNAPSHOT, {})
    assert row is not None
    return str(row["snapshot"])


def between(database: Database, old: str, target: str, sequence: int, count: int) -> list[Change]:
    """PostgreSQL: up to `count` changes that `target` sees and `old` does not, with a higher number, by number."""
    row = {"old": old, "target": target, "after": sequence, "count": count}
    return [Change(**found) for found in database.lookups.all(_BETWEEN, row)]


def head(database: Database, old: str) -> tuple[str, int | None]:
    """PostgreSQL: the current snapshot, and the lowest number that it sees and `old` does not; None if nothing is new."""
    row = database.lookups.one(_HEAD, {"old": old})
    assert row is not None
    return row["snapshot"], row["first"]


class Wanted(NamedTuple):
    """What of the feed somebody hears of; none is all."""

    tables: Collection[str]  # registry tables
    operations: Collection[str] | None = None
    table_ids: Collection[int] | None = None  # lakehouse tables

    def includes(self, change: Change) -> bool:
        return (
            change.table_name in self.tables
            and (self.operations is None or change.operation in self.operations)
            and (self.table_ids is None or change.table_id in self.table_ids)
        )


def count_after(connection: sa.Connection, sequence: int, wanted: Wanted, limit: int) -> tuple[int, datetime | None]:
    """SQLite: of the next `limit` rows with a higher number, how many are wanted, and when the oldest of them was made."""
    return _count(connection, _c.sequence > sequence, wanted, limit)


def count_between(
    connection: sa.Connection, old: str, target: str, sequence: int, wanted: Wanted, limit: int
) -> tuple[int, datetime | None]:
    """PostgreSQL: the same, of `limit` rows that `old` does not see, but for those of `target` up to a number."""
    bound = _IS_NEW
    if target:
        met = sa.and_(_c.sequence <= sequence, sa.func.pg_visible_in_snapshot(_XID, _snapshot("target")))
        bound = sa.and_(bound, sa.not_(met))
    return _count(connection, bound, wanted, limit, {"old": old, **({"target": target} if target else {})})


def _count(
    connection: sa.Connection,
    behind: sa.ColumnElement[bool],
    wanted: Wanted,
    limit: int,
    parameters: Mapping[str, str] = {},
) -> tuple[int, datetime | None]:
    columns = (_c.table_name, _c.operation, _c.table_id, _c.changed_at)
    rows = sa.select(*columns).where(behind).limit(limit).subquery()
    query = sa.select(sa.func.count(), sa.func.min(rows.c.changed_at)).where(rows.c.table_name.in_(list(wanted.tables)))
    if wanted.operations is not None:
        query = query.where(rows.c.operation.in_(list(wanted.operations)))
    if wanted.table_ids is not None:
        query = query.where(in_integers(connection, rows.c.table_id, wanted.table_ids))
    count, oldest = connection.execute(query, parameters).one()
    return int(count), oldest


def server_id(connection: sa.Connection) -> str:
    """Who keeps the transaction numbers: PostgreSQL's system identifier, '' for SQLite. A restored copy has another."""
    if is_sqlite(connection):
        return ""
    return str(connection.execute(sa.text("SELECT system_identifier::text FROM pg_control_system()")).scalar_one())


# Trimming -------------------------------------------------------------------------------------------------------------
def delete_up_to(connection: sa.Connection, sequence: int, count: int) -> int:
    """SQLite: delete up to `count` of the oldest rows, none with a higher number. How many went."""
    oldest = sa.select(_c.sequence).where(_c.sequence <= sequence).order_by(_c.sequence).limit(count)
    return connection.execute(registry_changes.delete().where(_c.sequence.in_(oldest))).rowcount


def delete_before_xid(connection: sa.Connection, xid: int, count: int) -> int:
    """PostgreSQL: delete up to `count` rows of transactions before this one. How many went."""
    oldest = sa.select(_c.sequence).where(sa.cast(sa.cast(xid, sa.Text), _Xid8()) > _XID).order_by(_XID).limit(count)
    return connection.execute(registry_changes.delete().where(_c.sequence.in_(oldest))).rowcount


class _Xid8(UserDefinedType[Any]):
    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "xid8"


def delete_foreign(connection: sa.Connection) -> int:
    """PostgreSQL: delete rows that are here although their transaction has not ended, by this server's count: they were
    copied from another. For a transaction that has changed no watched row. How many went.
    """
    if is_sqlite(connection):
        return 0
    now = sa.func.pg_current_snapshot()
    is_foreign = sa.and_(sa.func.pg_snapshot_xmin(now) <= _XID, sa.not_(sa.func.pg_visible_in_snapshot(_XID, now)))
    return connection.execute(registry_changes.delete().where(is_foreign)).rowcount


def delete_older(connection: sa.Connection, before: datetime, count: int) -> int:
    """Delete those of the `count` oldest rows that were written before this time. How many went."""
    oldest = sa.select(_c.sequence, _c.changed_at).where(_c.sequence > 0).order_by(_c.sequence).limit(count).subquery()
    old = sa.select(oldest.c.sequence).where(oldest.c.changed_at < before)
    return connection.execute(registry_changes.delete().where(_c.sequence.in_(old))).rowcount
