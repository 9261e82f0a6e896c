"""The pipeline's own runs: begun, kept alive in the background, and ended with what they did and why they failed.

Records are about work and never stand in its way: once the work has begun, what cannot be written down is logged alone.
"""

from __future__ import annotations

import json
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
import sqlalchemy as sa

from lakeward.db import dialect
from lakeward.db.retry import retried
from lakeward.errors import error_code
from lakeward.logs import log
from lakeward.names import MAX_NAME_LENGTH, TableIdentifier
from lakeward.ops import runs
from lakeward.ops.failures import insert_failure, message_of, not_recorded
from lakeward.ops.heartbeats import heartbeats_of
from lakeward.ops.records.operations import Document, OperationType, SyncMode, SyncRun, SyncRunStatistics, SyncStatus
from lakeward.registry.handle import Registry

HEARTBEAT_SECONDS = 30.0
LEFT_OPEN = "the registry was closed, or the reader forgotten, before the run was ended"


class Recorder:
    """A run. `end` it once. Threads may share it. It is of one of three kinds:

    - under way from its beginning: it sends heartbeats, and is seen. What it has done is told by `add`, or by commits that count
      for it, whose counts grow in the transaction of their rows: one or the other, since what `add` tells is written as the
      run's total.
    - at once: work of some milliseconds that nobody would see under way. It is one row, completed when it is written, by the
      commit that counts for it: to begin and to end it would be two transactions more. One that fails is written after it.
    - joined: somebody else's, under way, who writes down its errors and ends it.
    """

    def __init__(
        self,
        registry: Registry,
        schema_name: str,
        mode: SyncMode,
        *,
        table_name: str | None = None,
        operation: OperationType | None = None,
        source_info: Document | None = None,
        destination_info: Document | None = None,
        heartbeat_seconds: float | None = None,
        owner: object = None,
        failure_key: str | None = None,
        run: SyncRun | int | None = None,
        at_once: bool = False,
        is_last: bool = False,
    ) -> None:
        """Start the run, or join one.

        Args:
            schema_name: a namespace's levels, joined; cut where it is too long for a name.
            operation: of the error, if the run fails.
            source_info, destination_info: of what JSON has.
            heartbeat_seconds: between two heartbeats; HEARTBEAT_SECONDS without.
            owner: whose run it is: if it is collected before the run was ended, the next beat ends it as cancelled.
            failure_key: as `error_log.log` has it.
            run: the one to join.
            at_once: leave the run to the commit that counts for it.
            is_last: the next commit that counts for it is its last, and completes it, unless it is joined. Its record is then
                true whatever becomes of the program after the commit.

        Raises:
            InvalidName, InvalidInput, RegistryUnavailable.
            SyncRunNotFound, StatusConflict: the run to join is not there, or has ended.
        """
        self._registry = registry
        self._schema_name, self._table_name, self._operation = schema_name, table_name, operation
        self._failure_key = failure_key
        self.heartbeat_seconds = heartbeat_seconds or HEARTBEAT_SECONDS
        self.is_last = is_last
        self.is_counted = False  # by a commit; one that was found not to have gone through takes it back
        self._lock = threading.Lock()  # guards the two below
        self._total = SyncRunStatistics()
        self._has_ended = False
        self._written: BaseException | None = None  # the last error that was written down
        self._is_beating = threading.Lock()
        self._owner = None if owner is None else weakref.ref(owner)
        self._began = time.perf_counter()
        self._is_joined = run is not None
        if run is not None:
            self._id: int | None = run.id if isinstance(run, SyncRun) else run
            runs.check_running(registry, self._id)
            return
        about = (schema_name[:MAX_NAME_LENGTH], mode, source_info, destination_info, registry.owner)
        self._values = _described(json.dumps(about))  # which takes the names of files too, whatever is in them
        self._id = None if at_once else _begun(registry, self._values)
        if not at_once:
            self._stay_alive()

    def _stay_alive(self) -> None:
        self._registry.before_close(self._left_open)
        self._heartbeats = heartbeats_of(self._registry)
        try:
            self._heartbeats.add(self)
        except Exception as problem:  # the machine has no thread left
            log.error("sync_run_without_heartbeats", sync_run_id=self._id, error=str(problem))

    @property
    def run_id(self) -> int:
        """Of a run that is under way, or joined: one at once has its id from the commit that writes it."""
        assert self._id is not None
        return self._id

    @property
    def is_shared(self) -> bool:
        """Whether other commits may hold the run's row."""
        return self._id is not None

    def count(self, connection: sa.Connection, counts: SyncRunStatistics, now: datetime) -> Callable[[], int]:
        """Count what the caller's transaction does; what tells the run's id."""
        self.is_counted = True
        if self._id is None:
            return self._insert_whole(connection, SyncStatus.COMPLETED, counts, now)
        (runs.complete_in if self.is_last and not self._is_joined else runs.add_in)(connection, self._id, counts, now)
        known = self._id
        return lambda: known

    @property
    def statistics(self) -> SyncRunStatistics:
        """What `add` was told, in all."""
        with self._lock:
            return self._total

    def add(self, **counts: int) -> None:
        """Count what was done: fields of SyncRunStatistics. It is written down with the next heartbeat, and at the end."""
        with self._lock:
            grown = {name: getattr(self._total, name) + count for name, count in counts.items()}
            self._total = msgspec.structs.replace(self._total, **grown)

    def flush(self) -> None:
        """Send a heartbeat now, with what was counted. What goes wrong is logged."""
        with self._is_beating:
            if self._has_ended or self._is_joined or self._id is None:
                return
            try:
                runs.heartbeat(self._registry, self._id, self._told())
            except Exception as error:
                why = {"error": str(error), "code": error_code(error)}
                log.warning("sync_run_heartbeat_failed", sync_run_id=self._id, **why)

    def beat(self) -> None:
        if self._owner is not None and self._owner() is None:
            self._left_open()
        else:
            self.flush()

    def failed(self, error: BaseException, details: Any = None) -> None:
        """Write an error of this run down, which need not be its end; once, if `end` is given it again."""
        if error is self._written or self._is_joined:
            return
        self._written = error
        try:
            self._insert_failure(error, self._id, details)
        except Exception as problem:
            not_recorded(error, problem, self._id)

    def _insert_failure(
        self, error: BaseException, run_id: int | None, details: Any = None, connection: sa.Connection | None = None
    ) -> None:
        insert_failure(
            self._registry,
            error,
            self._schema_name,
            self._table_name,
            sync_run_id=run_id,
            operation=self._operation,
            details=details,
            failure_key=self._failure_key,
            connection=connection,
        )

    def end(self, error: BaseException | None = None) -> None:
        """End the run: completed; after an error failed; after an interrupt cancelled. Ended before, nothing happens.

        Never raises: what cannot be written down is logged.
        """
        if error is None:
            self._end(SyncStatus.COMPLETED)
        elif isinstance(error, Exception):
            self._end(SyncStatus.FAILED, message_of(error), error)
        else:  # KeyboardInterrupt, SystemExit
            self._end(SyncStatus.CANCELLED, message_of(error))

    def _left_open(self) -> None:
        self._end(SyncStatus.CANCELLED, LEFT_OPEN)

    def _end(self, status: SyncStatus, message: str | None = None, error: Exception | None = None) -> None:
        with self._lock:
            if self._has_ended or self._is_joined:
                return
            self._has_ended = True
        if self._id is None:
            self._end_at_once(status, message, error)
            return
        self._registry.not_before_close(self._left_open)
        self._heartbeats.discard(self)
        with self._is_beating:  # one that is under way would come after the end
            pass
        if error is not None:
            self.failed(error)
        try:
            runs.complete(self._registry, self._id, status, self._told(), message)
        except Exception as problem:  # given up meanwhile, or the registry is gone: the work's outcome stays what it is
            self._not_ended(status, problem)

    def _end_at_once(self, status: SyncStatus, message: str | None, error: Exception | None) -> None:
        """Write a run by itself that no commit has written: of no rows, or with its error."""
        if status == SyncStatus.COMPLETED and self.is_counted:
            return
        try:
            self._write_whole(status, message, error)
        except Exception as problem:
            if error is None:
                self._not_ended(status, problem)
            else:
                not_recorded(error, problem)

    @retried
    def _write_whole(self, status: SyncStatus, message: str | None, error: Exception | None) -> None:
        with self._registry.database.transaction(durable=status != SyncStatus.COMPLETED) as connection:
            run_id = self._insert_whole(connection, status, SyncRunStatistics(), dialect.now(connection), message)
            if error is not None:
                self._insert_failure(error, run_id(), connection=connection)

    def _insert_whole(
        self,
        connection: sa.Connection,
        status: SyncStatus,
        counts: SyncRunStatistics,
        now: datetime,
        message: str | None = None,
    ) -> Callable[[], int]:
        took = time.perf_counter() - self._began
        return runs.insert_whole(connection, self._values, status, took, counts, now, message)

    def _not_ended(self, status: SyncStatus, problem: Exception) -> None:
        why = {"error": str(problem), "code": error_code(problem)}
        log.warning("sync_run_end_not_recorded", sync_run_id=self._id, status=status.value, **why)

    def _told(self) -> SyncRunStatistics | None:
        """The total; None where nothing was told, and the counts are those of the writes that joined."""
        total = self.statistics
        return None if total == SyncRunStatistics() else total


@retried
def _begun(registry: Registry, values: runs.Values) -> int:
    with registry.database.transaction(durable=False) as connection:  # no commit of the run's work outlives it
        return runs.insert_running(connection, values, heartbeats=True).id


@lru_cache(maxsize=256)
def _described(about: str) -> runs.Values:
    """What the row of a run of this process says of what it is, remembered: to look for secrets takes some tenths of a
    millisecond, and each append of rows says the same."""
    schema_name, mode, source_info, destination_info, owner = json.loads(about)
    return runs.described(
        schema_name,
        mode,
        source_info=source_info,
        destination_info=destination_info,
        instance_id=owner,
        node_id=socket.gethostname(),
    )


def of_table(table: TableIdentifier) -> dict[str, Any]:
    """What a Recorder is given of the table that a run writes."""
    return {
        "schema_name": ".".join(table.namespace),
        "table_name": table.name,
        "destination_info": {"table": str(table)},
    }


@contextmanager
def recorded(registry: Registry, schema_name: str, mode: SyncMode, **options: Any) -> Iterator[Recorder]:
    """A run for a block: it ends with the block, failed if that raises, and the exception goes on.

    `options` and what it raises as it starts: as Recorder.
    """
    recorder = Recorder(registry, schema_name, mode, **options)
    try:
        yield recorder
    except BaseException as error:
        recorder.end(error)
        raise
    recorder.end()
