"""Flush: everything that is pending becomes one Iceberg snapshot, and what compaction did another one.

Objects are read and written outside of any SQL transaction; a short one at the end swaps the metadata's location. Whoever
loses that race serves the winner's metadata, if it covers what was pending when the loser began.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec

from lakeward.components.conflicts import conflict_tries, moved_on
from lakeward.errors import LeaseHeld
from lakeward.iceberg import expiry, metadata
from lakeward.iceberg.commit import Built, Read, Write, build_snapshot
from lakeward.logs import log
from lakeward.model.files import Intent, PartitionValues, RetiredFile, partition_values
from lakeward.model.properties import PARQUET_COMPRESSION
from lakeward.model.tables import Document, TableMetadata
from lakeward.registry import Registry, compaction, intents, snapshots
from lakeward.registry.leases import Lease
from lakeward.registry.snapshots import Made, Pending

HOLD_POLL_SECONDS = 0.05


class FlushResult(msgspec.Struct, frozen=True, kw_only=True):
    """Where the metadata is now, and what this flush did: nothing, if another one had done it."""

    metadata_location: str
    snapshot_id: int | None = None  # of the snapshot that this flush made
    files: int = 0
    rows: int = 0
    removed: int = 0
    rejected: int = 0
    seconds: float = 0.0


# One flush of a table at a time in a process: the next one mostly finds nothing left to do. A lock lives while it is used.
_locks: WeakValueDictionary[tuple[str, int], threading.Lock] = WeakValueDictionary()


def lock_of(registry: Registry, table_id: int) -> threading.Lock:
    """What a commit of new metadata of the table holds in this process, so that its commits do not fail one another."""
    return _locks.setdefault((registry.database.url.render_as_string(), table_id), threading.Lock())


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
    wait: float | None = None,
) -> FlushResult:
    """Make the Iceberg metadata of a table show all that the registry says; without `files`, its schema and properties.

    Args:
        trigger: query, manual, sync, time or size; kept with the snapshot.
        wait: for how many seconds to wait for somebody who holds the table; none: the setting `hold_timeout_seconds`.

    Raises:
        TableNotFound: the table has been dropped.
        LeaseHeld: somebody else holds the table's pending files, and did not let go in that time.
        LeaseLost: `hold` ran out.
        MetadataConflict: others were quicker in all tries.
        StorageError: an object cannot be read or written.
    """
    started = time.perf_counter()
    first = snapshots.pending(registry, table_id, with_files=files)
    if first.is_empty:
        return _unchanged(first, started)
    wait = registry.settings.hold_timeout_seconds if wait is None else wait
    deadline = time.monotonic() + wait
    state, done = first, list[Made]()
    for attempt in conflict_tries("flush_conflict", first.table):
        if hold is None and _is_kept(state):
            state = _await_release(registry, table_id, files, deadline, wait)
        with _alone(registry, table_id) as at_once:
            # The first time, at once, it is as fresh as can be, and the commit looks whether it still holds.
            if attempt.number or not at_once:
                state = snapshots.pending(registry, table_id, with_files=files)
            if hold is None and _is_kept(state):
                continue  # the wait is not under the lock: whoever holds the table needs it
            if state.is_empty or _covered(first, state):
                return _result(done, started) if done else _unchanged(state, started)
            step, operation = compaction.next_snapshot(state)
            with attempt:
                done.append(_attempt(registry, step, trigger, operation, hold))
                if step is state:
                    return _result(done, started)
    raise moved_on(first.table, "commit what is pending")


@contextmanager
def _alone(registry: Registry, table_id: int) -> Iterator[bool]:
    """Hold the table's lock in this process; whether it was free."""
    lock = lock_of(registry, table_id)
    at_once = lock.acquire(blocking=False)
    if not at_once:
        lock.acquire()
    try:
        yield at_once
    finally:
        lock.release()


def _unchanged(state: Pending, started: float) -> FlushResult:
    assert state.table.metadata_location is not None
    return FlushResult(metadata_location=state.table.metadata_location, seconds=time.perf_counter() - started)


def _result(done: Sequence[Made], started: float) -> FlushResult:
    snapshot = done[-1].snapshot
    return FlushResult(
        metadata_location=done[-1].metadata_location,
        snapshot_id=None if snapshot is None else snapshot["snapshot-id"],
        files=sum(len(made.added) for made in done),
        rows=sum(file.row_count for made in done for file in made.added),
        removed=sum(len(made.removed) for made in done),
        rejected=sum(len(made.rejected) for made in done),
        seconds=time.perf_counter() - started,
    )


def _await_release(registry: Registry, table_id: int, files: bool, deadline: float, wait: float) -> Pending:
    """What is pending, once nobody holds it: an older view is never served instead."""
    while True:
        state = snapshots.pending(registry, table_id, with_files=files)
        if not _is_kept(state):
            return state
        if time.monotonic() >= deadline:
            raise LeaseHeld(
                f"{state.table.identifier}: its pending files are held by {snapshots.hold_name(state.table)!r}, and the "
                f"wait of {wait} s is over; try again later"
            )
        time.sleep(HOLD_POLL_SECONDS)


def _is_kept(state: Pending) -> bool:
    return state.is_held and bool(state.files or state.removals)


def _covered(first: Pending, now: Pending) -> bool:
    """Whether all that was pending at first has been committed by somebody else: what came later need not be."""
    if now.table.metadata_location is None or now.table.iceberg_version < first.table.version:
        return False
    pending_files = {file.file_id for file in now.files}
    pending_removals = {file.retired_id for file in now.removals}
    return pending_files.isdisjoint(file.file_id for file in first.files) and pending_removals.isdisjoint(
        file.retired_id for file in first.removals
    )


def _attempt(registry: Registry, state: Pending, trigger: str, operation: str | None, hold: Hold | None) -> Made:
    """Build and commit once. Whatever goes wrong, the objects of this attempt are gone after it."""
    with intents.declared(registry, state.table, "flush") as intent:
        made = build(registry, state, intent, operation, hold)
        snapshots.commit(registry, state.table, intent, made, trigger, hold=hold and hold.lease)
    for file, reason in made.rejected:
        log.error("file_set_aside", table=str(state.table.identifier), file=file.file_path, reason=reason)
    return made


def build(
    registry: Registry, state: Pending, intent: Intent, operation: str | None = None, hold: Hold | None = None
) -> Made:
    """Write the objects of a flush below the intent's prefix; nothing is committed yet. `operation`: see build_snapshot."""
    engine = registry.engine(state.table.location)
    document, superseded = next_document(registry, state)
    built = _snapshot(state, document, intent, engine.read, engine.write, operation)
    return write_metadata(registry, state, intent, built.document if built else document, superseded, built, hold=hold)


def next_document(registry: Registry, state: Pending) -> tuple[Document, list[tuple[str, str]]]:
    """The table's metadata at its newest version, to be changed further, and the metadata files that leave its log."""
    location = state.table.metadata_location
    if location is None:
        return _with_versions(state, None), []
    previous = metadata.decode(registry.engine(location).read(location))
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
    built: Built | None = None,
    left: Sequence[Document] = (),
    hold: Hold | None = None,
) -> Made:
    """Write a metadata file below the intent's prefix, without what is too old to be in it.

    Args:
        superseded: (kind, location) of what the new file does not need.
        left: snapshots that have been taken out of the document already.
    """
    document, trimmed = (document, []) if state.is_held and hold is None else _trimmed(registry, document, hold)
    location = intent.prefix + metadata.metadata_file_name(document["last-sequence-number"])
    registry.engine(location).write(location, metadata.encode(document))
    rejected = built.rejected if built else []
    left_out = {file.file_id for file, _ in rejected}
    snapshot = built.snapshot if built else None
    left = [*left, *trimmed]
    superseded = [*superseded, *(("manifest_list", each["manifest-list"]) for each in left)]
    superseded += [("manifest", manifest) for manifest in (built.superseded if built else ())]
    return Made(
        metadata_location=location,
        document=document,
        snapshot=snapshot,
        added=[file for file in state.files if file.file_id not in left_out] if snapshot else [],
        removed=list(state.removals) if snapshot else [],
        rejected=rejected,
        superseded=superseded,
        trimmed=left,
        first_row_ids=built.first_row_ids if built else {},
    )


def _trimmed(registry: Registry, document: Document, hold: Hold | None) -> tuple[Document, list[Document]]:
    keep = registry.settings.keep_snapshots
    if len(document["snapshots"]) <= keep:
        return document, []
    protected = expiry.protected(document, document["last-updated-ms"])
    return metadata.trim_snapshots(document, keep, protected if hold is None else {*protected, hold.keep})


def _with_versions(state: Pending, document: Document | None) -> Document:
    now_ms = int(state.now.timestamp() * 1000)
    versions = [_for_engines(version) for version in state.versions]
    if document is None:
        document, versions = metadata.new_metadata(state.table, versions[0], now_ms), versions[1:]
    for version in versions:
        document = metadata.apply_version(document, version, now_ms)
    return document


def _for_engines(version: TableMetadata) -> TableMetadata:
    """Tell engines the table's compression too, unless its properties say otherwise."""
    if version.format != "parquet" or PARQUET_COMPRESSION.name in version.properties:
        return version
    codec = "uncompressed" if version.compression == "none" else version.compression
    return msgspec.structs.replace(version, properties={**version.properties, PARQUET_COMPRESSION.name: codec})


def _snapshot(
    state: Pending, document: Document, intent: Intent, read: Read, write: Write, operation: str | None
) -> Built | None:
    if not state.files and not state.removals:
        return None
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
    return int(min(max(times), state.now).timestamp() * 1000)
