"""Which writes are runs: those of files and of Spark DataFrames are runs of their own, and any may join one.

A write of a few rows is no run: two more transactions would cost as much as it does itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from lakeward.lake import writes
from lakeward.model.files import AppendResult, Batch
from lakeward.model.names import TableIdentifier
from lakeward.model.operations import Document, OperationType, SyncMode, SyncRun
from lakeward.registry import Registry, registration, runs, tables
from lakeward.registry.recording import of_table, recorded

FIRST_FILES = 10  # whose names a run keeps

Run: TypeAlias = "SyncRun | int | None"


def ingest(
    registry: Registry,
    name: TableIdentifier,
    data: Any,
    write: Callable[[Any, int | None], AppendResult],
    *,
    batch: Batch | None = None,
    run: Run = None,
) -> AppendResult:
    """Call `write` with the data and the id of the run whose counts are to grow, if there is one.

    Args:
        batch: the key under which `write` applies the data once.
        run: the run to join, which is the caller's to end.

    Raises what `write` raises, and:
        SyncRunNotFound, StatusConflict: there is no such run, or it has ended; nothing was written.
    """
    if batch is not None and isinstance(
        data, Iterator
    ):  # to see what it gives is to read it, and a replay reads nothing
        first = registration.first_answer(registry, tables.load(registry, name), batch)
        if first is not None:
            return first
    data, source = described(data)
    if run is not None or source is None:
        return write(data, joined(registry, run))
    with recorded(
        registry, mode=SyncMode.BATCH, operation=OperationType.INSERT, source_info=source, **of_table(name)
    ) as recorder:
        return write(data, recorder.run_id)


def joined(registry: Registry, run: Run) -> int | None:
    """The id of a run that is under way. Raises SyncRunNotFound, StatusConflict."""
    if run is None:
        return None
    run_id = run.id if isinstance(run, SyncRun) else run
    runs.check_running(registry, run_id)
    return run_id


def described(data: Any) -> tuple[Any, Document | None]:
    """The data, with an iterator of paths as a list, and what a run says of it; none for rows and Arrow data."""
    paths, rows = writes.paths_or_rows(data)
    if paths is not None:
        return paths, {"kind": "files", "count": len(paths), "first": [str(path) for path in paths[:FIRST_FILES]]}
    return rows, {"kind": "dataframe"} if writes.is_dataframe(rows) else None
