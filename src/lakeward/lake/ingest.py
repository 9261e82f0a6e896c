"""Every write is a sync run: one of its own, or one that it joins.

Files, Spark DataFrames, streams and many rows may take long: their run is begun before them, and seen under way. Up to some
thousand rows in memory take milliseconds: their run is one row, written with the files in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from lakeward.lake import writes
from lakeward.names import TableIdentifier
from lakeward.ops import runs
from lakeward.ops.counted_runs import Completed, Counting, Joined, at_once
from lakeward.ops.records.operations import Document, OperationType, SyncMode, SyncRun
from lakeward.ops.run_recorder import of_table, recorded
from lakeward.registry import Registry
from lakeward.tables import registration, tables
from lakeward.tables.records.files import AppendResult, Batch, shown_path

FIRST_FILES = 10  # whose names a run keeps
SHORT_ROWS = 100_000  # take some tenths of a second

Run: TypeAlias = "SyncRun | int | None"


def ingest(
    registry: Registry,
    name: TableIdentifier,
    data: Any,
    write: Callable[[tables.Which, Any, Counting], AppendResult],
    *,
    batch: Batch | None = None,
    run: Run = None,
) -> AppendResult:
    """Call `write` with the table, the data and the run that it counts for.

    Args:
        batch: the key under which `write` applies the data once.
        run: the run to join, which is the caller's to end.

    Raises what `write` raises, and:
        SyncRunNotFound, StatusConflict: there is no such run, or it has ended; nothing was written.
    """
    about = {"mode": SyncMode.BATCH, "operation": OperationType.INSERT, **of_table(name)}
    if batch is not None:  # one that fails at each pass of a job that is repeated is one error
        about["failure_key"] = batch.digest(*name.namespace, name.name)
    which: tables.Which = name
    if batch is not None and isinstance(
        data, Iterator
    ):  # to see what it gives is to read it, and a replay reads nothing
        which = tables.load(registry, name)
        first = registration.first_answer(registry, which, batch)
        if first is not None:
            if run is None:
                with at_once(registry, source_info={"kind": "iterator"}, **about) as once:
                    once.did_nothing()
            return first
    given = _described(data)
    if run is not None:
        return write(which, given.data, joined(registry, run))
    if not given.is_short:
        with recorded(registry, source_info=given.source, **about) as recorder:
            return write(which, given.data, Completed(recorder.run_id))
    with at_once(registry, source_info=given.source, **about) as once:
        result = write(which, given.data, once)
        if result.replayed or not once.is_counted:
            once.did_nothing()
        return result


def joined(registry: Registry, run: SyncRun | int) -> Joined:
    """A run that is under way. Raises SyncRunNotFound, StatusConflict."""
    run_id = run.id if isinstance(run, SyncRun) else run
    runs.check_running(registry, run_id)
    return Joined(run_id)


class _Given(NamedTuple):
    data: Any  # an iterator of paths as a list
    source: Document
    is_short: bool  # it is written in a moment


def _described(data: Any) -> _Given:
    paths, rows = writes.paths_or_rows(data)
    if paths is not None:
        first = [shown_path(path) for path in paths[:FIRST_FILES]]
        return _Given(paths, {"kind": "files", "count": len(paths), "first": first}, is_short=False)
    if writes.is_dataframe(rows):
        return _Given(rows, {"kind": "dataframe"}, is_short=False)
    is_arrow = hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__")
    return _Given(rows, {"kind": "arrow" if is_arrow else "rows"}, _is_short(rows))


def _is_short(rows: Any) -> bool:
    """Whether rows are in memory, and few. What may have to be computed to be counted, as a query of DuckDB's, is not asked."""
    if isinstance(rows, Mapping):
        rows = next((column for column in rows.values() if hasattr(column, "__len__")), ())
    is_frame = type(rows).__module__.partition(".")[0] in ("numpy", "pandas", "polars")
    is_in_memory = isinstance(rows, (list, tuple, pa.Table, pa.RecordBatch, pa.Array, pa.ChunkedArray))
    return (is_in_memory or is_frame) and hasattr(rows, "__len__") and len(rows) <= SHORT_ROWS
