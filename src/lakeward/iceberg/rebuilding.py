"""A table's metadata from its rows alone: where the files that held it are gone."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import msgspec

from lakeward.iceberg import entries, manifest_lists, manifests, metadata
from lakeward.iceberg.commit import Write, fresh_id
from lakeward.iceberg.manifests import EXISTING, Record, Written
from lakeward.tables.records.files import RegisteredFile
from lakeward.tables.records.tables import Document, Table, TableMetadata

FILES_A_MANIFEST = 10_000


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
    document = metadata.new_metadata(table, versions[0], now_ms)
    for version in versions[1:]:
        document = metadata.apply_version(document, version, now_ms)
    document = {**document, "last-sequence-number": last_sequence}
    is_v3 = table.format_version >= 3
    if is_v3:
        document["next-row-id"] = next_row_id
    if not files:
        return Rebuilt(document, None)
    snapshot_id, sequence = fresh_id(document), last_sequence + 1
    rows = [_written(made, write, prefix, snapshot_id, sequence) for made in _manifests(document, files)]
    row_ids = {
        "first-row-id": next_row_id,
        "added-rows": manifest_lists.assign_row_ids(rows, next_row_id) - next_row_id,
    }
    data = manifest_lists.manifest_list_bytes(
        table.format_version, rows, snapshot_id, None, sequence, next_row_id if is_v3 else None
    )
    listed = f"{prefix}snap-{snapshot_id}-1-{uuid4()}.avro"
    write(listed, data)
    snapshot: Document = {
        "snapshot-id": snapshot_id,
        "sequence-number": sequence,
        **(row_ids if is_v3 else {}),
        "timestamp-ms": now_ms,
        "summary": {
            "operation": "replace",  # no row is another one than before
            "total-data-files": str(len(files)),
            "total-records": str(sum(file.row_count for file in files)),
            "total-files-size": str(sum(file.file_size for file in files)),
        },
        "manifest-list": listed,
        "schema-id": document["current-schema-id"],
    }
    return Rebuilt(metadata.with_snapshot(document, snapshot), snapshot)


def _written(made: Written, write: Write, prefix: str, snapshot_id: int, sequence: int) -> Record:
    data = manifests.manifest_bytes(made)
    location = f"{prefix}{uuid4()}-m0.avro"
    write(location, data)
    return manifest_lists.manifest_file(made, location, len(data), snapshot_id, sequence)


def _manifests(document: Document, files: Sequence[RegisteredFile]) -> list[Written]:
    """One for each spec and schema, cut where it gets long."""
    known = entries.Groups(document)
    open_: dict[tuple[int, int], Written] = {}
    full: list[Written] = []
    for file in files:
        key = (file.spec_id, file.schema_id)
        group = known.of(*key)
        record: Record = {**entries.data_file(file, group), "first_row_id": file.first_row_id}
        made = open_.setdefault(key, Written(group.layout))
        number = file.sequence_number
        assert number is not None and file.snapshot_id is not None
        made.add(
            EXISTING,
            record,
            manifests.encode_entry(group.layout, EXISTING, record, file.snapshot_id, number, number),
            number,
        )
        if made.counts[EXISTING] >= FILES_A_MANIFEST:
            full.append(open_.pop(key))
    return [*full, *open_.values()]
