"""`MetadataManager`: a thin front over the registry's functions for operations metadata."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, ExitStack
from datetime import datetime
from typing import Any, Self, TypeVar

import sqlalchemy as sa

from lakeward import validation
from lakeward.db.database import METADATA_SCHEMA
from lakeward.errors import InvalidSetting
from lakeward.maintenance import metadata_upkeep
from lakeward.metadata import opening
from lakeward.ops import dead_letters, error_log, operation_statistics, positions, retention, runs, schema_versions
from lakeward.ops.positions import ANYTHING
from lakeward.ops.records.operations import (
    DeadLetter,
    DeadLetterFilter,
    Document,
    ErrorFilter,
    ErrorRecord,
    ErrorStatus,
    ErrorTrend,
    ErrorType,
    MarkerType,
    OperationType,
    SyncMarker,
    SyncMode,
    SyncRun,
    SyncRunStatistics,
    SyncStatus,
)
from lakeward.ops.records.schema_versions import (
    Compatibility,
    EvolutionType,
    SchemaChange,
    SchemaDefinition,
    SchemaVersion,
)
from lakeward.registry import Registry

# One class in sections, not a mixin for each subject: every method is one call, and each mixin would have to declare the
# registry, the back-off and the redacted columns anew, while readers of the class would have to look into six files.
T = TypeVar("T")
Expected = Mapping[str, Any] | positions._Anything | None


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
        heartbeat_limit_seconds: float = metadata_upkeep.HEARTBEAT_LIMIT_SECONDS,
        backoff: error_log.Backoff = error_log.DEFAULT_BACKOFF,
        redact_columns: Collection[str] = (),
    ) -> None:
        """Nothing is opened before `initialize`, but a Lake is used as it is.

        Args:
            connection_pool: a Lake, postgresql://user@host/database, a SQLite file, or an SQLAlchemy engine (its URL is used).
            metadata_schema: where PostgreSQL has the tables; without a meaning on SQLite.
            enable_cleanup: clean up in the background, what ended more than `retention_days` ago; by itself as the settings
                say (true, 30 days). False, or a number of days, is kept in the registry: no process deletes what the strictest
                of all keeps.
            cleanup_schedule: the hours of the day, UTC, in which that may be: '02:00-05:00'; none for all.
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
        self._backoff = backoff
        self._redacted = frozenset(redact_columns)
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
                metadata_upkeep.running(
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
        """Raises InvalidSetting: it is not open."""
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
    def update_stream_position(
        self,
        schema_name: str,
        position: Mapping[str, Any],
        table_name: str | None = None,
        sync_run_id: int | None = None,
        *,
        expected: Expected = ANYTHING,
        connection: sa.Connection | None = None,
    ) -> SyncMarker:
        """Set where a stream goes on; `expected` is the position that must be there now, None for none yet.

        Raises:
            PositionConflict: another one is there; nothing was changed.
            SyncRunNotFound.
        """
        return positions.update(
            self.registry,
            MarkerType.STREAM,
            schema_name,
            position,
            table_name,
            sync_run_id,
            expected=expected,
            connection=connection,
        )

    def get_stream_position(self, schema_name: str, table_name: str | None = None) -> Document | None:
        """As it was written, the last that has committed; none if there is none."""
        return positions.get(self.registry, MarkerType.STREAM, schema_name, table_name)

    def update_batch_timestamp(
        self,
        schema_name: str,
        timestamp: datetime,
        table_name: str | None = None,
        sync_run_id: int | None = None,
        *,
        connection: sa.Connection | None = None,
    ) -> SyncMarker:
        """Set the time up to which batches have read. Raises SyncRunNotFound."""
        return positions.update_timestamp(
            self.registry, schema_name, timestamp, table_name, sync_run_id=sync_run_id, connection=connection
        )

    def get_batch_timestamp(self, schema_name: str, table_name: str | None = None) -> datetime | None:
        """The time up to which batches have read, as it was set; none if there is none.

        Raises:
            InvalidInput: a position that was set otherwise holds no time there.
        """
        return positions.get_timestamp(self.registry, schema_name, table_name)

    def update_initial_marker(
        self,
        schema_name: str,
        position: Mapping[str, Any],
        table_name: str | None = None,
        sync_run_id: int | None = None,
        *,
        expected: Expected = ANYTHING,
        connection: sa.Connection | None = None,
    ) -> SyncMarker:
        """Set how far an initial load is, such as {"state": "completed", "chunk": 7}. Raises as `update_stream_position`."""
        return positions.update(
            self.registry,
            MarkerType.INITIAL,
            schema_name,
            position,
            table_name,
            sync_run_id,
            expected=expected,
            connection=connection,
        )

    def get_initial_marker(self, schema_name: str, table_name: str | None = None) -> Document | None:
        """How far an initial load is, as it was written; none if there is none."""
        return positions.get(self.registry, MarkerType.INITIAL, schema_name, table_name)

    def get_active_markers(
        self, schema_name: str | None = None, marker_type: MarkerType | None = None
    ) -> list[SyncMarker]:
        """By id."""
        return positions.list_markers(self.registry, schema_name, marker_type)

    def delete_marker(self, schema_name: str, marker_type: MarkerType, table_name: str | None = None) -> bool:
        """Forget a position, so that the sync starts anew; whether there was one."""
        return positions.delete(self.registry, marker_type, schema_name, table_name)

    # Schemas --------------------------------------------------------------------------------------------------------------
    def register_schema(
        self,
        schema_name: str,
        table_name: str,
        schema_definition: SchemaDefinition,
        evolution_type: EvolutionType | None = None,
        *,
        renamed: Mapping[str, str] | None = None,
        iceberg_schema_id: int | None = None,
        source_position: Any = None,
        connection: sa.Connection | None = None,
    ) -> SchemaVersion:
        """The version of a definition: the latest one if that says the same, else a new one.

        Raises:
            InvalidSchema: the definition contradicts itself, or no change of the given type was made.
        """
        return schema_versions.register(
            self.registry,
            schema_name,
            table_name,
            schema_definition,
            evolution_type,
            renamed=renamed,
            iceberg_schema_id=iceberg_schema_id,
            source_position=source_position,
            connection=connection,
        )

    def get_schema_version(self, schema_name: str, table_name: str, version: int | None = None) -> SchemaVersion | None:
        """A version, the latest without a number; none where there is none."""
        return schema_versions.get(self.registry, schema_name, table_name, version)

    def list_schema_versions(self, schema_name: str, table_name: str) -> list[SchemaVersion]:
        """By number."""
        return schema_versions.list_versions(self.registry, schema_name, table_name)

    def list_schema_tables(self, schema_name: str | None = None) -> list[tuple[str, str, int]]:
        """(schema, table, latest version), by name."""
        return schema_versions.list_tables(self.registry, schema_name)

    def diff_schema_versions(
        self, schema_name: str, table_name: str, old_version: int, new_version: int
    ) -> list[SchemaChange]:
        """What leads from one version to another. Raises SchemaVersionNotFound."""
        return schema_versions.diff(self.registry, schema_name, table_name, old_version, new_version)

    def check_schema_compatibility(
        self, schema_name: str, table_name: str, schema_definition: SchemaDefinition
    ) -> Compatibility:
        """What a definition would allow as the next version. Raises SchemaVersionNotFound, InvalidSchema."""
        return schema_versions.check(self.registry, schema_name, table_name, schema_definition)

    def tie_schema_version(
        self,
        schema_name: str,
        table_name: str,
        version: int,
        *,
        iceberg_schema_id: int | None = None,
        source_position: Any = None,
        connection: sa.Connection | None = None,
    ) -> SchemaVersion:
        """Say which Iceberg schema a version became, and where it took effect. Raises SchemaVersionNotFound."""
        return schema_versions.tie(
            self.registry,
            schema_name,
            table_name,
            version,
            iceberg_schema_id=iceberg_schema_id,
            source_position=source_position,
            connection=connection,
        )

    # Runs -----------------------------------------------------------------------------------------------------------------
    def start_sync_run(
        self,
        schema_name: str,
        sync_mode: SyncMode,
        config_hash: str | None = None,
        source_info: Any = None,
        destination_info: Any = None,
        instance_id: str | None = None,
        node_id: str | None = None,
        *,
        connection: sa.Connection | None = None,
    ) -> SyncRun:
        """Begin a run. Secrets in source_info and destination_info are not stored."""
        return runs.start(
            self.registry,
            schema_name,
            sync_mode,
            config_hash=config_hash,
            source_info=source_info,
            destination_info=destination_info,
            instance_id=instance_id,
            node_id=node_id,
            connection=connection,
        )

    def heartbeat(self, sync_run_id: int) -> SyncRun:
        """Say that a run lives. Raises SyncRunNotFound; StatusConflict: it has ended, or was given up."""
        return runs.heartbeat(self.registry, sync_run_id)

    def update_sync_run(self, sync_run_id: int, statistics: SyncRunStatistics) -> SyncRun:
        """Set what a run has done so far, in all; a sign of life too. Raises as `heartbeat`."""
        return runs.update_statistics(self.registry, sync_run_id, statistics)

    def complete_sync_run(
        self,
        sync_run_id: int,
        status: SyncStatus = SyncStatus.COMPLETED,
        statistics: SyncRunStatistics | None = None,
        error_message: str | None = None,
        error_details: Any = None,
        *,
        connection: sa.Connection | None = None,
    ) -> SyncRun:
        """End a run; ending it again in the same way changes nothing.

        Raises:
            SyncRunNotFound.
            StatusConflict: it has ended otherwise, or was given up.
        """
        return runs.complete(
            self.registry, sync_run_id, status, statistics, error_message, error_details, connection=connection
        )

    def get_sync_run(self, sync_run_id: int) -> SyncRun:
        """Raises SyncRunNotFound."""
        return runs.get(self.registry, sync_run_id)

    def list_sync_runs(
        self,
        schema_name: str | None = None,
        status: SyncStatus | None = None,
        sync_mode: SyncMode | None = None,
        since: datetime | None = None,
        limit: int | None = runs.PAGE,
        before: int | None = None,
        table_name: str | None = None,
    ) -> list[SyncRun]:
        """The newest first; `before` is an id, to go on from the last page.

        `table_name`: of runs that write a table ('shop.orders', or 'orders' whatever the namespace), those of it.
        """
        return runs.list_runs(self.registry, schema_name, status, sync_mode, since, limit, before, table_name)

    def recover_failed_runs(self, max_age_hours: float = 24) -> list[SyncRun]:
        """Mark as failed the runs of which nothing was heard for so long; those that live are left alone, however old."""
        return runs.recover(self.registry, max_age_hours)

    # Errors ---------------------------------------------------------------------------------------------------------------
    def log_error(
        self,
        schema_name: str,
        error_type: ErrorType,
        error_message: str,
        table_name: str | None = None,
        sync_run_id: int | None = None,
        error_code: str | None = None,
        error_details: Any = None,
        stack_trace: str | None = None,
        record_data: Any = None,
        operation_type: OperationType | None = None,
        max_retries: int = 3,
        *,
        connection: sa.Connection | None = None,
    ) -> ErrorRecord:
        """Write down an error, due for a first retry after the back-off's first wait. Raises SyncRunNotFound."""
        return error_log.log(
            self.registry,
            schema_name,
            error_type,
            error_message,
            table_name=table_name,
            sync_run_id=sync_run_id,
            error_code=error_code,
            error_details=error_details,
            stack_trace=stack_trace,
            record_data=record_data,
            operation_type=operation_type,
            max_retries=max_retries,
            backoff=self._backoff,
            redact_columns=self._redacted,
            connection=connection,
        )

    def errors_due(
        self,
        limit: int = error_log.PAGE,
        schema_name: str | None = None,
        *,
        claim_seconds: float = error_log.CLAIM_SECONDS,
    ) -> list[ErrorRecord]:
        """Hand out errors whose retry is due; nobody else gets them for `claim_seconds`.

        Each is claimed: give its `claim` to `record_retry`.
        """
        return error_log.due(self.registry, limit, schema_name, claim_seconds=claim_seconds)

    def record_retry(
        self, error_id: int, success: bool = False, error_message: str | None = None, claim: int | None = None
    ) -> ErrorRecord:
        """Count a retry. The last failure that is allowed moves the record to the dead letters.

        Args:
            claim: the number of the claim under which it was tried, from the record that was handed out; needed while the
                claim holds.

        Raises:
            ErrorRecordNotFound.
            StatusConflict: it is not open, or no retry is left; or it is claimed, and not under this claim.
        """
        return error_log.record_retry(
            self.registry,
            error_id,
            success,
            error_message,
            claim=claim,
            backoff=self._backoff,
            redact_columns=self._redacted,
        )

    def resolve_error(self, error_id: int, resolution: str | None = None) -> ErrorRecord:
        """Raises ErrorRecordNotFound; StatusConflict: it is not open."""
        return error_log.resolve(self.registry, error_id, resolution)

    def ignore_error(self, error_id: int, resolution: str | None = None) -> ErrorRecord:
        """Raises ErrorRecordNotFound; StatusConflict: it is not open."""
        return error_log.ignore(self.registry, error_id, resolution)

    def resolve_errors(self, chosen: ErrorFilter, resolution: str | None = None) -> int:
        """Resolve all open ones that are chosen; how many."""
        return error_log.end_all(self.registry, ErrorStatus.RESOLVED, chosen, resolution)

    def ignore_errors(self, chosen: ErrorFilter, resolution: str | None = None) -> int:
        """Ignore all open ones that are chosen; how many."""
        return error_log.end_all(self.registry, ErrorStatus.IGNORED, chosen, resolution)

    def get_error(self, error_id: int) -> ErrorRecord:
        """Raises ErrorRecordNotFound."""
        return error_log.get(self.registry, error_id)

    def list_errors(
        self,
        schema_name: str | None = None,
        table_name: str | None = None,
        error_type: ErrorType | None = None,
        status: ErrorStatus | None = None,
        sync_run_id: int | None = None,
        since: datetime | None = None,
        limit: int | None = error_log.PAGE,
        before: int | None = None,
    ) -> list[ErrorRecord]:
        """The newest first; `before` is an id, to go on from the last page."""
        return error_log.list_errors(
            self.registry, schema_name, table_name, error_type, status, sync_run_id, since, limit, before
        )

    def get_error_trends(self, schema_name: str | None = None, hours: float = 24) -> list[ErrorTrend]:
        """By hour and type, with what became of those that were tried again."""
        return error_log.trends(self.registry, schema_name, hours)

    # Dead letters ---------------------------------------------------------------------------------------------------------
    def add_to_dead_letter_queue(
        self,
        schema_name: str,
        table_name: str,
        operation_type: OperationType,
        record_data: Any,
        sync_run_id: int | None = None,
        error_log_id: int | None = None,
        source_record_id: str | None = None,
        error_message: str | None = None,
        *,
        envelope: Any = None,
        connection: sa.Connection | None = None,
    ) -> DeadLetter:
        """Keep a record that could not be applied, whole. The same source record again raises its row's error_count.

        Raises SyncRunNotFound, ErrorRecordNotFound.
        """
        return dead_letters.add(
            self.registry,
            schema_name,
            table_name,
            operation_type,
            record_data,
            sync_run_id=sync_run_id,
            error_log_id=error_log_id,
            source_record_id=source_record_id,
            error_message=error_message,
            envelope=envelope,
            redact_columns=self._redacted,
            connection=connection,
        )

    def get_dead_letter(self, dead_letter_id: int) -> DeadLetter:
        """Raises DeadLetterNotFound."""
        return dead_letters.get(self.registry, dead_letter_id)

    def list_dead_letters(
        self,
        chosen: DeadLetterFilter = dead_letters.EVERYTHING,
        limit: int | None = dead_letters.PAGE,
        before: int | None = None,
    ) -> list[DeadLetter]:
        """The newest first; `before` is an id, to go on from the last page."""
        return dead_letters.list_dead_letters(self.registry, chosen, limit, before)

    def count_dead_letters(self, chosen: DeadLetterFilter = dead_letters.EVERYTHING) -> dict[str, int]:
        """By status, every status named."""
        return dead_letters.counts(self.registry, chosen)

    def claim_dead_letters(
        self,
        worker: str,
        limit: int = dead_letters.PAGE,
        chosen: DeadLetterFilter = dead_letters.EVERYTHING,
        *,
        lease_seconds: float = dead_letters.CLAIM_SECONDS,
    ) -> list[DeadLetter]:
        """Take some for a worker; no other gets them before the lease has run out."""
        return dead_letters.claim(self.registry, worker, limit, chosen, lease_seconds=lease_seconds)

    def release_dead_letter(self, dead_letter_id: int, claim: int | None = None) -> DeadLetter:
        """Let it be pending again. Raises DeadLetterNotFound, StatusConflict."""
        return dead_letters.change(self.registry, "released", dead_letter_id, claim=claim)

    def resolve_dead_letter(
        self,
        dead_letter_id: int,
        resolution: str | None = None,
        claim: int | None = None,
        *,
        connection: sa.Connection | None = None,
    ) -> DeadLetter:
        """Say that the record is where it belongs; the error that it names is resolved with it.

        `claim`: the number of the claim under which it was worked on.

        Raises DeadLetterNotFound; StatusConflict: it is in no state for this, or claimed by another.
        """
        return dead_letters.change(
            self.registry, "resolved", dead_letter_id, claim=claim, resolution=resolution, connection=connection
        )

    def discard_dead_letter(
        self, dead_letter_id: int, resolution: str | None = None, claim: int | None = None
    ) -> DeadLetter:
        """Give the record up. Raises as `resolve_dead_letter`."""
        return dead_letters.change(self.registry, "discarded", dead_letter_id, claim=claim, resolution=resolution)

    def requeue_dead_letter(self, dead_letter_id: int) -> DeadLetter:
        """Let a resolved or discarded one be pending again. Raises as `resolve_dead_letter`."""
        return dead_letters.change(self.registry, "requeued", dead_letter_id)

    def release_dead_letters(self, chosen: DeadLetterFilter) -> int:
        """End the claims of all that are chosen, dead workers' or not; how many."""
        return dead_letters.change_all(self.registry, "released", chosen)

    def resolve_dead_letters(self, chosen: DeadLetterFilter, resolution: str | None = None) -> int:
        """Resolve all that are chosen and nobody has claimed; how many."""
        return dead_letters.change_all(self.registry, "resolved", chosen, resolution=resolution)

    def discard_dead_letters(self, chosen: DeadLetterFilter, resolution: str | None = None) -> int:
        """Discard all that are chosen and nobody has claimed; how many."""
        return dead_letters.change_all(self.registry, "discarded", chosen, resolution=resolution)

    def requeue_dead_letters(self, chosen: DeadLetterFilter) -> int:
        """Let all that are chosen be pending again; how many."""
        return dead_letters.change_all(self.registry, "requeued", chosen)

    # All together ---------------------------------------------------------------------------------------------------------
    def get_sync_statistics(self, schema_name: str | None = None, hours: float = 24) -> dict[str, Any]:
        """Runs and errors of the last hours, dead letters and positions as they are, the pool's use."""
        return operation_statistics.statistics(self.registry, schema_name, hours)

    def cleanup_old_metadata(self, retention_days: float | None = None) -> dict[str, int]:
        """Delete what ended before the retention; how many rows of each table. Raises LeaseHeld: another is at it."""
        given = self._retention_days if retention_days is None else retention_days
        return retention.cleanup(self.registry, self.registry.settings.retention_days if given is None else given)
