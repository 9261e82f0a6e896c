"""One snapshot from the registry's rows: manifests and a manifest list are written, and a document names them.

Files come in by fast append: manifests that are there stay as they are. Files that leave make the manifests that hold
them be written again, their entries marked as deleted.
"""

from __future__ import annotations

import secrets
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from lakeward.errors import InvalidInput, InvalidSchema, MetadataConflict
from lakeward.iceberg import manifests
from lakeward.iceberg.manifests import ADDED, DATA, DELETED, EXISTING, Layout, Record, Written
from lakeward.iceberg.metadata import current_snapshot, next_timestamp_ms, with_snapshot
from lakeward.iceberg.partitions import avro_value, partition_fields
from lakeward.model.files import RegisteredFile
from lakeward.model.tables import Document

Read = Callable[[str], bytes]
Write = Callable[[str, bytes], None]

_UNENCODABLE = (ValueError, TypeError, OverflowError, KeyError, AttributeError, InvalidInput, InvalidSchema)


class Built(msgspec.Struct, frozen=True):
    """A snapshot whose manifests and manifest list are written; the document that names it is not."""

    document: Document
    snapshot: Document | None  # none where nothing could be added and nothing was to be removed
    written: list[str]
    superseded: list[str]  # manifests that the new manifest list no longer names
    rejected: list[tuple[RegisteredFile, str]]


class _Job(msgspec.Struct):
    document: Document
    read: Read
    write: Write
    prefix: str
    snapshot_id: int
    sequence_number: int
    written: list[str] = []
    summary: dict[str, int] = {}
    partitions: set[str] = set()

    @property
    def version(self) -> int:
        return int(self.document["format-version"])

    def put(self, name: str, data: bytes) -> str:
        location = self.prefix + name
        self.write(location, data)
        self.written.append(location)
        return location

    def count(self, **numbers: int) -> None:
        for name, number in numbers.items():
            self.summary[name] = self.summary.get(name, 0) + number


def build_snapshot(
    document: Document,
    added: Sequence[RegisteredFile],
    removed: Sequence[str],
    *,
    read: Read,
    write: Write,
    prefix: str,
    timestamp_ms: int,
    snapshot_id: int | None = None,
    summary_extra: Mapping[str, str] | None = None,
) -> Built:
    """Make the snapshot in which `added` have come and the files at the paths `removed` have gone.

    A file whose entry cannot be encoded (an unknown spec or schema, a value that is none of its type) is rejected with
    the reason, and the rest goes on.

    Args:
        read, write: of whole objects, by location.
        prefix: below which everything is written, ending in '/'.
        timestamp_ms: of the snapshot; raised to the last snapshot's if that is later.

    Raises:
        MetadataConflict: the current snapshot holds not all of `removed`.
        StorageError: a manifest cannot be read or written.
    """
    parent = current_snapshot(document)
    new_id = snapshot_id if snapshot_id is not None else secrets.randbits(62) + 1
    job = _Job(document, read, write, prefix, new_id, document["last-sequence-number"] + 1)
    groups, rejected = _grouped(job, added)
    if not groups and not removed:
        return Built(document, None, [], [], rejected)
    old = manifests.read_manifest_list(read(parent["manifest-list"])) if parent else []
    kept, superseded = _without(job, old, set(removed)) if removed else (old, [])
    rows = [*(_write_manifest(job, group) for group in groups), *kept]
    first_row_id = document.get("next-row-id") if job.version >= 3 else None
    next_row_id = None if first_row_id is None else manifests.assign_row_ids(rows, first_row_id)
    parent_id = None if parent is None else parent["snapshot-id"]
    data = manifests.manifest_list_bytes(job.version, rows, new_id, parent_id, job.sequence_number, first_row_id)
    location = job.put(f"snap-{new_id}-1-{uuid.uuid4()}.avro", data)
    snapshot: Document = {
        "snapshot-id": new_id,
        **({} if parent_id is None else {"parent-snapshot-id": parent_id}),
        "sequence-number": job.sequence_number,
        "timestamp-ms": next_timestamp_ms(document, timestamp_ms),
        "manifest-list": location,
        "summary": _summary(job, parent, bool(groups), bool(removed), summary_extra or {}),
        "schema-id": document["current-schema-id"],
    }
    if first_row_id is not None and next_row_id is not None:
        snapshot |= {"first-row-id": first_row_id, "added-rows": next_row_id - first_row_id}
    return Built(with_snapshot(document, snapshot, next_row_id), snapshot, job.written, superseded, rejected)


# Files that come ---------------------------------------------------------------------------------------------------------
def _grouped(job: _Job, files: Sequence[RegisteredFile]) -> tuple[list[Written], list[tuple[RegisteredFile, str]]]:
    """One manifest for each spec and schema, its entries encoded, and the files that cannot be."""
    groups: dict[tuple[int, int], Written] = {}
    kinds: dict[tuple[int, int], tuple[Layout, list[Any]]] = {}
    rejected: list[tuple[RegisteredFile, str]] = []
    for file in files:
        kind = file.spec_id, file.schema_id
        try:
            if kind not in kinds:
                kinds[kind] = _kind(job, *kind)
            layout, fields = kinds[kind]
            record = _data_file(file, fields)
            encoded = manifests.encode_entry(layout, ADDED, record, job.snapshot_id)
        except _UNENCODABLE as error:
            rejected.append((file, f"its manifest entry cannot be written: {error}"))
            continue
        groups.setdefault(kind, _new(layout)).add(ADDED, record, encoded)
        job.partitions.add(file.partition_key)
        job.count(**{"added-data-files": 1, "added-records": file.row_count, "added-files-size": file.file_size})
    return list(groups.values()), rejected


def _new(layout: Layout, content: int = DATA) -> Written:
    return Written(layout, content)


def _kind(job: _Job, spec_id: int, schema_id: int) -> tuple[Layout, list[Any]]:
    spec = _one(job.document["partition-specs"], "spec-id", spec_id)
    schema = _one(job.document["schemas"], "schema-id", schema_id)
    return manifests.layout(job.version, schema, spec), partition_fields(schema, spec)


def _one(documents: Sequence[Document], key: str, wanted: int) -> Document:
    found = next((d for d in documents if d[key] == wanted), None)
    if found is None:
        raise ValueError(f"the table has no {key} {wanted}")
    return found


def _data_file(file: RegisteredFile, fields: Sequence[Any]) -> Record:
    partition = file.partition
    if set(partition) != {field[0] for field in fields}:
        raise ValueError(f"its partition {file.partition_key} is not of spec {file.spec_id}")
    stats = file.statistics
    return {
        "content": DATA,
        "file_path": file.file_path,
        "file_format": "PARQUET",
        "partition": {f"p{i}": avro_value(transform, source, partition[i]) for i, _, transform, source, _ in fields},
        "record_count": file.row_count,
        "file_size_in_bytes": file.file_size,
        "column_sizes": _pairs(stats.column_sizes),
        "value_counts": _pairs(stats.value_counts),
        "null_value_counts": _pairs(stats.null_counts),
        "nan_value_counts": _pairs(stats.nan_counts),
        "lower_bounds": _pairs(stats.lower),
        "upper_bounds": _pairs(stats.upper),
        "key_metadata": None,
        "split_offsets": file.split_offsets or None,
        "equality_ids": None,
        "sort_order_id": file.sort_order_id,
        "first_row_id": None,
        "referenced_data_file": None,
    }


def _pairs(values: Mapping[int, Any]) -> list[Record] | None:
    return [{"key": key, "value": value} for key, value in values.items()] or None


def _write_manifest(job: _Job, written: Written) -> Record:
    data = manifests.manifest_bytes(written)
    path = job.put(f"{uuid.uuid4()}-m{len(job.written)}.avro", data)
    return manifests.manifest_file(written, path, len(data), job.snapshot_id, job.sequence_number)


# Files that go -----------------------------------------------------------------------------------------------------------
def _without(job: _Job, rows: Sequence[Record], removed: set[str]) -> tuple[list[Record], list[str]]:
    """The manifest list's rows without the removed files, and the manifests that were written again."""
    kept: list[Record] = []
    superseded: list[str] = []
    missing = set(removed)
    for row in rows:
        if row["content"] != DATA or not missing:
            kept.append(row)
            continue
        manifest = manifests.read_manifest(job.read(row["manifest_path"]), row)
        here = {e["data_file"]["file_path"] for e in manifests.live(manifest.entries)} & missing
        if not here:
            kept.append(row)
            continue
        missing -= here
        superseded.append(row["manifest_path"])
        kept.append(_rewritten(job, manifest, here))
    if missing:
        raise MetadataConflict(f"the current snapshot does not hold {sorted(missing)[0]}, which is to be removed")
    return kept, superseded


def _rewritten(job: _Job, manifest: manifests.Manifest, gone: set[str]) -> Record:
    written = _new(manifests.layout_of(job.version, manifest))
    for entry in manifests.live(manifest.entries):
        record = entry["data_file"]
        is_gone = record["file_path"] in gone
        status = DELETED if is_gone else EXISTING
        # A deleted entry carries the snapshot that deletes it, an existing one the snapshot that added it.
        snapshot_id = job.snapshot_id if is_gone else entry["snapshot_id"]
        numbers = entry["sequence_number"], entry["file_sequence_number"]
        written.add(
            status,
            record,
            manifests.encode_entry(written.layout, status, record, snapshot_id, *numbers),
            entry["sequence_number"],
        )
        if is_gone:
            job.partitions.add(repr(record["partition"]))
            job.count(
                **{
                    "deleted-data-files": 1,
                    "deleted-records": record["record_count"],
                    "removed-files-size": record["file_size_in_bytes"],
                }
            )
    return _write_manifest(job, written)


# Summary -----------------------------------------------------------------------------------------------------------------
_TOTALS = {
    "total-data-files": ("added-data-files", "deleted-data-files"),
    "total-records": ("added-records", "deleted-records"),
    "total-files-size": ("added-files-size", "removed-files-size"),
    "total-delete-files": ("added-delete-files", "removed-delete-files"),
    "total-position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "total-equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
}


def _summary(job: _Job, parent: Document | None, adds: bool, removes: bool, extra: Mapping[str, str]) -> dict[str, str]:
    """As Iceberg's own writers have it (specification, 'Optional Snapshot Summary Fields')."""
    before: Mapping[str, str] = {} if parent is None else parent.get("summary", {})
    counts: dict[str, int] = defaultdict(int, job.summary)
    totals = {
        total: str(int(before.get(total, 0)) + counts[plus] - counts[minus]) for total, (plus, minus) in _TOTALS.items()
    }
    return {
        "operation": "append" if not removes else "overwrite" if adds else "delete",
        **extra,
        **{name: str(number) for name, number in job.summary.items()},
        "changed-partition-count": str(len(job.partitions)),
        **totals,
    }
