"""What the definitions of tables are made of."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lakeward.db.types import Int64

metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def table(name: str, *parts: Any) -> sa.Table:
    return sa.Table(name, metadata, *parts, sqlite_strict=True, sqlite_autoincrement=True)


def id_column(name: str) -> sa.Column[int]:
    return sa.Column(name, Int64, primary_key=True, autoincrement=True)


def column(name: str, type_: Any, *rest: Any, null: bool = False, default: str | None = None) -> sa.Column[Any]:
    return sa.Column(name, type_, *rest, nullable=null, server_default=None if default is None else sa.text(default))


def reference(column: str, *, cascade: bool = False) -> sa.ForeignKey:
    return sa.ForeignKey(column, ondelete="CASCADE" if cascade else "RESTRICT")


def one_of(column: str, *values: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(f"{column} IN ({', '.join(repr(v) for v in values)})", name=column)


def not_negative(*columns: str) -> list[sa.CheckConstraint]:
    return [sa.CheckConstraint(f"{column} >= 0", name=column) for column in columns]


def partial_index(name: str, *columns: sa.Column[Any], where: sa.ColumnElement[bool], unique: bool = False) -> None:
    """An index over some of the rows. Migrations make it, on PostgreSQL too: to be given an option of a database, SQLAlchemy
    loads all that it has for it, which every program would wait for."""
    sa.Index(name, *columns, unique=unique, sqlite_where=where)
