"""Namespaces, tables, files, snapshots, writes under way, and what waits in quarantine."""

from __future__ import annotations

import sqlalchemy as sa

from lakeward.db.schema.parts import column, id_column, not_negative, one_of, partial_index, reference, table
from lakeward.db.types import Bytes, Flag, Int32, Int64, Json, Name, Text, UtcTime
from lakeward.tables.records.files import FileStatistics
from lakeward.tables.records.tables import ColumnStatistics

registry_info = table(
    "registry_info",
    sa.Column("id", Int32, sa.CheckConstraint("id = 1", name="one_row"), primary_key=True, autoincrement=False),
    column("registry_uuid", Text),
    column("schema_version", Int32),
    column("minimum_version", Int32),
    column("created_at", UtcTime),
)

warehouses = table(
    "warehouses",
    id_column("warehouse_id"),
    column("warehouse_uuid", Text),
    column("name", Text),
    column("location", Text),
    column("created_at", UtcTime),
    sa.UniqueConstraint("warehouse_uuid"),
    sa.UniqueConstraint("name"),
)

namespaces = table(
    "namespaces",
    id_column("namespace_id"),
    column("warehouse_id", Int64, reference("warehouses.warehouse_id")),
    column("levels", Json(tuple[str, ...])),
    column("path", Name),  # the levels joined by U+001F: unique, and sorted as the REST catalog lists them
    column("properties", Json(dict[str, str])),
    column("created_at", UtcTime),
    sa.UniqueConstraint("warehouse_id", "path"),
)

tables = table(
    "tables",
    id_column("table_id"),
    column("table_uuid", Text),
    column("namespace_id", Int64, reference("namespaces.namespace_id"), null=True),  # None once dropped
    column("name", Name),
    column("location", Text),
    column("format", Text),
    column("format_version", Int32),
    column("version", Int64),
    column("row_count", Int64, default="0"),
    column("deleted_row_count", Int64, default="0"),
    column("total_size", Int64, default="0"),
    column("file_count", Int64, default="0"),
    column("landing_row_count", Int64, default="0"),
    column("landing_size", Int64, default="0"),
    column("landing_file_count", Int64, default="0"),
    column("last_modified", UtcTime),
    column("last_column_id", Int32),
    column("last_partition_id", Int32),
    column("metadata_location", Text, null=True),
    column("iceberg_version", Int64, default="0"),
    column("current_snapshot_id", Int64, null=True),
    column("created_at", UtcTime),
    column("dropped_at", UtcTime, null=True),
    sa.UniqueConstraint("table_uuid"),
    sa.UniqueConstraint("location"),
    one_of("format", "parquet", "json"),
    sa.CheckConstraint("format_version IN (2, 3)", name="format_version"),
    sa.CheckConstraint("(namespace_id IS NULL) = (dropped_at IS NOT NULL)", name="dropped"),
    *not_negative("row_count", "deleted_row_count", "total_size", "file_count"),
    *not_negative("landing_row_count", "landing_size", "landing_file_count"),
    # A dropped table's name is free again: it has no namespace, and NULLs do not collide.
    sa.UniqueConstraint("namespace_id", "name"),
)
partial_index("ix_tables_dropped_at", tables.c.dropped_at, where=tables.c.dropped_at.is_not(None))

table_columns = table(
    "table_columns",
    sa.Column("table_id", Int64, reference("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("field_id", Int32, primary_key=True, autoincrement=False),
    column("position", Int32),
    column("name", Text),
    column("type", Json()),
    column("required", Flag),
    column("doc", Text, null=True),
    sa.CheckConstraint("field_id > 0", name="field_id"),
    sa.CheckConstraint("required IN (0, 1)", name="required").ddl_if(dialect="sqlite"),
)

table_metadata = table(
    "table_metadata",
    sa.Column("table_id", Int64, reference("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("metadata_version", Int64, primary_key=True, autoincrement=False),
    column("schema_version", Int32),
    column("schema", Json()),
    column("spec_id", Int32),
    column("partition_by", Json()),
    column("sort_order_id", Int32),
    column("sort_by", Json()),
    column("properties", Json(dict[str, str])),
    column("storage_engine", Text),
    column("engine_config", Json()),
    column("format", Text),
    column("compression", Text),
    column("change", Text),
    column("created_at", UtcTime),
    one_of("storage_engine", "local", "s3"),
    one_of("format", "parquet", "json"),
    sa.CheckConstraint("metadata_version > 0", name="metadata_version"),
)

table_files = table(
    "table_files",
    id_column("file_id"),
    column("table_id", Int64, reference("tables.table_id")),
    column("file_name", Text),
    column("file_path", Text),
    column("file_size", Int64),
    column("file_type", Text),
    column("content", Int32, default="0"),
    column("referenced_data_file", Text, null=True),
    column("partition_key", Text),
    column("partition_path", Text),
    column("row_count", Int64),
    column("checksum", Text, null=True),
    column("is_compressed", Flag),
    column("statistics", Json(FileStatistics)),
    column("split_offsets", Json(list[int])),
    column("schema_id", Int32),
    column("spec_id", Int32),
    column("sort_order_id", Int32),
    column("created_at", UtcTime),
    column("modified_at", UtcTime),
    column("registered_at", UtcTime),
    column("intent_id", Text, null=True),
    column("snapshot_id", Int64, null=True),
    column("sequence_number", Int64, null=True),
    column("first_row_id", Int64, null=True),
    column("set_aside_reason", Text, null=True),
    one_of("file_type", "parquet", "json"),
    sa.CheckConstraint("content IN (0, 1, 2)", name="content"),
    sa.CheckConstraint("is_compressed IN (0, 1)", name="is_compressed").ddl_if(dialect="sqlite"),
    sa.CheckConstraint("snapshot_id IS NULL OR set_aside_reason IS NULL", name="set_aside"),
    *not_negative("file_size", "row_count"),
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
partial_index("ix_table_files_pending", table_files.c.table_id, table_files.c.file_id, where=PENDING)
partial_index(
    "ix_table_files_set_aside",
    table_files.c.table_id,
    table_files.c.file_id,
    where=table_files.c.set_aside_reason.is_not(None),
)

# Bounds of a table's files as columns of keys (arrow/keys.py): of all files up to `last_file_id` that no earlier page has.
file_pages = table(
    "file_pages",
    sa.Column("table_id", Int64, reference("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("field_id", Int32, primary_key=True, autoincrement=False),  # 0: the files' ids
    sa.Column("last_file_id", Int64, primary_key=True, autoincrement=False),
    column("file_count", Int32),
    column("data", Bytes),
    *not_negative("file_count"),
)

table_stats = table(
    "table_stats",
    sa.Column("table_id", Int64, reference("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("spec_id", Int32, primary_key=True, autoincrement=False),
    sa.Column("partition_key", Text, primary_key=True),
    sa.Column("file_type", Text, primary_key=True),
    column("partition_path", Text),
    column("row_count", Int64),
    column("file_count", Int64),
    column("total_size", Int64),
    column("last_modified", UtcTime),
    column("columns", Json(dict[int, ColumnStatistics])),
    *not_negative("row_count", "file_count", "total_size"),
)

table_snapshots = table(
    "table_snapshots",
    sa.Column("table_id", Int64, reference("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("snapshot_id", Int64, primary_key=True, autoincrement=False),
    column("parent_snapshot_id", Int64, null=True),
    column("sequence_number", Int64),
    column("timestamp_ms", Int64),
    column("operation", Text),
    column("summary", Json(dict[str, str])),
    column("manifest_list", Text),
    column("schema_id", Int32),
    column("metadata_location", Text),
    column("trigger", Text),
    column("created_at", UtcTime),
    column("expired_at", UtcTime, null=True),  # when it left metadata.json
    one_of("trigger", "query", "manual", "sync", "time", "size", "client"),
    sa.UniqueConstraint("table_id", "sequence_number"),
)
partial_index(
    "ix_table_snapshots_retained",
    table_snapshots.c.table_id,
    table_snapshots.c.sequence_number,
    where=table_snapshots.c.expired_at.is_(None),
)

partition_metadata = table(
    "partition_metadata",
    sa.Column("file_path", Text, primary_key=True),
    column("table_id", Int64, reference("tables.table_id")),
    column("metadata", Bytes, null=True),
    column("metadata_size", Int64),
    column("insert_time", UtcTime),
    sa.Index("ix_partition_metadata_table_id", "table_id"),
)

pending_writes = table(
    "pending_writes",
    sa.Column("intent_id", Text, primary_key=True),
    column("table_id", Int64, reference("tables.table_id"), null=True),
    column("kind", Text),
    column("prefix", Text),
    column("owner", Text),
    column("started_at", UtcTime),
    column("lease_until", UtcTime),
    column("recovered_at", UtcTime, null=True),  # set by recovery; the prefix is swept once more after sweep_after
    column("sweep_after", UtcTime, null=True),
    column("topic_id", Int64, reference("topics.topic_id"), null=True),
    column("metadata_version", Int64, null=True),  # what a write goes by; None where it gives way to changes
    column("lease_ms", Int64, null=True),  # how long its lease is: none ends later than that from now, by a right clock
    sa.UniqueConstraint("prefix"),
    # Whose it is: a table's or a topic's.
    sa.CheckConstraint("(table_id IS NULL) <> (topic_id IS NULL)", name="owner"),
    one_of("kind", "write", "flush"),
    sa.Index("ix_pending_writes_lease_until", "lease_until"),
)
for _owner in (pending_writes.c.table_id, pending_writes.c.topic_id):
    partial_index(f"ix_pending_writes_{_owner.name}", _owner, where=_owner.is_not(None))
partial_index(
    "ix_pending_writes_sweep_after", pending_writes.c.sweep_after, where=pending_writes.c.sweep_after.is_not(None)
)

# Prefixes of registered writes whose lost tasks may have left more than the files that were registered.
orphan_sweeps = table(
    "orphan_sweeps",
    sa.Column("prefix", Text, primary_key=True),
    column("registered_at", UtcTime),
    column("sweep_after", UtcTime),
    sa.Index("ix_orphan_sweeps_sweep_after", "sweep_after"),
)

retired_files = table(
    "retired_files",
    id_column("retired_id"),
    column("table_id", Int64, reference("tables.table_id"), null=True),
    column("file_path", Text),
    column("file_size", Int64),
    column("kind", Text),
    column("reason", Text),
    column("retired_at", UtcTime),
    column("expires_at", UtcTime),
    column("sequence_number", Int64, null=True),  # of the snapshot that added it
    column("snapshot_id", Int64, null=True),  # the snapshot that added it
    column("removed_by", Int64, null=True),  # the snapshot that removed it; None while the current one still lists it
    column("removed_sequence", Int64, null=True),
    column("ended_at", UtcTime, null=True),  # the quarantine is over: the footer is gone, the object goes next
    column("record", Json(), null=True),
    column("topic_id", Int64, reference("topics.topic_id"), null=True),
    # Whose it is: a table's or a topic's.
    sa.CheckConstraint("(table_id IS NULL) <> (topic_id IS NULL)", name="owner"),
    one_of("kind", "data", "metadata", "manifest", "manifest_list", "stray", "segment"),
    sa.UniqueConstraint("file_path"),
    sa.Index("ix_retired_files_expires_at", "expires_at", "retired_id"),
    sa.Index("ix_retired_files_table_id", "table_id"),
    sa.Index("ix_retired_files_topic_id", "topic_id"),
)
partial_index(
    "ix_retired_files_removal_pending",
    retired_files.c.table_id,
    where=sa.and_(retired_files.c.snapshot_id.is_not(None), retired_files.c.removed_by.is_(None)),
)

leases = table(
    "leases",
    sa.Column("name", Text, primary_key=True),
    column("owner", Text),
    column("fence", Int64),
    column("expires_at", UtcTime),
    column("lease_ms", Int64, null=True),  # as of pending_writes
    sa.CheckConstraint("fence > 0", name="fence"),
)

# Work that is done now and then: when it is due, and for clean-up how long rows are kept, whoever deletes them.
upkeep = table(
    "upkeep",
    sa.Column("work", Text, primary_key=True),
    column("due_at", UtcTime, null=True),
    column("keep_seconds", Int64, null=True),
    *not_negative("keep_seconds"),
)

applied_batches = table(
    "applied_batches",
    sa.Column("table_id", Int64, reference("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("stream", Text, primary_key=True),
    sa.Column("batch_id", Text, primary_key=True),
    column("start_position", Json(), null=True),
    column("end_position", Json(), null=True),
    column("answer", Json()),
    column("applied_at", UtcTime),
)

stream_positions = table(
    "stream_positions",
    sa.Column("table_id", Int64, reference("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("stream", Text, primary_key=True),
    column("position", Json(), null=True),
    column("batch_id", Text),
    column("updated_at", UtcTime),
)
