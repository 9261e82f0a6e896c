"""Reading a snapshot without an engine: the data files that its manifests list."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lakeward.errors import InvalidInput, SnapshotNotFound
from lakeward.iceberg import manifest_lists, manifests, refs
from lakeward.iceberg.commit import Read
from lakeward.iceberg.manifests import DATA, Record
from lakeward.registry import Registry
from lakeward.snapshots import refs as names
from lakeward.snapshots.metadata_objects import read_document, reader
from lakeward.tables import footers, tables
from lakeward.tables.footers import Plan, R
from lakeward.tables.records.tables import Document, Table, TableMetadata
from lakeward.tables.tables import Which


def plan(
    registry: Registry, which: Which, snapshot: int | str, prepare: Callable[[list[TableMetadata]], R]
) -> tuple[Plan, R]:
    """As `footers.plan`, of a retained snapshot: its id, or the name of a branch or tag.

    The files are those that the snapshot lists, under the columns that the table had then. Files that have left the table
    since are read out of quarantine.

    Raises:
        SnapshotNotFound, RefNotFound, TableNotFound, InvalidName, StorageError; and what `prepare` raises.
        InvalidInput: the snapshot has files of deletes, which only an engine applies.
    """
    table = tables.load(registry, which)
    snapshot_id = snapshot if isinstance(snapshot, int) else names.snapshot_of(registry, table, snapshot)
    found = refs.snapshots_by_id(read_document(registry, table) or {}).get(snapshot_id)
    if found is None:
        raise no_snapshot(table, snapshot_id)
    read = reader(registry, table)
    rows = manifest_rows(read, found)
    if any(row["content"] != DATA for row in rows):
        raise InvalidInput(
            f"snapshot {snapshot_id} of {table.identifier} has files of deletes, which this reader does not apply; read it "
            "with Spark or PyIceberg"
        )
    planned = footers.plan_listed(registry, table, data_files(read, rows), found["schema-id"], prepare)
    if planned is None:  # it has expired since its metadata was read
        raise no_snapshot(table, snapshot_id)
    return planned


def no_snapshot(table: Table, snapshot_id: int) -> SnapshotNotFound:
    return SnapshotNotFound(
        f"{table.identifier} has no snapshot {snapshot_id}, or it has expired; `lakeward snapshots list {table.identifier}` shows what it has"
    )


def manifest_rows(read: Read, snapshot: Document) -> list[Record]:
    """The rows of a snapshot's manifest list. Raises StorageError."""
    return manifest_lists.read_manifest_list(read(snapshot["manifest-list"]))


def data_files(read: Read, rows: Iterable[Record]) -> set[str]:
    """The paths of the data files in manifests, given by their rows. Raises StorageError."""
    found: set[str] = set()
    for row in rows:
        if row["content"] == DATA:
            entries = manifests.read_manifest(read(row["manifest_path"]), row).entries
            found |= {entry["data_file"]["file_path"] for entry in manifests.live(entries)}
    return found
