"""A writer for small rows that keep coming: they gather in open files, which are registered when a limit is reached."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple, Self

import pyarrow as pa

from lakeward.arrow.broken_rows import BrokenRow
from lakeward.arrow.coerce import are_columns, coerce
from lakeward.arrow.file_writer import partition_terms
from lakeward.arrow.json_lines import JsonSink
from lakeward.arrow.target import table_target
from lakeward.arrow.write import write_arrow
from lakeward.background import Worker, begin
from lakeward.errors import InvalidInput
from lakeward.lake import ingest, invalid_rows, writes
from lakeward.logs import log
from lakeward.names import TableName
from lakeward.ops.records.operations import OperationType, SyncMode
from lakeward.ops.run_recorder import Recorder, of_table
from lakeward.registry import Registry, intents
from lakeward.tables import registration, tables
from lakeward.tables.records.files import AppendResult, DataFile
from lakeward.tables.records.tables import Table, TableMetadata

QUEUE_LIMIT = 16  # batches between `write` and the file: a full queue makes `write` wait
TICK_SECONDS = 0.2


class RollingWriter:
    """Rows go into an open file; at the first limit reached it is closed and registered, as one commit.

    Rows that have not been registered are not in the table: `uncommitted_rows` counts them. They are gone if the process
    dies. One that fails to be registered raises at the next `write`, `rotate` or `close`. Threads may share a writer.
    """

    def __init__(
        self,
        registry: Registry,
        name: TableName,
        rotate_seconds: float = 60.0,
        rotate_bytes: int = 128 << 20,
        rotate_rows: int = 1_000_000,
        *,
        run: ingest.Run = None,
    ) -> None:
        """Limits: seconds since a file's first row, bytes of its rows in memory (Arrow), rows.

        Without a `run` to join, the writer is one for as long as it is open; a rotation that fails makes it a failed one.

        Raises:
            TableNotFound, InvalidName, SyncRunNotFound, StatusConflict.
            InvalidInput: a limit that is not greater than 0.
        """
        for limit, value in (("seconds", rotate_seconds), ("bytes", rotate_bytes), ("rows", rotate_rows)):
            if value <= 0:
                raise InvalidInput(f"rotate_{limit}={value!r} must be greater than 0")
        self._registry = registry
        self._limits = (rotate_seconds, rotate_bytes, rotate_rows)
        self._lock = threading.RLock()
        self._open: _OpenFile | None = None
        self._registering: _OpenFile | None = None
        self._failure: BaseException | None = None
        self._is_closed = False
        self.committed_rows = 0
        self.dead_letters = 0  # rows that did not fit and were committed as dead letters
        self.commits: list[AppendResult] = []
        self._table = tables.load(registry, name)  # by its id from now on: one made again under the name is another
        self._lost: BaseException | None = None  # the last rotation that failed: the run has, too
        self._run = Recorder(
            registry,
            mode=SyncMode.STREAM,
            operation=OperationType.INSERT,
            source_info={"kind": "writer"},
            run=run,
            **of_table(self._table.identifier),
        )
        self._timer = Worker("lakeward-rotate", self._watch_time)
        self._timer.wake(TICK_SECONDS)

    @property
    def uncommitted_rows(self) -> int:
        """Rows that were written but are in no registered file."""
        return sum(file.rows for file in (self._open, self._registering) if file is not None)

    def write(self, rows: Mapping[str, Any] | Iterable[Any] | pa.Table | pa.RecordBatch) -> None:
        """One row (a dict), rows, or an Arrow table. Raises as `lake.append` does; a refused call writes none of its rows.

        Where the table's policy sends rows that do not fit to the dead letters, they get there with the file's other rows.
        """
        data = [rows] if isinstance(rows, Mapping) and not are_columns(rows) else rows
        self._registry.database.check_usable()  # in a forked child its thread is not there, and its lock may be held
        with self._lock:
            self._raise_failure()
            if self._is_closed:
                raise InvalidInput(
                    f"the writer of {self._table.identifier} is closed; open another with lake.writer(...)"
                )
            if self._open is None:
                self._open = _OpenFile(self._registry, *tables.load_with_metadata(self._registry, self._table))
            checked = self._open.check(data)
            if not self._open.has_room_for(checked):
                table, metadata = self._open.table, self._open.metadata
                self.rotate()
                self._open = _OpenFile(self._registry, table, metadata)  # what the rows were checked against
            self._open.put(checked)
            _, max_bytes, max_rows = self._limits
            if self._open.rows >= max_rows or self._open.bytes >= max_bytes or self._open.is_full_of_broken_rows:
                self.rotate()

    def rotate(self) -> AppendResult | None:
        """Close the open file and register it now; None if there are no rows.

        Raises as `lake.append` does: the rows of that file are then lost to the table, and the message says how many.
        """
        self._registry.database.check_usable()
        with self._lock:
            self._raise_failure()
            current, self._open = self._open, None
            if current is None:
                return None
            if not current.rows and not current.dead_letters:
                current.give_up()
                return None
            self._registering = current
            try:
                result = current.commit(self._run)
                self.committed_rows += result.rows
                self.dead_letters += result.dead_letters
            except BaseException as error:
                self._lost = error
                if isinstance(error, Exception):
                    self._run.failed(error)
                raise
            finally:
                self._registering = None
            self.commits.append(result)
            if self._registry.is_sync:
                result = writes.with_snapshot(self._registry, current.table, current.metadata, result)
                self.commits[-1] = result
            return result

    def close(self) -> None:
        """Register what is left and end. Raises as `rotate` does."""
        if self._is_closed:
            return
        self._registry.database.check_usable()
        error: BaseException | None = None
        try:
            self.rotate()
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._is_closed = True
            self._timer.stop()
            self._end_run(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        if kind is None:
            self.close()
            return
        if self._registry.database.is_forked:
            return
        with self._lock:  # the block failed: what is not registered yet stays out of the table
            self._is_closed = True
            current, self._open = self._open, None
            if current is not None:
                log.warning(
                    "rows_not_committed",
                    table=str(self._table.identifier),
                    rows=current.rows,
                    dead_letters=current.dead_letters,
                )
                current.give_up()
        self._timer.stop()
        self._end_run(error)

    def _end_run(self, error: BaseException | None) -> None:
        self._run.end(error or self._lost)

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _watch_time(self) -> float:
        with self._lock:
            current = self._open
            if current is not None and time.monotonic() - current.opened >= self._limits[0]:
                try:
                    self.rotate()
                except BaseException as error:
                    self._failure = error
        return TICK_SECONDS


class _Checked(NamedTuple):
    batches: list[pa.RecordBatch]  # of the table's Arrow schema
    broken: list[BrokenRow]


class _GivenUp(Exception):
    """What was written is not to be committed."""


class _OpenFile:
    """One write under way: a thread writes what comes through a queue, below the prefix of one intent."""

    def __init__(self, registry: Registry, table: Table, metadata: TableMetadata) -> None:
        self._registry = registry
        self.table, self.metadata = table, metadata
        self._declared = ExitStack()  # left with an error, the write is given up
        self.intent = self._declared.enter_context(intents.declared(registry, self.table))
        self.rows = 0
        self.bytes = 0
        self.opened = time.monotonic()
        self._queue: queue.Queue[pa.RecordBatch | None] = queue.Queue(QUEUE_LIMIT)
        self._broken = invalid_rows.broken_rows(self.metadata)
        self._target = table_target(self.table, self.metadata, self.intent, registry.engine(self.table.location))
        self._files = begin("lakeward-file", self._write)

    @property
    def dead_letters(self) -> int:
        return 0 if self._broken is None else len(self._broken.rows)

    @property
    def is_full_of_broken_rows(self) -> bool:
        return self._broken is not None and len(self._broken.rows) >= self._broken.limit

    def check(self, data: Any) -> _Checked:
        """Check rows against the schema: all of them, before the first is written. Raises FileRefused, InvalidInput."""
        broken = None if self._broken is None else self._broken.new()
        with invalid_rows.values_hidden(self.metadata):
            batches = list(coerce(data, self.metadata.schema, partition_terms(self._target), broken))
        return _Checked(batches, [] if broken is None else broken.rows)

    def has_room_for(self, checked: _Checked) -> bool:
        """Whether the file would hold no more broken rows than one write may have."""
        return self._broken is None or len(self._broken.rows) + len(checked.broken) <= self._broken.limit

    def put(self, checked: _Checked) -> None:
        """Hand rows that `check` gave to the file."""
        if self._broken is not None:
            self._broken.rows += checked.broken
        for batch in checked.batches:
            self._hand_over(batch)
            self.rows += batch.num_rows
            self.bytes += batch.nbytes

    def _hand_over(self, batch: pa.RecordBatch | None) -> None:
        while True:
            if self._files.done():
                self._files.result()
            try:
                self._queue.put(batch, timeout=TICK_SECONDS)
                return
            except queue.Full:
                continue

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while (batch := self._queue.get()) is not None:
            yield batch

    def _write(self) -> list[DataFile]:
        rows = pa.RecordBatchReader.from_batches(self._target.arrow_schema, self._batches())
        return write_arrow(self._target, rows, JsonSink if self.metadata.format == "json" else None)

    def commit(self, run: Recorder) -> AppendResult:
        try:
            with self._declared:
                self._hand_over(None)
                files = self._files.result()
                dead = invalid_rows.letters_of(self.table, self.metadata, self._broken)
                return registration.register(self._registry, self.table, self.intent, files, letters=dead, run=run)
        except BaseException as error:
            log.error("rows_not_committed", table=str(self.table.identifier), rows=self.rows, error=str(error))
            raise

    def give_up(self) -> None:
        try:
            self._hand_over(None)
        except BaseException as error:
            if not self._files.done() or error is not self._files.exception():
                raise  # the file's thread may have failed, which changes nothing here
        self._files.exception()
        with (
            suppress(_GivenUp),
            self._declared,
        ):  # which gives the write up once: left open, it would again when it is forgotten
            raise _GivenUp
