"""Metadata that lists given files and is never committed: what an engine reads to read just these files."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import msgspec

from lakeward.iceberg import entries, manifest_lists, manifests, metadata
from lakeward.iceberg.manifests import ADDED, EXISTING, Record, Written
from lakeward.iceberg.snapshot_writer import SnapshotWriter, Write
from lakeward.tables.records.files import FileStatistics, RegisteredFile
from lakeward.tables.records.tables import Document, Table, TableMetadata

SNAPSHOT_ID = 1  # of the one snapshot that there is

_NO_STATISTICS = FileStatistics()


def write_listing(
    table: Table,
    versions: Sequence[TableMetadata],
    files: Sequence[RegisteredFile],
    *,
    write: Write,
    prefix: str,
    now_ms: int,
) -> str:
    """Write metadata whose only snapshot has these files, below a prefix that ends in '/'; the metadata file's location.

    Schemas, specs and orders are all that the table's versions have, oldest first. Committed files keep their sequence number
    and, in format version 3, the ids of their rows; pending ones have none of either. All files are of one of the two kinds.

    Raises:
        ValueError: a file that cannot be in a manifest.
    """
    document = metadata.new_metadata(table, versions[0], now_ms)
    for version in versions[1:]:
        document = metadata.apply_version(document, version, now_ms)
    sequence = max((file.sequence_number or 0 for file in files), default=0) or 1
    document = {**document, "last-sequence-number": sequence - 1}
    out = SnapshotWriter(document, write, prefix, SNAPSHOT_ID)
    rows = []
    for made in _manifests(document, files):
        # Without an id of its manifest a file's rows have none (specification, 'First Row ID Inheritance').
        is_committed = made.counts[EXISTING] > 0
        rows.append({**out.manifest(made), "first_row_id": 0 if is_committed and table.format_version >= 3 else None})
    listed = prefix + f"snap-{SNAPSHOT_ID}-{uuid4()}.avro"
    write(listed, manifest_lists.manifest_list_bytes(table.format_version, rows, SNAPSHOT_ID, None, sequence, 0))
    location = prefix + metadata.metadata_file_name(0)
    write(location, metadata.encode(metadata.with_snapshot(document, _snapshot(document, listed, sequence, now_ms))))
    return location


def _manifests(document: Document, files: Sequence[RegisteredFile]) -> list[Written]:
    known = entries.Groups(document)
    made: dict[tuple[int, int], Written] = {}
    for file in files:
        key = (file.spec_id, file.schema_id)
        group = known.of(*key)
        record: Record = {
            **entries.data_file(msgspec.structs.replace(file, statistics=_NO_STATISTICS), group),
            "first_row_id": file.first_row_id,
        }
        written = made.setdefault(key, Written(group.layout))
        if file.sequence_number is None:
            written.add(ADDED, record, manifests.encode_entry(group.layout, ADDED, record, SNAPSHOT_ID))
        else:
            number = file.sequence_number
            encoded = manifests.encode_entry(group.layout, EXISTING, record, SNAPSHOT_ID, number, number)
            written.add(EXISTING, record, encoded, number)
    return list(made.values())


def _snapshot(document: Document, listed: str, sequence: int, now_ms: int) -> Document:
    snapshot: Document = {
        "snapshot-id": SNAPSHOT_ID,
        "sequence-number": sequence,
        "timestamp-ms": now_ms,
        "summary": {"operation": "append"},
        "manifest-list": listed,
        "schema-id": document["current-schema-id"],
    }
    return snapshot if document["format-version"] < 3 else {**snapshot, "first-row-id": 0, "added-rows": 0}
