"""Table metadata documents of format versions 2 and 3 (specification, 'Table Metadata Fields').

Documents are plain dicts and are never changed in place: each function returns a new one, which shares what did not change.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Collection
from typing import Any
from uuid import uuid4

import msgspec

from lakeward.errors import InvalidInput, InvalidSchema, StorageError
from lakeward.iceberg import types
from lakeward.iceberg.schemas import same_schema, with_schema_id
from lakeward.tables.records.properties import METADATA_COMPRESSION
from lakeward.tables.records.tables import NO_PARTITION_ID, Document, Table, TableMetadata

MAIN = "main"
GZIP = "gzip"
GZIP_LEVEL = 6
GZIP_MAGIC = b"\x1f\x8b"


def new_metadata(table: Table, version: TableMetadata, when_ms: int) -> Document:
    """The first metadata of a table, without snapshots, at one version of itself.

    Raises:
        InvalidSchema: the version's documents contradict each other.
    """
    document: Document = {
        "format-version": table.format_version,
        "table-uuid": table.table_uuid,
        "location": table.location,
        "last-sequence-number": 0,
        "last-updated-ms": when_ms,
        "last-column-id": table.last_column_id,
        "current-schema-id": version.schema_version,
        "schemas": [],
        "default-spec-id": version.spec_id,
        "partition-specs": [],
        "last-partition-id": max(table.last_partition_id, NO_PARTITION_ID),
        "default-sort-order-id": version.sort_order_id,
        "sort-orders": [],
        "properties": {},
        "refs": {},
        "snapshots": [],
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [],
        "metadata-log": [],
    }
    if table.format_version >= 3:
        document["next-row-id"] = 0
    return apply_version(document, version, when_ms)


def apply_version(document: Document, version: TableMetadata, when_ms: int) -> Document:
    """The metadata with a version's schema, partition spec, sort order and properties as the current ones.

    Ids are the version's: a schema, spec or order that the document has under the same id must be the same one. Versions are
    applied in their order, and none is left out.

    Raises:
        InvalidSchema: an id stands for something else already, or 0 for a sort order that sorts.
    """
    schema = with_schema_id(version.schema, version.schema_version)
    spec = {"spec-id": version.spec_id, "fields": version.partition_by["fields"]}
    order = {"order-id": version.sort_order_id, "fields": version.sort_by["fields"]}
    if (version.sort_order_id == 0) == bool(order["fields"]):
        raise InvalidSchema(
            f"sort order {version.sort_order_id} has {len(order['fields'])} fields; 0 is the order that sorts by nothing"
        )
    columns = [c.field_id for c in types.walk(schema)]
    partitions = [f["field-id"] for f in spec["fields"]]
    return {
        **document,
        "last-updated-ms": max(when_ms, document["last-updated-ms"]),
        "last-column-id": max([document["last-column-id"], *columns]),
        "current-schema-id": version.schema_version,
        "schemas": _with(document["schemas"], schema, "schema-id", same_schema),
        "default-spec-id": version.spec_id,
        "partition-specs": _with(document["partition-specs"], spec, "spec-id", _same_fields),
        "last-partition-id": max([document["last-partition-id"], *partitions]),
        "default-sort-order-id": version.sort_order_id,
        "sort-orders": _with(document["sort-orders"], order, "order-id", _same_fields),
        "properties": dict(version.properties),
    }


def _same_fields(a: Document, b: Document) -> bool:
    return bool(a["fields"] == b["fields"])


def _with(there: list[Document], new: Document, key: str, same: Any) -> list[Document]:
    for each in there:
        if each[key] == new[key]:
            if not same(each, new):
                raise InvalidSchema(
                    f"{key} {new[key]} is already another one in the table's metadata; give the new one the next id"
                )
            return there
    return [*there, new]


def current_snapshot(document: Document) -> Document | None:
    """The snapshot that the main branch names, None if there is none."""
    current = document.get("current-snapshot-id")
    if current is None or current == -1:
        return None
    found: Document = next(s for s in reversed(document["snapshots"]) if s["snapshot-id"] == current)
    return found


def snapshot_time(document: Document, given_ms: int) -> int:
    """The time of a new snapshot: the one given, but never before those that are in the log."""
    logged = document.get("snapshot-log") or []
    current = current_snapshot(document)
    before: list[int] = [e["timestamp-ms"] for e in (*logged[-1:], *([current] if current else []))]
    return max([given_ms, *before])


def with_main(document: Document, snapshot_id: int, when_ms: int) -> Document:
    """The metadata with its main branch at one of its snapshots. The log has it, as Iceberg asks of each change."""
    refs, log = document.get("refs") or {}, document.get("snapshot-log") or []
    when = max([when_ms, *(entry["timestamp-ms"] for entry in log[-1:])])
    return {
        **document,
        "last-updated-ms": max(when, document["last-updated-ms"]),
        "current-snapshot-id": snapshot_id,
        "refs": {**refs, MAIN: {**refs.get(MAIN, {}), "snapshot-id": snapshot_id, "type": "branch"}},
        "snapshot-log": [*log, {"timestamp-ms": when, "snapshot-id": snapshot_id}],
    }


def with_snapshot(document: Document, snapshot: Document) -> Document:
    """The metadata with a snapshot as the main branch's newest one."""
    result = {
        **with_main(document, snapshot["snapshot-id"], snapshot["timestamp-ms"]),
        "last-sequence-number": max(document["last-sequence-number"], snapshot["sequence-number"]),
        "snapshots": [*(document.get("snapshots") or ()), snapshot],
    }
    if document["format-version"] >= 3:
        result["next-row-id"] = document.get("next-row-id", 0) + snapshot["added-rows"]
    return result


def log_metadata(
    document: Document, previous_location: str, previous_ms: int, keep: int = 10
) -> tuple[Document, list[str]]:
    """The metadata with the previous file in its log, and the locations that left the log.

    `previous_ms` is the previous document's last-updated-ms. The log holds the newest `keep` files.
    """
    log = [*(document.get("metadata-log") or ()), {"timestamp-ms": previous_ms, "metadata-file": previous_location}]
    cut = max(len(log) - keep, 0)
    return {**document, "metadata-log": log[cut:]}, [entry["metadata-file"] for entry in log[:cut]]


def trim_snapshots(
    document: Document, keep: int = 100, protected: Collection[int] = ()
) -> tuple[Document, list[Document]]:
    """The metadata with its newest `keep` snapshots, and those that left it, oldest first.

    The current one, each that a branch or tag names, and those whose ids are `protected` stay.
    """
    snapshots = document.get("snapshots") or []
    if len(snapshots) <= keep:
        return document, []
    named = {ref["snapshot-id"] for ref in (document.get("refs") or {}).values()} | {
        document.get("current-snapshot-id")
    }
    cut = len(snapshots) - keep
    gone = {s["snapshot-id"] for s in snapshots[:cut]} - named - set(protected)
    return without_snapshots(document, gone), [s for s in snapshots if s["snapshot-id"] in gone]


def without_snapshots(document: Document, gone: Collection[int]) -> Document:
    """The metadata without some snapshots, and without what it says of them.

    The log then starts after the last entry of a snapshot that left: a time before it cannot be travelled to any more.
    """
    if not gone:
        return document
    result = {
        **document,
        "snapshots": [s for s in document.get("snapshots") or () if s["snapshot-id"] not in gone],
        "snapshot-log": _log_without(document.get("snapshot-log") or [], gone),
    }
    for key in ("statistics", "partition-statistics"):
        result[key] = [s for s in document.get(key) or () if s["snapshot-id"] not in gone]
    return result


def _log_without(log: list[Document], gone: Collection[int]) -> list[Document]:
    start = max((i + 1 for i, entry in enumerate(log) if entry["snapshot-id"] in gone), default=0)
    return log[start:]


def codec_of(document: Document) -> str:
    """How the table's metadata files are compressed: 'gzip' or 'none'."""
    try:
        return METADATA_COMPRESSION.of(document.get("properties") or {})
    except InvalidInput:  # set by hand: no reason to write nothing
        return METADATA_COMPRESSION.default


def metadata_file_name(version: int, codec: str = "none") -> str:
    """'00012-<uuid>.metadata.json', with '.gz' in it where it is compressed: readers go by the name."""
    return f"{version:05d}-{uuid4()}{'.gz' if codec == GZIP else ''}.metadata.json"


def encode(document: Document, codec: str = "none") -> bytes:
    """The document as the bytes of a metadata file."""
    data = msgspec.json.encode(document)
    return gzip.compress(data, GZIP_LEVEL, mtime=0) if codec == GZIP else data


def _damaged(data: bytes) -> StorageError:
    return StorageError(
        f"a metadata file of {len(data)} bytes is damaged: it is no JSON object, or its compressed data breaks; bring it back from a "
        "backup, or write the table's metadata anew with `lakeward repair TABLE`"
    )


def plain(data: bytes) -> bytes:
    """The JSON of a metadata file, compressed or not. Raises StorageError."""
    try:
        return gzip.decompress(data) if data.startswith(GZIP_MAGIC) else data
    except (OSError, EOFError, zlib.error) as error:
        raise _damaged(data) from error


def decode(data: bytes) -> Document:
    """The document in a metadata file, compressed by gzip or not.

    Raises:
        StorageError: it is no JSON object.
    """
    try:
        return msgspec.json.decode(plain(data), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise _damaged(data) from error
