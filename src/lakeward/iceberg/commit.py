"""Snapshots from registered files: manifests, a manifest list, and the metadata with the snapshot in it."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from lakeward.errors import MetadataConflict
from lakeward.iceberg import entries, manifest_lists, manifests, metadata
from lakeward.iceberg.manifests import ADDED, DATA, DELETED, EXISTING, Manifest, Record, Written
from lakeward.iceberg.snapshot_writer import SnapshotWriter, Write, fresh_id
from lakeward.logs import log
from lakeward.tables.records.files import PartitionValues, RegisteredFile
from lakeward.tables.records.tables import Document

Read = Callable[[str], bytes]

_TOTALS = ("data-files", "records", "files-size", "delete-files", "position-deletes", "equality-deletes")


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """What `build_snapshot` made. `snapshot` is None, and `document` the one given, if there was nothing to commit.

    `written`: locations of the objects that were written. `superseded`: manifests that the last snapshot lists and this one
    does not. `first_row_ids`: by path of the added files, in format version 3.
    """

    document: Document
    snapshot: Document | None = None
    written: list[str] = []
    superseded: list[str] = []
    rejected: list[tuple[RegisteredFile, str]] = []
    first_row_ids: dict[str, int] = {}


class _Commit(msgspec.Struct):
    """One commit while it is being built."""

    document: Document
    read: Read
    out: SnapshotWriter
    counts: dict[str, int] = {}  # for the summary: added-data-files, deleted-records, ...
    partitions: set[Any] = set()  # (spec id, values) that are changed

    def count(self, **numbers: int) -> None:
        for key, number in numbers.items():
            name = key.replace("_", "-")
            self.counts[name] = self.counts.get(name, 0) + number

    def add_partition(self, spec_id: int, data_file: Record) -> None:
        self.partitions.add((spec_id, *map(_told_apart, data_file["partition"].values())))


def _told_apart(value: Any) -> Any:
    """0.0 and -0.0 are two partitions and equal in Python, NaN is one and not equal to itself."""
    if not isinstance(value, float):
        return value
    return "NaN" if math.isnan(value) else struct.pack("<d", value)


def build_snapshot(
    document: Document,
    added: Sequence[RegisteredFile],
    removed: Iterable[str] = (),
    *,
    read: Read,
    write: Write,
    prefix: str,
    timestamp_ms: int,
    removed_partitions: Mapping[str, tuple[int, PartitionValues]] | None = None,
    operation: str | None = None,
) -> Built:
    """Make a snapshot of the main branch that adds files, removes paths of the current snapshot, or both.

    An append keeps the old manifests as they are and writes one manifest for each spec and schema of the added files. With
    removals, manifests that hold a removed path are written anew; deletion vectors of a removed file go with it. Give
    `removed_partitions`, (spec id, partition) by path, and manifests that cannot hold those partitions are not read.
    A file that cannot be in a manifest is in `rejected` with the reason, and the others are committed all the same.
    `operation` is told from what is added and removed, unless it is given: 'replace' where the table's rows stay the same
    (specification, 'Snapshots').

    All objects go below `prefix`. The metadata file is not written: encode and store `document`, then make it the current
    one by compare-and-swap. `timestamp_ms` is raised to the last snapshot's time if it is before it.

    Raises:
        MetadataConflict: a removed path is in no manifest of the current snapshot.
        StorageError: a manifest or manifest list cannot be read; what `write` and `read` raise.
    """
    parent = metadata.current_snapshot(document)
    out = SnapshotWriter(document, write, prefix if prefix.endswith("/") else prefix + "/", fresh_id(document))
    commit = _Commit(document, read, out)
    groups, accepted, rejected = _encode(commit, added)
    gone = set(removed)
    if not accepted and not gone:
        return Built(document=document, rejected=rejected)
    old = manifest_lists.read_manifest_list(read(parent["manifest-list"])) if parent else []
    kept = [row for row in old if row["added_files_count"] + row["existing_files_count"] > 0]
    if gone:
        kept = _without(commit, kept, gone, removed_partitions or {})
    new = [out.manifest(made) for made in groups]
    rows = [*new, *kept]
    operation = operation or ("append" if not gone else "overwrite" if accepted else "delete")
    snapshot = out.snapshot(rows, {"operation": operation, **_summary(commit, parent, rows)}, timestamp_ms)
    listed = {row["manifest_path"] for row in rows}
    return Built(
        document=metadata.with_snapshot(document, snapshot),
        snapshot=snapshot,
        written=out.written,
        superseded=[row["manifest_path"] for row in old if row["manifest_path"] not in listed],
        rejected=rejected,
        first_row_ids=_first_row_ids(new, accepted) if document["format-version"] >= 3 else {},
    )


# Added files -----------------------------------------------------------------------------------------------------------------
_Rejected = list[tuple[RegisteredFile, str]]


def _encode(
    commit: _Commit, added: Sequence[RegisteredFile]
) -> tuple[list[Written], list[list[RegisteredFile]], _Rejected]:
    """The new manifests, the files in each of them in order, and the files that are rejected."""
    known = entries.Groups(commit.document)
    made: dict[tuple[int, int], Written] = {}
    files: dict[tuple[int, int], list[RegisteredFile]] = {}
    rejected: _Rejected = []
    seen: set[str] = set()
    for file in added:
        key = (file.spec_id, file.schema_id)
        try:
            if file.file_path in seen:
                raise entries.Unfit("the path is there twice")
            group = known.of(*key)
            record = entries.data_file(file, group)
            encoded = manifests.encode_entry(group.layout, ADDED, record, commit.out.snapshot_id)
        except entries.Unfit as unfit:
            rejected.append((file, str(unfit)))
            continue
        except OverflowError:
            rejected.append((file, "a number that the registry has of it has more than 64 bits"))
            continue
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            log.warning("file_set_aside", path=file.file_path, exc_info=error)
            rejected.append((file, "what the registry says of it is nothing that a manifest can hold"))
            continue
        seen.add(file.file_path)
        made.setdefault(key, Written(group.layout)).add(ADDED, record, encoded)
        files.setdefault(key, []).append(file)
        commit.count(added_data_files=1, added_records=file.row_count, added_files_size=file.file_size)
        commit.add_partition(file.spec_id, record)
    return list(made.values()), list(files.values()), rejected


def _first_row_ids(rows: Sequence[Record], files: Sequence[Sequence[RegisteredFile]]) -> dict[str, int]:
    result = {}
    for row, of_manifest in zip(rows, files, strict=True):
        next_id = row["first_row_id"]
        for file in of_manifest:
            result[file.file_path] = next_id
            next_id += file.row_count
    return result


# Removed files -----------------------------------------------------------------------------------------------------------------
def _without(
    commit: _Commit, rows: Sequence[Record], gone: set[str], partitions: Mapping[str, tuple[int, PartitionValues]]
) -> list[Record]:
    """The rows of the manifest list after the removal. Data manifests are read until each path is found."""
    missing = set(gone)
    known = entries.Groups(commit.document)
    result: list[Record] = []
    for row in rows:
        is_data = row["content"] == DATA
        if (is_data and not missing) or not _may_hold(known, row, missing if is_data else gone, partitions):
            result.append(row)
            continue
        manifest = manifests.read_manifest(commit.read(row["manifest_path"]), row)
        found = [e for e in manifests.live(manifest.entries) if _is_gone(e["data_file"], gone)]
        if not found:
            result.append(row)
            continue
        missing -= {e["data_file"]["file_path"] for e in found}
        result.append(_rewrite(commit, row, manifest, {id(e) for e in found}))
    if missing:
        some = ", ".join(sorted(missing)[:3])
        raise MetadataConflict(
            f"{len(missing)} of {len(gone)} removed files are not in the table's current snapshot ({some}); load the table again"
        )
    return result


def _is_gone(data_file: Record, gone: set[str]) -> bool:
    referenced = data_file.get("referenced_data_file")
    return data_file["file_path"] in gone or (referenced is not None and referenced in gone)


def _may_hold(
    known: entries.Groups, row: Record, paths: set[str], partitions: Mapping[str, tuple[int, PartitionValues]]
) -> bool:
    if not paths <= partitions.keys():
        return True
    group = known.of(row["partition_spec_id"])
    if any(field.type == "unknown" for field in group.layout.fields):
        return True  # a column that a partition was made from is gone, and with it the type of its bounds
    of_spec = [values for spec_id, values in (partitions[p] for p in paths) if spec_id == row["partition_spec_id"]]
    return any(manifest_lists.may_hold(row, group.layout.fields, entries.avro_partition(v, group)) for v in of_spec)


def _rewrite(commit: _Commit, row: Record, manifest: Manifest, found: set[int]) -> Record:
    """The manifest again: found entries deleted, other live ones existing, with their numbers; earlier deletions left out."""
    made = Written(manifests.layout_of(commit.document["format-version"], manifest), content=row["content"])
    for entry in manifests.live(manifest.entries):
        data_file = entry["data_file"]
        is_found = id(entry) in found
        status = DELETED if is_found else EXISTING
        owner = commit.out.snapshot_id if is_found else entry["snapshot_id"]
        encoded = manifests.encode_again(made.layout, manifest, entry, status, owner)
        made.add(status, data_file, encoded, entry["sequence_number"])
        if is_found:
            _count_removed(commit, row, data_file)
    return commit.out.manifest(made)


def _count_removed(commit: _Commit, row: Record, data_file: Record) -> None:
    rows, size = data_file["record_count"], data_file["file_size_in_bytes"]
    commit.add_partition(row["partition_spec_id"], data_file)
    if data_file["content"] == 0:
        commit.count(deleted_data_files=1, deleted_records=rows, removed_files_size=size)
    elif data_file["content"] == 1:
        commit.count(removed_delete_files=1, removed_position_deletes=rows, removed_files_size=size)
    else:
        commit.count(removed_delete_files=1, removed_equality_deletes=rows, removed_files_size=size)


def _summary(commit: _Commit, parent: Document | None, rows: Sequence[Record]) -> dict[str, str]:
    """The specification's optional summary fields. A total that the parent's summary lacks is counted or left out."""
    counts = commit.counts
    result = {key: str(number) for key, number in counts.items() if number}
    result["changed-partition-count"] = str(len(commit.partitions))
    before: Mapping[str, str] = (
        dict.fromkeys((f"total-{t}" for t in _TOTALS), "0") if parent is None else parent["summary"]
    )
    for total in _TOTALS:
        removed = (
            "removed" if total in ("files-size", "delete-files", "position-deletes", "equality-deletes") else "deleted"
        )
        known = before.get(f"total-{total}")
        if known is not None and known.isdecimal():
            number = int(known) + counts.get(f"added-{total}", 0) - counts.get(f"{removed}-{total}", 0)
        elif total in ("data-files", "records"):
            kind = "files" if total == "data-files" else "rows"
            number = sum(r[f"added_{kind}_count"] + r[f"existing_{kind}_count"] for r in rows if r["content"] == DATA)
        else:
            continue
        result[f"total-{total}"] = str(max(number, 0))
    return result
