"""Column types that mean the same on SQLite (strict tables) and PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.types import TypeDecorator, TypeEngine

from lakeward import lossless_json

# 64-bit on both: SQLite's INTEGER is; an INTEGER PRIMARY KEY there is the row id.
Int64 = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Int32 = sa.Integer()
Text = sa.Text()
# By code point whatever the collation of the database, as SQLite has it: pages and ranges go by these.
Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
Bytes = sa.LargeBinary()


class Flag(TypeDecorator[bool]):
    """A boolean: BOOLEAN on PostgreSQL, INTEGER 0 or 1 on SQLite (the schema adds the check)."""

    impl = sa.Boolean
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return sa.Integer() if dialect.name == "sqlite" else sa.Boolean()

    def process_bind_param(self, value: bool | None, dialect: Dialect) -> Any:
        return value if value is None or dialect.name != "sqlite" else int(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> bool | None:
        return None if value is None else bool(value)


class UtcTime(TypeDecorator[datetime]):
    """A point in time to the microsecond, UTC, aware. On SQLite text of fixed width, so that order is text order."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return sa.Text() if dialect.name == "sqlite" else sa.DateTime(timezone=True)

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone")
        return time_text(value) if dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return datetime.fromisoformat(value) if isinstance(value, str) else value.astimezone(UTC)


def epoch_ms(value: datetime) -> int:
    """Milliseconds since 1970, as Iceberg's metadata and the log have a time."""
    return int(value.timestamp() * 1000)


def time_text(value: datetime) -> str:
    """2026-01-02T03:04:05.000006Z"""
    # msgspec writes a time quicker than isoformat does, and leaves out microseconds that are 0.
    text: str = msgspec.to_builtins(value.astimezone(UTC))
    return text if value.microsecond else f"{text[:-1]}.000000Z"


class Json(TypeDecorator[Any]):
    """A JSON document, key order kept (json, not jsonb). With `record`, decoded into that type."""

    impl = sa.JSON
    cache_ok = True

    def __init__(self, record: Any = Any) -> None:
        super().__init__()
        self.record = record
        self._decoder = msgspec.json.Decoder(record)

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        # As text to and from the driver on both sides, so that one encoder and decoder serves.
        return sa.Text() if dialect.name == "sqlite" else _PlainJson()

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else msgspec.json.encode(value).decode()

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else self._decoder.decode(value)


class Exact(Json):
    """A JSON document that gives Python's values back as they were (lossless_json.py)."""

    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else lossless_json.dumps(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else lossless_json.loads_stored(value)

    def column_expression(self, column: Any) -> Any:
        # The driver of a connection that is not ours would decode it: a number's digits would be lost, and a text be taken
        # for a document.
        return _AsText(column, type_=self)


class _AsText(sa.sql.functions.GenericFunction[Any]):
    """A column of `json` as the text that it is; SQLite has it as text already."""

    inherit_cache = True
    name = "lakeward_as_text"


@compiles(_AsText)
def _as_it_is(element: Any, compiler: Any, **options: Any) -> str:
    return str(compiler.process(element.clauses, **options))


@compiles(_AsText, "postgresql")
def _cast(element: Any, compiler: Any, **options: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **options)} AS TEXT)"


class _PlainJson(sa.types.UserDefinedType[str]):
    """`json` that is cast in the statement, and whose values are text to the driver (database.py asks it for that)."""

    cache_ok = True
    render_bind_cast = True

    def get_col_spec(self, **_: Any) -> str:
        return "JSON"
