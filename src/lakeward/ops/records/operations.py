"""Operations metadata: where syncs stand, which runs there were, what failed, and which records wait.

`schema_name` names a source as its owner calls it, such as 'shop' or 'shop.public'; it is free text, and the same one in
every call. Times are UTC, by the registry's clock.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, TypedDict

import msgspec

Document = dict[str, Any]  # what lossless_json.py can keep: JSON's values, and bytes, decimals, dates and others


class MarkerType(StrEnum):
    STREAM = "stream"
    BATCH = "batch"
    INITIAL = "initial"


class SyncMode(StrEnum):
    STREAM = "stream"
    BATCH = "batch"
    INITIAL = "initial"


class SyncStatus(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ErrorType(StrEnum):
    CONNECTION = "connection"
    VALIDATION = "validation"
    SCHEMA = "schema"
    TRANSFORMATION = "transformation"
    CONSTRAINT = "constraint"
    TIMEOUT = "timeout"
    PERMISSION = "permission"
    CONFIGURATION = "configuration"
    DATA = "data"
    RESOURCE = "resource"
    UNKNOWN = "unknown"


class ErrorStatus(StrEnum):
    OPEN = "open"
    RESOLVED = "resolved"
    IGNORED = "ignored"


class OperationType(StrEnum):
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    UPSERT = "upsert"
    TRUNCATE = "truncate"
    READ = "read"
    DDL = "ddl"


class DeadLetterStatus(StrEnum):
    PENDING = "pending"
    PROCESSING = "processing"
    RESOLVED = "resolved"
    DISCARDED = "discarded"


class SyncMarker(msgspec.Struct, frozen=True, kw_only=True):
    """One row of sync_markers: where a sync goes on. Without a table it is of the whole schema."""

    id: int
    schema_name: str
    table_name: str | None
    marker_type: MarkerType
    position_data: Document
    last_updated: datetime
    sync_run_id: int | None


class SyncRunStatistics(msgspec.Struct, frozen=True):
    """What a run has done so far, or in all."""

    records_processed: int = 0
    records_inserted: int = 0
    records_updated: int = 0
    records_deleted: int = 0
    bytes_processed: int = 0


class SyncRun(msgspec.Struct, frozen=True, kw_only=True):
    """One row of sync_runs."""

    id: int
    schema_name: str
    sync_mode: SyncMode
    status: SyncStatus
    started_at: datetime
    completed_at: datetime | None
    duration_ms: int | None
    last_seen_at: datetime  # the last sign of life: heartbeat, statistics, else the start
    heartbeat_at: datetime | None  # None: it sends no heartbeats
    records_processed: int
    records_inserted: int
    records_updated: int
    records_deleted: int
    bytes_processed: int
    config_hash: str | None
    source_info: Document | None  # without secrets
    destination_info: Document | None  # without secrets
    instance_id: str | None
    node_id: str | None
    error_message: str | None
    error_details: Any

    @property
    def statistics(self) -> SyncRunStatistics:
        """Its counts, to hand to `update_sync_run` or `complete_sync_run`."""
        return SyncRunStatistics(*(getattr(self, name) for name in SyncRunStatistics.__struct_fields__))


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One row of error_log."""

    id: int
    schema_name: str
    table_name: str | None
    sync_run_id: int | None
    error_type: ErrorType
    error_code: str | None
    error_message: str
    error_details: Any
    stack_trace: str | None
    record_data: Any  # the record that failed, as it was given
    operation_type: OperationType | None
    retry_count: int
    max_retries: int
    next_retry_at: datetime | None  # None: it is not tried again
    claimed_until: datetime | None  # somebody tries it, until then at most
    claim: int  # the number of the latest claim
    status: ErrorStatus
    occurred_at: datetime  # at first
    last_retry_at: datetime | None
    resolved_at: datetime | None
    resolution: str | None  # what was done
    occurrences: int  # of failures of one batch, while the error is open
    last_occurred_at: datetime | None  # None: it has occurred once


class ErrorFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which errors; what is None does not narrow."""

    schema_name: str | None = None
    table_name: str | None = None
    sync_run_id: int | None = None
    error_type: ErrorType | None = None
    error_code: str | None = None
    before: datetime | None = None  # occurred earlier


class ErrorFields(TypedDict, total=False):
    """An ErrorFilter's fields as keyword arguments."""

    schema_name: str | None
    table_name: str | None
    sync_run_id: int | None
    error_type: ErrorType | None
    error_code: str | None
    before: datetime | None


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """One row of dead_letter_queue: a record that could not be applied, whole."""

    id: int
    schema_name: str
    table_name: str
    operation_type: OperationType
    record_data: Any  # the record as it was given
    envelope: Any  # what is known beside the record: its batch, file and line, the rule that it broke
    source_record_id: str | None  # the same one failing again is the same row
    sync_run_id: int | None
    error_log_id: int | None  # the error that it belongs to; resolved with it
    error_message: str | None
    error_count: int  # how often it has failed
    status: DeadLetterStatus
    claimed_by: str | None  # the worker that has it
    claimed_until: datetime | None  # then others get it
    claim: int  # the number of the last claim: give it when you resolve, discard or release
    created_at: datetime
    last_failed_at: datetime
    resolved_at: datetime | None
    resolution: str | None


class DeadLetterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters; what is None does not narrow."""

    schema_name: str | None = None
    table_name: str | None = None
    status: DeadLetterStatus | None = None
    operation_type: OperationType | None = None
    sync_run_id: int | None = None
    error_log_id: int | None = None
    source_record_id: str | None = None
    min_error_count: int | None = None


class DeadLetterFields(TypedDict, total=False):
    """A DeadLetterFilter's fields as keyword arguments."""

    schema_name: str | None
    table_name: str | None
    status: DeadLetterStatus | None
    operation_type: OperationType | None
    sync_run_id: int | None
    error_log_id: int | None
    source_record_id: str | None
    min_error_count: int | None


class ErrorTrend(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of one type that occurred in one hour, and what became of them when they were tried again."""

    hour: datetime  # its start
    error_type: ErrorType
    errors: int
    retried: int  # of them, tried again at least once
    resolved_by_retry: int  # of those, resolved by a retry and not by hand

    @property
    def retry_success_rate(self) -> float | None:
        """Of those that were tried again, the share that a retry resolved, 0 to 1; None if none was."""
        return self.resolved_by_retry / self.retried if self.retried else None
