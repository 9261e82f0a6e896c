"""Rows of given files written anew without Spark: sorted as the table says, cut into as many files as asked for, row ids kept.

Without a sort order rows are streamed. With one they are held, since a file is sorted as a whole; what would take more than
MAX_HELD_BYTES there is refused before anything is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.arrow import scan, splitting
from lakeward.arrow.file_writer import SLICE_ROWS, partition_terms, write_files
from lakeward.arrow.target import TableTarget
from lakeward.arrow.write import ParquetSink, SortedSink
from lakeward.errors import InvalidSchema
from lakeward.storage.engine import StorageEngine
from lakeward.tables.records.files import DataFile, RegisteredFile
from lakeward.tables.records.tables import Document, TableMetadata

MAX_HELD_BYTES = 512 << 20  # of a group that is sorted, as Arrow holds it
_NO_LIMIT = 1 << 62  # bytes: rows say where a file ends here
_WHOLE = 1 << 20  # bytes: a file up to this is read by one request
_AHEAD = 8  # files that are read at once

# The fields of row lineage (Iceberg specification, 'Reserved Field IDs'); no column of a table has their names.
ROW_ID, LAST_UPDATED = "_row_id", "_last_updated_sequence_number"
_LINEAGE: list[Document] = [
    {"id": 2147483540, "name": ROW_ID, "required": False, "type": "long"},
    {"id": 2147483539, "name": LAST_UPDATED, "required": False, "type": "long"},
]


class NotHere(Exception):
    """Spark has to merge these: sorting would take too much memory, or Arrow lacks a type."""


def merge(
    target: TableTarget,
    versions: Sequence[TableMetadata],
    files: Sequence[RegisteredFile],
    expected: int,
    check: Callable[[], object] = lambda: None,
) -> list[DataFile]:
    """Write the rows of a group of Parquet files as new files below the intent's prefix; nothing is committed.

    A partition gets `expected` files, of about as many rows each. With a sort order each is sorted, and their rows do not
    overlap in it; without one, rows keep the order of the files and their own. In format version 3 the rows of committed
    files keep their ids and when they last changed (specification, 'Row Lineage').

    Args:
        versions: all that the table's metadata had; rows are written by the last.
        check: called now and then; what it raises ends the merge.

    Raises:
        NotHere: files that are finished by then are left to the caller.
        FileRefused: wrong_partition, for a row whose partition of the table's current spec no manifest can hold.
        ObjectNotFound, StorageError: when a file is read or written.
    """
    if target.table.format_version >= 3 and any(file.snapshot_id is not None for file in files):
        schema = {**versions[-1].schema, "fields": [*versions[-1].schema["fields"], *_LINEAGE]}
        target = replace(target, schema=schema)
        versions = [*versions[:-1], msgspec.structs.replace(versions[-1], schema=schema)]
    target = replace(target, file_size=_NO_LIMIT)
    try:
        _ = target.arrow_schema
    except InvalidSchema as error:
        raise NotHere(str(error)) from error
    rows: Iterator[pa.RecordBatch] = _checked(_rows(target, versions, files), target, check)
    order = target.sort_by["fields"]
    if order:
        rows = _sorted(_held(rows, target), order, splitting.terms(order, target.schema))
    total = sum(file.row_count for file in files)
    made: list[DataFile] = []
    for piece in _pieces(rows, -(-total // expected)):
        made += write_files(target, piece, SortedSink if order else ParquetSink)
    return made


# Reading ------------------------------------------------------------------------------------------------------------------
def _rows(
    target: TableTarget, versions: Sequence[TableMetadata], files: Sequence[RegisteredFile]
) -> Iterator[pa.RecordBatch]:
    reading = scan.prepare(versions)
    has_lineage = ROW_ID in reading.chosen.names
    with ThreadPoolExecutor(_AHEAD, "lakeward-merge") as threads:
        for file, engine in _opened(target.engine, files, threads):
            position = 0
            for batch in scan.scan_files(reading, [file], lambda paths: dict.fromkeys(paths), engine):
                yield _with_lineage(batch, file, position) if has_lineage else batch
                position += batch.num_rows


def _with_lineage(batch: pa.RecordBatch, file: RegisteredFile, position: int) -> pa.RecordBatch:
    """A file's rows from a position on with what they inherit from it, where they have nothing of their own."""
    if file.first_row_id is None:
        return batch
    first = file.first_row_id + position
    own = {ROW_ID: pa.arange(first, first + batch.num_rows), LAST_UPDATED: pa.scalar(file.sequence_number, pa.int64())}
    for name, value in own.items():
        index = batch.schema.get_field_index(name)
        batch = batch.set_column(index, batch.schema.field(index), pc.coalesce(batch.column(index), value))
    return batch


def _opened(
    engine: StorageEngine, files: Iterable[RegisteredFile], threads: ThreadPoolExecutor
) -> Iterator[tuple[RegisteredFile, Any]]:
    """The files in their order, each with what it is read by: small ones are read ahead, since to open each takes longest."""
    coming: deque[tuple[RegisteredFile, Future[bytes] | None]] = deque()
    try:
        for file in files:
            small = file.file_size <= _WHOLE
            coming.append((file, threads.submit(engine.read, file.file_path) if small else None))
            if len(coming) > _AHEAD:
                yield _ready(engine, *coming.popleft())
        while coming:
            yield _ready(engine, *coming.popleft())
    finally:
        for _, future in coming:
            if future is not None:
                future.cancel()


def _ready(engine: StorageEngine, file: RegisteredFile, future: Future[bytes] | None) -> tuple[RegisteredFile, Any]:
    return file, engine if future is None else _InMemory(future)


@dataclass(frozen=True)
class _InMemory:
    """What a scan opens in place of the storage: a file that is read whole."""

    future: Future[bytes]
    name: str = field(default="local", init=False)  # no ranges to read together

    def open_input(self, _: str) -> pa.NativeFile:
        return pa.BufferReader(self.future.result())


# Sorting and cutting ------------------------------------------------------------------------------------------------------
def _checked(
    rows: Iterable[pa.RecordBatch], target: TableTarget, check: Callable[[], object]
) -> Iterator[pa.RecordBatch]:
    terms = partition_terms(target)
    for batch in rows:
        check()
        splitting.check_held(batch, terms)
        yield batch


def _held(rows: Iterable[pa.RecordBatch], target: TableTarget) -> pa.Table:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        held.append(batch)
        size += batch.nbytes
        if size > MAX_HELD_BYTES:
            raise NotHere(f"the rows to sort take more than {MAX_HELD_BYTES:,} bytes")
    return pa.Table.from_batches(held, target.arrow_schema)


def _sorted(table: pa.Table, order: Sequence[Document], terms: Sequence[splitting.Term]) -> Iterator[pa.RecordBatch]:
    """The rows in order, some at a time: all of them together are there once only, and as long as they are asked for."""
    places = splitting.places(table, order, terms)
    table = table.combine_chunks()
    for start in range(0, len(places), SLICE_ROWS):
        yield from table.take(places.slice(start, SLICE_ROWS)).combine_chunks().to_batches()


def _pieces(rows: Iterable[pa.RecordBatch], count: int) -> Iterator[Iterator[pa.RecordBatch]]:
    """The rows in pieces of so many, one after the other: each is to be used up before the next is asked for."""
    waiting = iter(rows)
    rest = next(waiting, None)

    def piece() -> Iterator[pa.RecordBatch]:
        nonlocal rest
        left = count
        while rest is not None and left:
            part = rest.slice(0, left)
            left -= part.num_rows
            rest = rest.slice(part.num_rows) if part.num_rows < rest.num_rows else next(waiting, None)
            yield part

    while rest is not None:
        yield piece()
