"""Operations metadata: runs, positions, schemas, errors and dead letters.

On PostgreSQL these stand in a schema of their own (Settings.metadata_schema), which is on every connection's search path.
"""

from __future__ import annotations

import sqlalchemy as sa

from lakeward.db.schema.parts import column, id_column, not_negative, one_of, partial_index, table
from lakeward.db.types import Exact, Int32, Int64, Name, Text, UtcTime


def _run_ref() -> sa.ForeignKey:
    return sa.ForeignKey("sync_runs.id", ondelete="SET NULL")


sync_runs = table(
    "sync_runs",
    id_column("id"),
    column("schema_name", Name),
    column("sync_mode", Text),
    column("status", Text),
    column("started_at", UtcTime),
    column("completed_at", UtcTime, null=True),
    column("duration_ms", Int64, null=True),
    column("last_seen_at", UtcTime),  # heartbeat, statistics, else start
    column("heartbeat_at", UtcTime, null=True),  # None: it sends no heartbeats
    column("records_processed", Int64, default="0"),
    column("records_inserted", Int64, default="0"),
    column("records_updated", Int64, default="0"),
    column("records_deleted", Int64, default="0"),
    column("bytes_processed", Int64, default="0"),
    column("config_hash", Text, null=True),
    column("source_info", Exact(), null=True),
    column("destination_info", Exact(), null=True),
    column("instance_id", Text, null=True),
    column("node_id", Text, null=True),
    column("error_message", Text, null=True),
    column("error_details", Exact(), null=True),
    column("import_key", Text, null=True),
    sa.UniqueConstraint("import_key"),
    one_of("sync_mode", "stream", "batch", "initial"),
    one_of("status", "running", "completed", "failed", "cancelled"),
    sa.CheckConstraint("(completed_at IS NULL) = (status = 'running')", name="completed_at"),
    *not_negative("duration_ms", "records_processed", "records_inserted", "records_updated", "records_deleted"),
    *not_negative("bytes_processed"),
    sa.Index("ix_sync_runs_status_started_at", "status", "started_at"),
    sa.Index("ix_sync_runs_schema_name_id", "schema_name", "id"),
    sa.Index("ix_sync_runs_started_at", "started_at"),
    sa.Index("ix_sync_runs_completed_at", "completed_at", "id"),
)
partial_index(
    "ix_sync_runs_running",
    sync_runs.c.status,
    sync_runs.c.last_seen_at,
    where=sync_runs.c.status == sa.literal_column("'running'"),
)

sync_markers = table(
    "sync_markers",
    id_column("id"),
    column("schema_name", Name),
    column("table_name", Name, null=True),
    column("marker_type", Text),
    column("position_data", Exact()),
    column("last_updated", UtcTime),
    column("sync_run_id", Int64, _run_ref(), null=True),
    one_of("marker_type", "stream", "batch", "initial"),
    sa.CheckConstraint("table_name <> ''", name="table_name"),
    sa.Index("ix_sync_markers_sync_run_id", "sync_run_id"),
)
# A marker of a whole schema has no table, and is one row all the same.
sa.Index(
    "uq_sync_markers_key",
    sync_markers.c.schema_name,
    sa.func.coalesce(sync_markers.c.table_name, sa.literal_column("''")),
    sync_markers.c.marker_type,
    unique=True,
)

schema_registry = table(
    "schema_registry",
    id_column("id"),
    column("schema_name", Name),
    column("table_name", Name),
    column("version", Int32),
    column("schema_definition", Exact()),
    column("schema_hash", Text),
    column("evolution_type", Text),
    column("changes", Exact()),
    column("previous_version", Int32, null=True),
    column("iceberg_schema_id", Int32, null=True),
    column("source_position", Exact(), null=True),
    column("registered_at", UtcTime),
    sa.UniqueConstraint("schema_name", "table_name", "version"),
    sa.CheckConstraint("version > 0", name="version"),
    one_of(
        "evolution_type",
        *("create", "add_column", "drop_column", "rename_column", "modify_column"),
        *("add_index", "drop_index", "modify_index", "change_primary_key"),
    ),
    sa.Index("ix_schema_registry_registered_at", "registered_at", "id"),
)

error_log = table(
    "error_log",
    id_column("id"),
    column("schema_name", Name),
    column("table_name", Name, null=True),
    column("sync_run_id", Int64, _run_ref(), null=True),
    column("error_type", Text),
    column("error_code", Text, null=True),
    column("error_message", Text),
    column("error_details", Exact(), null=True),
    column("stack_trace", Text, null=True),
    column("record_data", Exact(), null=True),
    column("operation_type", Text, null=True),
    column("retry_count", Int32, default="0"),
    column("max_retries", Int32, default="3"),
    column("next_retry_at", UtcTime, null=True),
    column("claimed_until", UtcTime, null=True),  # handed out by errors_due until then
    column("status", Text),
    column("occurred_at", UtcTime),
    column("last_retry_at", UtcTime, null=True),
    column("resolved_at", UtcTime, null=True),
    column("resolution", Text, null=True),
    column("import_key", Text, null=True),
    column("failure_key", Text, null=True),  # failures of one key are one open error
    column("occurrences", Int32, default="1"),
    column("last_occurred_at", UtcTime, null=True),  # None: once
    column("claim", Int64, default="0"),  # grows with each claim: an old one's outcome is refused
    sa.UniqueConstraint("import_key"),
    one_of("status", "open", "resolved", "ignored"),
    sa.CheckConstraint("(resolved_at IS NULL) = (status = 'open')", name="resolved_at"),
    *not_negative("retry_count", "max_retries"),
    sa.Index("ix_error_log_error_type_status", "error_type", "status", "id"),
    sa.Index("ix_error_log_status", "status", "id"),
    sa.Index("ix_error_log_schema_name_id", "schema_name", "id"),
    sa.Index("ix_error_log_occurred_at", "occurred_at"),
    sa.Index("ix_error_log_resolved_at", "resolved_at", "id"),
    sa.Index("ix_error_log_sync_run_id", "sync_run_id"),
)
partial_index(
    "ix_error_log_due",
    error_log.c.status,
    error_log.c.next_retry_at,
    where=sa.and_(error_log.c.status == sa.literal_column("'open'"), error_log.c.next_retry_at.is_not(None)),
)

partial_index(
    "uq_error_log_failure_key_open",
    error_log.c.failure_key,
    where=sa.and_(error_log.c.failure_key.is_not(None), error_log.c.status == sa.literal_column("'open'")),
    unique=True,
)

dead_letter_queue = table(
    "dead_letter_queue",
    id_column("id"),
    column("schema_name", Name),
    column("table_name", Name),
    column("operation_type", Text),
    column("record_data", Exact()),
    column("envelope", Exact(), null=True),
    column("source_record_id", Text, null=True),
    column("sync_run_id", Int64, _run_ref(), null=True),
    column("error_log_id", Int64, sa.ForeignKey("error_log.id", ondelete="SET NULL"), null=True),
    column("error_message", Text, null=True),
    column("error_count", Int32, default="1"),
    column("status", Text),
    column("claimed_by", Text, null=True),
    column("claimed_until", UtcTime, null=True),
    column("claim", Int64, default="0"),  # grows with each claim: an old one's outcome is refused
    column("created_at", UtcTime),
    column("last_failed_at", UtcTime),
    column("resolved_at", UtcTime, null=True),
    column("resolution", Text, null=True),
    column("import_key", Text, null=True),
    sa.UniqueConstraint("import_key"),
    one_of("status", "pending", "processing", "resolved", "discarded"),
    sa.CheckConstraint("(claimed_by IS NULL) = (status <> 'processing')", name="claimed_by"),
    sa.CheckConstraint("(claimed_until IS NULL) = (status <> 'processing')", name="claimed_until"),
    sa.CheckConstraint("(resolved_at IS NULL) = (status IN ('pending', 'processing'))", name="resolved_at"),
    sa.CheckConstraint("error_count > 0", name="error_count"),
    sa.Index("ix_dead_letter_queue_status_error_count", "status", "error_count", "id"),
    sa.Index("ix_dead_letter_queue_table", "schema_name", "table_name", "id"),
    sa.Index("ix_dead_letter_queue_resolved_at", "resolved_at", "id"),
    sa.Index("ix_dead_letter_queue_sync_run_id", "sync_run_id"),
    sa.Index("ix_dead_letter_queue_error_log_id", "error_log_id"),
)
partial_index(
    "ix_dead_letter_queue_pending",
    dead_letter_queue.c.status,
    dead_letter_queue.c.id,
    where=dead_letter_queue.c.status == sa.literal_column("'pending'"),
)
partial_index(
    "ix_dead_letter_queue_claimed",
    dead_letter_queue.c.status,
    dead_letter_queue.c.claimed_until,
    where=dead_letter_queue.c.status == sa.literal_column("'processing'"),
)
# The same source record failing again raises the count of its row.
partial_index(
    "uq_dead_letter_queue_source_record",
    dead_letter_queue.c.schema_name,
    dead_letter_queue.c.table_name,
    dead_letter_queue.c.source_record_id,
    where=dead_letter_queue.c.source_record_id.is_not(None),
    unique=True,
)

OPERATIONS = frozenset({"sync_markers", "schema_registry", "sync_runs", "error_log", "dead_letter_queue"})
