"""Repair: a table whose Iceberg metadata is gone gets it anew from the registry, which holds all that it needs.

So it is after a registry was restored from a copy: what the table's metadata was then may have left quarantine since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec
import sqlalchemy as sa

from lakeward.db.types import epoch_ms
from lakeward.errors import InvalidInput, ObjectNotFound, StorageError
from lakeward.iceberg import manifest_lists, metadata
from lakeward.iceberg.rebuilding import rebuild
from lakeward.logs import log
from lakeward.registry import Registry, intents
from lakeward.registry.turns import Turn
from lakeward.snapshots import snapshot_commit
from lakeward.snapshots.conflicts import committed
from lakeward.storage.engine import StorageEngine
from lakeward.storage.locations import metadata_prefix
from lakeward.tables import snapshots, whole
from lakeward.tables.records.files import Intent
from lakeward.tables.records.tables import Table
from lakeward.tables.snapshots import Made, NewSnapshot, Pending
from lakeward.tables.tables import Which, table_of
from lakeward.tables.whole import WholeTable

T = TypeVar("T")


class RepairResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a repair found and did; nothing was done where nothing is lost."""

    lost: list[str] = []  # metadata objects that are gone, or cannot be read
    metadata_location: str | None = None  # of what was written
    snapshot_id: int | None = None  # of the snapshot that has the table's files now
    files: int = 0
    rows: int = 0
    snapshots_expired: int = 0  # that went with the metadata


def repair(registry: Registry, name: Which) -> RepairResult:
    """Write a table's metadata, manifests and a snapshot anew, if some of them are gone.

    The snapshot has the files that were part of one; what is pending stays so until the next flush. Earlier snapshots, tags
    and branches were in the metadata: they are gone with it. Rows are not touched.

    Raises:
        InvalidInput: the table has files of deletes, of which the registry does not hold all.
        LeaseHeld: somebody holds the table.
        TableNotFound, MetadataConflict, StorageError.
    """
    table = table_of(registry, name)

    def attempt(_: int, turn: Turn | None) -> RepairResult:
        with snapshot_commit.metadata_lock(registry, table.table_id):
            state = snapshots.pending(registry, table.table_id)
            if state.is_held:
                raise snapshot_commit.held_too_long(table, 0)
            found = lost(registry.engine(table.location), state.table)
            if not found:
                return RepairResult()
            return _rebuilt(registry, state, found, turn)

    result = committed(registry, table, "repair it", attempt)
    if result.lost:
        log.warning("metadata_rebuilt", table=str(table.identifier), **msgspec.structs.asdict(result))
    return result


def lost(engine: StorageEngine, table: Table) -> list[str]:
    """The metadata objects of a table that its readers need and do not find: the metadata file, lists, manifests."""
    if table.metadata_location is None:
        return []
    missing: list[str] = []
    document = read_or_note(engine, table.metadata_location, metadata.decode, missing)
    seen: set[str] = set()
    for snapshot in (document or {}).get("snapshots", ()):
        for row in read_or_note(engine, snapshot["manifest-list"], manifest_lists.read_manifest_list, missing) or ():
            path = row["manifest_path"]
            if path not in seen:
                seen.add(path)
                if not engine.exists(path):
                    missing.append(path)
    return missing


def read_or_note(engine: StorageEngine, location: str, decode: Callable[[bytes], T], unreadable: list[str]) -> T | None:
    """What an object holds; none, and its location is noted, where it is gone or is not what it should be.

    Raises StorageError: the storage does not answer.
    """
    try:
        data = engine.read(location)
    except ObjectNotFound:
        unreadable.append(location)
        return None
    try:
        return decode(data)
    except (StorageError, ValueError, KeyError, TypeError, EOFError):
        unreadable.append(location)
        return None


def _rebuilt(registry: Registry, state: Pending, found: Sequence[str], turn: Turn | None) -> RepairResult:
    table = state.table
    there = [info.location for info in registry.engine(table.location).list(metadata_prefix(table.location))]
    rows = whole.read(
        registry, table
    )  # after the listing: what was under way then and has ended since is in it, or makes a conflict
    if any(file.content != 0 for file in rows.committed):
        raise InvalidInput(
            f"{table.identifier} has files of deletes, whose metadata cannot be made from the registry; restore the objects "
            f"below {table.location}/metadata/ from a copy of the warehouse"
        )
    with intents.declared(registry, table, "flush") as intent:
        made = _made(registry, state, rows, intent, there)

        def also(connection: sa.Connection, now: datetime) -> None:
            whole.expire_all(connection, rows, now)

        snapshots.commit(registry, table, intent, made, "manual", also, turn=turn)
    return RepairResult(
        lost=list(found),
        metadata_location=made.metadata_location,
        snapshot_id=made.new[-1].snapshot["snapshot-id"] if made.new else None,
        files=len(rows.committed),
        rows=sum(file.row_count for file in rows.committed),
        snapshots_expired=len(rows.retained),
    )


def _made(registry: Registry, state: Pending, rows: WholeTable, intent: Intent, there: Sequence[str]) -> Made:
    """`there`: what was below the table's metadata before anything was written."""
    built = rebuild(
        state.table,
        [snapshot_commit.for_engines(version) for version in rows.versions],
        rows.committed,
        write=registry.engine(state.table.location).write,
        prefix=intent.prefix,
        now_ms=epoch_ms(state.now),
        last_sequence=rows.last_sequence,
        next_row_id=rows.next_row_id,
    )
    in_quarantine = {each.file_path for each in rows.quarantine}
    # Which objects the lost ones named nobody knows any more: all that nobody is writing now is superseded.
    superseded = [
        (_kind(location), location)
        for location in there
        if location not in in_quarantine and not location.startswith(rows.prefixes)
    ]
    # What had left the table and was still listed is listed no more.
    new = [] if built.snapshot is None else [NewSnapshot(snapshot=built.snapshot, removed=state.removals)]
    return snapshot_commit.write_metadata(registry, state, intent, built.document, superseded, new)


def _kind(location: str) -> str:
    name = location.rpartition("/")[2]
    if name.endswith(".metadata.json"):
        return "metadata"
    return "manifest_list" if name.startswith("snap-") else "manifest"
