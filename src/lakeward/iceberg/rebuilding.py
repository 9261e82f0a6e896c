"""A table's metadata from its rows alone: where the files that held it are gone."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lakeward.iceberg import entries, manifests, metadata
from lakeward.iceberg.manifests import EXISTING, Record, Written
from lakeward.iceberg.snapshot_writer import SnapshotWriter, Write, fresh_id
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
