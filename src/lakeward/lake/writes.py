"""One write, from the intent to the registration, and to the snapshot where the connection says 'sync'."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import msgspec
import structlog

from lakeward.components import snapshotter
from lakeward.errors import InvalidInput, LakewardError
from lakeward.model.files import AppendResult, Batch, DataFile, Intent
from lakeward.model.names import TableName
from lakeward.model.tables import Table, TableMetadata
from lakeward.pipeline.target import WriteTarget
from lakeward.registry import Registry, intents, registration, tables
from lakeward.registry.leases import Lease

log = structlog.get_logger()

BatchKey: TypeAlias = "Batch | tuple[str, str] | tuple[str, str, Any, Any] | None"
Write = Callable[[WriteTarget], list[DataFile]]


def batch_of(key: BatchKey) -> Batch | None:
    """(stream, id) or (stream, id, from, to) -> Batch.

    Raises:
        InvalidInput: another shape, an empty stream or id, or positions that JSON cannot hold.
    """
    if key is None:
        return None
    parts = (key.stream, key.batch_id, key.start, key.end) if isinstance(key, Batch) else key
    if not isinstance(parts, tuple) or len(parts) not in (2, 4) or not all(_is_key(k) for k in parts[:2]):
        raise InvalidInput(f"batch={key!r} is not (stream, id) or (stream, id, from, to), the first two being texts")
    try:
        msgspec.json.encode(parts[2:])
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"batch={key!r}: a position must be what JSON can hold: {error}") from None
    return Batch(*parts)


def _is_key(text: Any) -> bool:
    """PostgreSQL's texts hold neither NUL nor surrogates."""
    return isinstance(text, str) and text != "" and not any(c == "\0" or 0xD800 <= ord(c) <= 0xDFFF for c in text)


def write(
    registry: Registry,
    name: TableName,
    make: Write,
    *,
    batch: Batch | None = None,
    lease: Lease | None = None,
    sync: bool = False,
) -> AppendResult:
    """Declare a write, let `make` write files below its prefix, and register them. All of it, or nothing.

    Raises what `make` and `registration.register` raise; the files and the intent are gone then, except where it is not
    known whether the registration went through.
    """
    table, metadata = tables.load_with_metadata(registry, name)
    if batch is not None and (first := registration.first_answer(registry, table, batch)) is not None:
        return first
    started = time.perf_counter()
    intent = intents.open_intent(registry, table)
    try:
        files = make(WriteTarget(table, metadata, intent, registry.engine(table.location)))
        wrote = time.perf_counter() - started
        result = _registered(registry, table, intent, files, batch, lease)
    except BaseException as error:
        if registration.is_settled(error):
            intents.give_up(registry, intent)
        raise
    result = msgspec.structs.replace(result, seconds={"write": wrote, **result.seconds})
    return with_snapshot(registry, table, metadata, result) if sync and files else result


def _registered(
    registry: Registry,
    table: Table,
    intent: Intent,
    files: Sequence[DataFile],
    batch: Batch | None,
    lease: Lease | None,
) -> AppendResult:
    if not files and batch is None:  # nothing to commit, and no key to remember
        intents.give_up(registry, intent)
        return AppendResult(table_uuid=table.table_uuid, rows=0, files=[], bytes=0)
    result = registration.register(registry, table, intent, files, batch=batch, lease=lease)
    if result.replayed:  # the same batch from two sides at once: the other one was quicker
        intents.give_up(registry, intent)
    return result


def with_snapshot(registry: Registry, table: Table, metadata: TableMetadata, result: AppendResult) -> AppendResult:
    """The answer with its snapshot. The rows are committed already: where no snapshot can be made now, that is logged and
    the answer has none, since an error would have the caller send the rows again."""
    if metadata.format != "parquet":
        return result
    started = time.perf_counter()
    try:
        flushed = snapshotter.flush(registry, table.table_id, "sync")
    except LakewardError as error:
        log.error("snapshot_left_to_the_next_flush", table=str(table.identifier), error=str(error), code=error.code)
        return result
    seconds = {**result.seconds, "snapshot": time.perf_counter() - started}
    return msgspec.structs.replace(result, snapshot_id=flushed.snapshot_id, seconds=seconds)


def writer_for(data: Any, catalog: str) -> Write:
    """The writer for a kind of data: a Spark DataFrame through Spark, everything else through pyarrow.

    Rows of a table of JSON lines are always written here, a DataFrame's too.
    """

    def make(target: WriteTarget) -> list[DataFile]:
        if target.metadata.format == "json":
            from lakeward.pipeline.json_lines import write_json_lines

            return write_json_lines(target, data.toArrow() if _is_dataframe(data) else data)
        if _is_dataframe(data):
            from lakeward.pipeline.spark_write import write_spark

            return write_spark(target, data, catalog)
        from lakeward.pipeline.arrow_write import write_arrow

        return write_arrow(target, data)

    return make


def _is_dataframe(data: Any) -> bool:
    """A DataFrame of Spark, classic or Connect, without importing Spark."""
    return any(
        kind.__module__.startswith("pyspark.sql") and kind.__name__ == "DataFrame" for kind in type(data).__mro__
    )


def files_writer(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Write:
    """The writer for files that exist: they are checked, and copied or rewritten; the originals are never touched."""
    from lakeward.pipeline.imports import import_files

    listed = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    return lambda target: import_files(target, listed)
