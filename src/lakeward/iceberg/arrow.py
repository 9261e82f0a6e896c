"""Iceberg's types from and to Arrow.

What Iceberg lacks is widened where nothing is lost, and refused by name where something would be:

    int8, int16, uint8, uint16 -> int       uint32 -> long          uint64 -> refused (decimal(20, 0) holds it)
    float16 -> float                        date64 -> date          duration, interval, union, null -> refused
    timestamp[s], timestamp[ms] -> timestamp in microseconds        time32 -> time in microseconds
    dictionary, run-end encoded -> the type of the values           list views and lists of fixed size -> list
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from lakeward.errors import InvalidSchema
from lakeward.iceberg import types
from lakeward.iceberg.types import TypeDocument
from lakeward.tables.records.tables import Document

FIELD_ID = b"PARQUET:field_id"


def from_arrow(type_: pa.DataType, name: str = "", format_version: int = 2) -> TypeDocument:
    """The Iceberg type of an Arrow type, nested fields not numbered. `name` is the column's, for messages.

    Raises:
        InvalidSchema: no Iceberg type holds the values; the message says what to cast to.
    """
    if pt.is_dictionary(type_) or pt.is_run_end_encoded(type_):
        return from_arrow(type_.value_type, name, format_version)
    if isinstance(type_, pa.BaseExtensionType):
        return "uuid" if isinstance(type_, pa.UuidType) else from_arrow(type_.storage_type, name, format_version)
    if pt.is_struct(type_):
        fields = [type_.field(i) for i in range(type_.num_fields)]
        if not fields:
            raise InvalidSchema(f"column {name!r} is a struct without fields, which Parquet cannot store; leave it out")
        return types.struct_type([field_from_arrow(f, f"{name}.", format_version) for f in fields])
    if pt.is_map(type_):
        key = from_arrow(type_.key_type, f"{name}.key", format_version)
        value = from_arrow(type_.item_type, f"{name}.value", format_version)
        return types.map_type(key, value, not type_.item_field.nullable)
    if _is_list(type_):
        element = from_arrow(type_.value_type, f"{name}.element", format_version)
        return types.list_type(element, not type_.value_field.nullable)
    return _primitive_from_arrow(type_, name, format_version)


def field_from_arrow(field: pa.Field, prefix: str = "", format_version: int = 2) -> Document:
    """One Arrow field; field ids in its metadata are ignored, 'doc' and 'comment' become the column's doc."""
    metadata = field.metadata or {}
    doc = metadata.get(b"doc") or metadata.get(b"comment")
    type_ = from_arrow(field.type, prefix + field.name, format_version)
    return types.field(field.name, type_, not field.nullable, doc.decode() if doc else None)


def _is_list(type_: pa.DataType) -> bool:
    kinds = (pt.is_list, pt.is_large_list, pt.is_fixed_size_list, pt.is_list_view, pt.is_large_list_view)
    return any(is_kind(type_) for is_kind in kinds)


def _primitive_from_arrow(type_: pa.DataType, name: str, format_version: int) -> str:
    def refused(way: str) -> InvalidSchema:
        return InvalidSchema(f"column {name!r} has the type {type_}, which Iceberg does not hold; {way}")

    if pt.is_timestamp(type_):
        zone = type_.tz is not None
        if type_.unit == "ns":
            if format_version < 3:
                raise refused(
                    f"cast it to timestamp('us'{', tz' if zone else ''}) or create the table with format version 3"
                )
            return "timestamptz_ns" if zone else "timestamp_ns"
        return "timestamptz" if zone else "timestamp"
    if pt.is_decimal(type_):
        if type_.precision > 38 or not 0 <= type_.scale <= type_.precision:
            raise refused("cast it to a decimal with a precision of at most 38 and a scale from 0 to it")
        return types.decimal(type_.precision, type_.scale)
    if pt.is_fixed_size_binary(type_):
        return types.check_primitive(f"fixed[{type_.byte_width}]")
    if pt.is_time(type_):
        if type_.unit == "ns":
            raise refused("cast it to time64('us')")
        return "time"
    if pt.is_uint64(type_):
        raise refused("cast it to int64, or to decimal128(20, 0), which holds every value of it")
    for is_kind, result in _PRIMITIVES:
        if is_kind(type_):
            return result
    raise refused("cast it to another type or leave the column out")


_PRIMITIVES: list[tuple[Any, str]] = [
    (pt.is_boolean, "boolean"),
    (pt.is_int64, "long"),
    (pt.is_uint32, "long"),
    (pt.is_integer, "int"),
    (pt.is_float64, "double"),
    (pt.is_floating, "float"),
    (pt.is_date, "date"),
    (pt.is_string, "string"),
    (pt.is_large_string, "string"),
    (pt.is_string_view, "string"),
    (pt.is_binary, "binary"),
    (pt.is_large_binary, "binary"),
    (pt.is_binary_view, "binary"),
]

_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", tz="UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
    "uuid": pa.uuid(),
}


def to_arrow_type(type_: TypeDocument) -> pa.DataType:
    """The Arrow type, with PARQUET:field_id on every field inside it.

    Raises:
        InvalidSchema: Arrow has no type for it (variant, geometry, geography, unknown).
    """
    if isinstance(type_, str):
        if (parts := types.decimal_parts(type_)) is not None:
            return pa.decimal128(*parts)
        if (length := types.fixed_length(type_)) is not None:
            return pa.binary(length)
        if type_ not in _ARROW:
            raise InvalidSchema(f"type {type_!r} has no Arrow type; leave such columns out of what is read or written")
        return _ARROW[type_]
    if type_["type"] == "struct":
        return pa.struct([to_arrow_field(f) for f in type_["fields"]])
    if type_["type"] == "list":
        return pa.list_(_part(type_, "element", type_["element-required"]))
    return pa.map_(_part(type_, "key", True), _part(type_, "value", type_["value-required"]))


def to_arrow_field(field: Document) -> pa.Field:
    metadata: dict[bytes, bytes] = {FIELD_ID: str(field["id"]).encode()}
    if field.get("doc"):
        metadata[b"doc"] = field["doc"].encode()
    return pa.field(field["name"], to_arrow_type(field["type"]), nullable=not field["required"], metadata=metadata)


def _part(type_: Document, name: str, required: bool) -> pa.Field:
    metadata = {FIELD_ID: str(type_[f"{name}-id"]).encode()}
    return pa.field(name, to_arrow_type(type_[name]), nullable=not required, metadata=metadata)
