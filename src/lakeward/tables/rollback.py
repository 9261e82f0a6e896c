"""The registry's half of a rollback: files come back out of quarantine, and others go there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
import sqlalchemy as sa

from lakeward.errors import AuditFailed
from lakeward.registry.handle import Registry
from lakeward.tables import counters, judging
from lakeward.tables.records.files import RetiredFile
from lakeward.tables.records.tables import Table
from lakeward.tables.retirement import Removed, retire
from lakeward.tables.snapshots import Conflict
from lakeward.tables.sql import files, pages, retired
from lakeward.tables.tables import metadata_in


class Differences(msgspec.Struct, frozen=True, kw_only=True):
    """What a table's current snapshot and the one that it goes back to do not share: locations."""

    leaving: list[str]  # data files
    coming: list[str]
    manifests_leaving: list[str]
    manifests_there: list[str]  # all of the older snapshot: none of them may be in quarantine
    data_files: int  # of the older snapshot


def apply(
    connection: sa.Connection, registry: Registry, table: Table, found: Differences, removed: Removed, now: datetime
) -> int:
    """Make the registry's files those of the older snapshot, in the transaction that makes it the current one.

    The caller holds the table. Files that are pending stay so, and come on top. Not so where some have left meanwhile: what
    replaces a partition has left out files that the older snapshot has, and would come on top of them.

    Returns how many files are pending.

    Raises:
        Conflict: files have left since the last snapshot.
        FileRefused: the table's schema has changed since so that the older snapshot's files could not be read.
        AuditFailed: the registry's rows are not what the snapshots say; nothing is changed.
    """
    if retired.has_removals_pending(connection, table.table_id):
        raise Conflict("files have left since")
    leaving = [
        file
        for file in files.by_paths(connection, found.leaving)
        if file.table_id == table.table_id and file.snapshot_id is not None
    ]
    retire(connection, registry, table, leaving, "rolled back", now, removed)
    _revive(connection, registry, table, found.coming, now)
    _swap_manifests(connection, registry, table, found, removed, now)
    committed = files.count_committed(connection, table.table_id)
    if committed != found.data_files:
        raise AuditFailed(
            f"{table.identifier} would have {committed} files after the rollback, and snapshot {removed.snapshot_id} lists "
            f"{found.data_files}; nothing was changed: `lakeward audit {table.identifier}` shows what differs"
        )
    return files.count_pending(connection, table.table_id)


def _revive(connection: sa.Connection, registry: Registry, table: Table, paths: Sequence[str], now: datetime) -> None:
    back = [
        row for row in retired.by_paths(connection, paths) if row.table_id == table.table_id and row.ended_at is None
    ]
    if len(back) != len(paths):
        known = {row.file_path for row in back}
        lost = next(path for path in paths if path not in known)
        raise AuditFailed(
            f"{table.identifier} cannot go back: {len(paths) - len(back)} of the snapshot's files are neither live nor in "
            f"quarantine, such as {lost}; nothing was changed"
        )
    if not back:
        return
    coming = [row.as_registered() for row in back]
    judging.check_files(connection, registry, table, metadata_in(connection, registry, table), coming)
    _take_back(connection, table, back)
    files.insert(connection, [msgspec.structs.asdict(file) for file in coming])
    pages.delete_from(connection, table.table_id, min(file.file_id for file in coming))
    counters.add(connection, table.table_id, metadata_in(connection, registry, table).schema, coming, now)


def _take_back(connection: sa.Connection, table: Table, rows: Sequence[RetiredFile]) -> None:
    """Out of quarantine. Raises AuditFailed: a clean-up has deleted one of them meanwhile."""
    if retired.take_back(connection, [row.retired_id for row in rows]) != len(rows):
        raise AuditFailed(
            f"{table.identifier} cannot go back: the quarantine of files that the snapshot lists has ended, and they are "
            "deleted; nothing was changed: choose a later snapshot"
        )


def _swap_manifests(
    connection: sa.Connection, registry: Registry, table: Table, found: Differences, removed: Removed, now: datetime
) -> None:
    """Manifests of the older snapshot are needed for as long as the table is: those of the newer one only by old snapshots."""
    _take_back(connection, table, retired.by_paths(connection, found.manifests_there))
    there = {row.file_path for row in retired.by_paths(connection, found.manifests_leaving)}
    leaving = [path for path in found.manifests_leaving if path not in there]
    retired.insert(
        connection,
        table.table_id,
        [{"file_path": path, "removed_sequence": removed.sequence} for path in leaving],
        kind="manifest",
        reason="rolled back",
        now=now,
        expires_at=registry.quarantine_ends(now, metadata=True),
    )
