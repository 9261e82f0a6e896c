"""A process that takes one write, flush, replacement or clean-up step by step, and kills itself where it is told.

Between two steps they are called one by one; inside a transaction the process dies after a statement of it, before the commit.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

from lakeward.arrow.target import TableTarget, table_target
from lakeward.arrow.write import write_arrow
from lakeward.iceberg import metadata
from lakeward.lake import writes
from lakeward.log import compact as log_compact
from lakeward.log import registration as log
from lakeward.log import topics
from lakeward.log.write import segment_target, write_records
from lakeward.maintenance import cleaner
from lakeward.ops.records.operations import SyncMode
from lakeward.ops.run_recorder import Recorder
from lakeward.registry import Registry, intents, leases
from lakeward.registry.sql import intents as intent_store
from lakeward.snapshots import expiry, manifest_merging, snapshot_commit
from lakeward.snapshots.rollback import rollback_table
from lakeward.tables import compaction, registration, snapshots, tables
from lakeward.tables.records.files import Batch, DataFile
from tests.support.lakes import ROWS, open_lake

NAME = "sales.orders"

LETTER_STEPS = ("letters' files", "letters inserted", "letters and files", "letters registered")
WRITE_STEPS = ("intent", "half a file", "files", "transaction", "registered")
FLUSH_STEPS = ("flush intent", "flush objects", "flush transaction", "flushed")
REPLACE_STEPS = ("replacement's files", "replacement transaction", "replaced")
ROLLBACK_STEPS = ("rollback's metadata", "rollback transaction", "rolled back")
EXPIRE_STEPS = ("expiry's metadata", "expiry transaction", "expired")
CLEAN_STEPS = ("quarantine transaction", "objects deleted", "cleaned")
LOG_STEPS = ("append intent", "segment files", "append transaction", "appended")
COMPACT_STEPS = ("compaction's intent", "compacted files", "swap transaction", "swapped")
MANIFEST_STEPS = ("merge intent", "merged manifests", "merge objects", "manifests' transaction", "manifests merged")
MERGE_STEPS = ("merged file", "merge transaction", "merged")
TOPIC = "orders"
RECORDS = [{"key": str(i), "value": str(i)} for i in range(30)]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_commit(registry: Registry, statement_part: str) -> None:
    """Die inside the transaction, right after a statement that begins so has been executed, before the commit."""

    def after(_conn: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith(statement_part):
            die()

    engine = registry.database.engine
    sa.event.listen(engine, "after_cursor_execute", after)
    sa.event.listen(engine, "before_cursor_execute", lambda *_: None)  # prepared statements then come this way too


def write(registry: Registry, step: str) -> None:
    table, metadata = tables.load_with_metadata(registry, NAME)
    intent = intents.open_intent(registry, table)
    if step == "intent":
        die()
    engine = registry.engine(table.location)
    if step == "half a file":
        output = engine.open_output(intent.prefix + "00000.parquet")
        output.write(b"PAR1 and then nothing")
        output.flush()
        die()
    files = write_arrow(table_target(table, metadata, intent, engine), ROWS)
    if step == "files":
        die()
    if step == "transaction":
        die_at_commit(registry, "UPDATE tables")
    registration.register(registry, table, intent, files)
    die()


def write_with_letters(registry: Registry, step: str) -> None:
    """Append rows of which one is broken, under a batch's key, as a run."""
    bad_row: dict[str, Any] = {"id": "no number", "name": "n0"}
    make = writes.writer_for([*ROWS, bad_row], "lakeward")

    def make_and_die(target: TableTarget) -> list[DataFile]:
        files = make(target)
        if step == "letters' files":
            die()
        return files

    if step == "letters inserted":
        die_at_commit(registry, "INSERT INTO dead_letter_queue")
    if step == "letters and files":
        die_at_commit(registry, "UPDATE tables")
    run = Recorder(registry, "sales", SyncMode.BATCH, at_once=True, table_name="orders")
    writes.write(registry, NAME, make_and_die, batch=Batch("s", "1"), run=run)
    die()


def flush(registry: Registry, step: str) -> None:
    table = tables.load(registry, NAME)
    if step == "flush intent":
        intents.open_intent(registry, table, "flush")
        die()
    if step == "flush objects":
        state = snapshots.pending(registry, table.table_id)
        intent = intents.open_intent(registry, table, "flush")
        snapshot_commit.build(registry, state, intent)
        die()
    if step == "flush transaction":
        die_at_commit(registry, "INSERT INTO table_snapshots")
    snapshot_commit.flush(registry, table.table_id)
    die()


def replace(registry: Registry, step: str) -> None:
    """Replace the partition name=n0 by one row."""

    def make(target: TableTarget) -> list[DataFile]:
        files = write_arrow(target, [{"id": 100, "name": "n0"}])
        if step == "replacement's files":
            die()
        if step == "replacement transaction":
            die_at_commit(registry, "UPDATE tables")
        return files

    writes.write(registry, NAME, make, partition={"name": "n0"})
    die()


def rollback(registry: Registry, step: str) -> None:
    """Go back to the table's first snapshot."""
    table = tables.load(registry, NAME)
    first = snapshots.list_snapshots(registry, table)[0].snapshot_id
    if step == "rollback's metadata":
        die_at_commit(registry, "DELETE FROM pending_writes")
    if step == "rollback transaction":
        die_at_commit(registry, "DELETE FROM retired_files")
    rollback_table(registry, table, first)
    die()


def expire(registry: Registry, step: str) -> None:
    if step == "expiry's metadata":
        die_at_commit(registry, "DELETE FROM pending_writes")
    if step == "expiry transaction":
        die_at_commit(registry, "UPDATE table_snapshots")
    expiry.expire(registry, tables.load(registry, NAME), older_than=datetime.now(UTC))
    die()


def compact(registry: Registry, step: str) -> None:
    """Merge all files of the table."""
    table, metadata = tables.load_with_metadata(registry, NAME)
    old = snapshots.list_files(registry, table)
    intent = intents.open_intent(registry, table)
    if step == "compaction's intent":
        die()
    engine = registry.engine(table.location)
    rows = pa.concat_tables(pq.read_table(pa.BufferReader(engine.read(file.file_path))) for file in old)
    files = write_arrow(table_target(table, metadata, intent, engine), rows)
    if step == "compacted files":
        die()
    if step == "swap transaction":
        die_at_commit(registry, "INSERT INTO table_files")
    compaction.swap(registry, table, intent, old, files)
    die()


def clean(registry: Registry, step: str) -> None:
    if step == "quarantine transaction":
        die_at_commit(registry, "DELETE FROM partition_metadata")
    if step == "objects deleted":
        die_at_commit(registry, "DELETE FROM retired_files")
    cleaner.clean(registry)
    die()


def append(registry: Registry, step: str) -> None:
    topic = topics.load(registry, TOPIC)
    intent = intents.open_intent(registry, topic)
    if step == "append intent":
        die()
    files = write_records(segment_target(topic, intent, registry.engine(topic.location)), topic, RECORDS)
    if step == "segment files":
        die()
    if step == "append transaction":
        die_at_commit(registry, "UPDATE partitions")
    log.register(registry, topic, intent, files, producer=("p", 1))
    die()


def merge(registry: Registry, step: str) -> None:
    if step == "merged file":
        die_at_commit(registry, "DELETE FROM pending_writes")  # the swap's first change
    if step == "merge transaction":
        die_at_commit(registry, "INSERT INTO segments")
    log_compact.compact_segments(registry, TOPIC)
    die()


def merge_manifests(registry: Registry, step: str) -> None:
    table = tables.load(registry, NAME)
    if step == "manifests' transaction":
        die_at_commit(registry, "INSERT INTO table_snapshots")
    if step in ("manifests' transaction", "manifests merged"):
        manifest_merging.merge_manifests(registry, table.table_id)
        die()
    intent = intents.open_intent(registry, table, "flush")
    if step == "merge intent":
        die()
    engine = registry.engine(table.location)
    assert table.metadata_location is not None
    document = metadata.decode(engine.read(table.metadata_location))
    rows = manifest_merging.listed(document, engine.read)
    merged = manifest_merging.write_merged(engine, document, [rows], intent, 77)
    if step == "merged manifests":
        die()
    die_at_commit(
        registry, "DELETE FROM pending_writes"
    )  # the commit's first change, after the list and the metadata file
    with leases.held(registry, "merge", seconds=30.0) as lease:
        manifest_merging.commit(registry, table, intent, merged, 77, lease)


KINDS: dict[tuple[str, ...], Callable[[Registry, str], None]] = {
    WRITE_STEPS: write,
    LETTER_STEPS: write_with_letters,
    FLUSH_STEPS: flush,
    REPLACE_STEPS: replace,
    ROLLBACK_STEPS: rollback,
    EXPIRE_STEPS: expire,
    CLEAN_STEPS: clean,
    COMPACT_STEPS: compact,
    LOG_STEPS: append,
    MERGE_STEPS: merge,
    MANIFEST_STEPS: merge_manifests,
}


def take(url: str, folder: Path, step: str) -> None:
    """What the process does."""
    act = next(act for steps, act in KINDS.items() if step in steps)
    with open_lake(url, folder) as lake:
        act(lake.registry, step)


def write_for_longer_than_its_lease(url: str, folder: Path, lease_seconds: float, parent: Connection) -> None:
    """Declare a write and make its files, say so, and register them once told to."""
    with open_lake(url, folder, lease_seconds=lease_seconds) as lake:
        registry = lake.registry
        table, metadata = tables.load_with_metadata(registry, NAME)
        intent = intents.open_intent(registry, table)
        files = write_arrow(table_target(table, metadata, intent, registry.engine(table.location)), ROWS)
        parent.send("written")
        parent.recv()
        registration.register(registry, table, intent, files)
        with registry.database.read() as connection:
            assert intent_store.load(connection, intent.intent_id) is None
