"""Statements that every small write runs, prepared once: SQLAlchemy's work for each execution is most of their cost."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from lakeward.db import lock_order, pipeline
from lakeward.db.drivers import UNSTORABLE, unstorable
from lakeward.db.pipeline import Answer, Done, Refusal

Row = Mapping[str, Any]
ROWS = 64  # of one INSERT on SQLite: with triggers half the time of a statement for each row; more gain nothing
_Conversion = Callable[[Any], Any]  # of one value, to or from the driver


class Prepared:
    """A statement whose values are all named parameters (for an INSERT without values, its columns).

    The text and the conversions are made once, and the driver runs it: some microseconds in place of 30 or more. On PostgreSQL
    it goes to the server when its answer is asked for, together with those that were sent before it (db/pipeline.py). Where
    somebody listens to the engine's statements, and on connections that are not ours, it is executed as any other. The rows of
    one call have the same keys.
    """

    def __init__(self, statement: Any) -> None:
        self._statement = statement
        self._ready: dict[tuple[str, ...], Ready] = {}

    def run(self, connection: sa.Connection, row: Row) -> int:
        """Execute with one row of parameters; how many rows of the table it was about."""
        ready = self._for(connection, row)
        if ready is None:
            return self.send(connection, row).count()
        return ready.execute(connection, ready.values(row)).rowcount

    def insert(self, connection: sa.Connection, rows: Sequence[Row], refusal: Refusal | None = None) -> None:
        """Insert rows, in their order. For an INSERT without values.

        On PostgreSQL the answer is not waited for: `refusal` says what is raised, by this or later, in place of what the
        database raises.
        """
        ready = self._for(connection, rows[0])
        try:
            if ready is not None:
                ready.insert(connection, rows)
            elif (gathering := self._gathering(connection)) is not None:
                ready = self.ready(connection.dialect, rows[0])
                named = [ready.named(row) for row in rows]
                gathering.send(connection, ready.text, named if len(named) > 1 else named[0], None, refusal)
            else:
                connection.execute(self._statement, rows)
        except sa.exc.DBAPIError as error:
            if refusal is not None and (refused := refusal(error)) is not None:
                raise refused from error
            raise

    def one(self, connection: sa.Connection, parameters: Row) -> Row | None:
        """The only row of a query, or of what RETURNING gives; or none."""
        ready = self._for(connection, parameters)
        if ready is None:
            return self.send(connection, parameters).row()
        found = ready.execute(connection, ready.values(parameters)).fetchone()
        return None if found is None else ready.record(found)

    def all(self, connection: sa.Connection, parameters: Row) -> list[Row]:
        """The rows of a query."""
        ready = self._for(connection, parameters)
        if ready is None:
            return [row._asdict() for row in connection.execute(self._statement, parameters)]
        return [ready.record(found) for found in ready.execute(connection, ready.values(parameters))]

    def send(self, connection: sa.Connection, parameters: Row) -> Answer:
        """Execute it, on PostgreSQL when the answer is asked for, or one that is sent later."""
        ready = self._for(connection, parameters)
        if ready is not None:
            cursor = ready.execute(connection, ready.values(parameters))
            found = cursor.fetchone() if cursor.description else None
            return Done(None if found is None else ready.record(found), cursor.rowcount)
        if (gathering := self._gathering(connection)) is not None:
            ready = self.ready(connection.dialect, parameters)
            return gathering.send(connection, ready.text, ready.named(parameters), ready)
        result = connection.execute(self._statement, parameters)
        row = result.one_or_none() if result.returns_rows else None
        return Done(None if row is None else row._asdict(), result.rowcount)

    def _gathering(self, connection: sa.Connection) -> pipeline.Pipeline | None:
        found = pipeline.of(connection)
        if found is not None:
            lock_order.check(connection, self._statement)
        return found

    def _for(self, connection: sa.Connection, parameters: Row) -> Ready | None:
        """For SQLite's driver."""
        dialect = connection.dialect
        if dialect.name != "sqlite" or connection.engine.dispatch.before_cursor_execute:
            return None
        return self.ready(dialect, parameters)

    def ready(self, dialect: sa.Dialect, parameters: Row) -> Ready:
        """The statement as the dialect's driver takes it, for parameters of these names."""
        key = (dialect.name, *parameters)
        found = self._ready.get(key)
        if found is None:
            found = self._ready[key] = Ready(self._statement, tuple(parameters), dialect)
        return found


class Ready:
    """A statement as a driver takes it: SQLite's with values in order, PostgreSQL's with values by name."""

    def __init__(self, statement: Any, names: tuple[str, ...], dialect: sa.Dialect) -> None:
        is_insert = isinstance(statement, sa.Insert)
        compiled: Any = statement.compile(dialect=dialect, column_keys=list(names) if is_insert else None)
        self.text = str(compiled)
        self._further_row = f", ({', '.join('?' * len(compiled.positiontup or ()))})"
        types = {name: parameter.type for parameter, name in compiled.bind_names.items()}
        self._names: list[str] = list(compiled.positiontup or types)
        self._pick = _picker(self._names)
        self._to_driver = _conversions(
            types[name].dialect_impl(dialect).bind_processor(dialect) for name in self._names
        )
        # What the statement brings itself, such as a limit.
        self._constants: Row = {name: value for name, value in compiled.params.items() if name not in names}
        selected = tuple(statement.exported_columns)  # those of RETURNING too
        self._columns: list[str] = [column.name for column in selected]
        self._from_driver = _conversions(
            column.type.dialect_impl(dialect).result_processor(dialect, None) for column in selected
        )

    def values(self, row: Row) -> list[Any]:
        if self._constants:
            row = {**row, **self._constants}
        values = list(self._pick(row))
        for place, convert in self._to_driver:
            values[place] = convert(values[place])
        return values

    def named(self, row: Row) -> dict[str, Any]:
        return dict(zip(self._names, self.values(row), strict=True))

    def record(self, found: Sequence[Any]) -> Row:
        record = dict(zip(self._columns, found, strict=True))
        for place, convert in self._from_driver:
            record[self._columns[place]] = convert(found[place])
        return record

    def execute(self, connection: sa.Connection, values: list[Any], text: str | None = None) -> sqlite3.Cursor:
        driver: Any = connection.connection.dbapi_connection
        try:
            return driver.execute(text or self.text, values)  # type: ignore[no-any-return]
        except sqlite3.Error as error:
            raise sa.exc.DBAPIError.instance(text or self.text, tuple(values), error, sqlite3.Error) from error
        except UNSTORABLE as error:
            raise unstorable() from error

    def insert(self, connection: sa.Connection, rows: Sequence[Row]) -> None:
        """As many rows in one statement as pay, the rest in a last one."""
        for start in range(0, len(rows), ROWS):
            chosen = rows[start : start + ROWS]
            values = list(chain.from_iterable(map(self.values, chosen)))
            self.execute(connection, values, self.text + self._further_row * (len(chosen) - 1))


def _picker(names: Sequence[str]) -> Callable[[Row], Sequence[Any]]:
    """The values of some names, in order, quicker than one by one."""
    if len(names) < 2:  # itemgetter then gives no tuple
        return lambda row: [row[name] for name in names]
    return itemgetter(*names)


def _conversions(processors: Iterable[_Conversion | None]) -> list[tuple[int, _Conversion]]:
    """Those of the places that need one: most values are the driver's as they are."""
    return [(place, convert) for place, convert in enumerate(processors) if convert is not None]
