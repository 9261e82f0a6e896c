"""Rows become records."""

from __future__ import annotations

from typing import Any, TypeVar

import sqlalchemy as sa

from lakeward.db.prepared import Row

T = TypeVar("T")


def record(kind: type[T], row: sa.Row[*tuple[Any, ...]] | None) -> T | None:
    return None if row is None else kind(**row._mapping)


def from_row(kind: type[T], row: Row | None) -> T | None:
    """As `record`, of a row of a prepared statement."""
    return None if row is None else kind(**row)


def records(kind: type[T], rows: sa.Result[*tuple[Any, ...]]) -> list[T]:
    names = tuple(rows.keys())
    return [kind(**dict(zip(names, row, strict=True))) for row in rows.all()]


def columns(table: sa.Table, kind: type[Any]) -> list[sa.Column[Any]]:
    """The columns of `table` that `kind` has fields for."""
    names = set(kind.__struct_fields__)
    return [column for column in table.columns if column.name in names]
