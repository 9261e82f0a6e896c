"""The commit point: registering the files of a write, in one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from lakeward.db.dialect import Clock
from lakeward.db.pipeline import Answer
from lakeward.errors import (
    BatchOutOfOrder,
    FileRefused,
    IntentLost,
    TableNotFound,
)
from lakeward.iceberg.partitions import canonical_values, partition_fields
from lakeward.ops import dead_letters
from lakeward.ops.records.operations import SyncRunStatistics
from lakeward.ops.run_recorder import Recorder
from lakeward.registry import intents
from lakeward.registry.handle import Registry
from lakeward.registry.leases import Lease
from lakeward.registry.sql import intents as intent_store
from lakeward.tables import counters, judging
from lakeward.tables.records.files import AppendResult, Batch, DataFile, Intent, partition_key
from lakeward.tables.records.properties import FOOTERS
from lakeward.tables.records.tables import Table, TableMetadata
from lakeward.tables.sql import batches, footers, retired, tables
from lakeward.tables.sql import files as file_store

# Takes rows out of the table in the commit of others, before those come, at the registry's time; how many.
Removing = Callable[[sa.Connection, datetime], int]

MAX_PARTITION_KEY = 2_500  # bytes: an index of PostgreSQL holds some 2,700 a row


def register(
    registry: Registry,
    table: Table,
    intent: Intent,
    files: Sequence[DataFile],
    *,
    batch: Batch | None = None,
    lease: Lease | None = None,
    removing: Removing | None = None,
    letters: Sequence[dead_letters.Prepared] = (),
    repairs: dead_letters.Repair | None = None,
    run: Recorder | None = None,
    outlived: bool = False,
) -> AppendResult:
    """Make files part of a table: THE commit. One transaction takes the intent and writes all that belongs to it.

    A batch that was applied before changes nothing: the first answer comes back with `replayed`, the intent stays open and
    its files are the caller's to give up. Where the answer of the commit itself is lost, the intent settles what happened.

    A batch none of whose rows fitted has not spent its key, unless it says what it consumed: sent again it is applied, and its
    letters are those of the last time.

    Args:
        removing: what leaves the table in this commit.
        letters: rows of the same write that did not fit; they become dead letters in this commit.
        repairs: the letter that the write repairs: this commit resolves it, or, if the write has letters, makes it the first
            of them.
        run: the one that this commit counts for.
        outlived: others may have left more below the intent's prefix, or still write there; see `intents.take`.

    Raises:
        IntentLost: the intent's lease ran out and recovery has taken it.
        TableNotFound: the table was dropped.
        BatchOutOfOrder: the batch does not start where its stream stands.
        LeaseLost: the lease's fence is no longer current.
        FileRefused: a file is registered already, its partition is none of its spec's, or the table has changed so that it
            could not be read.
        SyncRunNotFound: there are letters, and the run that they are of is not there.
        DeadLetterNotFound, StatusConflict, InvalidInput: of `repairs`, as `dead_letters.settle_repair` raises them.
        RegistryUnavailable: no answer; if it came from the commit and could not be settled, the message says so.
    """
    started = time.perf_counter()
    if intent.table_id != table.table_id:
        raise IntentLost(f"intent {intent.intent_id} is of another table than {table.identifier}; open one for it")
    write = _Write(registry, table, intent, files, batch, lease, removing, letters, repairs, run, outlived)
    try:
        result = intents.commit_intent(
            registry,
            table,
            intent,
            write.commit,
            write.answer,
            weight=len(files),
            may_wait=lease is not None or (run is not None and run.is_shared),
            is_large=removing is not None or bool(letters) or repairs is not None,
        )
    except _Replayed as replayed:
        result = msgspec.structs.replace(replayed.answer, replayed=True)
    if run is not None and result.replayed:
        run.is_counted = False
    return msgspec.structs.replace(result, seconds={"register": time.perf_counter() - started})


class _Replayed(Exception):
    """The batch was applied before: the transaction is rolled back, and the intent with it."""

    def __init__(self, answer: AppendResult) -> None:
        super().__init__()
        self.answer = answer


class _Write(NamedTuple):
    registry: Registry
    table: Table
    intent: Intent
    files: Sequence[DataFile]
    batch: Batch | None
    lease: Lease | None
    removing: Removing | None
    letters: Sequence[dead_letters.Prepared]
    repairs: dead_letters.Repair | None
    run: Recorder | None
    outlived: bool

    def commit(self, connection: sa.Connection, clock: Clock) -> AppendResult:
        """All that the write changes, in a transaction that has locked the table's row.

        What it has to know is sent first, and its answers are read together (db/pipeline.py); then come the changes.
        """
        registry, table, intent, batch = self.registry, self.table, self.intent, self.batch
        # What is removed changes the statistics: those are asked for behind it.
        known = Known.send(connection, registry, table, self.files) if self.removing is None else None
        applied = None if batch is None else _Applied.send(connection, table, batch)
        taken = intents.send_take(connection, intent)
        now = clock()
        before = None if applied is None else applied.before()
        if batch is not None and before is not None and _is_spent(batch, before):
            raise _Replayed(before)
        intents.finish_take(connection, registry, table, intent, clock, taken, lease=self.lease, outlived=self.outlived)
        result = self.result()
        if batch is not None and applied is not None:
            _apply_batch(connection, table, batch, result, now, applied)
        removed = 0 if self.removing is None else self.removing(connection, now)
        known = known or Known.send(connection, registry, table, self.files)
        run_id = None if self.run is None else self.run.count(connection, self.counts(removed), now)
        if self.letters or self.repairs or before is not None:
            self.keep_letters(
                connection, result, now, None if run_id is None else run_id(), is_again=before is not None
            )
        _insert(connection, registry, table, self.files, intent.intent_id, now, now, known)
        return result

    def answer(self, connection: sa.Connection) -> AppendResult | None:
        """What the write was answered, its intent being gone; None if it was given up. Its files may have been retired since."""
        result = self.result()
        first = None if self.batch is None else first_answer_in(connection, self.table, self.batch)
        if first is not None:
            return result if first.files == result.files else first
        if not self.files:  # a registration deletes the intent; recovery and a drop leave its row for the last sweep
            return None if intent_store.is_known(connection, self.intent.intent_id) else result
        known = [file.intent_id == self.intent.intent_id for file in file_store.by_paths(connection, result.files)]
        return result if any(known) or retired.by_paths(connection, result.files) else None

    def result(self) -> AppendResult:
        return AppendResult(
            table_uuid=self.table.table_uuid,
            rows=sum(file.row_count for file in self.files),
            files=[file.path for file in self.files],
            bytes=sum(file.size for file in self.files),
            dead_letters=len(self.letters),
            content=None if self.batch is None else self.batch.content,
        )

    def counts(self, removed: int) -> SyncRunStatistics:
        rows = sum(file.row_count for file in self.files)
        return SyncRunStatistics(
            records_processed=rows + len(self.letters),
            records_inserted=rows,
            records_deleted=removed,
            bytes_processed=sum(file.size for file in self.files),
        )

    def keep_letters(
        self, connection: sa.Connection, result: AppendResult, now: datetime, run_id: int | None, *, is_again: bool
    ) -> None:
        """The dead letters of a write: of a batch that may be sent again they are known by its key."""
        table, letters = self.table, list(self.letters)
        where = (".".join(table.namespace), table.name)
        if self.repairs is not None:
            again = letters.pop(0) if letters else None
            dead_letters.settle_repair(connection, where, self.repairs, again, now, sync_run_id=run_id)
        if self.batch is None or (not is_again and _is_spent(self.batch, result)):
            dead_letters.insert_prepared(connection, letters, now, sync_run_id=run_id)
            return
        source = self.batch.digest(table.table_uuid)
        dead_letters.replace_of_source(connection, where, source, letters, now, sync_run_id=run_id)


def first_answer(registry: Registry, table: Table, batch: Batch) -> AppendResult | None:
    """The answer that the batch got when it was applied; None if it was not."""
    row = registry.database.lookups.one(batches.ANSWER, batches.key(table.table_id, batch))
    return _first_answer(table, batch, _answer_of(row))


def first_answer_in(connection: sa.Connection, table: Table, batch: Batch) -> AppendResult | None:
    return _first_answer(table, batch, _answer_of(batches.send_answer(connection, table.table_id, batch).row()))


def _first_answer(table: Table, batch: Batch, answer: AppendResult | None) -> AppendResult | None:
    if answer is None or not _is_spent(batch, answer):
        return None
    if batch.content is not None and answer.content not in (None, batch.content):
        raise FileRefused(
            "already_registered",
            f"batch {batch.batch_id!r} of stream {batch.stream!r} of {table.identifier} has brought other files before; give "
            "these a key of their own",
        )
    return msgspec.structs.replace(answer, replayed=True)


def _answer_of(row: Mapping[str, Any] | None) -> AppendResult | None:
    """What the batch was answered the last time, whether it was applied or not."""
    return None if row is None else msgspec.convert(row["answer"], AppendResult)


class _Applied(NamedTuple):
    """What a batch has to know of those before it."""

    answer: Answer
    position: Answer | None  # of one that says what it consumed

    @classmethod
    def send(cls, connection: sa.Connection, table: Table, batch: Batch) -> _Applied:
        has_position = batch.start is not None or batch.end is not None
        return cls(
            batches.send_answer(connection, table.table_id, batch),
            batches.send_position(connection, table.table_id, batch.stream) if has_position else None,
        )

    def before(self) -> AppendResult | None:
        return _answer_of(self.answer.row())


def _is_spent(batch: Batch, answer: AppendResult) -> bool:
    """Whether a batch was applied: not if none of its rows fitted. One that says what it consumed was, since its stream has
    gone on."""
    return answer.rows > 0 or not answer.dead_letters or batch.end is not None


def _apply_batch(
    connection: sa.Connection, table: Table, batch: Batch, result: AppendResult, now: datetime, applied: _Applied
) -> None:
    """A batch that says what it consumed applies only where its stream stands: after a crash it may be cut elsewhere."""
    if applied.position is not None:
        found = applied.position.row()
        stands = None if found is None else found["position"]
        if found is not None and stands != _as_kept(batch.start):
            raise BatchOutOfOrder(
                f"batch {batch.batch_id!r} of stream {batch.stream!r} starts at {batch.start!r}, but the stream stands at "
                f"{stands!r}; read again from there"
            )
        batches.set_position(connection, table.table_id, batch, now, is_first=found is None)
    batches.set_answer(connection, table.table_id, batch, result, now)


def _as_kept(position: Any) -> Any:
    """A position as it comes back from the registry: JSON has no tuples, and keys are texts."""
    return msgspec.json.decode(msgspec.json.encode(position))


class Known(NamedTuple):
    """What a registration has to know of its table, asked for before it is needed."""

    version: Answer  # the current one of its metadata
    files: list[DataFile]  # with their partitions as the version spells them that the caller knows
    stats: counters.Answers  # of the partitions that the files are in then

    @classmethod
    def send(cls, connection: sa.Connection, registry: Registry, table: Table, files: Sequence[DataFile]) -> Known:
        """In a transaction that has locked the table's row."""
        version = tables.send_live_version(connection, table.table_id)
        metadata = registry.metadata_version(connection, table.table_id, table.version) if files else None
        spelled = [] if metadata is None else _canonical(connection, registry, table, metadata, files)
        return cls(version, spelled, counters.send_stats(connection, table.table_id, spelled))


def insert_files(
    connection: sa.Connection,
    registry: Registry,
    table: Table,
    files: Sequence[DataFile],
    intent_id: str,
    now: datetime,
    registered_at: datetime | None = None,
) -> None:
    """File rows, footers, statistics and counters of new files; the caller's transaction holds the table's lock.

    `registered_at`: when their rows came to the table, if that was before now.

    Raises:
        TableNotFound: the table was dropped.
        FileRefused: a file is registered already, its partition is none of its spec's, or the table has changed so that it
            could not be read.
    """
    known = Known.send(connection, registry, table, files)
    _insert(connection, registry, table, files, intent_id, now, registered_at or now, known)


def _insert(
    connection: sa.Connection,
    registry: Registry,
    table: Table,
    files: Sequence[DataFile],
    intent_id: str,
    now: datetime,
    registered_at: datetime,
    known: Known,
) -> None:
    version = tables.version_of_answer(known.version)
    if version is None:
        raise TableNotFound(f"Table does not exist: {table.identifier} (it was dropped)")
    if not files:
        return
    metadata = registry.metadata_version(connection, table.table_id, version)
    assert metadata is not None
    judging.check_files(connection, registry, table, metadata, files)
    spelled, stats = known.files, known.stats
    if version != table.version:
        spelled = _canonical(connection, registry, table, metadata, files)
        stats = counters.send_stats(connection, table.table_id, spelled)
    counters.add_to_table(connection, table.table_id, spelled, now)
    update_table_files(connection, table, spelled, intent_id, now, registered_at)
    insert_footers(connection, registry, table, metadata, spelled, now)
    counters.add_to_partitions(connection, table.table_id, metadata.schema, spelled, now, stats)


def _canonical(
    connection: sa.Connection, registry: Registry, table: Table, current: TableMetadata, files: Sequence[DataFile]
) -> list[DataFile]:
    """The files with their partitions in the one spelling by which they are found.

    Raises:
        FileRefused: wrong_partition, a file's is none of its spec's.
    """
    if (
        not any(file.partition or file.spec_id != current.spec_id for file in files)
        and not current.partition_by["fields"]
    ):
        return list(files)
    schemas, specs = {current.schema["schema-id"]: current.schema}, {current.spec_id: current.partition_by}
    if any(file.schema_id not in schemas or file.spec_id not in specs for file in files):
        for version in registry.metadata_versions(connection, table.table_id, current.metadata_version):
            schemas[version.schema["schema-id"]] = version.schema
            specs[version.spec_id] = version.partition_by
    fields: dict[tuple[int, int], list[tuple[int, str, str, str, str]]] = {}
    result = []
    for file in files:
        spec, key = specs.get(file.spec_id), (file.schema_id, file.spec_id)
        if spec is not None and (spec["fields"] or file.partition):
            if key not in fields:
                fields[key] = partition_fields(schemas.get(file.schema_id, current.schema), spec)
            file = msgspec.structs.replace(file, partition=canonical_values(fields[key], file.partition))
        result.append(file)
    return result


def update_table_files(
    connection: sa.Connection,
    table: Table,
    files: Sequence[DataFile],
    intent_id: str,
    now: datetime,
    registered_at: datetime | None = None,
) -> None:
    """Insert the rows of table_files. Raises FileRefused: a path is registered already."""
    rows = [_row(table.table_id, file, intent_id, now, registered_at or now) for file in files]
    if long := next((row for row in rows if len(row["partition_key"].encode()) > MAX_PARTITION_KEY), None):
        raise FileRefused(
            "wrong_partition",
            f"the partition {long['partition_path'][:80]}... is longer than {MAX_PARTITION_KEY:,} bytes, which no index "
            "holds; partition by a truncated or bucketed column",
        )
    which = files[0].path if len(files) == 1 else f"one of {len(files)} files, {files[0].path} and on,"

    def refusal(error: sa.exc.DBAPIError) -> FileRefused | None:
        if not file_store.is_duplicate(error):
            return None
        return FileRefused("already_registered", f"{which} is registered already; a file belongs to one table")

    file_store.insert(connection, rows, refusal)


def _row(table_id: int, file: DataFile, intent_id: str, now: datetime, registered_at: datetime) -> Mapping[str, Any]:
    return {
        "table_id": table_id,
        "file_name": file.path.rpartition("/")[2],
        "file_path": file.path,
        "file_size": file.size,
        "file_type": file.file_type,
        "partition_key": partition_key(file.partition),
        "partition_path": file.partition_path,
        "row_count": file.row_count,
        "checksum": file.checksum,
        "is_compressed": file.is_compressed,
        "statistics": file.statistics,
        "split_offsets": file.split_offsets,
        "schema_id": file.schema_id,
        "spec_id": file.spec_id,
        "sort_order_id": file.sort_order_id,
        "created_at": file.created_at or now,
        "modified_at": file.modified_at or file.created_at or now,
        "registered_at": registered_at,
        "intent_id": intent_id,
    }


def insert_footers(
    connection: sa.Connection,
    registry: Registry,
    table: Table,
    metadata: TableMetadata,
    files: Sequence[DataFile],
    now: datetime,
) -> None:
    """Insert the footers of Parquet files, by the table's policy."""
    if FOOTERS.of(metadata.properties) == "always":
        found = [(file.path, file.footer) for file in files if file.footer is not None]
        footers.insert(connection, table.table_id, found, registry.settings.footer_limit, now)
