"""Manifest lists of format versions 2 and 3 (specification, 'Manifest Lists'), and what their rows say of manifests.

Rows are plain dicts under the specification's names, as the records of `iceberg.manifests` are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from lakeward.iceberg import avro, values
from lakeward.iceberg.manifests import DATA, Encode, PartitionField, Record, Written
from lakeward.tables.records.tables import Document


# Files ------------------------------------------------------------------------------------------------------------------
@lru_cache(maxsize=4)
def _schema(version: int) -> Document:
    from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS
    from pyiceberg.utils.schema_conversion import AvroSchemaConversion

    converted: Any = AvroSchemaConversion().iceberg_to_avro(
        MANIFEST_LIST_FILE_SCHEMAS[version], schema_name="manifest_file"
    )
    return dict(converted)


@lru_cache(maxsize=1)
def _names() -> dict[int, str]:
    return avro.field_names(_schema(3))


@lru_cache(maxsize=4)
def _encoder(version: int) -> Encode:
    return avro.encoder(avro.canonical(_schema(version), _names()))


def read_manifest_list(data: bytes) -> list[Record]:
    """The rows of a manifest list. Raises StorageError: the bytes are none."""
    rows = avro.read_container(data, _names()).records
    for row in rows:
        for key, default in _DEFAULTS.items():
            if row.get(key) is None:
                row[key] = default
    return rows


# What a list of version 1 lacks.
_DEFAULTS = {
    "content": DATA, "sequence_number": 0, "min_sequence_number": 0, "added_files_count": 0, "existing_files_count": 0,
    "deleted_files_count": 0, "added_rows_count": 0, "existing_rows_count": 0, "deleted_rows_count": 0,
}  # fmt: skip


def manifest_list_bytes(
    version: int,
    rows: Sequence[Record],
    snapshot_id: int,
    parent_id: int | None,
    sequence_number: int,
    first_row_id: int | None = None,
) -> bytes:
    """A manifest list as a file. `first_row_id` is the snapshot's, in version 3."""
    metadata = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "sequence-number": str(sequence_number),
        "format-version": str(version),
    }
    if version >= 3:
        metadata["first-row-id"] = str(first_row_id)
    encode = _encoder(version)
    return avro.write_container(_schema(version), metadata, [encode(row) for row in rows])


def assign_row_ids(rows: Sequence[Record], next_row_id: int) -> int:
    """Give every data manifest without a first_row_id its own, in the list's order; returns the new next-row-id.

    (Specification, 'First Row ID Assignment'. Rows of existing files that have ids already are counted too: ids are not
    dense, they are only never given twice.)
    """
    for row in rows:
        if row["content"] == DATA and row.get("first_row_id") is None:
            row["first_row_id"] = next_row_id
            next_row_id += row["added_rows_count"] + row["existing_rows_count"]
    return next_row_id


# Rows -------------------------------------------------------------------------------------------------------------------
def manifest_file(written: Written, path: str, length: int, snapshot_id: int, sequence_number: int) -> Record:
    """The row of a new manifest in its manifest list."""
    (existing, added, deleted), (existing_rows, added_rows, deleted_rows) = written.counts, written.rows
    return {
        "manifest_path": path,
        "manifest_length": length,
        "partition_spec_id": int(written.layout.metadata["partition-spec-id"]),
        "content": written.content,
        "sequence_number": sequence_number,
        "min_sequence_number": sequence_number if written.min_sequence is None else written.min_sequence,
        "added_snapshot_id": snapshot_id,
        "added_files_count": added,
        "existing_files_count": existing,
        "deleted_files_count": deleted,
        "added_rows_count": added_rows,
        "existing_rows_count": existing_rows,
        "deleted_rows_count": deleted_rows,
        "partitions": summaries(written.layout.fields, written.partitions),
        "key_metadata": None,
        "first_row_id": None,
    }


def summaries(fields: Sequence[PartitionField], partitions: Sequence[Mapping[str, Any]]) -> list[Record] | None:
    """contains_null, contains_nan and bounds of each partition field; bounds leave NaN out.

    None where a field has uuids: Java compares their bounds as signed numbers, and takes a field without bounds for all null.
    """
    made = [_summary(field, {p[field.key] for p in partitions}) for field in fields]
    has_uuids = any(f.type == "uuid" and s["lower_bound"] is not None for f, s in zip(fields, made, strict=True))
    return None if has_uuids else made


def _summary(field: PartitionField, found: set[Any]) -> Record:
    floats = field.type in ("float", "double")
    raw = [values.from_avro(field.type, v) for v in found if v is not None]
    numbers = [v for v in raw if not (floats and math.isnan(v))]
    if floats:  # -0.0 and 0.0 are one to a set, and a bound must hold both
        lower, upper = (min(numbers) or -0.0, max(numbers) or 0.0) if numbers else (None, None)
    else:
        lower, upper = (min(numbers), max(numbers)) if numbers else (None, None)
    return {
        "contains_null": None in found,
        "contains_nan": len(numbers) < len(raw),
        "lower_bound": None if lower is None else values.to_binary(field.type, lower),
        "upper_bound": None if upper is None else values.to_binary(field.type, upper),
    }


def may_hold(file: Mapping[str, Any], fields: Sequence[PartitionField], partition: Mapping[str, Any]) -> bool:
    """Whether a manifest can hold files of a partition, by the summaries in its row of the manifest list."""
    found = file.get("partitions")
    if not found or len(found) != len(fields):
        return True
    return all(
        _may_hold(summary, field, partition.get(field.key)) for summary, field in zip(found, fields, strict=True)
    )


def _may_hold(summary: Mapping[str, Any], field: PartitionField, value: Any) -> bool:
    if value is None:
        return bool(summary["contains_null"])
    raw = values.from_avro(field.type, value)
    if isinstance(raw, float) and math.isnan(raw):
        return summary.get("contains_nan") is not False
    lower, upper = summary["lower_bound"], summary["upper_bound"]
    if lower is None or upper is None:
        return False
    return bool(values.from_binary(field.type, lower) <= raw <= values.from_binary(field.type, upper))
