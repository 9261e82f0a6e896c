"""Every write is a sync run: one of its own, or one that it joins.

Files, Spark DataFrames, streams and many rows may take long: their run is begun before them, and seen under way. Up to some
thousand rows in memory take milliseconds: their run is one row, written with the files in one transaction.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from lakeward.lake import writes
from lakeward.names import TableIdentifier
from lakeward.ops import error_log
from lakeward.ops.records.operations import Document, OperationType, SyncMode, SyncRun
from lakeward.ops.run_recorder import Recorder, of_table, recorded
from lakeward.registry import Registry
from lakeward.tables import registration, tables
from lakeward.tables.records.files import Batch, NamedCopy, shown_path

FIRST_FILES = 10  # whose names a run keeps
SHORT_ROWS = 100_000  # take some tenths of a second

Run: TypeAlias = "SyncRun | int | None"


class Ingest(NamedTuple):
    which: tables.Which
    data: Any  # an iterator of paths as a list
    run: Recorder


@contextmanager
def ingested(
    registry: Registry, name: TableIdentifier, data: Any, *, batch: Batch | None = None, run: Run = None
) -> Iterator[Ingest]:
    """The table, the data and the run to count for, of a block that writes them by one commit.

    Args:
        batch: the key under which the data is applied once.
        run: the run to join, which is the caller's to end.

    Raises SyncRunNotFound, StatusConflict: there is no such run, or it has ended.
    """
    which: tables.Which = name
    if batch is not None and isinstance(data, Iterator):
        which = tables.load(registry, name)
        is_replay = registration.first_answer(registry, which, batch) is not None
    else:
        is_replay = False
    # To see what an iterator gives is to read it, and a replay reads nothing.
    given = _Given(data, {"kind": "iterator"}, is_short=True) if is_replay else _described(data)
    key = None if is_replay else _failure_key(name, given, batch)
    with recorded(
        registry,
        mode=SyncMode.BATCH,
        operation=OperationType.INSERT,
        source_info=given.source,
        failure_key=key,
        run=run,
        at_once=given.is_short,
        is_last=True,
        **of_table(name),
    ) as recorder:
        yield Ingest(which, given.data, recorder)
    if key is not None:
        error_log.succeeded(registry, key)


def _failure_key(name: TableIdentifier, given: _Given, batch: Batch | None) -> str | None:
    """What is the same at each pass of a job that is repeated: its failures are one error, which a success resolves."""
    owner = (*name.namespace, name.name)
    if batch is not None:
        return batch.digest(*owner)
    if given.paths is None:
        return None
    return "files:" + hashlib.sha256(json.dumps([*owner, *given.paths]).encode()).hexdigest()


class _Given(NamedTuple):
    data: Any
    source: Document
    is_short: bool  # it is written in a moment
    paths: list[str] | None = None


def _described(data: Any) -> _Given:
    paths, rows = writes.paths_or_rows(data)
    if paths is not None:
        names = [shown_path(path) for path in paths]
        source = {"kind": "files", "count": len(paths), "first": names[:FIRST_FILES]}
        return _Given(paths, source, is_short=False, paths=[_place(path) for path in paths])
    if writes.is_dataframe(rows):
        return _Given(rows, {"kind": "dataframe"}, is_short=False)
    is_arrow = hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__")
    return _Given(rows, {"kind": "arrow" if is_arrow else "rows"}, _is_short(rows))


def _place(path: str | os.PathLike[str]) -> str:
    """The same for a file wherever a job runs."""
    name = shown_path(path)
    return name if isinstance(path, NamedCopy) or "://" in name else os.path.abspath(name)


def _is_short(rows: Any) -> bool:
    """Whether rows are in memory, and few. What may have to be computed to be counted, as a query of DuckDB's, is not asked."""
    if isinstance(rows, Mapping):
        rows = next((column for column in rows.values() if hasattr(column, "__len__")), ())
    is_frame = type(rows).__module__.partition(".")[0] in ("numpy", "pandas", "polars")
    is_in_memory = isinstance(rows, (list, tuple, pa.Table, pa.RecordBatch, pa.Array, pa.ChunkedArray))
    return (is_in_memory or is_frame) and hasattr(rows, "__len__") and len(rows) <= SHORT_ROWS
