"""Partition values in one spelling: bytes in lower-case hex, floats as the double of their value.

Iceberg's Java, by which Spark's files came, wrote capitals, and 0.1 for the float nearest to it. So one partition could be two
in the registry, of which a replacement or a retirement found one. Statistics of partitions that become one are counted anew.

Its definitions are its own, so that it does the same for ever, whatever the code's become.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote_plus

import msgspec
import sqlalchemy as sa
from alembic import op

from lakeward.db.migrations import parts as p

revision = "0008"
down_revision = "0007"

PAGE = 1000  # rows of retired_files that are read at once: there may be very many

metadata = sa.MetaData()
table_metadata = sa.Table(
    "table_metadata",
    metadata,
    sa.Column("table_id", sa.BigInteger),
    sa.Column("metadata_version", sa.BigInteger),
    sa.Column("schema", p.JSON),
    sa.Column("partition_by", p.JSON),
)
table_files = sa.Table(
    "table_files",
    metadata,
    sa.Column("table_id", sa.BigInteger),
    sa.Column("file_id", sa.BigInteger),
    sa.Column("spec_id", sa.Integer),
    sa.Column("schema_id", sa.Integer),
    sa.Column("file_type", sa.Text),
    sa.Column("file_size", sa.BigInteger),
    sa.Column("row_count", sa.BigInteger),
    sa.Column("partition_key", sa.Text),
    sa.Column("partition_path", sa.Text),
    sa.Column("statistics", p.JSON),
    sa.Column("registered_at", p.TIME),
    sa.Column("set_aside_reason", sa.Text),
)
table_stats = sa.Table(
    "table_stats",
    metadata,
    sa.Column("table_id", sa.BigInteger),
    sa.Column("spec_id", sa.Integer),
    sa.Column("partition_key", sa.Text),
    sa.Column("file_type", sa.Text),
    sa.Column("partition_path", sa.Text),
    sa.Column("row_count", sa.BigInteger),
    sa.Column("file_count", sa.BigInteger),
    sa.Column("total_size", sa.BigInteger),
    sa.Column("last_modified", p.TIME),
    sa.Column("columns", p.JSON),
)
retired_files = sa.Table(
    "retired_files",
    metadata,
    sa.Column("retired_id", sa.BigInteger),
    sa.Column("table_id", sa.BigInteger),
    sa.Column("record", p.JSON),
)

Spell = Callable[[Any], Any]


def upgrade() -> None:
    connection = op.get_bind()
    for table in _tables(connection):
        _spell_files(connection, table)
        _spell_retired(connection, table)
    op.execute("UPDATE registry_info SET schema_version = 8, minimum_version = 8")


# What a table's values are --------------------------------------------------------------------------------------------
class Table(NamedTuple):
    table_id: int
    types: dict[int, dict[int, Any]]  # schema id -> field id -> type
    specs: dict[int, list[dict[str, Any]]]  # spec id -> fields
    newest: dict[int, Any]  # the types of the newest version

    def spelled(self, spec_id: int, schema_id: int, key: str, path: str) -> tuple[str, str]:
        """The partition's key and path in the one spelling."""
        values, parts = msgspec.json.decode(key), path.split("/")
        fields = self.specs.get(spec_id, [])
        for place, field in enumerate(fields):
            number = str(field["field-id"])
            spell = _spelling(field["transform"], self._type(schema_id, field))
            if spell is None or values.get(number) is None:
                continue
            values[number] = spell(values[number])
            if len(parts) == len(fields):
                parts[place] = f"{parts[place].partition('=')[0]}={quote_plus(str(values[number]))}"
        return _text(values), "/".join(parts)

    def _type(self, schema_id: int, field: Mapping[str, Any]) -> Any:
        source = field.get("source-id", (field.get("source-ids") or [None])[0])
        return self.types.get(schema_id, {}).get(source, self.newest.get(source))

    def has_spellings(self) -> bool:
        every = [*self.types.values(), self.newest]
        return any(
            _spelling(field["transform"], types.get(field.get("source-id", (field.get("source-ids") or [None])[0])))
            for fields in self.specs.values()
            for field in fields
            for types in every
        )


def _tables(connection: sa.Connection) -> Iterator[Table]:
    """The tables that are, or were, partitioned by values of which there were two spellings."""
    c = table_metadata.c
    for table_id in connection.execute(sa.select(c.table_id).distinct().order_by(c.table_id)).scalars().all():
        query = sa.select(_read(c.schema), _read(c.partition_by)).where(c.table_id == table_id)
        types: dict[int, dict[int, Any]] = {}
        specs: dict[int, list[dict[str, Any]]] = {}
        newest: dict[int, Any] = {}
        for schema_text, spec_text in connection.execute(query.order_by(c.metadata_version)):
            schema, spec = msgspec.json.decode(schema_text), msgspec.json.decode(spec_text)
            newest = dict(_types(schema))
            types[schema.get("schema-id", 0)] = newest
            specs[spec["spec-id"]] = spec["fields"]
        table = Table(table_id, types, specs, newest)
        if table.has_spellings():
            yield table


def _types(type_: Any) -> Iterator[tuple[int, Any]]:
    parts = [(field["id"], field["type"]) for field in type_.get("fields", ())]
    parts += [(type_[f"{part}-id"], type_[part]) for part in ("element", "key", "value") if f"{part}-id" in type_]
    for field_id, part in parts:
        if isinstance(part, dict):
            yield from _types(part)
        else:
            yield field_id, part


def _spelling(transform: str, type_: Any) -> Spell | None:
    if not isinstance(type_, str) or not (transform == "identity" or transform.startswith("truncate")):
        return None
    if type_ == "binary" or type_.startswith("fixed"):
        return lambda value: value.lower()
    return _as_double if type_ == "float" else None


def _as_double(value: Any) -> Any:
    if isinstance(value, str):  # NaN and infinities
        return value
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return value


def _text(values: Any) -> str:
    return msgspec.json.encode(values).decode()


def _read(column: sa.Column[Any]) -> sa.ColumnElement[str]:
    return sa.cast(column, sa.Text)


def _written(document: Any) -> sa.ColumnElement[Any]:
    return sa.cast(sa.literal(_text(document), sa.Text), p.JSON)


# Rows -----------------------------------------------------------------------------------------------------------------
def _spell_files(connection: sa.Connection, table: Table) -> None:
    c = table_files.c
    query = sa.select(c.spec_id, c.schema_id, c.partition_key, c.partition_path).distinct()
    had: dict[tuple[int, str], set[str]] = {}  # spec id and key -> the spellings that became it
    for spec_id, schema_id, key, path in connection.execute(query.where(c.table_id == table.table_id)).all():
        new_key, new_path = table.spelled(spec_id, schema_id, key, path)
        if (new_key, new_path) == (key, path):
            continue
        connection.execute(
            sa.update(table_files)
            .where(c.table_id == table.table_id, c.spec_id == spec_id, c.schema_id == schema_id)
            .where(c.partition_key == key, c.partition_path == path)
            .values(partition_key=new_key, partition_path=new_path)
        )
        had.setdefault((spec_id, new_key), {new_key}).add(key)
        had.setdefault((spec_id, key), {key})
    _count_anew(connection, table, had)


def _spell_retired(connection: sa.Connection, table: Table) -> None:
    for retired_id, text in _records(connection, table):
        record = msgspec.json.decode(text)
        if "partition_key" not in record:
            continue
        before = record["partition_key"], record["partition_path"]
        key, path = table.spelled(record["spec_id"], record["schema_id"], *before)
        if (key, path) != before:
            record |= {"partition_key": key, "partition_path": path}
            connection.execute(
                sa.update(retired_files).where(retired_files.c.retired_id == retired_id).values(record=_written(record))
            )


def _records(connection: sa.Connection, table: Table) -> Iterator[tuple[int, str]]:
    c = retired_files.c
    query = sa.select(c.retired_id, _read(c.record)).where(c.table_id == table.table_id, c.record.is_not(None))
    query, after = query.order_by(c.retired_id).limit(PAGE), 0
    while page := connection.execute(query.where(c.retired_id > after)).all():
        yield from ((retired_id, text) for retired_id, text in page)
        after = page[-1][0]


# Statistics -----------------------------------------------------------------------------------------------------------
def _count_anew(connection: sa.Connection, table: Table, had: Mapping[tuple[int, str], set[str]]) -> None:
    """The statistics of some partitions from their files; their time is the last of those that became one, and that of their
    last file where there were none."""
    s = table_stats.c
    times: dict[tuple[int, str, str], Any] = {}
    for spec_id, key in had:
        mine = sa.and_(s.table_id == table.table_id, s.spec_id == spec_id, s.partition_key == key)
        for file_type, time in connection.execute(sa.select(s.file_type, s.last_modified).where(mine)):
            times[spec_id, key, file_type] = time
        connection.execute(sa.delete(table_stats).where(mine))
    for (spec_id, key), olds in had.items():
        for file_type, row in _counted(connection, table, spec_id, key).items():
            last_file = row.pop("last_file")
            known = [t for old in olds if (t := times.get((spec_id, old, file_type))) is not None]
            connection.execute(
                sa.insert(table_stats).values(
                    table_id=table.table_id,
                    spec_id=spec_id,
                    partition_key=key,
                    file_type=file_type,
                    last_modified=max(known, default=last_file),
                    **{**row, "columns": _written(_shown(row["columns"]))},
                )
            )


def _counted(connection: sa.Connection, table: Table, spec_id: int, key: str) -> dict[str, dict[str, Any]]:
    """By file type: a row of table_stats, with the time of its last file."""
    c = table_files.c
    query = (
        sa.select(c.file_type, c.partition_path, c.row_count, c.file_size, c.registered_at, _read(c.statistics))
        .where(c.table_id == table.table_id, c.spec_id == spec_id, c.partition_key == key)
        .where(c.set_aside_reason.is_(None))
        .order_by(c.file_id)
    )
    types = {field_id: type_ for each in table.types.values() for field_id, type_ in each.items()}
    rows: dict[str, dict[str, Any]] = {}
    for file_type, path, row_count, size, time, text in connection.execute(query):
        none: dict[str, Any] = {"partition_path": path, "row_count": 0, "file_count": 0, "total_size": 0, "columns": {}}
        row = rows.setdefault(file_type, {**none, "last_file": time})
        row["last_file"] = max(row["last_file"], time)
        row["row_count"] += row_count
        row["file_count"] += 1
        row["total_size"] += size
        _add(row["columns"], msgspec.json.decode(text), types)
    return rows


def _add(columns: dict[str, dict[str, Any]], file: Mapping[str, Any], types: Mapping[int, Any]) -> None:
    """Add one file's statistics to those of the columns: counts are summed, bounds widened."""
    for field_id, count in file.get("value_counts", {}).items():
        column = columns.setdefault(field_id, {"value_count": 0, "null_count": 0, "nan_count": 0, "bounded": True})
        nulls, nans = (file.get(name, {}).get(field_id, 0) for name in ("null_counts", "nan_counts"))
        column["value_count"] += count
        column["null_count"] += nulls
        column["nan_count"] += nans
        low, high = (file.get(name, {}).get(field_id) for name in ("lower", "upper"))
        if (low is None or high is None) and count > nulls + nans:
            column["bounded"] = False
        order = _order(types.get(int(field_id)))
        if low is not None and ("lower" not in column or order(low) < order(column["lower"])):
            column["lower"] = low
        if high is not None and ("upper" not in column or order(high) > order(column["upper"])):
            column["upper"] = high


def _shown(columns: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Without defaults; a column whose files have not all bounds has none."""
    result: dict[str, dict[str, Any]] = {}
    for field_id, column in columns.items():
        shown = {name: column[name] for name in ("value_count", "null_count", "nan_count") if column[name]}
        bounds = {name: column[name] for name in ("lower", "upper") if name in column}
        result[field_id] = shown | (bounds if column["bounded"] else {"bounded": False})
    return result


def _order(type_: Any) -> Callable[[str], Any]:
    """The key by which bounds in base64 compare."""
    if type_ in ("float", "double"):
        return lambda text: _number(base64.b64decode(text))
    if isinstance(type_, str) and type_.startswith("decimal"):
        return lambda text: int.from_bytes(base64.b64decode(text), "big", signed=True)
    if type_ in ("int", "long", "date", "time") or (isinstance(type_, str) and type_.startswith("timestamp")):
        return lambda text: int.from_bytes(base64.b64decode(text), "little", signed=True)
    return base64.b64decode


def _number(bound: bytes) -> Any:
    return struct.unpack("<f" if len(bound) == 4 else "<d", bound)[0]
