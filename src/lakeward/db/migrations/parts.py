"""What revisions make tables of. It is theirs alone, and stays as it is: so they make the same tables for ever."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

INT64 = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INT32 = sa.Integer()
TEXT = sa.Text()
# By code point whatever the collation of the database, as SQLite has it: pages and ranges go by these.
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
BYTES = sa.LargeBinary()
FLAG = sa.Boolean().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True).with_variant(
    sa.Text(), "sqlite"
)  # texts of one form, which compare as their times do
JSON = postgresql.JSON().with_variant(sa.Text(), "sqlite")  # on both the text that it is


def new_metadata() -> sa.MetaData:
    return sa.MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
        }
    )


def table(metadata: sa.MetaData, name: str, *parts: Any) -> sa.Table:
    return sa.Table(name, metadata, *parts, sqlite_strict=True, sqlite_autoincrement=True)


def id_column(name: str) -> sa.Column[int]:
    return sa.Column(name, INT64, primary_key=True, autoincrement=True)


def column(name: str, type_: Any, *rest: Any, null: bool = False, default: str | None = None) -> sa.Column[Any]:
    return sa.Column(name, type_, *rest, nullable=null, server_default=None if default is None else sa.text(default))


def reference(column: str, *, cascade: bool = False) -> sa.ForeignKey:
    return sa.ForeignKey(column, ondelete="CASCADE" if cascade else "RESTRICT")


def one_of(column: str, *values: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(f"{column} IN ({', '.join(repr(v) for v in values)})", name=column)


def not_negative(*columns: str) -> list[sa.CheckConstraint]:
    return [sa.CheckConstraint(f"{column} >= 0", name=column) for column in columns]


def partial_index(name: str, *columns: sa.Column[Any], where: sa.ColumnElement[bool]) -> None:
    sa.Index(name, *columns, sqlite_where=where, postgresql_where=where)


def make(connection: sa.Connection, tables: Iterable[sa.Table]) -> None:
    """Create tables with their indexes."""
    for each in tables:
        connection.execute(sa.schema.CreateTable(each))
        make_indexes(connection, each)


def make_indexes(connection: sa.Connection, table: sa.Table) -> None:
    # Partial indexes last: of two that seem equal to it, SQLite takes the one that was made later.
    for index in sorted(table.indexes, key=lambda each: (_is_partial(each), each.name)):
        connection.execute(sa.schema.CreateIndex(index))


def _is_partial(index: sa.Index) -> bool:
    return index.dialect_options["sqlite"]["where"] is not None
