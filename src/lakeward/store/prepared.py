"""Statements that every small write runs, prepared once: SQLAlchemy's work for each execution is most of their cost."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

Row = Mapping[str, Any]
_Conversion = Callable[[Any], Any] | None  # of one value, to or from the driver


class Prepared:
    """A statement whose values are all named parameters (for an INSERT without values, its columns).

    On SQLite the text and the conversions are made once, and the driver runs it: some microseconds in place of 30 or more.
    On PostgreSQL, where the way to the server costs more, and where somebody listens to the engine's statements, it is
    executed as any other. The rows of one call have the same keys.
    """

    def __init__(self, statement: Any) -> None:
        self._statement = statement
        self._ready: dict[tuple[str, ...], Ready] = {}

    def run(self, connection: sa.Connection, row: Row) -> int:
        """Execute with one row of parameters; how many rows of the table it was about."""
        ready = self._for(connection, row)
        if ready is None:
            return int(connection.execute(self._statement, row).rowcount)
        return ready.execute(connection, ready.values(row)).rowcount

    def run_many(self, connection: sa.Connection, rows: Sequence[Row]) -> None:
        """Execute once for each row of parameters."""
        ready = self._for(connection, rows[0])
        if ready is None:
            connection.execute(self._statement, rows)
        else:
            ready.execute_many(connection, [ready.values(row) for row in rows])

    def one(self, connection: sa.Connection, parameters: Row) -> Row | None:
        """The only row of a query, or none."""
        ready = self._for(connection, parameters)
        if ready is None:
            row = connection.execute(self._statement, parameters).one_or_none()
            return None if row is None else row._asdict()
        found = ready.execute(connection, ready.values(parameters)).fetchone()
        return None if found is None else ready.record(found)

    def _for(self, connection: sa.Connection, parameters: Row) -> Ready | None:
        if connection.dialect.name != "sqlite" or connection.dispatch.before_cursor_execute:
            return None
        return self.ready(connection.dialect, parameters)

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
        types = {name: parameter.type for parameter, name in compiled.bind_names.items()}
        self._values: list[tuple[str, _Conversion]] = [
            (name, types[name].dialect_impl(dialect).bind_processor(dialect)) for name in compiled.positiontup or types
        ]
        # What the statement brings itself, such as a limit.
        self._constants: Row = {name: value for name, value in compiled.params.items() if name not in names}
        selected = statement.selected_columns if isinstance(statement, sa.Select) else ()
        self._columns: list[tuple[str, _Conversion]] = [
            (column.name, column.type.dialect_impl(dialect).result_processor(dialect, None)) for column in selected
        ]

    def values(self, row: Row) -> tuple[Any, ...]:
        if self._constants:
            row = {**row, **self._constants}
        return tuple([row[name] if convert is None else convert(row[name]) for name, convert in self._values])

    def named(self, row: Row) -> dict[str, Any]:
        row = {**row, **self._constants}
        return {name: row[name] if convert is None else convert(row[name]) for name, convert in self._values}

    def record(self, found: Sequence[Any]) -> Row:
        pairs = zip(self._columns, found, strict=True)
        return {name: value if convert is None else convert(value) for (name, convert), value in pairs}

    def execute(self, connection: sa.Connection, values: tuple[Any, ...]) -> sqlite3.Cursor:
        try:
            return _driver(connection).execute(self.text, values)
        except sqlite3.Error as error:
            raise self._wrapped(error, values) from error

    def execute_many(self, connection: sa.Connection, rows: list[tuple[Any, ...]]) -> None:
        try:
            _driver(connection).executemany(self.text, rows)
        except sqlite3.Error as error:
            raise self._wrapped(error, rows) from error

    def _wrapped(self, error: sqlite3.Error, parameters: Any) -> BaseException:
        """The error that SQLAlchemy makes of a driver's."""
        return sa.exc.DBAPIError.instance(self.text, parameters, error, sqlite3.Error)


def _driver(connection: sa.Connection) -> sqlite3.Connection:
    driver: Any = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver
