"""Flush: everything that is pending becomes one Iceberg snapshot, and what compaction did another one of the same commit.

Objects are read and written outside of any SQL transaction; a short one at the end swaps the metadata's location. A flush owes
its caller what was pending when the caller asked, and no more. So callers of one process who ask for a table at once share a
flush, and whoever loses a race serves the winner's metadata, if it covers what was pending then.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec

from lakeward.db.types import epoch_ms
from lakeward.errors import LeaseHeld
from lakeward.iceberg import expiry, metadata
from lakeward.iceberg.commit import Built, Read, build_snapshot
from lakeward.iceberg.snapshot_writer import Write
from lakeward.logs import log
from lakeward.registry import Registry, intents, leases
from lakeward.registry.leases import Lease
from lakeward.registry.turns import Turn
from lakeward.retry import tried
from lakeward.snapshots.conflicts import FairLock, committed
from lakeward.snapshots.metadata_objects import reader
from lakeward.tables import compaction, snapshots
from lakeward.tables.records.files import Intent, PartitionValues, RegisteredFile, RetiredFile, partition_values
from lakeward.tables.records.properties import PARQUET_COMPRESSION
from lakeward.tables.records.tables import Document, Table, TableMetadata
from lakeward.tables.snapshots import Goal, Held, Made, NewSnapshot, Pending


class FlushResult(msgspec.Struct, frozen=True, kw_only=True):
    """Where the metadata is now, and what this flush did: nothing, if another one had done it."""

    metadata_location: str
    snapshot_id: int | None = None  # of the snapshot that this flush made
    files: int = 0
    rows: int = 0
    removed: int = 0
    rejected: int = 0
    seconds: float = 0.0


class _AtTable:
    """What the threads of this process share that commit metadata of one table."""

    def __init__(self) -> None:
        self.lock = FairLock()
        self.mutex = threading.Lock()
        self.coming: dict[bool, Flight] = {}  # by `files`: flushes that have not looked yet at what is pending


_at_tables: WeakValueDictionary[tuple[str, int], _AtTable] = WeakValueDictionary()
_at_tables_lock = threading.Lock()


def _forget() -> None:
    """In a forked child: what the parent's threads hold, nobody there lets go."""
    global _at_tables_lock
    _at_tables_lock = threading.Lock()
    _at_tables.clear()


os.register_at_fork(after_in_child=_forget)


def _at(registry: Registry, table_id: int) -> _AtTable:
    key = (registry.database.url.render_as_string(), table_id)
    with _at_tables_lock:
        return _at_tables.setdefault(key, _AtTable())


@contextmanager
def metadata_lock(registry: Registry, table_id: int) -> Iterator[None]:
    """What a commit of new metadata of the table holds in this process, so that its commits do not fail one another."""
    at = _at(registry, table_id)  # which lives as long as somebody has it
    with at.lock:
        yield


class Hold(NamedTuple):
    """Given by whoever holds the table to its own commits: they wait for nobody."""

    lease: Lease
    keep: int  # a snapshot that they leave in the metadata, however many there are


def flush(
    registry: Registry,
    table_id: int,
    trigger: str = "manual",
    *,
    files: bool = True,
    hold: Hold | None = None,
    turn: Turn | None = None,
    wait: float | None = None,
) -> FlushResult:
    """Make the Iceberg metadata of a table show all that the registry says; without `files`, its schema and properties.

    Args:
        trigger: query, manual, sync, time or size; kept with the snapshot.
        turn: the caller's, who has queued for a commit that this one belongs to; with a hold alone. It is tried once.
        wait: for how many seconds to wait for somebody who holds the table; None: the setting `hold_timeout_seconds`.

    Raises:
        TableNotFound: the table has been dropped.
        LeaseHeld: somebody else holds the table's pending files, and did not let go in that time.
        LeaseLost: `hold` ran out.
        MetadataConflict: others were quicker in all tries.
        StorageError: an object cannot be read or written.
    """
    wait = registry.settings.hold_timeout_seconds if wait is None else wait

    def attempt() -> FlushResult:
        goal = snapshots.goal(registry, table_id, with_files=files)
        if goal.is_empty:
            return FlushResult(metadata_location=goal.location)
        if hold is not None:
            return _commit_pending(registry, goal.table, lambda: goal, trigger, files, hold, turn)
        if goal.is_kept:
            raise held_too_long(goal.table, wait)
        flight, is_ours = board(registry, goal, trigger, files=files)
        if is_ours:
            flight.fly()
        return flight.result.result()

    return tried(attempt, LeaseHeld, leases.POLL, seconds=0.0 if hold is not None else wait)


def held_too_long(table: Table, wait: float) -> LeaseHeld:
    """To be raised by whoever has waited for so many seconds."""
    return LeaseHeld(
        f"{table.identifier}: its pending files are held by {snapshots.hold_name(table)!r}, and the wait of {wait} s is over; "
        "try again later"
    )


class Flight:
    """A flush that all share who board it before it departs. Whoever boarded first makes it, by `fly`."""

    def __init__(self, registry: Registry, at: _AtTable, goal: Goal, trigger: str, files: bool) -> None:
        self.result = Future[FlushResult]()
        self.goal = goal
        self._registry, self._at, self._trigger, self._files = registry, at, trigger, files

    def fly(self) -> None:
        """Make the flush. What goes wrong is in the result, for all."""
        try:
            table = self.goal.table
            self.result.set_result(_commit_pending(self._registry, table, self.depart, self._trigger, self._files))
        except Exception as error:
            self.give_up(error)
        except BaseException:  # an interrupt is this thread's alone
            self.give_up(
                LeaseHeld(f"{self.goal.table.identifier}: the flush that was shared was interrupted; ask again")
            )
            raise

    def give_up(self, error: Exception) -> None:
        """Where it will never fly: so that nobody waits for it."""
        self.depart()
        if not self.result.done():
            self.result.set_exception(error)

    def depart(self) -> Goal:
        """From now on nobody boards; what is owed to those who have."""
        with self._at.mutex:
            if self._at.coming.get(self._files) is self:
                del self._at.coming[self._files]
            return self.goal


def board(registry: Registry, goal: Goal, trigger: str, *, files: bool = True) -> tuple[Flight, bool]:
    """The table's next flush, which commits what the caller has seen pending, and whether it is the caller who makes it.

    Its result raises as `flush` does, and LeaseHeld at once.
    """
    at = _at(registry, goal.table.table_id)
    with at.mutex:
        there = at.coming.get(files)
        if there is not None:
            there.goal = there.goal.with_that_of(goal)
            return there, False
        ours = at.coming[files] = Flight(registry, at, goal, trigger, files)
        return ours, True


def _commit_pending(
    registry: Registry,
    table: Table,
    depart: Callable[[], Goal],
    trigger: str,
    files: bool,
    hold: Hold | None = None,
    turn: Turn | None = None,
) -> FlushResult:
    """Commit what is pending now, or find it committed. `depart` is called when it is about to be looked at, and says what is
    owed.

    Raises LeaseHeld: somebody holds the table.
    """
    started = time.perf_counter()

    def attempt(_: int, turn: Turn | None) -> FlushResult:
        with metadata_lock(registry, table.table_id):
            goal = depart()
            state = snapshots.pending(registry, table.table_id, with_files=files)
            if snapshots.is_reached(registry, goal, state):
                assert state.table.metadata_location is not None
                seconds = time.perf_counter() - started
                return FlushResult(metadata_location=state.table.metadata_location, seconds=seconds)
            if hold is None and state.is_kept:
                raise held_too_long(state.table, 0)
            try:
                return _result(_attempt(registry, state, trigger, hold, turn), started)
            except Held:
                raise held_too_long(state.table, 0) from None

    return attempt(0, turn) if turn is not None else committed(registry, table, "commit what is pending", attempt)


def _result(made: Made, started: float) -> FlushResult:
    return FlushResult(
        metadata_location=made.metadata_location,
        snapshot_id=made.new[-1].snapshot["snapshot-id"] if made.new else None,
        files=sum(len(new.added) for new in made.new),
        rows=sum(file.row_count for new in made.new for file in new.added),
        removed=sum(len(new.removed) for new in made.new),
        rejected=len(made.rejected),
        seconds=time.perf_counter() - started,
    )


def _attempt(registry: Registry, state: Pending, trigger: str, hold: Hold | None, turn: Turn | None) -> Made:
    """Build and commit once. Whatever goes wrong, the objects of this attempt are gone after it."""
    with intents.declared(registry, state.table, "flush") as intent:
        made = build(registry, state, intent, hold)
        snapshots.commit(registry, state.table, intent, made, trigger, hold=hold and hold.lease, turn=turn)
    for file, reason in made.rejected:
        log.error("file_set_aside", table=str(state.table.identifier), file=file.file_path, reason=reason)
    return made


def build(registry: Registry, state: Pending, intent: Intent, hold: Hold | None = None) -> Made:
    """Write the objects of a flush below the intent's prefix; nothing is committed yet.

    One metadata file, in which readers see all of it at once: what changes rows, and then, as a snapshot of its own, what
    compaction has swapped.
    """
    read, write = reader(registry, state.table), registry.engine(state.table.location).write
    document, superseded = next_document(registry, state)
    new: list[NewSnapshot] = []
    rejected: list[tuple[RegisteredFile, str]] = []
    for part, operation in compaction.parts_of(state):
        built = _snapshot(part, document, intent, read, write, operation)
        document = built.document
        rejected += built.rejected
        if built.snapshot is not None:
            new.append(_new_snapshot(part, built, built.snapshot))
    return write_metadata(registry, state, intent, document, superseded, new, rejected, hold=hold)


def _new_snapshot(part: Pending, built: Built, snapshot: Document) -> NewSnapshot:
    left_out = {file.file_id for file, _ in built.rejected}
    return NewSnapshot(
        snapshot=snapshot,
        added=[file for file in part.files if file.file_id not in left_out],
        removed=list(part.removals),
        superseded=built.superseded,
        first_row_ids=built.first_row_ids,
    )


def next_document(registry: Registry, state: Pending) -> tuple[Document, list[tuple[str, str]]]:
    """The table's metadata at its newest version, to be changed further, and the metadata files that leave its log."""
    location = state.table.metadata_location
    if location is None:
        return _with_versions(state, None), []
    previous = metadata.decode(reader(registry, state.table)(location))
    document, dropped = metadata.log_metadata(
        _with_versions(state, previous), location, previous["last-updated-ms"], registry.settings.keep_metadata_files
    )
    return document, [("metadata", each) for each in dropped]


def write_metadata(
    registry: Registry,
    state: Pending,
    intent: Intent,
    document: Document,
    superseded: list[tuple[str, str]],
    new: Sequence[NewSnapshot] = (),
    rejected: Sequence[tuple[RegisteredFile, str]] = (),
    left: Sequence[Document] = (),
    hold: Hold | None = None,
) -> Made:
    """Write a metadata file below the intent's prefix, without what is too old to be in it.

    Args:
        superseded: (kind, location) of what the new file does not need.
        new: the snapshots that the document has and the last one has not, oldest first.
        left: snapshots that have been taken out of the document already.
    """
    document, trimmed = (document, []) if state.is_held and hold is None else _trimmed(registry, document, hold)
    codec = metadata.codec_of(document)
    location = intent.prefix + metadata.metadata_file_name(document["last-sequence-number"], codec)
    registry.engine(location).write(location, metadata.encode(document, codec))
    left = [*left, *trimmed]
    return Made(
        metadata_location=location,
        document=document,
        new=list(new),
        rejected=list(rejected),
        superseded=[*superseded, *(("manifest_list", each["manifest-list"]) for each in left)],
        trimmed=left,
    )


def _trimmed(registry: Registry, document: Document, hold: Hold | None) -> tuple[Document, list[Document]]:
    keep = registry.settings.keep_snapshots
    if len(document["snapshots"]) <= keep:
        return document, []
    protected = expiry.protected(document, document["last-updated-ms"])
    return metadata.trim_snapshots(document, keep, protected if hold is None else {*protected, hold.keep})


def _with_versions(state: Pending, document: Document | None) -> Document:
    """The metadata brought to the table's newest version; a version's time is when it was committed, as a file's is."""
    versions = [(for_engines(version), epoch_ms(min(version.created_at, state.now))) for version in state.versions]
    if document is None:
        (first, when), *versions = versions
        document = metadata.new_metadata(state.table, first, when)
    for version, when in versions:
        document = metadata.apply_version(document, version, when)
    return document


def for_engines(version: TableMetadata) -> TableMetadata:
    """Tell engines the table's compression too, unless its properties say otherwise."""
    if version.format != "parquet" or PARQUET_COMPRESSION.name in version.properties:
        return version
    codec = "uncompressed" if version.compression == "none" else version.compression
    return msgspec.structs.replace(version, properties={**version.properties, PARQUET_COMPRESSION.name: codec})


def _snapshot(
    state: Pending, document: Document, intent: Intent, read: Read, write: Write, operation: str | None
) -> Built:
    return build_snapshot(
        document,
        state.files,
        [file.file_path for file in state.removals],
        read=read,
        write=write,
        prefix=intent.prefix,
        timestamp_ms=_time_ms(state),
        removed_partitions={file.file_path: _partition(file) for file in state.removals if file.record is not None},
        operation=operation,
    )


def _partition(file: RetiredFile) -> tuple[int, PartitionValues]:
    """(spec id, partition) of a file that has left, so that manifests without that partition need not be read."""
    assert file.record is not None
    return file.record["spec_id"], partition_values(file.record["partition_key"])


def _time_ms(state: Pending) -> int:
    """The newest registration in the snapshot, never after now: an engine that pins its view when its transaction began
    would not see a snapshot with the time of the flush."""
    times = [file.registered_at for file in state.files] + [file.retired_at for file in state.removals]
    return epoch_ms(min(max(times), state.now))
