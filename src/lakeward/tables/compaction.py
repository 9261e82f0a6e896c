"""Compaction as the registry sees it: which files are small, and the transaction that swaps them for larger ones.

The rows of the table stay what they are. A swap of pending files changes nothing for Iceberg, which has not seen them; one of
committed files leaves removals and new files, which the next flush commits as a snapshot of its own, a 'replace', beside what else
it commits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Literal, TypeAlias

import msgspec
import sqlalchemy as sa

from lakeward.db.dialect import Clock
from lakeward.errors import DataLoss
from lakeward.ops.records.operations import SyncRunStatistics
from lakeward.ops.run_recorder import Recorder
from lakeward.registry import intents, leases
from lakeward.registry.handle import Registry
from lakeward.registry.intents import Overtaken
from lakeward.tables import registration, retirement
from lakeward.tables.records.files import COMPACTED, DataFile, Intent, RegisteredFile, RetiredFile, partition_key
from lakeward.tables.records.tables import Table, TableStats
from lakeward.tables.snapshots import Pending, hold_name
from lakeward.tables.sql import files, retired, stats

PartitionId = tuple[int, str]  # spec id, partition key
State = Literal["landing", "pending", "committed"]


class SmallFile(msgspec.Struct, frozen=True, kw_only=True):
    """What of a row of `table_files` a plan goes by: a table may have very many."""

    file_id: int
    file_path: str
    file_size: int
    file_type: str
    partition_key: str
    row_count: int
    spec_id: int
    snapshot_id: int | None
    intent_id: str | None


Old: TypeAlias = SmallFile | RegisteredFile


def state_of(file: Old) -> State:
    """Files of different states are never rewritten into one: a snapshot could not say then that it only replaces."""
    if file.file_type == "json":
        return "landing"
    return "pending" if file.snapshot_id is None else "committed"


# What could be compacted --------------------------------------------------------------------------------------------------
class Candidates(msgspec.Struct, frozen=True):
    """The files of one partition that are small, by file_id; those of JSON whatever their size. All of its files counted."""

    spec_id: int
    partition_key: str
    partition_path: str
    files: list[SmallFile]
    file_count: int
    total_size: int
    has_deletes: bool


def candidates(
    registry: Registry, table: Table, below: int, partitions: Collection[PartitionId] | None = None
) -> list[Candidates]:
    """The files with fewer bytes than `below`, of some partitions or of all; partitions with nothing to merge are left out.

    Left out too is what a compaction has made and no snapshot holds yet: it is no new data, though it is pending.
    """
    with registry.database.read() as connection:
        by_partition: dict[PartitionId, list[TableStats]] = {}
        for row in stats.of_table(connection, table.table_id):
            key = (row.spec_id, row.partition_key)
            if partitions is None or key in partitions:
                by_partition.setdefault(key, []).append(row)
        unseen = _intents_in(retired.removals_pending(connection, table.table_id))
        found = [_candidates(connection, table, key, rows, below, unseen) for key, rows in by_partition.items()]
    return [each for each in found if each is not None]


def _candidates(
    connection: sa.Connection,
    table: Table,
    key: PartitionId,
    rows: Sequence[TableStats],
    below: int,
    unseen: Collection[str],
) -> Candidates | None:
    has_landing = any(row.file_type == "json" for row in rows)
    count = sum(row.file_count for row in rows)
    if count < 2 and not has_landing:
        return None
    below_all = (1 << 62) if has_landing else below
    found = files.small_in_partition(connection, SmallFile, table.table_id, *key, below_all)
    small = [
        file for file in found if (file.file_type == "json" or file.file_size < below) and file.intent_id not in unseen
    ]
    if not small:
        return None
    return Candidates(
        spec_id=key[0],
        partition_key=key[1],
        partition_path=rows[0].partition_path,
        files=small,
        file_count=count,
        total_size=sum(row.total_size for row in rows),
        has_deletes=files.has_deletes(connection, table.table_id, *key),
    )


def are_live(registry: Registry, table_id: int, old: Sequence[Old]) -> bool:
    """Whether all of these files are still part of the table."""
    with registry.database.read() as connection:
        return len(files.by_ids(connection, table_id, [file.file_id for file in old])) == len(old)


def rows_of(registry: Registry, table_id: int, old: Sequence[Old]) -> list[RegisteredFile]:
    """The whole rows of some files, by file_id. Raises Overtaken: one has left the table."""
    with registry.database.read() as connection:
        found = files.by_ids(connection, table_id, [file.file_id for file in old])
    if len(found) != len(old):
        raise Overtaken("a file has left the table meanwhile")
    return sorted(found, key=lambda file: file.file_id)


def is_held(registry: Registry, table: Table) -> bool:
    """Whether somebody, such as another engine's long MERGE, must not see the table's committed files change."""
    with registry.database.read() as connection:
        return leases.is_held(connection, hold_name(table))


# The swap -----------------------------------------------------------------------------------------------------------------
def swap(
    registry: Registry,
    table: Table,
    intent: Intent,
    old: Sequence[Old],
    made: Sequence[DataFile],
    *,
    lease: leases.Lease | None = None,
    run: Recorder | None = None,
    outlived: bool = False,
) -> None:
    """Put the files of a compaction in the place of those that it has read: one transaction, or nothing.

    The new files count as registered when the newest of the old ones was, so that a partition grows no younger by it. The run
    `run` is counted for in the same transaction: rows, and bytes of the old files. `outlived` as for `intents.take`.

    Raises:
        Overtaken: an old file has left the table, is committed or set aside meanwhile, or got deletes; somebody holds the
            table.
        IntentLost: the intent's lease ran out and recovery has taken it.
        DataLoss: the new files have other numbers of rows than the old ones.
        LeaseLost: the lease's fence is no longer current.
        TableNotFound: the table was dropped.
        RegistryUnavailable: no answer; if it came from the commit and could not be settled, the message says so.
    """
    _check_rows(table, old, made)

    def exchange(connection: sa.Connection, clock: Clock) -> bool:
        intents.take(connection, registry, table, intent, clock, lease=lease, outlived=outlived)
        now = clock()
        present = _unchanged(connection, table, old)
        retirement.retire_present(connection, registry, table, present, COMPACTED + intent.intent_id, now)
        newest = max(file.registered_at for file in present)
        registration.insert_files(connection, registry, table, made, intent.intent_id, now, newest)
        if run is not None:
            rows, size = sum(file.row_count for file in made), sum(file.file_size for file in present)
            run.count(connection, SyncRunStatistics(records_processed=rows, bytes_processed=size), now)
        return True

    def answer(connection: sa.Connection) -> bool | None:
        paths = [file.path for file in made]
        is_there = any(file.intent_id == intent.intent_id for file in files.by_paths(connection, paths))
        return True if is_there or retired.by_paths(connection, paths) else None

    intents.commit_intent(registry, table, intent, exchange, answer, is_large=True)


def _check_rows(table: Table, old: Sequence[Old], made: Sequence[DataFile]) -> None:
    """As many rows as before: in each partition, where old and new files are of one spec."""
    is_one_spec = {file.spec_id for file in old} == {file.spec_id for file in made}
    balance = Counter[str]()
    for file in made:
        balance[partition_key(file.partition) if is_one_spec else ""] += file.row_count
    for each in old:
        balance[each.partition_key if is_one_spec else ""] -= each.row_count
    if wrong := {key: rows for key, rows in balance.items() if rows}:
        key, rows = next(iter(wrong.items()))
        raise DataLoss(
            f"what compaction made of {len(old)} files of {table.identifier} has {abs(rows)} rows "
            f"{'more' if rows > 0 else 'fewer'} than they have{f' in partition {key}' if key else ''}; the old ones stay. "
            f"`lakeward audit {table.identifier} --checksums` says whether one of them is damaged"
        )


def _unchanged(connection: sa.Connection, table: Table, old: Sequence[Old]) -> list[RegisteredFile]:
    """The old files as they are now. Raises Overtaken.

    Pending files may have become part of a snapshot, all of them, where that gave their rows no ids: format version 3 does.
    """
    present = files.by_ids(connection, table.table_id, [file.file_id for file in old])
    if len(present) != len(old) or any(file.set_aside_reason is not None for file in present):
        raise Overtaken("a file has left the table meanwhile")
    before, now = {state_of(file) for file in old}, {state_of(file) for file in present}
    if len(now) > 1 or (before != now and table.format_version >= 3):
        raise Overtaken("a file has become part of a snapshot meanwhile")
    if now == {"committed"} and leases.is_held(connection, hold_name(table)):
        raise Overtaken("the table is held")
    if any(files.has_deletes(connection, table.table_id, *key) for key in {_partition(file) for file in present}):
        raise Overtaken("rows of the partition were deleted meanwhile")
    return present


def _partition(file: RegisteredFile) -> PartitionId:
    return file.spec_id, file.partition_key


# Its snapshot -------------------------------------------------------------------------------------------------------------
def parts_of(state: Pending) -> list[tuple[Pending, str | None]]:
    """What a commit's snapshots are made of, in order, and their operation where it is 'replace'.

    What compaction has swapped comes last, and alone: readers that follow a table's snapshots pass over those that change no
    row, and must not so pass over an append.
    """
    swapped = _neutral(state)
    parts: list[tuple[Pending, str | None]] = []
    for is_swap, operation in ((False, None), (True, "replace")):
        coming = [file for file in state.files if (file.intent_id in swapped) == is_swap]
        leaving = [file for file in state.removals if (file.compacted_by in swapped) == is_swap]
        if coming or leaving:
            parts.append((msgspec.structs.replace(state, files=coming, removals=leaving), operation))
    return parts


def _neutral(state: Pending) -> set[str]:
    """The intents of the swaps whose new files have just the rows that left: none of them has been retired since."""
    rows = Counter[str]()
    for file in state.removals:
        if (intent := file.compacted_by) is not None and file.record is not None:
            rows[intent] -= file.record["row_count"]
    for each in state.files:
        if each.intent_id is not None and each.intent_id in rows:
            rows[each.intent_id] += each.row_count
    return {intent for intent, balance in rows.items() if balance == 0}


def _intents_in(removals: Sequence[RetiredFile]) -> set[str]:
    return {intent for file in removals if (intent := file.compacted_by) is not None}
