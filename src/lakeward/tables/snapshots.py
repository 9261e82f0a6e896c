"""Snapshots as the registry keeps them: what waits for one, and the transaction that commits one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime

import msgspec
import sqlalchemy as sa

from lakeward.db import dialect, lock_order
from lakeward.db.retry import retried
from lakeward.errors import SnapshotNotFound, TableNotFound
from lakeward.registry import leases, turns
from lakeward.registry.handle import Registry
from lakeward.registry.sql import intents
from lakeward.registry.turns import Turn
from lakeward.tables import counters, pages
from lakeward.tables.records.files import Intent, RegisteredFile, RetiredFile
from lakeward.tables.records.tables import Document, Snapshot, Table, TableMetadata, TableSnapshot
from lakeward.tables.sql import files, retired, snapshots, tables
from lakeward.tables.tables import Which, metadata_in, table_of

FILES_AT_ONCE = 10_000

# What else belongs to a commit: it gets the transaction's connection and the registry's time.
Also = Callable[[sa.Connection, datetime], object]


class Pending(msgspec.Struct, frozen=True):
    """What the Iceberg metadata of a table does not show yet, as of one moment."""

    table: Table
    now: datetime
    is_held: bool  # somebody holds the table: nothing pending may be committed now, and no snapshot may leave
    versions: list[TableMetadata]  # later than what the metadata file shows, oldest first
    files: list[RegisteredFile]
    removals: list[RetiredFile]

    @property
    def is_empty(self) -> bool:
        return not (self.versions or self.files or self.removals)

    @property
    def is_kept(self) -> bool:
        return self.is_held and bool(self.files or self.removals)


class Goal(msgspec.Struct, frozen=True):
    """What was pending at one moment, by id."""

    table: Table
    is_current: bool  # the metadata file shows the table's version
    is_held: bool
    files: frozenset[int] = frozenset()
    removals: frozenset[int] = frozenset()

    @property
    def is_empty(self) -> bool:
        return self.is_current and not self.has_files

    @property
    def location(self) -> str:
        """Of the metadata as it is. There is one where nothing is pending."""
        assert self.table.metadata_location is not None
        return self.table.metadata_location

    @property
    def has_files(self) -> bool:
        return bool(self.files or self.removals)

    @property
    def is_kept(self) -> bool:
        return self.is_held and self.has_files

    def with_that_of(self, other: Goal) -> Goal:
        """Both of two."""
        later = self if self.table.version >= other.table.version else other
        return msgspec.structs.replace(
            later,
            is_current=self.is_current and other.is_current,
            files=self.files | other.files,
            removals=self.removals | other.removals,
        )


class NewSnapshot(msgspec.Struct, frozen=True):
    """A snapshot of a commit, and what it changes."""

    snapshot: Document
    added: list[RegisteredFile] = []
    removed: list[RetiredFile] = []
    superseded: list[str] = []  # manifests that the snapshot before lists and this one does not
    first_row_ids: dict[str, int] = {}  # by path of the added files, in format version 3


class Made(msgspec.Struct, frozen=True):
    """What has been written and is now to be committed: one metadata file, with no new snapshot, one, or several."""

    metadata_location: str
    document: Document
    new: list[NewSnapshot]  # oldest first
    rejected: list[tuple[RegisteredFile, str]]
    superseded: list[tuple[str, str]]  # (kind, location) of objects that the new metadata does not need
    trimmed: list[Document]  # snapshots that have left the metadata file


class Conflict(Exception):
    """The table moved while the flush was made; nothing was committed."""


class Held(Conflict):
    """Somebody has taken a hold of the table since."""


class NotOurTurn(Conflict):
    """Others lost races before, and have the turn now."""


def hold_name(table: Table) -> str:
    return f"hold:{table.table_uuid}"


def hold(
    registry: Registry, name: Which, seconds: float = 60.0, wait: float = 0.0
) -> AbstractContextManager[leases.Lease]:
    """Keep a table's pending files out of snapshots for a block; renewed in the background for as long as it runs.

    For a job of another engine that must not see its table move on, such as a long MERGE. Meanwhile appends go on, while loads
    of the table that find something pending wait, and at last are answered 503. A flush that commits at the same time is over
    before the hold begins: both lock the table's row.

    Raises:
        TableNotFound, InvalidName.
        LeaseHeld: somebody else holds them still after `wait` seconds.
        InvalidInput: `seconds` is no length of time above 0, or thousands of years.
    """
    table = table_of(registry, name)
    return leases.held(registry, hold_name(table), seconds=seconds, wait=wait, locked=[table.table_id])


def keep_name(table: Table) -> str:
    return f"keep:{table.table_uuid}"


def keep(registry: Registry, table: Table, *, seconds: float) -> AbstractContextManager[leases.Lease]:
    """Keep the files of a table's snapshot in the table for a block: who replaces or retires some waits. Appends go on.

    Raises:
        LeaseHeld: somebody else keeps them.
    """
    return leases.held(registry, keep_name(table), seconds=seconds, locked=[table.table_id])


def goal(registry: Registry, table_id: int, *, with_files: bool = True) -> Goal:
    """What is pending now; with `with_files` false, metadata versions alone. Raises TableNotFound: it has been dropped."""
    with registry.database.read() as connection:
        table = _live(connection, table_id)
        return Goal(
            table=table,
            is_current=table.iceberg_version == table.version and table.metadata_location is not None,
            is_held=leases.is_held(connection, hold_name(table)),
            files=frozenset(files.pending_ids(connection, table_id) if with_files else ()),
            removals=frozenset(retired.removal_ids_pending(connection, table_id) if with_files else ()),
        )


def is_reached(registry: Registry, goal: Goal, now: Pending) -> bool:
    """Whether all that was pending then has been committed since.

    A file that left while it was pending never was: its rows may be in another one that is pending still, as a compaction or a
    replacement of its partition leaves them, and the metadata as it is would be older than what was asked for.
    """
    table = now.table
    if table.metadata_location is None or table.iceberg_version < goal.table.version:
        return False
    if now.is_empty:
        return True
    if any(file.file_id in goal.files for file in now.files):
        return False
    with registry.database.read() as connection:
        done = files.count_settled(connection, table.table_id, goal.files)
        removed = retired.count_removed(connection, goal.removals)
    return done == len(goal.files) and removed == len(goal.removals)


def _live(connection: sa.Connection, table_id: int) -> Table:
    table = tables.by_id(connection, table_id)
    if table is None or table.dropped_at is not None:
        raise TableNotFound(f"Table does not exist: table {table_id} was dropped")
    return table


def pending(registry: Registry, table_id: int, *, with_files: bool = True) -> Pending:
    """All of a table that is to be in its metadata, as of one moment.

    Raises TableNotFound: the table has been dropped.
    """
    with registry.database.read() as connection:
        table = _live(connection, table_id)
        is_current = table.iceberg_version == table.version and table.metadata_location is not None
        return Pending(
            table=table,
            now=dialect.now(connection),
            is_held=leases.is_held(connection, hold_name(table)),
            versions=[]
            if is_current
            else registry.metadata_versions(connection, table_id, table.version, table.iceberg_version),
            files=files.pending(connection, table_id) if with_files else [],
            removals=retired.removals_pending(connection, table_id) if with_files else [],
        )


@retried
def commit(
    registry: Registry,
    table: Table,
    intent: Intent,
    made: Made,
    trigger: str,
    also: Also | None = None,
    hold: leases.Lease | None = None,
    turn: Turn | None = None,
) -> None:
    """Make a flush the table's current metadata: one short transaction, or nothing.

    Args:
        also: what else belongs to the commit; it may raise Conflict.
        hold: the lease of whoever holds the table and commits this.
        turn: with it nobody else commits. Pending files that have been replaced or retired meanwhile are committed as they
            were, and leave with the next snapshot: else who replaces files without a pause would keep all others waiting.

    Raises:
        Conflict: the intent is gone, the metadata is no longer what the flush was built on, a file has left meanwhile, or it
            is another's turn.
        Held: somebody else holds the table now.
        LeaseLost: `hold` ran out.
    """
    with registry.database.transaction() as connection:
        lock_order.tables(connection, [table.table_id])
        now = dialect.now(connection)
        document = made.document
        if not intents.take(connection, intent.intent_id):
            raise Conflict(f"the intent {intent.intent_id} is gone")
        if hold is not None:
            leases.check(connection, hold)
        elif (made.new or made.trimmed) and leases.is_held(connection, hold_name(table)):
            raise Held("the table is held since")
        if turns.first(connection, turns.queue_of(table)) not in (None, turn and turn.name):
            raise NotOurTurn("others have lost races before")
        values = {
            "metadata_location": made.metadata_location,
            "iceberg_version": table.version,
            "current_snapshot_id": document.get("current-snapshot-id"),
        }
        if not tables.swap_metadata(connection, table.table_id, table.metadata_location, values):
            raise Conflict("another commit was quicker")
        for new in made.new:
            _commit_snapshot(connection, table, new, made.metadata_location, trigger, now, is_alone=turn is not None)
        if also is not None:
            also(connection, now)
        _set_aside(connection, registry, table, made.rejected, now)
        _supersede(connection, registry, table, made, now)
    if added := [file for new in made.new for file in new.added]:
        pages.make_if_possible(registry, table.table_id, added)


def _commit_snapshot(
    connection: sa.Connection,
    table: Table,
    new: NewSnapshot,
    metadata_location: str,
    trigger: str,
    now: datetime,
    *,
    is_alone: bool,
) -> None:
    snapshot = new.snapshot
    snapshot_id, sequence = snapshot["snapshot-id"], snapshot["sequence-number"]
    if new.added and _mark_committed(connection, table, new, snapshot_id, sequence) != len(new.added):
        if not is_alone:
            raise Conflict("a pending file has left meanwhile")
        _mark_left(connection, table, new, snapshot_id, sequence)
    gone = [file.retired_id for file in new.removed]
    if gone and retired.mark_removed(connection, gone, snapshot_id, sequence) != len(gone):
        raise Conflict("a removal was committed meanwhile")
    row = TableSnapshot(
        table_id=table.table_id,
        snapshot_id=snapshot_id,
        parent_snapshot_id=snapshot.get("parent-snapshot-id"),
        sequence_number=sequence,
        timestamp_ms=snapshot["timestamp-ms"],
        operation=snapshot["summary"]["operation"],
        summary=snapshot["summary"],
        manifest_list=snapshot["manifest-list"],
        schema_id=snapshot["schema-id"],
        metadata_location=metadata_location,
        trigger=trigger,
        created_at=now,
    )
    snapshots.insert(connection, row)


def _mark_left(connection: sa.Connection, table: Table, new: NewSnapshot, snapshot_id: int, sequence: int) -> None:
    """Files that were replaced or retired while the snapshot was made: it has them, and the next one takes them out.

    What a compaction took away is no such file: its rows are in the file that took its place, and would be there twice.

    Raises Conflict.
    """
    there = {
        file.file_id
        for file in files.by_ids(connection, table.table_id, [file.file_id for file in new.added])
        if file.snapshot_id == snapshot_id
    }
    left = [file.file_path for file in new.added if file.file_id not in there]
    rows = [
        row
        for row in retired.by_paths(connection, left)
        if row.table_id == table.table_id
        and row.snapshot_id is None
        and row.ended_at is None
        and row.record is not None
    ]
    if len(rows) != len(left) or any(row.compacted_by is not None for row in rows):
        raise Conflict("a pending file has left meanwhile")
    for row in rows:
        ids = {"snapshot_id": snapshot_id, "sequence_number": sequence}
        first_row_id = new.first_row_ids.get(row.file_path)
        record = {**(row.record or {}), **ids, "first_row_id": first_row_id}
        retired.mark_listed(connection, row.retired_id, {**ids, "record": record})


def _mark_committed(connection: sa.Connection, table: Table, new: NewSnapshot, snapshot_id: int, sequence: int) -> int:
    if new.first_row_ids:
        by_file = {file.file_id: new.first_row_ids[file.file_path] for file in new.added}
        return files.mark_committed_with_row_ids(connection, table.table_id, by_file, snapshot_id, sequence)
    ids = [file.file_id for file in new.added]
    return files.mark_committed(connection, table.table_id, ids, snapshot_id, sequence)


def _set_aside(
    connection: sa.Connection,
    registry: Registry,
    table: Table,
    rejected: Sequence[tuple[RegisteredFile, str]],
    now: datetime,
) -> None:
    if not rejected:
        return
    for file, reason in rejected:
        if files.mark_set_aside(connection, table.table_id, file.file_id, reason) != 1:
            raise Conflict("a pending file has left meanwhile")
    current = tables.by_id(connection, table.table_id)
    assert current is not None
    schema = metadata_in(connection, registry, current).schema
    counters.remove(connection, table.table_id, schema, [file for file, _ in rejected], now)


def _supersede(connection: sa.Connection, registry: Registry, table: Table, made: Made, now: datetime) -> None:
    """Objects that the new metadata does not need go to quarantine; older snapshots may still need the manifests."""
    expires_at = registry.quarantine_ends(now, metadata=True)
    if made.trimmed:
        _keep_readable(connection, registry, table, made.trimmed, expires_at)
        snapshots.mark_expired(connection, table.table_id, now, [each["snapshot-id"] for each in made.trimmed])
    objects = [{"kind": kind, "file_path": path, "removed_sequence": None} for kind, path in made.superseded]
    objects += [
        {"kind": "manifest", "file_path": path, "removed_sequence": new.snapshot["sequence-number"]}
        for new in made.new
        for path in new.superseded
    ]
    retired.insert(
        connection, table.table_id, objects, kind="metadata", reason="superseded", now=now, expires_at=expires_at
    )


def _keep_readable(
    connection: sa.Connection, registry: Registry, table: Table, expired: Sequence[Document], until: datetime
) -> None:
    """Whoever reads a snapshot that expires now can read on: what only it reached is kept as long as its manifest list.

    A file that a snapshot reaches was retired after it, so only old snapshots reach files whose own time is nearly over.
    """
    oldest = min(snapshot["timestamp-ms"] for snapshot in expired) / 1000
    if registry.quarantine_ends(datetime.fromtimestamp(oldest, UTC)) < until:
        retired.keep_until(connection, table.table_id, until)


# Looking ---------------------------------------------------------------------------------------------------------------
def list_files(registry: Registry, name: Which, *, set_aside: bool = False) -> list[RegisteredFile]:
    """The live files by id; with `set_aside`, those that could not become part of a snapshot. Raises TableNotFound, InvalidName."""
    table = table_of(registry, name)
    with registry.database.read() as connection:
        if set_aside:
            return files.set_aside(connection, table.table_id)
        return list(files.live_in_pages(connection, table.table_id, FILES_AT_ONCE))


def count_pending(registry: Registry, table: Table) -> int:
    with registry.database.read() as connection:
        return files.count_pending(connection, table.table_id)


def list_snapshots(registry: Registry, name: Which, *, expired: bool = False) -> list[TableSnapshot]:
    """The retained snapshots, oldest first; with `expired`, those too that have left the metadata file. Raises TableNotFound, InvalidName."""
    table = table_of(registry, name)
    with registry.database.read() as connection:
        return (snapshots.of_table if expired else snapshots.retained)(connection, table.table_id)


def load_snapshot(registry: Registry, table: Table, snapshot_id: int) -> Snapshot:
    """A snapshot by its id, an expired one too. Raises SnapshotNotFound."""
    with registry.database.read() as connection:
        found = snapshots.load(connection, table.table_id, snapshot_id)
    if found is None:
        raise SnapshotNotFound(
            f"{table.identifier} has no snapshot {snapshot_id}; `lakeward snapshots list {table.identifier}` shows what it has"
        )
    return Snapshot(
        snapshot_id=found.snapshot_id,
        timestamp_ms=found.timestamp_ms,
        manifest_list=found.manifest_list,
        summary=found.summary,
        schema_id=found.schema_id,
    )
