"""Table metadata documents of format versions 2 and 3 (specification, 'Table Metadata').

Documents are plain dicts as in metadata.json. Every function gives a new one and leaves the old as it was.
"""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

from lakeward.errors import StorageError
from lakeward.iceberg.schemas import same_schema, with_schema_id
from lakeward.model.tables import Document, Table, TableMetadata

UNPARTITIONED_LAST_ID = 999
UNSORTED: Document = {"order-id": 0, "fields": []}


def metadata_file_name(version: int) -> str:
    """'00012-<uuid>.metadata.json'"""
    return f"{version:05d}-{uuid.uuid4()}.metadata.json"


def encode(document: Document) -> bytes:
    return msgspec.json.encode(document)


def decode(data: bytes) -> Document:
    """Raises StorageError: the bytes are no table metadata."""
    try:
        document: Document = msgspec.json.decode(data)
        document["table-uuid"], document["format-version"]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise StorageError(f"metadata file of {len(data)} bytes is damaged: {error!r}") from error
    return document


def new_metadata(table: Table, version: TableMetadata, now_ms: int) -> Document:
    """The first document of a table, at one version of its metadata."""
    document: Document = {
        "format-version": table.format_version,
        "table-uuid": table.table_uuid,
        "location": table.location,
        "last-sequence-number": 0,
        "last-updated-ms": now_ms,
        "last-column-id": table.last_column_id,
        "current-schema-id": version.schema_version,
        "schemas": [],
        "default-spec-id": version.spec_id,
        "partition-specs": [],
        "last-partition-id": max(table.last_partition_id, UNPARTITIONED_LAST_ID),
        "default-sort-order-id": version.sort_order_id,
        "sort-orders": [UNSORTED],
        "properties": {},
        "current-snapshot-id": None,
        "refs": {},
        "snapshots": [],
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [],
        "metadata-log": [],
    }
    if table.format_version >= 3:
        document["next-row-id"] = 0
    return apply_version(document, version, now_ms)


def apply_version(document: Document, version: TableMetadata, now_ms: int) -> Document:
    """Make a document say what a version of the registry's metadata says.

    The registry gives the ids of schemas, specs and sort orders, and gives equal ones the same id; they are kept.
    """
    schema = with_schema_id(version.schema, version.schema_version)
    largest = max(_field_ids(schema), default=0)
    return {
        **document,
        "schemas": _with(document["schemas"], schema, "schema-id"),
        "current-schema-id": version.schema_version,
        "last-column-id": max(document["last-column-id"], largest),
        "partition-specs": _with(document["partition-specs"], version.partition_by, "spec-id"),
        "default-spec-id": version.spec_id,
        "last-partition-id": max(
            document["last-partition-id"], *(field["field-id"] for field in version.partition_by["fields"]), 0
        ),
        "sort-orders": _with(document["sort-orders"], version.sort_by, "order-id"),
        "default-sort-order-id": version.sort_order_id,
        "properties": {**version.properties, **_engine_properties(version)},
        "last-updated-ms": max(now_ms, document["last-updated-ms"]),
    }


def _engine_properties(version: TableMetadata) -> dict[str, str]:
    """What engines are told of the table's compression, unless its properties say otherwise."""
    codec = {"none": "uncompressed"}.get(version.compression, version.compression)
    name = "write.parquet.compression-codec"
    return {} if version.format != "parquet" or name in version.properties else {name: codec}


def _with(documents: list[Document], new: Document, key: str) -> list[Document]:
    for known in documents:
        if known[key] == new[key]:
            if key == "schema-id" and not same_schema(known, new):
                raise StorageError(f"two schemas with {key} {new[key]}; the metadata file is not of this registry")
            return documents
    return [*documents, new]


def _field_ids(type_: Any) -> list[int]:
    if not isinstance(type_, dict):
        return []
    found = [type_[key] for key in ("element-id", "key-id", "value-id") if key in type_]
    for field in type_.get("fields", ()):
        found += [field["id"], *_field_ids(field["type"])]
    for part in ("element", "key", "value"):
        found += _field_ids(type_.get(part))
    return found


def with_snapshot(document: Document, snapshot: Document, next_row_id: int | None = None) -> Document:
    """Add a snapshot and make it the current one of the main branch."""
    entry = {"timestamp-ms": snapshot["timestamp-ms"], "snapshot-id": snapshot["snapshot-id"]}
    main = {**document.get("refs", {}).get("main", {}), "snapshot-id": snapshot["snapshot-id"], "type": "branch"}
    result = {
        **document,
        "last-sequence-number": snapshot["sequence-number"],
        "last-updated-ms": max(snapshot["timestamp-ms"], document["last-updated-ms"]),
        "current-snapshot-id": snapshot["snapshot-id"],
        "snapshots": [*document.get("snapshots", ()), snapshot],
        "snapshot-log": [*document.get("snapshot-log", ()), entry],
        "refs": {**document.get("refs", {}), "main": main},
    }
    if next_row_id is not None:
        result["next-row-id"] = next_row_id
    return result


def current_snapshot(document: Document) -> Document | None:
    wanted = document.get("current-snapshot-id")
    return next((s for s in reversed(document.get("snapshots", ())) if s["snapshot-id"] == wanted), None)


def next_timestamp_ms(document: Document, given_ms: int) -> int:
    """A snapshot's time never runs backwards: not before the last snapshot's in the document or in its log."""
    times: list[int] = [s["timestamp-ms"] for s in document.get("snapshots", ())[-1:]]
    times += [entry["timestamp-ms"] for entry in document.get("snapshot-log", ())[-1:]]
    return max(given_ms, *times) if times else given_ms


def log_metadata(document: Document, previous_location: str | None, keep: int = 10) -> tuple[Document, list[str]]:
    """Log the metadata file that this document follows; gives the locations that have left the log."""
    if previous_location is None:
        return document, []
    entry = {"timestamp-ms": document["last-updated-ms"], "metadata-file": previous_location}
    entries = [*document.get("metadata-log", ()), entry]
    dropped = [e["metadata-file"] for e in entries[:-keep]]
    return {**document, "metadata-log": entries[-keep:]}, dropped


def trim_snapshots(document: Document, keep: int = 100) -> tuple[Document, list[Document]]:
    """Leave out the oldest snapshots beyond `keep`, never one that a branch or tag names; gives those left out.

    The snapshot log loses its entries up to the last one that names a snapshot left out (specification, 'snapshot-log').
    """
    snapshots = document.get("snapshots", [])
    named = {ref["snapshot-id"] for ref in document.get("refs", {}).values()}
    surplus = len(snapshots) - keep
    dropped = [s for s in snapshots[: max(surplus, 0)] if s["snapshot-id"] not in named]
    if not dropped:
        return document, []
    gone = {s["snapshot-id"] for s in dropped}
    log: list[Document] = document.get("snapshot-log", [])
    first = max((i + 1 for i, entry in enumerate(log) if entry["snapshot-id"] in gone), default=0)
    kept = [s for s in snapshots if s["snapshot-id"] not in gone]
    return {**document, "snapshots": kept, "snapshot-log": log[first:]}, dropped
