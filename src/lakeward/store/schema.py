"""The registry's tables, once for SQLite and PostgreSQL.

Things are known by id: `table_id`, `namespace_id` and `warehouse_id` are never used again, and tables and warehouses
have a UUID for the outside. Rules that must hold stand here as constraints, so that SQL typed by hand keeps them too.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lakeward.model.files import FileStatistics
from lakeward.model.tables import ColumnStatistics
from lakeward.store.types import Bytes, Exact, Flag, Int32, Int64, Json, Name, Text, UtcTime

SCHEMA_VERSION = 5  # of the newest migration
MINIMUM_VERSION = 2  # the oldest code (by its SCHEMA_VERSION) that may read and write a registry of this schema

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
    return sa.Column(name, Int64, primary_key=True, autoincrement=True)


def _col(name: str, type_: Any, *rest: Any, null: bool = False, default: str | None = None) -> sa.Column[Any]:
    return sa.Column(name, type_, *rest, nullable=null, server_default=None if default is None else sa.text(default))


def _ref(column: str, *, cascade: bool = False) -> sa.ForeignKey:
    return sa.ForeignKey(column, ondelete="CASCADE" if cascade else "RESTRICT")


def _one_of(column: str, *values: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(f"{column} IN ({', '.join(repr(v) for v in values)})", name=column)


def _not_negative(*columns: str) -> list[sa.CheckConstraint]:
    return [sa.CheckConstraint(f"{column} >= 0", name=column) for column in columns]


def _partial_index(name: str, *columns: sa.Column[Any], where: sa.ColumnElement[bool]) -> None:
    sa.Index(name, *columns, sqlite_where=where, postgresql_where=where)


registry_info = _table(
    "registry_info",
    sa.Column("id", Int32, sa.CheckConstraint("id = 1", name="one_row"), primary_key=True, autoincrement=False),
    _col("registry_uuid", Text),
    _col("schema_version", Int32),
    _col("minimum_version", Int32),
    _col("created_at", UtcTime),
)

warehouses = _table(
    "warehouses",
    _id("warehouse_id"),
    _col("warehouse_uuid", Text),
    _col("name", Text),
    _col("location", Text),
    _col("created_at", UtcTime),
    sa.UniqueConstraint("warehouse_uuid"),
    sa.UniqueConstraint("name"),
)

namespaces = _table(
    "namespaces",
    _id("namespace_id"),
    _col("warehouse_id", Int64, _ref("warehouses.warehouse_id")),
    _col("levels", Json(tuple[str, ...])),
    _col("path", Name),  # the levels joined by U+001F: unique, and sorted as the REST catalog lists them
    _col("properties", Json(dict[str, str])),
    _col("created_at", UtcTime),
    sa.UniqueConstraint("warehouse_id", "path"),
)

tables = _table(
    "tables",
    _id("table_id"),
    _col("table_uuid", Text),
    _col("namespace_id", Int64, _ref("namespaces.namespace_id"), null=True),  # none once dropped
    _col("name", Name),
    _col("location", Text),
    _col("format", Text),
    _col("format_version", Int32),
    _col("version", Int64),
    _col("row_count", Int64, default="0"),
    _col("deleted_row_count", Int64, default="0"),
    _col("total_size", Int64, default="0"),
    _col("file_count", Int64, default="0"),
    _col("landing_row_count", Int64, default="0"),
    _col("landing_size", Int64, default="0"),
    _col("landing_file_count", Int64, default="0"),
    _col("last_modified", UtcTime),
    _col("last_column_id", Int32),
    _col("last_partition_id", Int32),
    _col("metadata_location", Text, null=True),
    _col("iceberg_version", Int64, default="0"),
    _col("current_snapshot_id", Int64, null=True),
    _col("created_at", UtcTime),
    _col("dropped_at", UtcTime, null=True),
    sa.UniqueConstraint("table_uuid"),
    sa.UniqueConstraint("location"),
    _one_of("format", "parquet", "json"),
    sa.CheckConstraint("format_version IN (2, 3)", name="format_version"),
    sa.CheckConstraint("(namespace_id IS NULL) = (dropped_at IS NOT NULL)", name="dropped"),
    *_not_negative("row_count", "deleted_row_count", "total_size", "file_count"),
    *_not_negative("landing_row_count", "landing_size", "landing_file_count"),
    # A dropped table's name is free again: it has no namespace, and NULLs do not collide.
    sa.UniqueConstraint("namespace_id", "name"),
)
_partial_index("ix_tables_dropped_at", tables.c.dropped_at, where=tables.c.dropped_at.is_not(None))

table_columns = _table(
    "table_columns",
    sa.Column("table_id", Int64, _ref("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("field_id", Int32, primary_key=True, autoincrement=False),
    _col("position", Int32),
    _col("name", Text),
    _col("type", Json()),
    _col("required", Flag),
    _col("doc", Text, null=True),
    sa.CheckConstraint("field_id > 0", name="field_id"),
    sa.CheckConstraint("required IN (0, 1)", name="required").ddl_if(dialect="sqlite"),
)

table_metadata = _table(
    "table_metadata",
    sa.Column("table_id", Int64, _ref("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("metadata_version", Int64, primary_key=True, autoincrement=False),
    _col("schema_version", Int32),
    _col("schema", Json()),
    _col("spec_id", Int32),
    _col("partition_by", Json()),
    _col("sort_order_id", Int32),
    _col("sort_by", Json()),
    _col("properties", Json(dict[str, str])),
    _col("storage_engine", Text),
    _col("engine_config", Json()),
    _col("format", Text),
    _col("compression", Text),
    _col("change", Text),
    _col("created_at", UtcTime),
    _one_of("storage_engine", "local", "s3"),
    _one_of("format", "parquet", "json"),
    sa.CheckConstraint("metadata_version > 0", name="metadata_version"),
)

table_files = _table(
    "table_files",
    _id("file_id"),
    _col("table_id", Int64, _ref("tables.table_id")),
    _col("file_name", Text),
    _col("file_path", Text),
    _col("file_size", Int64),
    _col("file_type", Text),
    _col("content", Int32, default="0"),
    _col("referenced_data_file", Text, null=True),
    _col("partition_key", Text),
    _col("partition_path", Text),
    _col("row_count", Int64),
    _col("checksum", Text, null=True),
    _col("is_compressed", Flag),
    _col("statistics", Json(FileStatistics)),
    _col("split_offsets", Json(list[int])),
    _col("schema_id", Int32),
    _col("spec_id", Int32),
    _col("sort_order_id", Int32),
    _col("created_at", UtcTime),
    _col("modified_at", UtcTime),
    _col("registered_at", UtcTime),
    _col("intent_id", Text, null=True),
    _col("snapshot_id", Int64, null=True),
    _col("sequence_number", Int64, null=True),
    _col("first_row_id", Int64, null=True),
    _col("set_aside_reason", Text, null=True),
    _one_of("file_type", "parquet", "json"),
    sa.CheckConstraint("content IN (0, 1, 2)", name="content"),
    sa.CheckConstraint("is_compressed IN (0, 1)", name="is_compressed").ddl_if(dialect="sqlite"),
    sa.CheckConstraint("snapshot_id IS NULL OR set_aside_reason IS NULL", name="set_aside"),
    *_not_negative("file_size", "row_count"),
    sa.Index("ix_table_files_table_id_partition", "table_id", "spec_id", "partition_key", "file_id"),
    sa.Index("ix_table_files_table_id_file_id", "table_id", "file_id"),
)
# The key of a file is (path, content, referenced data file): a path is one data file, or the vectors of several.
sa.Index(
    "uq_table_files_file_path",
    table_files.c.file_path,
    table_files.c.content,
    sa.func.coalesce(table_files.c.referenced_data_file, sa.literal_column("''")),
    unique=True,
)
# What waits for its first snapshot. JSON landing files never enter one; the literal lets a plan see that this index
# serves, which it would not from a parameter.
PENDING = sa.and_(
    table_files.c.snapshot_id.is_(None),
    table_files.c.set_aside_reason.is_(None),
    table_files.c.file_type != sa.literal_column("'json'"),
)
_partial_index("ix_table_files_pending", table_files.c.table_id, table_files.c.file_id, where=PENDING)
_partial_index(
    "ix_table_files_set_aside",
    table_files.c.table_id,
    table_files.c.file_id,
    where=table_files.c.set_aside_reason.is_not(None),
)

table_stats = _table(
    "table_stats",
    sa.Column("table_id", Int64, _ref("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("spec_id", Int32, primary_key=True, autoincrement=False),
    sa.Column("partition_key", Text, primary_key=True),
    sa.Column("file_type", Text, primary_key=True),
    _col("partition_path", Text),
    _col("row_count", Int64),
    _col("file_count", Int64),
    _col("total_size", Int64),
    _col("last_modified", UtcTime),
    _col("columns", Json(dict[int, ColumnStatistics])),
    *_not_negative("row_count", "file_count", "total_size"),
)

table_snapshots = _table(
    "table_snapshots",
    sa.Column("table_id", Int64, _ref("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("snapshot_id", Int64, primary_key=True, autoincrement=False),
    _col("parent_snapshot_id", Int64, null=True),
    _col("sequence_number", Int64),
    _col("timestamp_ms", Int64),
    _col("operation", Text),
    _col("summary", Json(dict[str, str])),
    _col("manifest_list", Text),
    _col("schema_id", Int32),
    _col("metadata_location", Text),
    _col("trigger", Text),
    _col("created_at", UtcTime),
    _col("expired_at", UtcTime, null=True),  # when it left metadata.json
    _one_of("trigger", "query", "manual", "sync", "time", "size", "client"),
    sa.UniqueConstraint("table_id", "sequence_number"),
)
_partial_index(
    "ix_table_snapshots_retained",
    table_snapshots.c.table_id,
    table_snapshots.c.sequence_number,
    where=table_snapshots.c.expired_at.is_(None),
)

partition_metadata = _table(
    "partition_metadata",
    sa.Column("file_path", Text, primary_key=True),
    _col("table_id", Int64, _ref("tables.table_id")),
    _col("metadata", Bytes, null=True),
    _col("metadata_size", Int64),
    _col("insert_time", UtcTime),
    sa.Index("ix_partition_metadata_table_id", "table_id"),
)

pending_writes = _table(
    "pending_writes",
    sa.Column("intent_id", Text, primary_key=True),
    _col("table_id", Int64, _ref("tables.table_id"), null=True),
    _col("kind", Text),
    _col("prefix", Text),
    _col("owner", Text),
    _col("started_at", UtcTime),
    _col("lease_until", UtcTime),
    _col("recovered_at", UtcTime, null=True),  # set by recovery; the prefix is swept once more after sweep_after
    _col("sweep_after", UtcTime, null=True),
    _col("topic_id", Int64, _ref("topics.topic_id"), null=True),
    sa.UniqueConstraint("prefix"),
    # Whose it is: a table's or a topic's.
    sa.CheckConstraint("(table_id IS NULL) <> (topic_id IS NULL)", name="owner"),
    _one_of("kind", "write", "flush"),
    sa.Index("ix_pending_writes_lease_until", "lease_until"),
)
for _owner in (pending_writes.c.table_id, pending_writes.c.topic_id):
    _partial_index(f"ix_pending_writes_{_owner.name}", _owner, where=_owner.is_not(None))
_partial_index(
    "ix_pending_writes_sweep_after", pending_writes.c.sweep_after, where=pending_writes.c.sweep_after.is_not(None)
)

retired_files = _table(
    "retired_files",
    _id("retired_id"),
    _col("table_id", Int64, _ref("tables.table_id"), null=True),
    _col("file_path", Text),
    _col("file_size", Int64),
    _col("kind", Text),
    _col("reason", Text),
    _col("retired_at", UtcTime),
    _col("expires_at", UtcTime),
    _col("sequence_number", Int64, null=True),  # of the snapshot that added it
    _col("snapshot_id", Int64, null=True),  # the snapshot that added it
    _col("removed_by", Int64, null=True),  # the snapshot that removed it; none while the current one still lists it
    _col("removed_sequence", Int64, null=True),
    _col("ended_at", UtcTime, null=True),  # the quarantine is over: the footer is gone, the object goes next
    _col("record", Json(), null=True),
    _col("topic_id", Int64, _ref("topics.topic_id"), null=True),
    # Whose it is: a table's or a topic's.
    sa.CheckConstraint("(table_id IS NULL) <> (topic_id IS NULL)", name="owner"),
    _one_of("kind", "data", "metadata", "manifest", "manifest_list", "stray", "segment"),
    sa.UniqueConstraint("file_path"),
    sa.Index("ix_retired_files_expires_at", "expires_at", "retired_id"),
    sa.Index("ix_retired_files_table_id", "table_id"),
    sa.Index("ix_retired_files_topic_id", "topic_id"),
)
_partial_index(
    "ix_retired_files_removal_pending",
    retired_files.c.table_id,
    where=sa.and_(retired_files.c.snapshot_id.is_not(None), retired_files.c.removed_by.is_(None)),
)

leases = _table(
    "leases",
    sa.Column("name", Text, primary_key=True),
    _col("owner", Text),
    _col("fence", Int64),
    _col("expires_at", UtcTime),
    sa.CheckConstraint("fence > 0", name="fence"),
)

applied_batches = _table(
    "applied_batches",
    sa.Column("table_id", Int64, _ref("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("stream", Text, primary_key=True),
    sa.Column("batch_id", Text, primary_key=True),
    _col("start_position", Json(), null=True),
    _col("end_position", Json(), null=True),
    _col("answer", Json()),
    _col("applied_at", UtcTime),
)

stream_positions = _table(
    "stream_positions",
    sa.Column("table_id", Int64, _ref("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("stream", Text, primary_key=True),
    _col("position", Json(), null=True),
    _col("batch_id", Text),
    _col("updated_at", UtcTime),
)

# The topic log -------------------------------------------------------------------------------------------------------
topics = _table(
    "topics",
    _id("topic_id"),
    _col("topic_uuid", Text),
    _col("warehouse_id", Int64, _ref("warehouses.warehouse_id")),
    _col("name", Name),
    _col("partition_count", Int32),
    _col("retention_ms", Int64, null=True),
    _col("config", Json(dict[str, str])),
    _col("value_schema", Json(), null=True),
    _col("location", Text),
    _col("created_at", UtcTime),
    _col("deleted_at", UtcTime, null=True),
    sa.UniqueConstraint("topic_uuid"),
    sa.UniqueConstraint("location"),
    sa.CheckConstraint("partition_count > 0", name="partition_count"),
    *_not_negative("retention_ms"),
    sa.Index("ix_topics_warehouse_id", "warehouse_id"),
)
# A deleted topic's name is free again.
sa.Index(
    "uq_topics_warehouse_id_name",
    topics.c.warehouse_id,
    topics.c.name,
    unique=True,
    sqlite_where=topics.c.deleted_at.is_(None),
    postgresql_where=topics.c.deleted_at.is_(None),
)
_partial_index("ix_topics_deleted_at", topics.c.deleted_at, where=topics.c.deleted_at.is_not(None))

partitions = _table(
    "partitions",
    sa.Column("topic_id", Int64, _ref("topics.topic_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("partition_id", Int32, primary_key=True, autoincrement=False),
    _col("log_start_offset", Int64, default="0"),
    _col("high_watermark", Int64, default="0"),
    *_not_negative("partition_id", "log_start_offset"),
    sa.CheckConstraint("high_watermark >= log_start_offset", name="high_watermark"),
)


def _partition_ref() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["topic_id", "partition_id"], ["partitions.topic_id", "partitions.partition_id"], ondelete="CASCADE"
    )


segments = _table(
    "segments",
    _id("segment_id"),
    _col("topic_id", Int64),
    _col("partition_id", Int32),
    _col("base_offset", Int64),
    _col("end_offset", Int64),
    _col("record_count", Int64),
    _col("size_bytes", Int64),
    _col("s3_bucket", Text, null=True),
    _col("s3_key", Text, null=True),
    _col("location", Text),
    _col("first_timestamp", Int64, null=True),
    _col("last_timestamp", Int64, null=True),
    _col("intent_id", Text, null=True),
    _col("created_at", UtcTime),
    _partition_ref(),
    sa.UniqueConstraint("topic_id", "partition_id", "base_offset"),
    *_not_negative("base_offset", "size_bytes"),
    sa.CheckConstraint("end_offset >= base_offset", name="end_offset"),
    sa.CheckConstraint("record_count = end_offset - base_offset + 1", name="record_count"),
    sa.CheckConstraint("(s3_bucket IS NULL) = (s3_key IS NULL)", name="s3_key"),
    sa.Index("ix_segments_topic_id_partition_id_offsets", "topic_id", "partition_id", "base_offset", "end_offset"),
    sa.Index("ix_segments_s3_bucket_s3_key", "s3_bucket", "s3_key"),
    sa.Index("ix_segments_created_at", "created_at"),
)

consumer_groups = _table(
    "consumer_groups",
    _id("group_key"),
    _col("warehouse_id", Int64, _ref("warehouses.warehouse_id")),
    _col("group_id", Name),
    _col("created_at", UtcTime),
    sa.UniqueConstraint("warehouse_id", "group_id"),
)

consumer_offsets = _table(
    "consumer_offsets",
    sa.Column(
        "group_key", Int64, _ref("consumer_groups.group_key", cascade=True), primary_key=True, autoincrement=False
    ),
    sa.Column("topic_id", Int64, primary_key=True, autoincrement=False),
    sa.Column("partition_id", Int32, primary_key=True, autoincrement=False),
    _col("committed_offset", Int64),
    _col("metadata", Text, null=True),
    _col("committed_at", UtcTime),
    _partition_ref(),
    *_not_negative("committed_offset"),
    sa.Index("ix_consumer_offsets_topic_id_partition_id", "topic_id", "partition_id"),
    sa.Index("ix_consumer_offsets_committed_at", "committed_at"),
)

producer_batches = _table(
    "producer_batches",
    sa.Column("topic_id", Int64, _ref("topics.topic_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("producer", Text, primary_key=True),
    sa.Column("sequence", Int64, primary_key=True, autoincrement=False),
    _col("answer", Json()),
    _col("created_at", UtcTime),
    sa.Index("ix_producer_batches_created_at", "created_at"),
)

# How far streams have planned to read: a stream that limits its batches resumes from here (pipeline/log_source.py).
stream_plans = _table(
    "stream_plans",
    sa.Column(
        "group_key", Int64, _ref("consumer_groups.group_key", cascade=True), primary_key=True, autoincrement=False
    ),
    sa.Column("topic_id", Int64, _ref("topics.topic_id", cascade=True), primary_key=True, autoincrement=False),
    _col("offsets", Json(dict[str, int])),
    _col("updated_at", UtcTime),
    sa.Index("ix_stream_plans_topic_id", "topic_id"),
)


# Operations metadata ---------------------------------------------------------------------------------------------------
# On PostgreSQL these stand in a schema of their own (Settings.metadata_schema), which is on every connection's search path.
def _run_ref() -> sa.ForeignKey:
    return sa.ForeignKey("sync_runs.id", ondelete="SET NULL")


sync_runs = _table(
    "sync_runs",
    _id("id"),
    _col("schema_name", Name),
    _col("sync_mode", Text),
    _col("status", Text),
    _col("started_at", UtcTime),
    _col("completed_at", UtcTime, null=True),
    _col("duration_ms", Int64, null=True),
    _col("last_seen_at", UtcTime),  # heartbeat, statistics, else start
    _col("heartbeat_at", UtcTime, null=True),  # none: it sends no heartbeats
    _col("records_processed", Int64, default="0"),
    _col("records_inserted", Int64, default="0"),
    _col("records_updated", Int64, default="0"),
    _col("records_deleted", Int64, default="0"),
    _col("bytes_processed", Int64, default="0"),
    _col("config_hash", Text, null=True),
    _col("source_info", Exact(), null=True),
    _col("destination_info", Exact(), null=True),
    _col("instance_id", Text, null=True),
    _col("node_id", Text, null=True),
    _col("error_message", Text, null=True),
    _col("error_details", Exact(), null=True),
    _col("import_key", Text, null=True),
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
    _col("schema_name", Name),
    _col("table_name", Name, null=True),
    _col("marker_type", Text),
    _col("position_data", Exact()),
    _col("last_updated", UtcTime),
    _col("sync_run_id", Int64, _run_ref(), null=True),
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
    _col("schema_name", Name),
    _col("table_name", Name),
    _col("version", Int32),
    _col("schema_definition", Exact()),
    _col("schema_hash", Text),
    _col("evolution_type", Text),
    _col("changes", Exact()),
    _col("previous_version", Int32, null=True),
    _col("iceberg_schema_id", Int32, null=True),
    _col("source_position", Exact(), null=True),
    _col("registered_at", UtcTime),
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
    _col("schema_name", Name),
    _col("table_name", Name, null=True),
    _col("sync_run_id", Int64, _run_ref(), null=True),
    _col("error_type", Text),
    _col("error_code", Text, null=True),
    _col("error_message", Text),
    _col("error_details", Exact(), null=True),
    _col("stack_trace", Text, null=True),
    _col("record_data", Exact(), null=True),
    _col("operation_type", Text, null=True),
    _col("retry_count", Int32, default="0"),
    _col("max_retries", Int32, default="3"),
    _col("next_retry_at", UtcTime, null=True),
    _col("claimed_until", UtcTime, null=True),  # handed out by errors_due until then
    _col("status", Text),
    _col("occurred_at", UtcTime),
    _col("last_retry_at", UtcTime, null=True),
    _col("resolved_at", UtcTime, null=True),
    _col("resolution", Text, null=True),
    _col("import_key", Text, null=True),
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
    _col("schema_name", Name),
    _col("table_name", Name),
    _col("operation_type", Text),
    _col("record_data", Exact()),
    _col("envelope", Exact(), null=True),
    _col("source_record_id", Text, null=True),
    _col("sync_run_id", Int64, _run_ref(), null=True),
    _col("error_log_id", Int64, sa.ForeignKey("error_log.id", ondelete="SET NULL"), null=True),
    _col("error_message", Text, null=True),
    _col("error_count", Int32, default="1"),
    _col("status", Text),
    _col("claimed_by", Text, null=True),
    _col("claimed_until", UtcTime, null=True),
    _col("claim", Int64, default="0"),  # grows with each claim: an old one's outcome is refused
    _col("created_at", UtcTime),
    _col("last_failed_at", UtcTime),
    _col("resolved_at", UtcTime, null=True),
    _col("resolution", Text, null=True),
    _col("import_key", Text, null=True),
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

OPERATIONS = frozenset({"sync_markers", "schema_registry", "sync_runs", "error_log", "dead_letter_queue"})

# Written by triggers only (feed.py). On PostgreSQL it has a column more: xid, the writing transaction's id.
registry_changes = _table(
    "registry_changes",
    _id("sequence"),
    _col("table_name", Text),
    _col("operation", Text),
    _col("table_id", Int64),
    _col("data", Json()),
    _col("changed_at", UtcTime),
    _one_of("operation", "INSERT", "UPDATE", "DELETE"),
)

# How far each subscriber has come in the feed. A position names the registry, and on PostgreSQL snapshots too.
subscriber_cursors = _table(
    "subscriber_cursors",
    sa.Column("astha", Text, primary_key=True),
    sa.Column("subscriber", Text, primary_key=True),
    _col("position", Json(), null=True),  # none: it is told to refresh first
    _col("state", Json()),  # what `lakeward astha status` shows
    _col("seen_at", UtcTime),  # a subscriber that is not seen for long holds the feed no more
)

# Events that failed in all tries: kept until somebody discards them.
parked_events = _table(
    "parked_events",
    _id("parked_id"),
    _col("astha", Text),
    _col("subscriber", Text),
    _col("sequence", Int64),
    _col("table_name", Text),
    _col("operation", Text),
    _col("table_id", Int64),
    _col("data", Json()),
    _col("changed_at", UtcTime),
    _col("attempts", Int32),
    _col("error", Text),
    _col("parked_at", UtcTime),
    sa.UniqueConstraint("astha", "subscriber", "sequence"),
    _one_of("operation", "INSERT", "UPDATE", "DELETE"),
)

# Watched by the feed, and the columns that the feed leaves out.
WATCHED: dict[str, frozenset[str]] = {
    "tables": frozenset(),
    "table_columns": frozenset(),
    "table_metadata": frozenset(),
    "table_files": frozenset({"statistics", "split_offsets"}),
    "table_stats": frozenset({"columns"}),
    "table_snapshots": frozenset(),
}
