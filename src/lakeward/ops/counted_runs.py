"""The run that a commit counts for, in its own transaction: one under way, whose counts grow, or one that is written whole.

A run that is begun and ended takes two transactions more than its work. Work of some milliseconds has no use for that: nobody
would see it under way. Its run is one row, completed when it is written, with the work; only one that fails is written after it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import sqlalchemy as sa

from lakeward.db import dialect
from lakeward.db.retry import retried
from lakeward.errors import error_code
from lakeward.logs import log
from lakeward.ops import runs
from lakeward.ops.records.operations import Document, OperationType, SyncMode, SyncRunStatistics, SyncStatus
from lakeward.ops.run_recorder import described, insert_failure, message_of, not_recorded
from lakeward.registry.handle import Registry


class Counting(Protocol):
    @property
    def is_shared(self) -> bool:
        """Whether other commits may hold the run's row."""

    def count(self, connection: sa.Connection, counts: SyncRunStatistics, now: datetime) -> int:
        """Count what the caller's transaction does; the run's id."""


@dataclass(frozen=True)
class Joined:
    """A run under way."""

    run_id: int

    @property
    def is_shared(self) -> bool:
        return True

    def count(self, connection: sa.Connection, counts: SyncRunStatistics, now: datetime) -> int:
        runs.add_in(connection, self.run_id, counts, now)
        return self.run_id


@dataclass(frozen=True)
class Completed(Joined):
    """A run under way that the commit ends: it was for this commit alone, or this is its last."""

    def count(self, connection: sa.Connection, counts: SyncRunStatistics, now: datetime) -> int:
        runs.complete_in(connection, self.run_id, counts, now)
        return self.run_id


class AtOnce:
    """A run that is written whole, by the commit that counts for it. It begins when this is made."""

    is_shared = False

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
        failure_key: str | None = None,
    ) -> None:
        """As Recorder; documents of what JSON has. Raises InvalidName, InvalidInput."""
        self._registry = registry
        self._schema_name, self._table_name, self._operation = schema_name, table_name, operation
        self._failure_key = failure_key
        self._began = time.perf_counter()
        self._values = described(registry, schema_name, mode, source_info, destination_info)
        self.is_counted = False  # by a transaction, which may have been rolled back since

    def count(self, connection: sa.Connection, counts: SyncRunStatistics, now: datetime) -> int:
        self.is_counted = True
        return self._insert(connection, SyncStatus.COMPLETED, counts, now)

    def did_nothing(self) -> None:
        """Write a completed run of no rows, by itself: there was no commit that could. What goes wrong is logged."""
        try:
            self._write(SyncStatus.COMPLETED)
        except Exception as problem:
            log.warning("sync_run_end_not_recorded", status="completed", error=str(problem), code=error_code(problem))

    def failed(self, error: BaseException) -> None:
        """Write a failed run and its error, or after an interrupt a cancelled one. What goes wrong is logged."""
        try:
            self._write(SyncStatus.FAILED if isinstance(error, Exception) else SyncStatus.CANCELLED, error)
        except Exception as problem:
            not_recorded(error, problem)

    @retried
    def _write(self, status: SyncStatus, error: BaseException | None = None) -> None:
        """Write the run of no rows by itself; a failed one with its error."""
        with self._registry.database.transaction(durable=error is not None) as connection:
            now, message = dialect.now(connection), None if error is None else message_of(error)
            run_id = self._insert(connection, status, SyncRunStatistics(), now, message)
            if error is not None and status == SyncStatus.FAILED:
                insert_failure(
                    self._registry,
                    error,
                    self._schema_name,
                    self._table_name,
                    sync_run_id=run_id,
                    operation=self._operation,
                    failure_key=self._failure_key,
                    connection=connection,
                )

    def _insert(
        self,
        connection: sa.Connection,
        status: SyncStatus,
        counts: SyncRunStatistics,
        now: datetime,
        message: str | None = None,
    ) -> int:
        took = time.perf_counter() - self._began
        return runs.insert_whole(connection, self._values, status, took, counts, now, message)


@contextmanager
def at_once(registry: Registry, schema_name: str, mode: SyncMode, **options: Any) -> Iterator[AtOnce]:
    """A run for a block that counts for it; if the block raises it is a failed one, and the exception goes on.

    `options` and what it raises before the block: as AtOnce.
    """
    run = AtOnce(registry, schema_name, mode, **options)
    try:
        yield run
    except BaseException as error:
        run.failed(error)
        raise
