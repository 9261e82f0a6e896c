"""One write, from the intent to the registration, and to the snapshot where the connection says 'sync'."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import sqlalchemy as sa

from lakeward import snapshots, validation
from lakeward.arrow.growth import Growth, SchemaGrows
from lakeward.arrow.target import TableTarget, table_target
from lakeward.errors import FileRefused, InvalidInput, InvalidSchema, LakewardError
from lakeward.lake.invalid_rows import broken_rows, letters_of, values_hidden
from lakeward.logs import log
from lakeward.names import is_storable
from lakeward.ops.dead_letters import Repair
from lakeward.ops.records.operations import DeadLetter, DeadLetterStatus
from lakeward.ops.run_recorder import Recorder
from lakeward.registry import Registry, intents
from lakeward.registry.leases import Lease
from lakeward.tables import evolution, registration, retirement, tables
from lakeward.tables.records.files import AppendResult, Batch, DataFile, partition_key
from lakeward.tables.records.tables import Table, TableMetadata
from lakeward.tables.registration import Removing

MAX_GROWTHS = 100  # of a table, for one write
MAX_KEY = 1_000  # bytes of a stream's name or a batch's id, which one index holds together

BatchKey: TypeAlias = "Batch | tuple[str, str] | tuple[str, str, Any, Any] | None"
Partition: TypeAlias = "Mapping[str, Any] | str"
Write = Callable[[TableTarget], list[DataFile]]


def batch_of(key: BatchKey) -> Batch | None:
    """(stream, id) or (stream, id, from, to) -> Batch.

    Raises:
        InvalidInput: another shape, an empty stream or id, or positions that JSON cannot hold.
    """
    if key is None:
        return None
    parts = (key.stream, key.batch_id, key.start, key.end) if isinstance(key, Batch) else key
    if not isinstance(parts, tuple) or len(parts) not in (2, 4) or not all(is_key(k) for k in parts[:2]):
        raise InvalidInput(
            f"batch={str(key)[:200]} is not (stream, id) or (stream, id, from, to), the first two being texts of 1 to "
            f"{MAX_KEY} bytes"
        )
    if len(parts) == 4 and parts[2] is not None and parts[3] is None:
        raise InvalidInput(f"batch={key!r} says where it starts and not where it ends; give both, or (stream, id)")
    try:
        msgspec.json.encode(parts[2:])
        json.dumps(msgspec.to_builtins(parts[2:]), allow_nan=False)  # msgspec would write NaN as null
    except (TypeError, ValueError):
        raise InvalidInput(
            f"batch={key!r}: a position must be what JSON can hold: texts, finite numbers, lists and objects of them"
        ) from None
    return Batch(*parts)


def repair_of(repairs: DeadLetter | int | None) -> Repair | None:
    """A dead letter as it was claimed, or a number. Raises InvalidInput."""
    if isinstance(repairs, DeadLetter):
        return Repair(repairs.id, repairs.claim if repairs.status == DeadLetterStatus.PROCESSING else None)
    return None if repairs is None else Repair(validation.whole(repairs, "repairs"))


def is_key(text: Any) -> bool:
    """Whether a stream or a batch may be called that: a text of 1 to MAX_KEY bytes that the registry can hold."""
    return isinstance(text, str) and is_storable(text) and 0 < len(text.encode()) <= MAX_KEY


def write(
    registry: Registry,
    which: tables.Which,
    make: Write,
    *,
    partition: Partition | None = None,
    batch: Batch | None = None,
    repairs: Repair | None = None,
    run: Recorder | None = None,
) -> AppendResult:
    """Declare a write, let `make` write files below its prefix, and register them. All of it, or nothing.

    The table grows as often as the files ask for it, each of which may bring columns of its own.

    Args:
        partition: the one whose files the new ones replace, in one transaction. Two replacements of one partition wait for each
            other; appends go on, and stay in the partition if they were registered after the replacement.
        run: counted for in the same transaction.

    Raises what `make` and `registration.register` raise; the files and the intent are gone then, except where it is not
    known whether the registration went through. With `partition`:
        FileRefused: wrong_partition, a new file is of another partition.
        InvalidInput: the partition is none of the table's.
        LeaseHeld: another replacement of the partition, or a rollback of the table, took too long.
    """
    for _ in range(MAX_GROWTHS):
        table, metadata = tables.load_with_metadata(registry, which)
        try:
            return _write(registry, table, metadata, make, partition, batch, repairs, run)
        except SchemaGrows as growth:
            changes = growth.changes
        _grow(registry, table, metadata, changes)
    raise InvalidInput(
        f"the table has grown {MAX_GROWTHS} times for one write, and others change it meanwhile; write less at once"
    )


def _write(
    registry: Registry,
    table: Table,
    metadata: TableMetadata,
    make: Write,
    partition: Partition | None,
    batch: Batch | None,
    repairs: Repair | None,
    run: Recorder | None,
) -> AppendResult:
    with _replaced(registry, table, metadata, partition) as (lease, removing):
        if batch is not None and (first := registration.first_answer(registry, table, batch)) is not None:
            return first
        started, outlived = time.perf_counter(), threading.Event()
        with intents.declared(registry, table, outlived=outlived) as intent:
            engine, broken = registry.engine(table.location, metadata.engine_config), broken_rows(metadata)
            target = table_target(table, metadata, intent, engine, outlived=outlived, broken=broken)
            with values_hidden(metadata):
                files = make(target)
            _check_partition(metadata, partition, files)
            letters = letters_of(table, metadata, broken, batch=batch)
            wrote = time.perf_counter() - started
            if not (files or letters or batch or removing or repairs):  # nothing to commit, and no key to remember
                intents.give_up(registry, intent, sweep_again=outlived.is_set())
                return AppendResult(table_uuid=table.table_uuid, rows=0, files=[], bytes=0)
            register = partial(registration.register, registry, table, intent, files, batch=batch, run=run)
            register = partial(register, letters=letters, repairs=repairs, outlived=outlived.is_set())
            if removing is None:
                result = register()
            else:
                result = retirement.once_let_go(partial(register, lease=lease, removing=removing))
            if result.replayed:  # the same batch from two sides at once: the other one was quicker
                intents.give_up(registry, intent, sweep_again=outlived.is_set())
    result = msgspec.structs.replace(result, seconds={"write": wrote, **result.seconds})
    return with_snapshot(registry, table, metadata, result) if registry.is_sync else result


@contextmanager
def _replaced(
    registry: Registry, table: Table, metadata: TableMetadata, partition: Partition | None
) -> Iterator[tuple[Lease | None, Removing | None]]:
    """The lease of a partition that is to be replaced, and what takes its files out of the table."""
    if partition is None:
        yield None, None
        return
    spec_id, key = metadata.spec_id, _key_of(metadata, partition)

    def retire_old(connection: sa.Connection, now: datetime) -> int:
        return retirement.retire_partition(connection, registry, table, spec_id, key, now)

    with retirement.partition_held(registry, table, spec_id, key) as lease:
        yield lease, retire_old


def _key_of(metadata: TableMetadata, partition: Partition) -> str:
    return partition_key(retirement.partition_values(metadata.schema, metadata.partition_by, partition))


def _check_partition(metadata: TableMetadata, partition: Partition | None, files: Sequence[DataFile]) -> None:
    """Raises FileRefused: a file is of another partition."""
    if partition is None:
        return
    key = _key_of(metadata, partition)
    for file in files:
        if partition_key(file.partition) != key or file.spec_id != metadata.spec_id:
            raise FileRefused("wrong_partition", f"rows of partition {file.partition_path} are not of {partition!r}")


def _grow(registry: Registry, table: Table, metadata: TableMetadata, changes: Sequence[Growth]) -> None:
    for change in changes:
        try:
            if change.is_new:
                evolution.add_column(registry, table, (change.column,), change.type)
            else:
                evolution.widen_column(registry, table, (change.column,), change.type)
        except InvalidSchema:
            now = tables.load_with_metadata(registry, table)[1]
            if now.schema == metadata.schema:  # else another writer was quicker, or the next attempt says what is wrong
                raise


def with_snapshot(registry: Registry, table: Table, metadata: TableMetadata, result: AppendResult) -> AppendResult:
    """The answer with its snapshot. The rows are committed already: where no snapshot can be made now, that is logged and
    the answer has none, since an error would have the caller send the rows again."""
    if metadata.format != "parquet" or result.replayed:
        return result
    started = time.perf_counter()
    try:
        flushed = snapshots.snapshot_commit.flush(registry, table.table_id, "sync")
    except LakewardError as error:
        log.error("snapshot_left_to_the_next_flush", table=str(table.identifier), error=str(error), code=error.code)
        return result
    seconds = {**result.seconds, "snapshot": time.perf_counter() - started}
    return msgspec.structs.replace(result, snapshot_id=flushed.snapshot_id, seconds=seconds)


def writer_for(data: Any, catalog: str) -> Write:
    """The writer for a kind of data: files that exist are imported, a Spark DataFrame goes through Spark, everything else
    through pyarrow.

    Rows of a table of JSON lines are always written here, a DataFrame's too.
    """

    def make(target: TableTarget) -> list[DataFile]:
        from lakeward.arrow.write import write_arrow

        paths, rows = paths_or_rows(data)
        if paths is not None:
            from lakeward.arrow.imports import import_files

            return import_files(target, paths)
        if target.metadata.format == "json":
            from lakeward.arrow.json_lines import JsonSink

            return write_arrow(target, rows.toArrow() if is_dataframe(rows) else rows, JsonSink)
        if is_dataframe(rows):
            from lakeward.spark.write import write_spark

            return write_spark(target, rows, catalog)
        return write_arrow(target, rows)

    return make


def paths_or_rows(data: Any) -> tuple[list[str | os.PathLike[str]] | None, Any]:
    """(paths, none) for a path or several, (none, data) for everything else. Rows are never texts."""
    if isinstance(data, (str, os.PathLike)):
        return [data], None
    if isinstance(data, Iterator) and not isinstance(
        data, pa.RecordBatchReader
    ):  # such as Path.glob: its first item says what it gives
        first = list(itertools.islice(data, 1))
        data = list(itertools.chain(first, data)) if _are_paths(first) else itertools.chain(first, data)
    if isinstance(data, (list, tuple)) and _are_paths(data):
        return list(data), None
    return None, data


def _are_paths(items: Sequence[Any]) -> bool:
    return bool(items) and all(isinstance(item, (str, os.PathLike)) for item in items)


def is_dataframe(data: Any) -> bool:
    """A DataFrame of Spark, classic or Connect, without importing Spark."""
    return any(
        kind.__module__.startswith("pyspark.sql") and kind.__name__ == "DataFrame" for kind in type(data).__mro__
    )
