"""Iceberg's types from Spark's schemas, read from the JSON text that Spark gives: PySpark itself is not imported."""

from __future__ import annotations

from typing import Any

import msgspec

from lakeward.errors import InvalidSchema
from lakeward.iceberg import types
from lakeward.iceberg.types import TypeDocument
from lakeward.tables.records.tables import Document

# Spark's timestamp has a zone, Iceberg's has none.
_NAMES = {
    "boolean": "boolean", "byte": "int", "short": "int", "integer": "int", "long": "long", "float": "float",
    "double": "double", "date": "date", "timestamp": "timestamptz", "timestamp_ntz": "timestamp", "string": "string",
    "binary": "binary", "variant": "variant",
}  # fmt: skip


def from_spark_json(text: str) -> TypeDocument:
    """The struct of a Spark schema, from `StructType.json()`; nested fields are not numbered.

    Raises:
        InvalidSchema: a type that Iceberg lacks (intervals, user-defined types, NullType), by the column's name.
    """
    try:
        return _from_spark(msgspec.json.decode(text), "")
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise InvalidSchema(f"Spark schema {text[:80]!r} cannot be read; give df.schema as it is") from error


def _from_spark(type_: Any, name: str) -> TypeDocument:
    if isinstance(type_, str):
        if type_ in _NAMES:
            return _NAMES[type_]
        if type_.startswith(("varchar(", "char(", "string")):
            return "string"
        if type_.startswith("decimal"):
            return types.parse_text(type_)
    elif type_["type"] == "struct":
        prefix = f"{name}." if name else ""
        return types.struct_type([_field(f, prefix + f["name"]) for f in type_["fields"]])
    elif type_["type"] == "array":
        return types.list_type(_from_spark(type_["elementType"], f"{name}.element"), not type_["containsNull"])
    elif type_["type"] == "map":
        key = _from_spark(type_["keyType"], f"{name}.key")
        return types.map_type(key, _from_spark(type_["valueType"], f"{name}.value"), not type_["valueContainsNull"])
    shown = type_ if isinstance(type_, str) else type_["type"]
    raise InvalidSchema(
        f"column {name!r} has Spark's type {shown!r}, which Iceberg does not hold; cast it to another type"
    )


def _field(source: Document, name: str) -> Document:
    doc = (source.get("metadata") or {}).get("comment")
    return types.field(source["name"], _from_spark(source["type"], name), not source["nullable"], doc)
