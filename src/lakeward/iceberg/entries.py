"""Entries of manifests from registered files: what of a file can be in a manifest, and why not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from lakeward.errors import LakewardError
from lakeward.iceberg import manifests, types, values
from lakeward.iceberg.manifests import Record
from lakeward.iceberg.partitions import avro_value, partition_fields
from lakeward.tables.records.files import PartitionValues, RegisteredFile
from lakeward.tables.records.tables import Document

# Bytes that a bound may have, by type; 4 for a column that was widened since.
_BOUND_LENGTHS = {
    "boolean": (1,), "int": (4,), "date": (4,), "long": (8, 4), "time": (8,), "timestamp": (8,), "timestamptz": (8,),
    "timestamp_ns": (8,), "timestamptz_ns": (8,), "float": (4,), "double": (8, 4), "uuid": (16,),
}  # fmt: skip


_UNRELIABLE = frozenset({"float", "double", "uuid"})  # where a bound may be left out


class Unfit(ValueError):
    """What of a file no manifest can hold, in words for people."""


class Group(msgspec.Struct):
    """The files of one spec and schema: they go into one manifest."""

    layout: manifests.Layout
    partition_fields: list[tuple[int, str, str, str, str]]  # as partitions.partition_fields gives them
    column_types: dict[int, types.TypeDocument]


class Groups:
    """The groups of a table's metadata, made as they are first asked for."""

    def __init__(self, document: Document) -> None:
        self._version = int(document["format-version"])
        self._schemas = {s.get("schema-id", 0): s for s in document["schemas"]}
        self._specs = {s["spec-id"]: s for s in document["partition-specs"]}
        self._current = self._schemas[document["current-schema-id"]]
        self._made: dict[tuple[int, int], Group] = {}

    def of(self, spec_id: int, schema_id: int | None = None) -> Group:
        """The group of a spec and a schema, the current one if none is named.

        Raises:
            Unfit: the table's metadata has no such spec or schema.
        """
        schema_id = self._current["schema-id"] if schema_id is None else schema_id
        if (made := self._made.get((spec_id, schema_id))) is not None:
            return made
        if schema_id not in self._schemas:
            raise Unfit(f"schema {schema_id} is not in the table's metadata")
        if spec_id not in self._specs:
            raise Unfit(f"partition spec {spec_id} is not in the table's metadata")
        spec, schema = self._specs[spec_id], self._schemas[schema_id]
        columns = {c.field_id: c.type for c in types.walk(schema)}
        if any(f["source-id"] not in columns and f["transform"] != "void" for f in spec["fields"]):
            schema = self._current  # partitioned by a column that is younger than the file's schema
        group = Group(manifests.layout(self._version, schema, spec), partition_fields(schema, spec), columns)
        self._made[spec_id, schema_id] = group
        return group


def data_file(file: RegisteredFile, group: Group) -> Record:
    """The data_file of a file's entry.

    Raises:
        Unfit: what of the file cannot be in a manifest, in words for people.
    """
    if file.content != 0 or file.file_type != "parquet":
        raise Unfit(f"a {file.file_type} file of content {file.content} cannot be added; only Parquet data files can")
    if file.row_count < 0 or file.file_size < 0:
        raise Unfit(f"{file.row_count} rows in {file.file_size} bytes cannot be")
    statistics = file.statistics
    return {
        "content": 0,
        "file_path": file.file_path,
        "file_format": "PARQUET",
        "partition": avro_partition(file.partition, group) if group.partition_fields else {},
        "record_count": file.row_count,
        "file_size_in_bytes": file.file_size,
        "column_sizes": statistics.column_sizes or None,
        "value_counts": statistics.value_counts or None,
        "null_value_counts": statistics.null_counts or None,
        "nan_value_counts": statistics.nan_counts or None,
        "lower_bounds": _bounds(statistics.lower, group.column_types),
        "upper_bounds": _bounds(statistics.upper, group.column_types),
        "split_offsets": file.split_offsets or None,
        "sort_order_id": file.sort_order_id,
    }


def avro_partition(partition: PartitionValues, group: Group) -> dict[str, Any]:
    """A partition as entries hold it. Raises Unfit: a value is missing or none of its field's type."""
    result = {}
    for field_id, name, transform, source, _ in group.partition_fields:
        if field_id not in partition:
            raise Unfit(f"partition field {name!r} ({field_id}) has no value")
        try:
            result[f"p{field_id}"] = avro_value(transform, source, partition[field_id])
        except LakewardError as error:
            raise Unfit(f"partition field {name!r}: {error}") from error
    return result


def _bounds(bounds: Mapping[int, bytes], column_types: Mapping[int, types.TypeDocument]) -> dict[int, bytes] | None:
    """Bounds that engines can read. Left out are those that are NaN, which says nothing, and those of uuid columns: Java
    compares them as signed numbers, and would pass over files that hold what is asked for.
    """
    left_out = []
    for field_id, data in bounds.items():
        type_ = column_types.get(field_id)
        if type(type_) is not str:
            continue
        lengths = _BOUND_LENGTHS.get(type_)
        if lengths is None:
            _check_text_or_decimal(field_id, type_, data)
        elif len(data) not in lengths:
            raise _bad_bound(field_id, type_, data)
        elif type_ in _UNRELIABLE and (type_ == "uuid" or math.isnan(values.from_binary(type_, data))):
            left_out.append(field_id)
    return ({k: v for k, v in bounds.items() if k not in left_out} if left_out else dict(bounds)) or None


def _check_text_or_decimal(field_id: int, type_: str, data: bytes) -> None:
    if type_ == "string":
        try:
            data.decode()
        except UnicodeDecodeError:
            raise _bad_bound(field_id, type_, data) from None
    elif type_.startswith("decimal") and not 1 <= len(data) <= 16:
        raise _bad_bound(field_id, type_, data)


def _bad_bound(field_id: int, type_: str, data: bytes) -> Unfit:
    return Unfit(f"the bound {data[:40].hex()!r} of column {field_id} is no value of {type_}")
