"""Rollback: a table goes back to one of its snapshots, and the registry's files become exactly that snapshot's.

What is pending becomes a snapshot first: nothing that was acknowledged is lost, and the table can go forward to it again.
The table is held for all of it. Appends do not wait for that; what they register meanwhile stays pending, and comes on top of
what the table goes back to. What replaces or retires files waits from the second try on. So a writer that never rests cannot
keep a table from going back.
"""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime

import msgspec
import sqlalchemy as sa

from lakeward.db.types import epoch_ms
from lakeward.iceberg import metadata, refs
from lakeward.iceberg.commit import Read
from lakeward.iceberg.manifests import DATA
from lakeward.logs import log
from lakeward.registry import Registry
from lakeward.registry.turns import Turn
from lakeward.snapshots import refs as names
from lakeward.snapshots.metadata_change import Change, change
from lakeward.snapshots.metadata_objects import reader
from lakeward.snapshots.snapshot_commit import Hold, flush
from lakeward.snapshots.time_travel import data_files, manifest_rows, no_snapshot
from lakeward.tables import rollback, snapshots
from lakeward.tables.records.tables import Document, Table
from lakeward.tables.retirement import Removed
from lakeward.tables.rollback import Differences
from lakeward.tables.tables import Which, table_of

HOLD_SECONDS = 5.0  # renewed meanwhile; queries wait for so long at most for a rollback that has died


class RollbackResult(msgspec.Struct, frozen=True, kw_only=True):
    snapshot_id: int  # the current one now
    previous_snapshot_id: int  # the one that was current, with all that was pending in it
    files_back: int = 0  # that came back out of quarantine
    files_retired: int = 0
    files_on_top: int = 0  # that were registered while it ran: they are pending, and in neither of the two snapshots


def rollback_table(registry: Registry, name: Which, to: int | str) -> RollbackResult:
    """Make a retained snapshot (its id, or the name of a branch or tag) the current one; forward is possible too.

    The files of the table become that snapshot's: those added since go to quarantine, where the snapshots that still list
    them keep them, and those that had left come back. Counters and footers follow. Schema, partitioning and properties
    stay as they are, and so do batch keys: a batch that was applied is not applied again. What is appended while it runs
    stays in the table, on top of that snapshot.

    Raises:
        SnapshotNotFound: there is no such snapshot, or it has expired.
        RefNotFound.
        LeaseHeld: somebody holds the table, such as another rollback, and did not let go in `hold_timeout_seconds`.
        LeaseLost: the registry was not reached for so long that the hold ran out; nothing was changed.
        MetadataConflict: in all tries others changed the table's metadata.
        AuditFailed: the registry's rows are not what the snapshots say.
        FileRefused: the table has changed since so that the snapshot's files could not be read in it.
        StorageError, TableNotFound.
    """
    table = table_of(registry, name)
    wait = registry.settings.hold_timeout_seconds
    with snapshots.hold(registry, table, seconds=HOLD_SECONDS, wait=wait) as lease, ExitStack() as stack:
        snapshot_id = to if isinstance(to, int) else names.snapshot_of(registry, table, to)
        return _roll_back(registry, table, snapshot_id, Hold(lease, keep=snapshot_id), stack)


def _roll_back(registry: Registry, table: Table, snapshot_id: int, hold: Hold, stack: ExitStack) -> RollbackResult:
    is_kept = False

    def flush_first(turn: Turn | None = None) -> None:
        flush(registry, table.table_id, "manual", hold=hold, turn=turn)

    def flush_again(turn: Turn | None) -> None:
        """What was replaced or retired meanwhile goes into the snapshot before; from now on that waits."""
        nonlocal is_kept
        if not is_kept:
            stack.enter_context(snapshots.keep(registry, table, seconds=HOLD_SECONDS))
            is_kept = True
        flush_first(turn)

    flush_first()
    read = reader(registry, table)
    on_top = 0
    result = RollbackResult(snapshot_id=snapshot_id, previous_snapshot_id=snapshot_id)

    def edit(found: Table, document: Document, now: datetime) -> Change | None:
        nonlocal result
        target = refs.snapshots_by_id(document).get(snapshot_id)
        if target is None:
            raise no_snapshot(found, snapshot_id)
        if found.current_snapshot_id == snapshot_id:
            result = RollbackResult(snapshot_id=snapshot_id, previous_snapshot_id=snapshot_id)
            return None
        current = metadata.current_snapshot(document)
        assert current is not None
        differences = _differences(read, current, target)
        removed = Removed(snapshot_id, document["last-sequence-number"] + 1)
        result = RollbackResult(
            snapshot_id=snapshot_id,
            previous_snapshot_id=current["snapshot-id"],
            files_back=len(differences.coming),
            files_retired=len(differences.leaving),
        )

        def also(connection: sa.Connection, now: datetime) -> None:
            nonlocal on_top
            on_top = rollback.apply(connection, registry, found, differences, removed, now)

        return Change(metadata.with_main(document, snapshot_id, epoch_ms(now)), also)

    if change(registry, table.table_id, edit, before_retry=flush_again, hold=hold):
        result = msgspec.structs.replace(result, files_on_top=on_top)
        log.debug("rolled_back", table=str(table.identifier), **msgspec.structs.asdict(result))
    return result


def _differences(read: Read, current: Document, target: Document) -> Differences:
    """Only manifests that the two do not share are read."""
    old = {row["manifest_path"]: row for row in manifest_rows(read, current)}
    new = {row["manifest_path"]: row for row in manifest_rows(read, target)}
    there = data_files(read, [row for path, row in old.items() if path not in new])
    then = data_files(read, [row for path, row in new.items() if path not in old])
    data = [row for row in new.values() if row["content"] == DATA]
    return Differences(
        leaving=sorted(there - then),
        coming=sorted(then - there),
        manifests_leaving=[path for path in old if path not in new],
        manifests_there=list(new),
        data_files=sum(row["added_files_count"] + row["existing_files_count"] for row in data),
    )
