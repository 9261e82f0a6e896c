"""Column statistics of one file, by field id, as Iceberg defines them.

Bounds are single values in binary (Iceberg specification, appendix D). Texts and binary values are cut to 16 characters
or bytes as Iceberg's own writers do, the upper one rounded up. NaN is never a bound. Below lists and maps there are counts,
of the leaf's values, but no bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from lakeward.arrow.nested import inner_fields
from lakeward.iceberg import types, values
from lakeward.iceberg.types import TypeDocument
from lakeward.tables.records.files import FileStatistics
from lakeward.tables.records.tables import Document

TRUNCATE_LENGTH = 16  # Iceberg's default metrics mode is truncate(16)
FIELD_ID = b"PARQUET:field_id"


class Leaf(msgspec.Struct, frozen=True):
    """A primitive column. `repeated` below a list or a map."""

    field_id: int
    type: str
    repeated: bool
    path: tuple[str, ...]


def leaves(schema: Document) -> list[Leaf]:
    """The primitive columns of a schema, in the order in which Parquet stores them."""
    found: list[Leaf] = []
    _add_leaves(schema, (), False, found)
    return found


def _add_leaves(type_: Document, path: tuple[str, ...], repeated: bool, found: list[Leaf]) -> None:
    parts: Sequence[tuple[str, int, TypeDocument]]
    if type_["type"] == "struct":
        parts = [(f["name"], f["id"], f["type"]) for f in type_["fields"]]
    elif type_["type"] == "list":
        parts, repeated = [("element", type_["element-id"], type_["element"])], True
    else:
        parts = [(name, type_[f"{name}-id"], type_[name]) for name in ("key", "value")]
        repeated = True
    for name, field_id, inner in parts:
        if isinstance(inner, str):
            found.append(Leaf(field_id, inner, repeated, (*path, name)))
        else:
            _add_leaves(inner, (*path, name), repeated, found)


# Field ids of a Parquet file --------------------------------------------------------------------------------------------
def field_id(field: pa.Field) -> int | None:
    """The PARQUET:field_id of an Arrow field, None where it has none (or one that is no number)."""
    text = (field.metadata or {}).get(FIELD_ID)
    return int(text) if text is not None and text.isdigit() else None


def leaf_field_ids(fields: Iterable[pa.Field]) -> list[int | None]:
    """The field ids of a Parquet file's leaf columns, in the file's order, from the Arrow schema that it was read as."""
    found: list[int | None] = []
    for field in fields:
        inner = [each for _, each in inner_fields(field.type)]
        found += leaf_field_ids(inner) if pt.is_nested(field.type) else [field_id(field)]
    return found


# From a footer --------------------------------------------------------------------------------------------------------------
def from_footer(
    metadata: pq.FileMetaData,
    schema: Document,
    nan_counts: Mapping[int, int] | None = None,
    row_group: int | None = None,
    ids: Sequence[int | None] | None = None,
) -> FileStatistics:
    """The statistics of a file whose columns carry the schema's field ids, or of one of its row groups.

    Columns that the schema does not have are left out. What the footer does not say stays unknown: no null count, no
    bounds; a bound is known only if every row group with values has it.

    Args:
        nan_counts: by field id, where they were counted while writing.
        ids: the leaf columns' field ids, if they are known already.
    """
    wanted = {leaf.field_id: leaf for leaf in leaves(schema)}
    ids = leaf_field_ids(metadata.schema.to_arrow_schema()) if ids is None else ids
    groups = [metadata.row_group(i) for i in (range(metadata.num_row_groups) if row_group is None else [row_group])]
    sizes: dict[int, int] = {}
    counts: dict[int, int] = {}
    nulls: dict[int, int] = {}
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    for index, field_id_ in enumerate(ids):
        leaf = wanted.get(field_id_) if field_id_ is not None else None
        if leaf is None:
            continue
        chunks = [_Chunk(group.column(index)) for group in groups]
        sizes[leaf.field_id] = sum(chunk.size for chunk in chunks)
        counts[leaf.field_id] = sum(chunk.values for chunk in chunks)
        null_counts = [chunk.nulls for chunk in chunks]
        if None not in null_counts:
            nulls[leaf.field_id] = sum(count for count in null_counts if count is not None)
        if not leaf.repeated:
            _add_bounds(leaf, chunks, lower, upper)
    known_nans = {i: n for i, n in (nan_counts or {}).items() if i in counts}
    return FileStatistics(sizes, counts, nulls, known_nans, lower, upper)


class _Chunk:
    """One column of one row group: each property of pyarrow's objects is a call, so they are read once."""

    __slots__ = ("high", "low", "nulls", "size", "values")

    def __init__(self, column: pq.ColumnChunkMetaData) -> None:
        self.size: int = column.total_compressed_size
        self.values: int = column.num_values
        self.nulls: int | None = None
        self.low: Any = None
        self.high: Any = None
        statistics = column.statistics if column.is_stats_set else None
        if statistics is None:
            return
        if statistics.has_null_count:
            self.nulls = statistics.null_count
        if statistics.has_min_max:
            try:
                self.low, self.high = statistics.min_raw, statistics.max_raw
            except pa.ArrowNotImplementedError:  # INT96, whose order is not defined
                self.low = self.high = None


def _add_bounds(leaf: Leaf, chunks: list[_Chunk], lower: dict[int, bytes], upper: dict[int, bytes]) -> None:
    with_values = [chunk for chunk in chunks if chunk.values and chunk.nulls != chunk.values]
    if not with_values or any(chunk.low is None or chunk.high is None for chunk in with_values):
        return
    lows = [_comparable(leaf.type, chunk.low) for chunk in with_values]
    highs = [_comparable(leaf.type, chunk.high) for chunk in with_values]
    if any(isinstance(value, float) and math.isnan(value) for value in (*lows, *highs)):
        return
    low, high = lower_bound(leaf.type, min(lows)), upper_bound(leaf.type, max(highs))
    if low is not None:
        lower[leaf.field_id] = low
    if high is not None:
        upper[leaf.field_id] = high


def _comparable(type_: str, raw: Any) -> Any:
    """A physical value of Parquet so that Python orders it as Iceberg does; texts stay bytes: UTF-8 sorts by code points."""
    if type_.startswith("decimal") and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


# Bounds as binary -----------------------------------------------------------------------------------------------------------
def lower_bound(type_: str, raw: Any) -> bytes | None:
    """The lower bound of a physical value (a number, an unscaled decimal, bytes), a long text or binary value cut."""
    if type_ == "string":
        text = raw.decode("utf-8", "ignore") if isinstance(raw, bytes) else raw
        return bytes(text[:TRUNCATE_LENGTH].encode())
    if type_ == "binary":
        return bytes(raw[:TRUNCATE_LENGTH])
    if type_ in ("float", "double") and raw == 0.0:  # min() takes -0.0 for 0.0: the wider bound is right for both
        return values.to_binary(type_, -0.0)
    return values.to_binary(type_, raw)


def upper_bound(type_: str, raw: Any) -> bytes | None:
    """The upper bound; a value that is cut is rounded up at its last place that can be. None where none can be."""
    if type_ == "string":
        try:
            text = raw.decode("utf-8") if isinstance(raw, bytes) else raw
        except UnicodeDecodeError:
            return None
        return text.encode() if len(text) <= TRUNCATE_LENGTH else _round_up_text(text[:TRUNCATE_LENGTH])
    if type_ == "binary":
        return bytes(raw) if len(raw) <= TRUNCATE_LENGTH else _round_up_bytes(bytes(raw[:TRUNCATE_LENGTH]))
    if type_ in ("float", "double") and raw == 0.0:
        return values.to_binary(type_, 0.0)
    return values.to_binary(type_, raw)


def _round_up_text(text: str) -> bytes | None:
    for index in range(len(text) - 1, -1, -1):
        code = ord(text[index]) + 1
        if code == 0xD800:  # surrogates are no characters
            code = 0xE000
        if code <= 0x10FFFF:
            return (text[:index] + chr(code)).encode()
    return None


def _round_up_bytes(value: bytes) -> bytes | None:
    for index in range(len(value) - 1, -1, -1):
        if value[index] < 0xFF:
            return value[:index] + bytes([value[index] + 1])
    return None


def decode_bound(type_: str, bound: bytes) -> Any:
    """The value of a bound as Iceberg orders it: days, microseconds, numbers, text or bytes; decimals as Decimal.

    Raises:
        InvalidInput: the bytes are no value of the type.
    """
    return ordered(type_, values.from_binary(type_, bound))


def ordered(type_: str, raw: Any) -> Any:
    """A raw value (see `iceberg.values`) with an unscaled decimal as Decimal."""
    parts = types.decimal_parts(type_)
    if parts is None or raw is None:
        return raw
    # Through the digits: arithmetic would round to the context's 28.
    return Decimal((int(raw < 0), tuple(map(int, str(abs(raw)))), -parts[1]))


# From rows ------------------------------------------------------------------------------------------------------------------
def nan_counts(batch: pa.RecordBatch, schema_leaves: Sequence[Leaf]) -> dict[int, int]:
    """NaN values of each floating-point column that is not below a list or map."""
    return {
        leaf.field_id: pc.sum(pc.is_nan(leaf_array(batch, leaf))).as_py() or 0
        for leaf in schema_leaves
        if leaf.type in ("float", "double") and not leaf.repeated
    }


class UuidStatistics:
    """Nulls and bounds of uuid columns, of which Parquet files have none: see `arrow_write.columns_with_statistics`."""

    def __init__(self, schema_leaves: Sequence[Leaf]) -> None:
        self._leaves = [leaf for leaf in schema_leaves if leaf.type == "uuid" and not leaf.repeated]
        self._nulls: dict[int, int] = {leaf.field_id: 0 for leaf in self._leaves}
        self._lower: dict[int, bytes] = {}
        self._upper: dict[int, bytes] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        for leaf in self._leaves:
            array = leaf_array(batch, leaf)
            raws = array.storage if isinstance(array, pa.ExtensionArray) else array
            self._nulls[leaf.field_id] += raws.null_count
            ends = pc.min_max(raws.cast(pa.binary())).as_py()
            if ends["min"] is not None:
                self._lower[leaf.field_id] = min(ends["min"], self._lower.get(leaf.field_id, ends["min"]))
                self._upper[leaf.field_id] = max(ends["max"], self._upper.get(leaf.field_id, ends["max"]))

    def merged(self, file: FileStatistics) -> FileStatistics:
        """The statistics of a file with those of its uuid columns."""
        if not self._leaves:
            return file
        return msgspec.structs.replace(
            file,
            null_counts={**file.null_counts, **self._nulls},
            lower={**file.lower, **self._lower},
            upper={**file.upper, **self._upper},
        )


def leaf_array(batch: pa.RecordBatch, leaf: Leaf) -> pa.Array:
    """The values of a column that is not below a list or map; null where a struct above it is null."""
    array = batch.column(batch.schema.get_field_index(leaf.path[0]))
    for name in leaf.path[1:]:
        array = array.flatten()[array.type.get_field_index(name)]
    return array


def add_counts(into: dict[int, int], counts: Mapping[int, int]) -> None:
    """Add counts by field id to a running total."""
    for key, count in counts.items():
        into[key] = into.get(key, 0) + count


def split_offsets(metadata: pq.FileMetaData) -> list[int]:
    """Where the row groups begin, in bytes, ascending (Iceberg specification, data file field 132)."""
    offsets = []
    for i in range(metadata.num_row_groups):
        column = metadata.row_group(i).column(0)
        start = column.data_page_offset
        if column.has_dictionary_page and column.dictionary_page_offset < start:
            start = column.dictionary_page_offset
        offsets.append(start)
    return sorted(offsets)
