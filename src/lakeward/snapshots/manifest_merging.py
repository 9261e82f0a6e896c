"""Merging a table's manifests off the path of queries and writes.

What is expensive, reading the old manifests and writing the new ones, needs no lock and no particular state of the table:
the new ones stand for the old ones in any later snapshot that still lists them. Only the short rest, a manifest list and a
metadata file, is made against the current metadata and committed by compare-and-swap, as a flush is. Where another commit
is quicker, that rest is made again, at last in turn with the others; ingest never waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

import msgspec
import sqlalchemy as sa

from lakeward.errors import MetadataConflict
from lakeward.iceberg import manifest_lists, manifests, merging, metadata
from lakeward.iceberg.commit import Read
from lakeward.iceberg.manifests import Record
from lakeward.iceberg.merging import Merged, Rule
from lakeward.iceberg.snapshot_writer import fresh_id
from lakeward.registry import Registry, intents, leases
from lakeward.registry.leases import Lease
from lakeward.registry.turns import Turn
from lakeward.retry import RetryConfig
from lakeward.snapshots import snapshot_commit
from lakeward.snapshots.conflicts import committed
from lakeward.snapshots.metadata_objects import reader
from lakeward.storage.engine import StorageEngine
from lakeward.tables import snapshots
from lakeward.tables.records.files import Intent
from lakeward.tables.records.tables import Document, Table
from lakeward.tables.snapshots import Conflict, Held, Made, NewSnapshot
from lakeward.tables.tables import Which, table_of

RETRY = RetryConfig(initial_delay=0.025, max_delay=0.1, jitter=1.0)  # waits longer than a flush, which goes first
LEASE_SECONDS = 60.0
TRIGGER = "size"  # of the manifests; the snapshot's operation, replace, tells it from a flush


class MergeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a merge did; `snapshot_id` is None where there was too little to merge, or others were quicker each time."""

    snapshot_id: int | None = None
    replaced: int = 0  # manifests that the table's current snapshot lists no more
    created: int = 0
    entries: int = 0
    conflicts: int = 0
    enough_until: int | None = None  # where there was too little: up to this sequence number there still will be
    seconds: float = 0.0


class ManifestInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest of a table's current snapshot. Those of one content, spec and tier are merged once there are enough."""

    path: str
    content: str  # data | deletes
    spec_id: int
    tier: int | None  # None: large enough
    bytes: int
    files: int
    rows: int
    sequence_number: int


def list_manifests(registry: Registry, name: Which) -> list[ManifestInfo]:
    """The manifests of the snapshot that engines see now, oldest first. Raises StorageError, InvalidInput, TableNotFound, InvalidName."""
    table = table_of(registry, name)
    _, rule, rows = _look(registry, table)
    return [
        ManifestInfo(
            path=row["manifest_path"],
            content="data" if row["content"] == manifests.DATA else "deletes",
            spec_id=row["partition_spec_id"],
            tier=merging.tier(row["manifest_length"], rule) if row["manifest_length"] <= rule.target // 2 else None,
            bytes=row["manifest_length"],
            files=row["added_files_count"] + row["existing_files_count"],
            rows=row["added_rows_count"] + row["existing_rows_count"],
            sequence_number=row["sequence_number"],
        )
        for row in sorted(rows, key=lambda row: row["sequence_number"])
    ]


def merge_manifests(registry: Registry, table_id: int) -> MergeResult:
    """Merge the manifests of a table's current snapshot, where its properties say that there are many.

    Raises:
        TableNotFound: the table has been dropped.
        LeaseHeld: another merge of the table is under way.
        InvalidInput: a property is none of its kind.
        StorageError: an object cannot be read or written.
    """
    started = time.perf_counter()
    table = snapshots.pending(registry, table_id, with_files=False).table
    document, rule, rows = _look(registry, table)
    if not merging.plan(rows, rule):
        # A commit mostly adds one manifest.
        enough = int(document["last-sequence-number"]) + merging.lacking(rows, rule) - 1
        return MergeResult(enough_until=enough, seconds=time.perf_counter() - started)
    with leases.held(registry, f"merge:{table.table_uuid}", seconds=LEASE_SECONDS) as lease:
        with intents.declared(registry, table, "flush") as intent:
            result = _merge(registry, table, intent, lease)
        if result.snapshot_id is None:
            intents.give_up(registry, intent)
    return msgspec.structs.replace(result, seconds=time.perf_counter() - started)


def _look(registry: Registry, table: Table) -> tuple[Document, Rule, list[Record]]:
    """The table's metadata as engines see it, what it says of merging, and its manifests."""
    if table.metadata_location is None:
        return {"last-sequence-number": 0}, Rule(), []
    read = reader(registry, table)
    document = metadata.decode(read(table.metadata_location))
    return document, merging.rule_of(document["properties"]), listed(document, read)


def listed(document: Document, read: Read) -> list[Record]:
    """The manifest list of the document's current snapshot."""
    current = metadata.current_snapshot(document)
    return [] if current is None else manifest_lists.read_manifest_list(read(current["manifest-list"]))


def _merge(registry: Registry, table: Table, intent: Intent, lease: Lease) -> MergeResult:
    engine = registry.engine(table.location)
    table = snapshots.pending(registry, table.table_id, with_files=False).table
    document, rule, rows = _look(registry, table)
    snapshot_id = fresh_id(document)
    merged = write_merged(engine, document, merging.plan(rows, rule), intent, snapshot_id)
    lost = 0

    def attempt(number: int, turn: Turn | None) -> Made | None:
        nonlocal lost
        lost = number
        with snapshot_commit.metadata_lock(registry, table.table_id):
            return commit(registry, table, intent, merged, snapshot_id, lease, turn)

    try:
        made = committed(registry, table, "merge its manifests", attempt, RETRY)
    except (Held, MetadataConflict):
        return MergeResult(conflicts=lost + 1)
    if made is None:  # what was to be merged has left meanwhile
        return MergeResult(conflicts=lost)
    summary = made.new[0].snapshot["summary"]
    return MergeResult(
        snapshot_id=snapshot_id,
        replaced=int(summary["manifests-replaced"]),
        created=int(summary["manifests-created"]),
        entries=int(summary["entries-processed"]),
        conflicts=lost,
    )


def write_merged(
    engine: StorageEngine, document: Document, groups: Sequence[Sequence[Record]], intent: Intent, snapshot_id: int
) -> list[Merged]:
    """The new manifests, written below the intent's prefix; nothing is committed yet."""
    return merging.merge(
        document, groups, read=engine.read, write=engine.write, prefix=intent.prefix, snapshot_id=snapshot_id
    )


def commit(
    registry: Registry,
    table: Table,
    intent: Intent,
    merged: list[Merged],
    snapshot_id: int,
    lease: Lease,
    turn: Turn | None = None,
) -> Made | None:
    """Put merged manifests in the place of theirs in what is the table's metadata now; None if nothing of it fits any more.

    What does not fit is taken out of `merged`, and its objects are deleted.

    Raises:
        Conflict: another commit was quicker; what was written for this one, but for the manifests, is gone.
        LeaseLost: the lease's fence is no longer current.
    """
    engine = registry.engine(table.location)
    state = snapshots.pending(registry, table.table_id, with_files=False)
    document, superseded = snapshot_commit.next_document(registry, state)
    rows = listed(document, reader(registry, table))
    unfit = [each for each in merged if not merging.fits(each, rows)]
    if unfit:
        merged[:] = [each for each in merged if each not in unfit]
        engine.delete([row["manifest_path"] for each in unfit for row in each.rows])
    if not merged:
        return None
    built = merging.replace(document, rows, merged, write=engine.write, prefix=intent.prefix, snapshot_id=snapshot_id)
    assert built.snapshot is not None
    new = [NewSnapshot(snapshot=built.snapshot, superseded=built.superseded)]
    made = snapshot_commit.write_metadata(registry, state, intent, built.document, superseded, new)

    def check(connection: sa.Connection, _: datetime) -> None:
        leases.check(connection, lease)

    try:
        snapshots.commit(registry, state.table, intent, made, TRIGGER, check, turn=turn)
    except Conflict:
        engine.delete([*built.written, made.metadata_location])
        raise
    return made
