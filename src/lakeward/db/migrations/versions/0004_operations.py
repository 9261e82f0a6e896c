"""Operations metadata: positions, schemas, runs, errors and dead letters.

Its definitions are its own, so that it makes the same tables for ever, whatever the code's become. On PostgreSQL they stand
in a schema of their own.
"""

from __future__ import annotations

from functools import partial

import sqlalchemy as sa
from alembic import context, op

from lakeward.db.migrations import parts as p

revision = "0004"
down_revision = "0003"

DEFAULT_SCHEMA = "lakeward"
metadata = p.new_metadata()
table = partial(p.table, metadata)


def _run_ref() -> sa.ForeignKey:
    return sa.ForeignKey("sync_runs.id", ondelete="SET NULL")


sync_runs = table(
    "sync_runs",
    p.id_column("id"),
    p.column("schema_name", p.NAME),
    p.column("sync_mode", p.TEXT),
    p.column("status", p.TEXT),
    p.column("started_at", p.TIME),
    p.column("completed_at", p.TIME, null=True),
    p.column("duration_ms", p.INT64, null=True),
    p.column("last_seen_at", p.TIME),  # heartbeat, statistics, else start
    p.column("heartbeat_at", p.TIME, null=True),  # none: it sends no heartbeats
    p.column("records_processed", p.INT64, default="0"),
    p.column("records_inserted", p.INT64, default="0"),
    p.column("records_updated", p.INT64, default="0"),
    p.column("records_deleted", p.INT64, default="0"),
    p.column("bytes_processed", p.INT64, default="0"),
    p.column("config_hash", p.TEXT, null=True),
    p.column("source_info", p.JSON, null=True),
    p.column("destination_info", p.JSON, null=True),
    p.column("instance_id", p.TEXT, null=True),
    p.column("node_id", p.TEXT, null=True),
    p.column("error_message", p.TEXT, null=True),
    p.column("error_details", p.JSON, null=True),
    p.column("import_key", p.TEXT, null=True),
    sa.UniqueConstraint("import_key"),
    p.one_of("sync_mode", "stream", "batch", "initial"),
    p.one_of("status", "running", "completed", "failed", "cancelled"),
    sa.CheckConstraint("(completed_at IS NULL) = (status = 'running')", name="completed_at"),
    *p.not_negative("duration_ms", "records_processed", "records_inserted", "records_updated", "records_deleted"),
    *p.not_negative("bytes_processed"),
    sa.Index("ix_sync_runs_status_started_at", "status", "started_at"),
    sa.Index("ix_sync_runs_schema_name_id", "schema_name", "id"),
    sa.Index("ix_sync_runs_started_at", "started_at"),
    sa.Index("ix_sync_runs_completed_at", "completed_at", "id"),
)
p.partial_index(
    "ix_sync_runs_running",
    sync_runs.c.status,
    sync_runs.c.last_seen_at,
    where=sync_runs.c.status == sa.literal_column("'running'"),
)

sync_markers = table(
    "sync_markers",
    p.id_column("id"),
    p.column("schema_name", p.NAME),
    p.column("table_name", p.NAME, null=True),
    p.column("marker_type", p.TEXT),
    p.column("position_data", p.JSON),
    p.column("last_updated", p.TIME),
    p.column("sync_run_id", p.INT64, _run_ref(), null=True),
    p.one_of("marker_type", "stream", "batch", "initial"),
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
    p.id_column("id"),
    p.column("schema_name", p.NAME),
    p.column("table_name", p.NAME),
    p.column("version", p.INT32),
    p.column("schema_definition", p.JSON),
    p.column("schema_hash", p.TEXT),
    p.column("evolution_type", p.TEXT),
    p.column("changes", p.JSON),
    p.column("previous_version", p.INT32, null=True),
    p.column("iceberg_schema_id", p.INT32, null=True),
    p.column("source_position", p.JSON, null=True),
    p.column("registered_at", p.TIME),
    sa.UniqueConstraint("schema_name", "table_name", "version"),
    sa.CheckConstraint("version > 0", name="version"),
    p.one_of(
        "evolution_type",
        *("create", "add_column", "drop_column", "rename_column", "modify_column"),
        *("add_index", "drop_index", "modify_index", "change_primary_key"),
    ),
    sa.Index("ix_schema_registry_registered_at", "registered_at", "id"),
)

error_log = table(
    "error_log",
    p.id_column("id"),
    p.column("schema_name", p.NAME),
    p.column("table_name", p.NAME, null=True),
    p.column("sync_run_id", p.INT64, _run_ref(), null=True),
    p.column("error_type", p.TEXT),
    p.column("error_code", p.TEXT, null=True),
    p.column("error_message", p.TEXT),
    p.column("error_details", p.JSON, null=True),
    p.column("stack_trace", p.TEXT, null=True),
    p.column("record_data", p.JSON, null=True),
    p.column("operation_type", p.TEXT, null=True),
    p.column("retry_count", p.INT32, default="0"),
    p.column("max_retries", p.INT32, default="3"),
    p.column("next_retry_at", p.TIME, null=True),
    p.column("claimed_until", p.TIME, null=True),  # handed out by errors_due until then
    p.column("status", p.TEXT),
    p.column("occurred_at", p.TIME),
    p.column("last_retry_at", p.TIME, null=True),
    p.column("resolved_at", p.TIME, null=True),
    p.column("resolution", p.TEXT, null=True),
    p.column("import_key", p.TEXT, null=True),
    sa.UniqueConstraint("import_key"),
    p.one_of("status", "open", "resolved", "ignored"),
    sa.CheckConstraint("(resolved_at IS NULL) = (status = 'open')", name="resolved_at"),
    *p.not_negative("retry_count", "max_retries"),
    sa.Index("ix_error_log_error_type_status", "error_type", "status", "id"),
    sa.Index("ix_error_log_status", "status", "id"),
    sa.Index("ix_error_log_schema_name_id", "schema_name", "id"),
    sa.Index("ix_error_log_occurred_at", "occurred_at"),
    sa.Index("ix_error_log_resolved_at", "resolved_at", "id"),
    sa.Index("ix_error_log_sync_run_id", "sync_run_id"),
)
p.partial_index(
    "ix_error_log_due",
    error_log.c.status,
    error_log.c.next_retry_at,
    where=sa.and_(error_log.c.status == sa.literal_column("'open'"), error_log.c.next_retry_at.is_not(None)),
)

dead_letter_queue = table(
    "dead_letter_queue",
    p.id_column("id"),
    p.column("schema_name", p.NAME),
    p.column("table_name", p.NAME),
    p.column("operation_type", p.TEXT),
    p.column("record_data", p.JSON),
    p.column("envelope", p.JSON, null=True),
    p.column("source_record_id", p.TEXT, null=True),
    p.column("sync_run_id", p.INT64, _run_ref(), null=True),
    p.column("error_log_id", p.INT64, sa.ForeignKey("error_log.id", ondelete="SET NULL"), null=True),
    p.column("error_message", p.TEXT, null=True),
    p.column("error_count", p.INT32, default="1"),
    p.column("status", p.TEXT),
    p.column("claimed_by", p.TEXT, null=True),
    p.column("claimed_until", p.TIME, null=True),
    p.column("claim", p.INT64, default="0"),  # grows with each claim: an old one's outcome is refused
    p.column("created_at", p.TIME),
    p.column("last_failed_at", p.TIME),
    p.column("resolved_at", p.TIME, null=True),
    p.column("resolution", p.TEXT, null=True),
    p.column("import_key", p.TEXT, null=True),
    sa.UniqueConstraint("import_key"),
    p.one_of("status", "pending", "processing", "resolved", "discarded"),
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
p.partial_index(
    "ix_dead_letter_queue_pending",
    dead_letter_queue.c.status,
    dead_letter_queue.c.id,
    where=dead_letter_queue.c.status == sa.literal_column("'pending'"),
)
p.partial_index(
    "ix_dead_letter_queue_claimed",
    dead_letter_queue.c.status,
    dead_letter_queue.c.claimed_until,
    where=dead_letter_queue.c.status == sa.literal_column("'processing'"),
)
# The same source record failing again raises the count of its row.
sa.Index(
    "uq_dead_letter_queue_source_record",
    dead_letter_queue.c.schema_name,
    dead_letter_queue.c.table_name,
    dead_letter_queue.c.source_record_id,
    unique=True,
    sqlite_where=dead_letter_queue.c.source_record_id.is_not(None),
    postgresql_where=dead_letter_queue.c.source_record_id.is_not(None),
)


TABLES = (sync_runs, sync_markers, schema_registry, error_log, dead_letter_queue)


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        p.make(connection, TABLES)
    else:
        _make_in_schema(connection, context.config.attributes.get("metadata_schema", DEFAULT_SCHEMA))
    connection.execute(sa.text("UPDATE registry_info SET schema_version = 4"))


def _make_in_schema(connection: sa.Connection, name: str) -> None:
    path = connection.execute(sa.text("SELECT current_setting('search_path')")).scalar_one()
    set_path = sa.text("SELECT set_config('search_path', :path, true)")
    # One that is there may have been made for a user who may not make any, and IF NOT EXISTS asks for that right first.
    if connection.execute(sa.text("SELECT to_regnamespace(:name)"), {"name": f'"{name}"'}).scalar_one() is None:
        connection.execute(sa.text(f'CREATE SCHEMA "{name}"'))
    connection.execute(set_path, {"path": f'"{name}"'})
    p.make(connection, TABLES)
    connection.execute(set_path, {"path": path})
