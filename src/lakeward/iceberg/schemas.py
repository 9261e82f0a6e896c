"""Schemas as Iceberg documents, from and to what people and libraries have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from lakeward.errors import InvalidSchema
from lakeward.iceberg import arrow, checks, spark, types
from lakeward.iceberg.types import Column, TypeDocument
from lakeward.tables.records.tables import Document

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType

__all__ = [
    "Column", "TypeDocument", "columns", "parse_type", "same_schema", "schema_from", "to_arrow", "to_pyiceberg", "type_of", "with_schema_id",
]  # fmt: skip


def parse_type(source: Any) -> TypeDocument:
    """A type document from text ('long', 'list<string>'), an Arrow type or a type document.

    Fields inside a nested type have the id 0 until a schema takes them in.

    Raises:
        InvalidSchema: it is no type of Iceberg.
    """
    if isinstance(source, str):
        return types.parse_text(source)
    if isinstance(source, pa.DataType):
        return arrow.from_arrow(source, str(source), format_version=3)
    return types.checked(source)


def schema_from(source: Any, format_version: int = 2) -> tuple[Document, int]:
    """A schema document and the last column id in it. Ids are fresh: all top-level columns first, then what is inside.

    `source`: a pyarrow.Schema, a Spark StructType, a pyiceberg Schema, an Iceberg schema document, a dict of name to type,
    or a sequence of (name, type); types as `parse_type` takes them, 'not null' after a text makes the column required.
    Names may hold any characters. Rules for Arrow's types: `iceberg.arrow`.

    Raises:
        InvalidSchema: no columns, a type that Iceberg (of this format version) lacks, an empty name, or two names that are
            equal or differ by case alone;
            identifier fields, defaults or names that readers refuse (`iceberg.checks`).
    """
    struct, identifiers = _struct_from(source, format_version)
    if not struct["fields"]:
        raise InvalidSchema("the schema has no columns; give at least one")
    old_ids = [column.field_id for column in types.walk(struct)]
    if wrong := [i for i in identifiers if old_ids.count(i) != 1]:
        raise InvalidSchema(
            f"identifier field {wrong[0]!r} is not the id of one column of the schema; use a column's id"
        )
    numbered, last, given = types.number(struct, 0)
    assert not isinstance(numbered, str)
    document: Document = {"type": "struct", "schema-id": 0}
    if identifiers:
        document["identifier-field-ids"] = [given[i] for i in identifiers]
    document["fields"] = numbered["fields"]
    checks.check_schema(document, format_version)
    return checks.with_defaults(document), last


def _struct_from(source: Any, format_version: int) -> tuple[Document, list[int]]:
    """The struct, not yet numbered, and the source's ids of identifier fields."""
    if isinstance(source, pa.Schema):
        return {"type": "struct", "fields": [arrow.field_from_arrow(f, "", format_version) for f in source]}, []
    if hasattr(source, "model_dump_json"):  # pyiceberg's models are pydantic's
        source = msgspec.json.decode(source.model_dump_json(by_alias=True))
    elif hasattr(source, "json") and callable(source.json):
        return _as_struct(spark.from_spark_json(source.json())), []
    if isinstance(source, Mapping):
        if source.get("type") == "struct" and isinstance(source.get("fields"), list):
            fields = [types.checked_field(f) for f in source["fields"]]
            return {"type": "struct", "fields": fields}, list(source.get("identifier-field-ids") or ())
        source = list(source.items())
    if isinstance(source, Sequence) and not isinstance(source, str):
        return {"type": "struct", "fields": [_named(pair) for pair in source]}, []
    raise InvalidSchema(
        f"a schema cannot be made from {type(source).__name__}; give an Arrow, Spark or Iceberg schema, or a dict such as {{'id': 'long'}}"
    )


def _as_struct(type_: TypeDocument) -> Document:
    assert not isinstance(type_, str)
    return type_


def _named(pair: Any) -> Document:
    if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
        raise InvalidSchema(f"column {pair!r} is no pair of name and type; write for example ('id', 'long')")
    name, type_ = pair
    text = type_.rstrip() if isinstance(type_, str) else ""
    if text.lower().endswith(" not null"):
        return types.field(name, parse_type(text[: -len(" not null")]), required=True)
    return types.field(name, parse_type(type_))


def with_schema_id(schema: Document, schema_id: int) -> Document:
    """The same schema under another schema-id."""
    return {"type": "struct", **schema, "schema-id": schema_id}


def same_schema(a: Document, b: Document) -> bool:
    """Whether two schemas are equal but for their schema-id: fields, ids, order, docs, defaults, identifier fields."""
    return bool(
        types.checked({"type": "struct", "fields": a["fields"]})
        == types.checked({"type": "struct", "fields": b["fields"]})
        and sorted(a.get("identifier-field-ids") or ()) == sorted(b.get("identifier-field-ids") or ())
    )


def columns(schema: Document) -> list[Column]:
    """Every column at every depth, parents before children; those at the top have no parent_id."""
    return list(types.walk(schema))


def to_arrow(schema: Document) -> pa.Schema:
    """The Arrow schema to write with: PARQUET:field_id on every field, elements of lists and parts of maps included.

    Raises:
        InvalidSchema: a column's type has no Arrow type.
    """
    return pa.schema([arrow.to_arrow_field(f) for f in schema["fields"]])


def type_of(type_: IcebergType) -> str:
    """A primitive type of pyiceberg's, as a schema's document has it."""
    return str(type_).replace(" ", "")


def to_pyiceberg(schema: Document) -> Schema:
    """The same as pyiceberg's model. It costs about a millisecond a hundred columns: not for paths in a hurry."""
    from pyiceberg.schema import Schema

    return Schema.model_validate({"schema-id": 0, **schema})
