"""A table's metadata from its rows alone: where the files that held it are gone, and for an engine that is to read given files."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import msgspec

from lakeward.iceberg import entries, manifest_lists, manifests, metadata
from lakeward.iceberg.manifests import ADDED, EXISTING, Record, Written
from lakeward.iceberg.snapshot_writer import SnapshotWriter, Write, fresh_id
from lakeward.tables.records.files import FileStatistics, RegisteredFile
from lakeward.tables.records.tables import Document, Table, TableMetadata

FILES_A_MANIFEST = 10_000
LISTING_ID = 1  # of the one snapshot of a listing


class Rebuilt(msgspec.Struct, frozen=True):
    document: Document
    snapshot: Document | None  # None where no file was part of one


def rebuild(
    table: Table,
    versions: Sequence[TableMetadata],
    files: Sequence[RegisteredFile],
    *,
    write: Write,
    prefix: str,
    now_ms: int,
    last_sequence: int,
    next_row_id: int,
) -> Rebuilt:
    """Metadata with one snapshot, which has these files, each with the snapshot and sequence number that it came with.

    All objects go below `prefix`; the metadata file is not written.

    Args:
        versions: all that the table's metadata had, oldest first.
        last_sequence: the highest sequence number that any snapshot of the table had.
        next_row_id: above the ids of all rows, in format version 3.
    """
    document = _document(table, versions, now_ms, last_sequence)
    if table.format_version >= 3:
        document["next-row-id"] = next_row_id
    if not files:
        return Rebuilt(document, None)
    out = SnapshotWriter(document, write, prefix, fresh_id(document))
    summary = {
        "operation": "replace",  # no row is another one than before
        "total-data-files": str(len(files)),
        "total-records": str(sum(file.row_count for file in files)),
        "total-files-size": str(sum(file.file_size for file in files)),
    }
    snapshot = out.snapshot([out.manifest(made) for made in _manifests(document, files)], summary, now_ms)
    return Rebuilt(metadata.with_snapshot(document, snapshot), snapshot)


def write_listing(
    table: Table,
    versions: Sequence[TableMetadata],
    files: Sequence[RegisteredFile],
    *,
    write: Write,
    prefix: str,
    now_ms: int,
) -> str:
    """Write metadata whose only snapshot has these files, and that is never committed: what an engine reads to read just these.
    The metadata file's location, below a prefix that ends in '/'.

    Schemas, specs and orders are all that the table's versions have, oldest first. Committed files keep their sequence number
    and, in format version 3, the ids of their rows; pending ones have none of either. All files are of one of the two kinds.

    Raises:
        ValueError: a file that cannot be in a manifest.
    """
    sequence = max((file.sequence_number or 0 for file in files), default=0) or 1
    document = _document(table, versions, now_ms, sequence - 1)
    out = SnapshotWriter(document, write, prefix, LISTING_ID)
    rows = []
    plain = [msgspec.structs.replace(file, statistics=FileStatistics()) for file in files]
    for made in _manifests(document, plain, LISTING_ID):
        # Without an id of its manifest a file's rows have none (specification, 'First Row ID Inheritance').
        is_committed = made.counts[EXISTING] > 0
        rows.append({**out.manifest(made), "first_row_id": 0 if is_committed and table.format_version >= 3 else None})
    listed = f"{prefix}snap-{LISTING_ID}-{uuid4()}.avro"
    write(listed, manifest_lists.manifest_list_bytes(table.format_version, rows, LISTING_ID, None, sequence, 0))
    snapshot: Document = {
        "snapshot-id": LISTING_ID,
        "sequence-number": sequence,
        "timestamp-ms": now_ms,
        "summary": {"operation": "append"},
        "manifest-list": listed,
        "schema-id": document["current-schema-id"],
    }
    if table.format_version >= 3:
        snapshot |= {"first-row-id": 0, "added-rows": 0}
    location = prefix + metadata.metadata_file_name(0)
    write(location, metadata.encode(metadata.with_snapshot(document, snapshot)))
    return location


def _document(table: Table, versions: Sequence[TableMetadata], now_ms: int, last_sequence: int) -> Document:
    document = metadata.new_metadata(table, versions[0], now_ms)
    for version in versions[1:]:
        document = metadata.apply_version(document, version, now_ms)
    return {**document, "last-sequence-number": last_sequence}


def _manifests(document: Document, files: Sequence[RegisteredFile], snapshot_id: int | None = None) -> list[Written]:
    """One for each spec and schema, cut where it gets long. `snapshot_id`: of all files, in place of their own."""
    known = entries.Groups(document)
    open_: dict[tuple[int, int], Written] = {}
    full: list[Written] = []
    for file in files:
        key, number = (file.spec_id, file.schema_id), file.sequence_number
        group = known.of(*key)
        record: Record = {**entries.data_file(file, group), "first_row_id": file.first_row_id}
        status, owner = (ADDED if number is None else EXISTING), snapshot_id or file.snapshot_id
        made = open_.setdefault(key, Written(group.layout))
        made.add(status, record, manifests.encode_entry(group.layout, status, record, owner, number, number), number)
        if len(made.entries) >= FILES_A_MANIFEST:
            full.append(open_.pop(key))
    return [*full, *open_.values()]
