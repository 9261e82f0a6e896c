"""`MetadataManager`: the functions for operations metadata, under the names that people look for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, ExitStack
from typing import Self, TypeVar

import sqlalchemy as sa

from lakeward import validation
from lakeward.db.database import METADATA_SCHEMA
from lakeward.errors import InvalidSetting
from lakeward.fronts import bound
from lakeward.maintenance import operations_upkeep
from lakeward.metadata import opening
from lakeward.ops import dead_letters, error_log, operation_statistics, positions, retention, runs, schema_versions
from lakeward.ops.records.operations import DeadLetterStatus, ErrorStatus, MarkerType
from lakeward.registry import Registry
from lakeward.retry import RetryConfig

T = TypeVar("T")


class MetadataManager:
    """Positions, schemas, runs, errors and dead letters of a registry. Threads may share it.

    Operations that take `connection` run in the caller's transaction (one of `transaction()`, or of the caller's own
    SQLAlchemy engine on the same database), and are committed or rolled back with it. All raise RegistryUnavailable where the
    database does not answer, InvalidName and InvalidInput for what cannot be used.
    """

    def __init__(
        self,
        connection_pool: opening.Source,
        metadata_schema: str = METADATA_SCHEMA,
        enable_cleanup: bool | None = None,
        retention_days: float | None = None,
        *,
        cleanup_schedule: str | None = None,
        heartbeat_limit_seconds: float = operations_upkeep.HEARTBEAT_LIMIT_SECONDS,
        backoff: RetryConfig = error_log.DEFAULT_BACKOFF,
        redact_columns: Collection[str] = (),
    ) -> None:
        """Nothing is opened before `initialize`, but a Lake is used as it is.

        Args:
            connection_pool: a Lake, postgresql://user@host/database, a SQLite file, or an SQLAlchemy engine (its URL is used).
            metadata_schema: where PostgreSQL has the tables; without a meaning on SQLite.
            enable_cleanup: clean up in the background, what ended more than `retention_days` ago; by itself as the settings
                say (true, 30 days). False, or a number of days, is kept in the registry: no process deletes what the strictest
                of all keeps.
            cleanup_schedule: the hours of the day, UTC, in which that may be: '02:00-05:00'; None for all.
            heartbeat_limit_seconds: in the background, runs that send heartbeats are given up after this silence.
            redact_columns: columns of records whose values are not stored.

        Raises:
            InvalidSetting, InvalidInput.
        """
        self._source = connection_pool
        self._metadata_schema = metadata_schema
        self._registry = opening.shared(connection_pool, metadata_schema)
        self._own = self._registry is None
        self._enable_cleanup = enable_cleanup
        self._retention_days = retention_days
        self._schedule = None if cleanup_schedule is None else retention.schedule(cleanup_schedule)
        self._heartbeat_limit = heartbeat_limit_seconds
        self.backoff = backoff
        self.redact_columns = frozenset(redact_columns)
        self._background: ExitStack | None = None
        # In the background they would be refused again and again, and nobody would see it.
        if retention_days is not None:
            validation.span(retention_days, "retention_days", "days")
        validation.span(heartbeat_limit_seconds, "heartbeat_limit_seconds", "seconds")

    def initialize(self) -> None:
        """Open the registry, making its tables where there are none, and start what runs in the background.

        Raises:
            InvalidSetting, RegistryUnavailable, RegistryTooNew.
        """
        if self._registry is None:
            self._registry = opening.opened(self._source, self._metadata_schema)
        if self._background is None:
            self._background = ExitStack()
            self._background.enter_context(
                operations_upkeep.running(
                    self._registry,
                    enable_cleanup=self._enable_cleanup,
                    retention_days=self._retention_days,
                    schedule=self._schedule,
                    heartbeat_seconds=self._heartbeat_limit,
                )
            )

    def close(self) -> None:
        """End what runs in the background, and let go of what this manager has opened; a Lake stays open."""
        background, self._background = self._background, None
        if background is not None:
            background.close()
        if self._own and self._registry is not None:
            self._registry.close()
            self._registry = None

    def __enter__(self) -> Self:
        self.initialize()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def registry(self) -> Registry:
        """The open registry. Raises InvalidSetting: it is not open."""
        if self._registry is None:
            raise InvalidSetting("the metadata manager is not open; call initialize() first, or use it in a with block")
        return self._registry

    def transaction(self) -> AbstractContextManager[sa.Connection]:
        """A transaction to give to several operations as `connection`.

        Nothing else that writes to the registry can be called in its block, an append least of all: it would be committed apart
        from it. `lake.append(..., batch=(stream, id, from, to))` commits rows and where they came from together.

        Raises NestedTransaction (what is called in the block, or this in another one's).
        """
        return self.registry.database.transaction(only=True)

    def run(self, call: Callable[[MetadataManager], T]) -> T:
        """What a function makes of this manager; awaited, the function runs in one thread."""
        return call(self)

    # Positions ------------------------------------------------------------------------------------------------------------
    update_stream_position = bound(positions.update, MarkerType.STREAM)
    get_stream_position = bound(positions.get, MarkerType.STREAM)
    update_batch_timestamp = bound(positions.update_timestamp)
    get_batch_timestamp = bound(positions.get_timestamp)
    update_initial_marker = bound(positions.update, MarkerType.INITIAL)
    get_initial_marker = bound(positions.get, MarkerType.INITIAL)
    get_active_markers = bound(positions.list_markers)
    delete_marker = bound(positions.delete)

    # Schemas --------------------------------------------------------------------------------------------------------------
    register_schema = bound(schema_versions.register)
    get_schema_version = bound(schema_versions.get)
    list_schema_versions = bound(schema_versions.list_versions)
    list_schema_tables = bound(schema_versions.list_tables)
    diff_schema_versions = bound(schema_versions.diff)
    check_schema_compatibility = bound(schema_versions.check)
    tie_schema_version = bound(schema_versions.tie)

    # Runs -----------------------------------------------------------------------------------------------------------------
    start_sync_run = bound(runs.start)
    heartbeat = bound(runs.heartbeat)
    update_sync_run = bound(runs.update_statistics)
    complete_sync_run = bound(runs.complete)
    get_sync_run = bound(runs.get)
    list_sync_runs = bound(runs.list_runs)
    recover_failed_runs = bound(runs.recover)

    # Errors ---------------------------------------------------------------------------------------------------------------
    log_error = bound(error_log.log, own=("backoff", "redact_columns"))
    errors_due = bound(error_log.due)
    record_retry = bound(error_log.record_retry, own=("backoff", "redact_columns"))
    resolve_error = bound(error_log.end, ErrorStatus.RESOLVED)
    ignore_error = bound(error_log.end, ErrorStatus.IGNORED)
    resolve_errors = bound(error_log.end_all, ErrorStatus.RESOLVED)
    ignore_errors = bound(error_log.end_all, ErrorStatus.IGNORED)
    get_error = bound(error_log.get)
    list_errors = bound(error_log.list_errors)
    get_error_trends = bound(error_log.trends)

    # Dead letters ---------------------------------------------------------------------------------------------------------
    add_to_dead_letter_queue = bound(dead_letters.add, own=("redact_columns",))
    get_dead_letter = bound(dead_letters.get)
    list_dead_letters = bound(dead_letters.list_dead_letters)
    count_dead_letters = bound(dead_letters.counts)
    claim_dead_letters = bound(dead_letters.claim)
    release_dead_letter = bound(dead_letters.release)
    resolve_dead_letter = bound(dead_letters.end, DeadLetterStatus.RESOLVED)
    discard_dead_letter = bound(dead_letters.end, DeadLetterStatus.DISCARDED)
    requeue_dead_letter = bound(dead_letters.requeue)
    release_dead_letters = bound(dead_letters.reopen_all, "released")
    resolve_dead_letters = bound(dead_letters.end_all, DeadLetterStatus.RESOLVED)
    discard_dead_letters = bound(dead_letters.end_all, DeadLetterStatus.DISCARDED)
    requeue_dead_letters = bound(dead_letters.reopen_all, "requeued")

    # All together ---------------------------------------------------------------------------------------------------------
    get_sync_statistics = bound(operation_statistics.statistics)

    def cleanup_old_metadata(self, retention_days: float | None = None) -> dict[str, int]:
        """Delete what ended before the retention; how many rows of each table. Raises LeaseHeld: another is at it."""
        given = self._retention_days if retention_days is None else retention_days
        return retention.cleanup(self.registry, self.registry.settings.retention_days if given is None else given)
