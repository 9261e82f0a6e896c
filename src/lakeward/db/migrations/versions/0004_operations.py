"""Operations metadata: positions, schemas, runs, errors and dead letters.

Its definitions are its own, so that it makes the same tables for ever, whatever the code's become. On PostgreSQL they stand
in a schema of their own.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

INT64 = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INT32 = sa.Integer()
TEXT = sa.Text()
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
TIME = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
JSON = postgresql.JSON().with_variant(sa.Text(), "sqlite")
DEFAULT_SCHEMA = "lakeward"

metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def _table(name: str, *parts: Any) -> sa.Table:
    return sa.Table(name, metadata, *parts, sqlite_strict=True, sqlite_autoincrement=True)


def _id(name: str) -> sa.Column[int]:
    return sa.Column(name, INT64, primary_key=True, autoincrement=True)


def _col(name: str, type_: Any, *rest: Any, null: bool = False, default: str | None = None) -> sa.Column[Any]:
    return sa.Column(name, type_, *rest, nullable=null, server_default=None if default is None else sa.text(default))


def _not_negative(*columns: str) -> list[sa.CheckConstraint]:
    return [sa.CheckConstraint(f"{column} >= 0", name=column) for column in columns]


def _partial_index(name: str, *columns: sa.Column[Any], where: sa.ColumnElement[bool]) -> None:
    sa.Index(name, *columns, sqlite_where=where, postgresql_where=where)


def _one_of(column: str, *values: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(f"{column} IN ({', '.join(repr(v) for v in values)})", name=column)


def _run_ref() -> sa.ForeignKey:
    return sa.ForeignKey("sync_runs.id", ondelete="SET NULL")


sync_runs = _table(
    "sync_runs",
    _id("id"),
    _col("schema_name", NAME),
    _col("sync_mode", TEXT),
    _col("status", TEXT),
    _col("started_at", TIME),
    _col("completed_at", TIME, null=True),
    _col("duration_ms", INT64, null=True),
    _col("last_seen_at", TIME),  # heartbeat, statistics, else start
    _col("heartbeat_at", TIME, null=True),  # none: it sends no heartbeats
    _col("records_processed", INT64, default="0"),
    _col("records_inserted", INT64, default="0"),
    _col("records_updated", INT64, default="0"),
    _col("records_deleted", INT64, default="0"),
    _col("bytes_processed", INT64, default="0"),
    _col("config_hash", TEXT, null=True),
    _col("source_info", JSON, null=True),
    _col("destination_info", JSON, null=True),
    _col("instance_id", TEXT, null=True),
    _col("node_id", TEXT, null=True),
    _col("error_message", TEXT, null=True),
    _col("error_details", JSON, null=True),
    _col("import_key", TEXT, null=True),
    sa.UniqueConstraint("import_key"),
    _one_of("sync_mode", "stream", "batch", "initial"),
    _one_of("status", "running", "completed", "failed", "cancelled"),
    sa.CheckConstraint("(completed_at IS NULL) = (status = 'running')", name="completed_at"),
    *_not_negative("duration_ms", "records_processed", "records_inserted", "records_updated", "records_deleted"),
    *_not_negative("bytes_processed"),
    sa.Index("ix_sync_runs_status_started_at", "status", "started_at"),
    sa.Index("ix_sync_runs_schema_name_id", "schema_name", "id"),
    sa.Index("ix_sync_runs_started_at", "started_at"),
    sa.Index("ix_sync_runs_completed_at", "completed_at", "id"),
)
_partial_index(
    "ix_sync_runs_running",
    sync_runs.c.status,
    sync_runs.c.last_seen_at,
    where=sync_runs.c.status == sa.literal_column("'running'"),
)

sync_markers = _table(
    "sync_markers",
    _id("id"),
    _col("schema_name", NAME),
    _col("table_name", NAME, null=True),
    _col("marker_type", TEXT),
    _col("position_data", JSON),
    _col("last_updated", TIME),
    _col("sync_run_id", INT64, _run_ref(), null=True),
    _one_of("marker_type", "stream", "batch", "initial"),
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

schema_registry = _table(
    "schema_registry",
    _id("id"),
    _col("schema_name", NAME),
    _col("table_name", NAME),
    _col("version", INT32),
    _col("schema_definition", JSON),
    _col("schema_hash", TEXT),
    _col("evolution_type", TEXT),
    _col("changes", JSON),
    _col("previous_version", INT32, null=True),
    _col("iceberg_schema_id", INT32, null=True),
    _col("source_position", JSON, null=True),
    _col("registered_at", TIME),
    sa.UniqueConstraint("schema_name", "table_name", "version"),
    sa.CheckConstraint("version > 0", name="version"),
    _one_of(
        "evolution_type",
        *("create", "add_column", "drop_column", "rename_column", "modify_column"),
        *("add_index", "drop_index", "modify_index", "change_primary_key"),
    ),
    sa.Index("ix_schema_registry_registered_at", "registered_at", "id"),
)

error_log = _table(
    "error_log",
    _id("id"),
    _col("schema_name", NAME),
    _col("table_name", NAME, null=True),
    _col("sync_run_id", INT64, _run_ref(), null=True),
    _col("error_type", TEXT),
    _col("error_code", TEXT, null=True),
    _col("error_message", TEXT),
    _col("error_details", JSON, null=True),
    _col("stack_trace", TEXT, null=True),
    _col("record_data", JSON, null=True),
    _col("operation_type", TEXT, null=True),
    _col("retry_count", INT32, default="0"),
    _col("max_retries", INT32, default="3"),
    _col("next_retry_at", TIME, null=True),
    _col("claimed_until", TIME, null=True),  # handed out by errors_due until then
    _col("status", TEXT),
    _col("occurred_at", TIME),
    _col("last_retry_at", TIME, null=True),
    _col("resolved_at", TIME, null=True),
    _col("resolution", TEXT, null=True),
    _col("import_key", TEXT, null=True),
    sa.UniqueConstraint("import_key"),
    _one_of("status", "open", "resolved", "ignored"),
    sa.CheckConstraint("(resolved_at IS NULL) = (status = 'open')", name="resolved_at"),
    *_not_negative("retry_count", "max_retries"),
    sa.Index("ix_error_log_error_type_status", "error_type", "status", "id"),
    sa.Index("ix_error_log_status", "status", "id"),
    sa.Index("ix_error_log_schema_name_id", "schema_name", "id"),
    sa.Index("ix_error_log_occurred_at", "occurred_at"),
    sa.Index("ix_error_log_resolved_at", "resolved_at", "id"),
    sa.Index("ix_error_log_sync_run_id", "sync_run_id"),
)
_partial_index(
    "ix_error_log_due",
    error_log.c.status,
    error_log.c.next_retry_at,
    where=sa.and_(error_log.c.status == sa.literal_column("'open'"), error_log.c.next_retry_at.is_not(None)),
)

dead_letter_queue = _table(
    "dead_letter_queue",
    _id("id"),
    _col("schema_name", NAME),
    _col("table_name", NAME),
    _col("operation_type", TEXT),
    _col("record_data", JSON),
    _col("envelope", JSON, null=True),
    _col("source_record_id", TEXT, null=True),
    _col("sync_run_id", INT64, _run_ref(), null=True),
    _col("error_log_id", INT64, sa.ForeignKey("error_log.id", ondelete="SET NULL"), null=True),
    _col("error_message", TEXT, null=True),
    _col("error_count", INT32, default="1"),
    _col("status", TEXT),
    _col("claimed_by", TEXT, null=True),
    _col("claimed_until", TIME, null=True),
    _col("claim", INT64, default="0"),  # grows with each claim: an old one's outcome is refused
    _col("created_at", TIME),
    _col("last_failed_at", TIME),
    _col("resolved_at", TIME, null=True),
    _col("resolution", TEXT, null=True),
    _col("import_key", TEXT, null=True),
    sa.UniqueConstraint("import_key"),
    _one_of("status", "pending", "processing", "resolved", "discarded"),
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
_partial_index(
    "ix_dead_letter_queue_pending",
    dead_letter_queue.c.status,
    dead_letter_queue.c.id,
    where=dead_letter_queue.c.status == sa.literal_column("'pending'"),
)
_partial_index(
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


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        _make(connection)
    else:
        _make_in_schema(connection, context.config.attributes.get("metadata_schema", DEFAULT_SCHEMA))
    connection.execute(sa.text("UPDATE registry_info SET schema_version = 4"))


def _make(connection: sa.Connection) -> None:
    for table in (sync_runs, sync_markers, schema_registry, error_log, dead_letter_queue):
        connection.execute(sa.schema.CreateTable(table))
        # Partial indexes last: of two that seem equal to it, SQLite takes the one that was made later.
        for index in sorted(table.indexes, key=lambda each: (_is_partial(each), each.name)):
            connection.execute(sa.schema.CreateIndex(index))


def _is_partial(index: sa.Index) -> bool:
    return index.dialect_options["sqlite"]["where"] is not None


def _make_in_schema(connection: sa.Connection, name: str) -> None:
    path = connection.execute(sa.text("SELECT current_setting('search_path')")).scalar_one()
    set_path = sa.text("SELECT set_config('search_path', :path, true)")
    # One that is there may have been made for a user who may not make any, and IF NOT EXISTS asks for that right first.
    if connection.execute(sa.text("SELECT to_regnamespace(:name)"), {"name": f'"{name}"'}).scalar_one() is None:
        connection.execute(sa.text(f'CREATE SCHEMA "{name}"'))
    connection.execute(set_path, {"path": f'"{name}"'})
    _make(connection)
    connection.execute(set_path, {"path": path})


def downgrade() -> None:
    raise NotImplementedError("the registry's schema only goes forward; restore a backup to go back")
