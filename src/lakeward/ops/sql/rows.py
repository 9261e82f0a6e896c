"""What the tables of runs, errors and dead letters have in common: rows become records, and are found and changed by id."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Generic, TypeVar, get_args

import msgspec
import sqlalchemy as sa

from lakeward.db import lock_order
from lakeward.db.conditions import equal
from lakeward.db.rows import columns
from lakeward.validation import MAX_INTEGER

R = TypeVar("R", bound=msgspec.Struct)


class Rows(Generic[R]):
    """The rows of a table whose key is `id`, as records of a kind."""

    def __init__(self, table: sa.Table, kind: type[R]) -> None:
        self.table, self._kind = table, kind
        self.columns = columns(table, kind)
        types = {field.name: (field.type, *get_args(field.type)) for field in msgspec.structs.fields(kind)}
        self._enums = [(name, each) for name, some in types.items() for each in some if _is_enum(each)]

    def record(self, row: Mapping[Any, Any]) -> R:
        values = dict(row)
        for name, enum in self._enums:
            values[name] = None if values[name] is None else enum(values[name])
        return self._kind(**values)

    def records(self, connection: sa.Connection, statement: sa.Executable) -> list[R]:
        return [self.record(row) for row in connection.execute(statement).mappings()]

    def insert(self, connection: sa.Connection, values: Mapping[str, Any]) -> R:
        insert = self.table.insert().values(values).returning(*self.columns)
        return self.record(connection.execute(insert).mappings().one())

    def load(self, connection: sa.Connection, row_id: int, *, lock: bool = False) -> R | None:
        return self.first(connection, sa.select(*self.columns).where(self.table.c.id == row_id), lock=lock)

    def first(self, connection: sa.Connection, query: sa.Select[Any], *, lock: bool) -> R | None:
        """The one row of a query, if there is one; with `lock`, until the transaction ends it stays as it is."""
        row = connection.execute(query.with_for_update(key_share=True) if lock else query).mappings().one_or_none()
        return None if row is None else self.record(row)

    def update(self, connection: sa.Connection, row_id: int, values: Mapping[str, Any]) -> R:
        """One that is locked."""
        change = self.table.update().where(self.table.c.id == row_id).values(values).returning(*self.columns)
        return self.record(connection.execute(change, execution_options=lock_order.HELD).mappings().one())

    def page(
        self,
        connection: sa.Connection,
        *also: sa.ColumnElement[bool],
        before: int = MAX_INTEGER,
        limit: int | None = None,
        **equals: Any,
    ) -> list[R]:
        """The newest first, below an id. `equals`: values that columns have; None narrows nothing."""
        query = sa.select(*self.columns).where(self.table.c.id < before, *self.having(equals), *also)
        return self.records(connection, query.order_by(self.table.c.id.desc()).limit(limit))

    def having(self, equals: Mapping[str, Any]) -> list[sa.ColumnElement[bool]]:
        return [equal(self.table.c[name], value) for name, value in equals.items()]


def _is_enum(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, Enum)
