"""Checksums of Arrow tables that do not depend on the order of rows, on chunks, or on which engine made the table."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_MODULUS = 1 << 64
_SEPARATOR = "\x1f"
_NULL = "\x00"


@dataclass(frozen=True, slots=True)
class TableSums:
    """What two equal tables have in common. `columns`: each column's values; `rows_sum`: which values stand together."""

    row_count: int
    columns: dict[str, str]  # name -> checksum, 16 hexadecimal digits
    rows_sum: str


def table_sums(table: pa.Table) -> TableSums:
    """The sums of a table. Equal as multisets of rows: equal sums; a checksum is the sum of its values' hashes modulo 2^64.

    Integers of all widths are one type, and so are floats, strings and timestamps (instants, in microseconds).

    Raises:
        pa.ArrowNotImplementedError: a column of another type.
    """
    columns = {name: _canonical(table[name]) for name in table.column_names}
    return TableSums(
        table.num_rows,
        {name: _column_sum(column) for name, column in columns.items()},
        _rows_sum(list(columns.values())),
    )


def differences(source: TableSums, found: TableSums) -> list[str]:
    """What differs, in words; empty where nothing does."""
    said = []
    if source.row_count != found.row_count:
        said.append(f"{found.row_count:,} rows, not {source.row_count:,}")
    if list(source.columns) != list(found.columns):
        said.append(f"columns {', '.join(found.columns)}, not {', '.join(source.columns)}")
    else:
        said += [
            f"column {name}: checksum {found.columns[name]}, not {checksum}"
            for name, checksum in source.columns.items()
            if found.columns[name] != checksum
        ]
    if source.rows_sum != found.rows_sum:
        said.append(f"rows: checksum {found.rows_sum}, not {source.rows_sum}")
    return said


def _canonical(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """One Arrow type for each kind of value, so that int32 and int64, or string and large_string, compare equal."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _canonical(column.cast(kind.value_type))
    if pa.types.is_integer(kind):
        return column.cast(pa.int64())
    if pa.types.is_floating(kind):
        return pc.add(column.cast(pa.float64()), 0.0)  # -0.0 becomes 0.0
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", "UTC") if kind.tz else pa.timestamp("us"))
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return column
    raise pa.ArrowNotImplementedError(f"no checksum for columns of type {kind}")


def _column_sum(column: pa.ChunkedArray) -> str:
    kind = column.type
    values = column.cast(pa.int64()) if pa.types.is_timestamp(kind) else column
    total = 0
    for entry in pc.value_counts(values).to_pylist():
        total += _hash(_encoded(entry["values"], str(kind))) * entry["counts"]
    return _hexadecimal(total)


def _encoded(value: Any, kind: str) -> bytes:
    """The kind stands in it, so that the text '1' and the number 1, or an instant and its number, differ."""
    if value is None:
        return b""
    if isinstance(value, float):
        return b"double:" + (struct.pack(">d", value) if value == value else b"nan")  # all NaNs are one
    return f"{kind}:{value}".encode()


def _rows_sum(columns: list[pa.ChunkedArray]) -> str:
    """The sum of whole rows: two tables with equal columns differ in it where values have moved from row to row."""
    if not columns:
        return _hexadecimal(0)
    texts = [pc.fill_null(column.cast(pa.string()), _NULL) for column in columns]
    rows = pc.binary_join_element_wise(*texts, _SEPARATOR) if len(texts) > 1 else texts[0]
    return _hexadecimal(sum(_hash(row.encode()) for chunk in rows.chunks for row in chunk.to_pylist()))


def _hash(value: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(value, digest_size=8).digest())


def _hexadecimal(total: int) -> str:
    return f"{total % _MODULUS:016x}"
