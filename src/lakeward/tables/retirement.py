"""Files leave a table: to quarantine, where they wait until nobody can need them, and then for good."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa

from lakeward.db import dialect, lock_order
from lakeward.db.retry import retried
from lakeward.errors import InvalidInput, LakewardError, LeaseHeld
from lakeward.iceberg.partitions import partition_fields, partition_from_path, partition_value
from lakeward.log.records import Topic
from lakeward.logs import log
from lakeward.registry import leases
from lakeward.registry.handle import Registry
from lakeward.registry.sql import orphan_sweeps
from lakeward.retry import tried
from lakeward.storage.engine import ObjectInfo
from lakeward.tables import counters
from lakeward.tables.records.files import PartitionValues, RegisteredFile, RetiredFile, partition_key
from lakeward.tables.records.tables import Document, Table
from lakeward.tables.snapshots import keep_name
from lakeward.tables.sql import files, footers, retired, snapshots, stats, tables
from lakeward.tables.tables import Which, metadata_in, table_of

T = TypeVar("T")

BATCH = 1_000  # files whose quarantine ends in one transaction
LEASE_SECONDS = 30.0
HASTENED_AFTER_SECONDS = 600.0  # longer than a reader takes from a table's metadata to its manifests


class Removed(msgspec.Struct, frozen=True):
    """What took files out of the current snapshot, and the first sequence number whose snapshots lack them."""

    snapshot_id: int
    sequence: int


def retire(
    connection: sa.Connection,
    registry: Registry,
    table: Table,
    leaving: Sequence[RegisteredFile],
    reason: str,
    now: datetime,
    removed: Removed | None = None,
) -> int:
    """Take files out of a table, in the caller's transaction, which holds the table's lock. Their footers stay with them.

    Without `removed`, the removal is pending: the next flush takes those out that are part of a snapshot.

    Returns how many left; one that had left already is passed over.

    Raises:
        LeaseHeld: a rollback keeps the files of the current snapshot for a moment.
    """
    if not leaving:
        return 0
    present = {file.file_id for file in files.by_ids(connection, table.table_id, [f.file_id for f in leaving])}
    gone = [file for file in leaving if file.file_id in present]
    return retire_present(connection, registry, table, gone, reason, now, removed)


def retire_present(
    connection: sa.Connection,
    registry: Registry,
    table: Table,
    gone: Sequence[RegisteredFile],
    reason: str,
    now: datetime,
    removed: Removed | None = None,
) -> int:
    """`retire`, for files that the same transaction has just read."""
    if not gone:
        return 0
    is_pending = removed is None and any(file.snapshot_id is not None for file in gone)
    if is_pending and leases.is_held(connection, keep_name(table)):
        raise LeaseHeld(
            f"{table.identifier} goes back to an earlier snapshot; replace or retire files when that is over"
        )
    files.delete(connection, table.table_id, [file.file_id for file in gone])
    expires_at = registry.quarantine_ends(now)
    by = {} if removed is None else {"removed_by": removed.snapshot_id, "removed_sequence": removed.sequence}
    objects = [{**_as_left(file), **by} for file in gone]
    retired.insert(connection, table.table_id, objects, kind="data", reason=reason, now=now, expires_at=expires_at)
    counted = [file for file in gone if file.set_aside_reason is None]
    counters.remove(connection, table.table_id, metadata_in(connection, registry, table).schema, counted, now)
    return len(gone)


def _as_left(file: RegisteredFile) -> Mapping[str, Any]:
    known = {name: getattr(file, name) for name in ("file_path", "file_size", "sequence_number", "snapshot_id")}
    return {**known, "record": msgspec.to_builtins(file, builtin_types=(datetime,))}


def once_let_go(action: Callable[[], T]) -> T:
    """Do what takes files out of a table, as soon as no rollback keeps them. Raises LeaseHeld: one took too long."""
    return tried(action, LeaseHeld, leases.POLL, seconds=LEASE_SECONDS)


# Partitions ---------------------------------------------------------------------------------------------------------------
def partition_values(schema: Document, spec: Document, named: Mapping[str, Any] | str) -> PartitionValues:
    """{'month': 1} or 'month=1' -> {1000: 1}.

    A dict has a value for each partition field, the column's value before the transform; a text is the partition as its files
    show it.

    Raises:
        InvalidInput: a field is missing or unknown, or a value is none of its type.
    """
    fields = partition_fields(schema, spec)
    names = [name for _, name, _, _, _ in fields]
    if not fields:
        raise InvalidInput("the table is not partitioned; append to it, or retire its files")
    if isinstance(named, str):
        return partition_from_path(schema, spec, named)
    if set(named) != set(names):
        raise InvalidInput(f"partition {dict(named)!r} must name exactly {', '.join(names)}")
    return {
        field_id: None if named[name] is None else partition_value(transform, source, named[name])
        for field_id, name, transform, source, _ in fields
    }


def partition_lease(table: Table, spec_id: int, key: str) -> str:
    return f"partition:{table.table_uuid}:{spec_id}:{key}"


def partition_held(registry: Registry, table: Table, spec_id: int, key: str) -> AbstractContextManager[leases.Lease]:
    """The lease of one partition, for a block that replaces it. Raises LeaseHeld: another one took too long."""
    return leases.held(registry, partition_lease(table, spec_id, key), seconds=LEASE_SECONDS, wait=LEASE_SECONDS)


def retire_partition(
    connection: sa.Connection, registry: Registry, table: Table, spec_id: int, key: str, now: datetime
) -> int:
    """Take all that one partition has out of the table, in the caller's transaction, which holds the table's lock; how many
    rows left."""
    old = files.in_partition(connection, table.table_id, spec_id, key)
    retire(connection, registry, table, old, "partition replaced", now)
    return sum(file.row_count for file in old if file.content == 0)


def retire_partitions(registry: Registry, name: Which, partitions: Iterable[Mapping[str, Any] | str]) -> int:
    """Take whole partitions (of the current spec) out of a table, in one transaction; how many files were. They wait in
    quarantine.

    Each is a dict with a value of the column behind each partition field, {'at_month': date(2026, 1, 31)}, or the text that
    its files show: 'at_month=2026-01'.

    Raises:
        InvalidInput: a partition is none of the table's.
        LeaseHeld: a rollback of the table took too long.
        TableNotFound, InvalidName.
    """
    table = table_of(registry, name)
    named: list[Mapping[str, Any] | str] = [partitions] if isinstance(partitions, str) else list(partitions)

    def retire_named(connection: sa.Connection) -> int:
        metadata = metadata_in(connection, registry, table)
        keys = [partition_key(partition_values(metadata.schema, metadata.partition_by, each)) for each in named]
        leaving = [
            file
            for key in dict.fromkeys(keys)
            for file in files.in_partition(connection, table.table_id, metadata.spec_id, key)
        ]
        return retire(connection, registry, table, leaving, "partition retired", dialect.now(connection))

    return _locked(registry, table, retire_named)


def retire_expired_partitions(registry: Registry, name: Which, age: timedelta) -> int:
    """Take out the partitions whose newest file was registered longer ago than `age`; how many files left.

    Raises:
        TableNotFound, InvalidName.
        LeaseHeld: a rollback of the table took too long.
    """
    table = table_of(registry, name)

    def retire_old(connection: sa.Connection) -> int:
        now = dialect.now(connection)
        leaving: list[RegisteredFile] = []
        for spec_id, key in dict.fromkeys(
            (s.spec_id, s.partition_key) for s in stats.of_table(connection, table.table_id)
        ):
            members = files.in_partition(connection, table.table_id, spec_id, key)
            if members and max(file.registered_at for file in members) < now - age:
                leaving += members
        return retire(connection, registry, table, leaving, f"partition older than {age}", now)

    return _locked(registry, table, retire_old)


def _locked(registry: Registry, table: Table, action: Callable[[sa.Connection], int]) -> int:
    @retried
    def transaction() -> int:
        with registry.database.transaction() as connection:
            lock_order.tables(connection, [table.table_id])
            return action(connection)

    return once_let_go(transaction)


# Files that were set aside ------------------------------------------------------------------------------------------------
@retried
def retry_set_aside(registry: Registry, name: Which) -> int:
    """Make the files pending again that could not become part of a snapshot; how many were. Those that still cannot are set
    aside anew.

    Raises TableNotFound, InvalidName.
    """
    table = table_of(registry, name)
    with registry.database.transaction() as connection:
        lock_order.tables(connection, [table.table_id])
        back = files.set_aside(connection, table.table_id)
        if back:
            files.clear_set_aside(connection, table.table_id)
            schema = metadata_in(connection, registry, table).schema
            counters.add(connection, table.table_id, schema, back, dialect.now(connection))
        return len(back)


@retried
def retire_set_aside(registry: Registry, name: Which) -> int:
    """Send the files to quarantine that could not become part of a snapshot; how many were.

    Raises TableNotFound, InvalidName.
    """
    table = table_of(registry, name)
    with registry.database.transaction() as connection:
        lock_order.tables(connection, [table.table_id])
        now = dialect.now(connection)
        return retire(connection, registry, table, files.set_aside(connection, table.table_id), "set aside", now)


# What nobody names --------------------------------------------------------------------------------------------------------
def named(registry: Registry, table: Table, locations: Collection[str]) -> tuple[set[str], Table | None]:
    """(those of some locations that a row of the registry names, the table as it is now; None if it is gone)."""
    with registry.database.read() as connection:
        owned = orphan_sweeps.owned(connection, locations)
        made = snapshots.of_table(connection, table.table_id)
        current = tables.by_id(connection, table.table_id)
    return owned | {path for each in made for path in (each.manifest_list, each.metadata_location)}, current


@retried
def retire_strays(registry: Registry, table: Table, found: list[ObjectInfo]) -> list[ObjectInfo]:
    """Send to quarantine what the registry does not name still; what was sent."""
    with registry.database.transaction() as connection:
        lock_order.tables(connection, [table.table_id])
        current = tables.by_id(connection, table.table_id)
        if current is None or current.dropped_at is not None:
            return []
        known = orphan_sweeps.owned(connection, [info.location for info in found])  # of another clean-up, meanwhile
        now = dialect.now(connection)
        taken = [info for info in found if info.location not in known]
        retired.insert(
            connection,
            table.table_id,
            [{"file_path": info.location, "file_size": info.size} for info in taken],
            kind="stray",
            reason="nothing names it: left by an engine whose commit failed",
            now=now,
            expires_at=registry.quarantine_ends(now),
        )
        return taken


# The end of the quarantine ------------------------------------------------------------------------------------------------
class Ended(msgspec.Struct, frozen=True):
    """What the end of quarantine took. Sizes in bytes."""

    files: int = 0
    footers: int = 0
    bytes: int = 0
    failed: list[str] = []  # locations that could not be deleted; they are tried again at the next call


def end_metadata_quarantine(registry: Registry) -> Ended:
    """Delete superseded metadata whose time has passed, and of tables that have much of it what is older than ten minutes.

    What a table has superseded last stays for the setting's time, up to `metadata_quarantine_objects`: so busy tables pile up
    no more than that and what ten minutes bring.
    """
    _hasten(registry)
    return end_quarantine(registry, kinds=retired.METADATA_KINDS)


@retried
def _hasten(registry: Registry) -> None:
    with registry.database.transaction() as connection:
        now = dialect.now(connection)
        before = now - timedelta(seconds=HASTENED_AFTER_SECONDS)
        longest = registry.quarantine_ends(now, metadata=True)
        retired.hasten(connection, registry.below, registry.settings.metadata_quarantine_objects, before, now, longest)


def end_quarantine(registry: Registry, table_id: int | None = None, kinds: Sequence[str] = ()) -> Ended:
    """Delete the files of this handle's warehouse whose time has passed and that no retained snapshot reaches.

    `kinds`: of some kinds alone.

    One transaction marks a batch and deletes its footers, then the objects go, then the rows: a death in between leaves
    marked rows, which the next call takes up.
    """
    total = Ended()
    failed: set[int] = set()
    while True:
        batch, gone = _end_batch(registry, failed, table_id, kinds)
        if not batch:
            return total
        deleted, kept = _delete_objects(registry, batch)
        failed |= {file.retired_id for file in batch if file.file_path in kept}
        _delete_rows(registry, deleted)
        total = Ended(
            files=total.files + len(deleted),
            footers=total.footers + gone,
            bytes=total.bytes + sum(file.file_size for file in deleted),
            failed=[*total.failed, *sorted(kept)],
        )


def quarantine_over(registry: Registry) -> Ended:
    """What `end_quarantine` would take now; footers are not counted."""
    with registry.database.read() as connection:
        count, size = retired.ended_size(connection, registry.below, dialect.now(connection))
    return Ended(files=count, bytes=size)


def has_retired(registry: Registry, owner: Table | Topic) -> bool:
    """Whether some files of a table or a topic are in quarantine still."""
    with registry.database.read() as connection:
        return retired.any_of(connection, owner)


@retried
def _end_batch(
    registry: Registry, failed: Collection[int], table_id: int | None, kinds: Sequence[str]
) -> tuple[list[RetiredFile], int]:
    """(files whose quarantine ends now, how many footers went with them)."""
    with registry.database.transaction() as connection:
        now = dialect.now(connection)
        found = retired.ended(connection, registry.below, now, BATCH + len(failed), table_id, kinds)
        batch = [file for file in found if file.retired_id not in failed]
        if not batch:
            return [], 0
        retired.mark_ended(connection, [file.retired_id for file in batch], now)
        return batch, footers.delete(connection, [file.file_path for file in batch if file.kind == "data"])


@retried
def _delete_rows(registry: Registry, files: Sequence[RetiredFile]) -> None:
    with registry.database.transaction() as connection:
        retired.delete_ended(connection, [file.retired_id for file in files])


def _delete_objects(registry: Registry, batch: Sequence[RetiredFile]) -> tuple[list[RetiredFile], set[str]]:
    """(files that are gone, locations that are not)."""
    paths = [file.file_path for file in batch]
    try:
        failures = registry.engine(registry.below).delete(paths, below=registry.warehouse.location)
        kept = {failure.location for failure in failures}
    except LakewardError as error:  # nothing of it can be reached now
        log.warning("quarantine_not_ended", first=paths[0], files=len(paths), error=str(error), code=error.code)
        kept = set(paths)
    return [file for file in batch if file.file_path not in kept], kept
