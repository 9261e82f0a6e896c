"""The lakehouse: namespaces, tables, files, statistics, snapshots, intents, quarantine, leases, batches, the feed.

Its definitions are its own, so that it makes the same tables for ever, whatever the code's become.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from functools import partial

import sqlalchemy as sa
from alembic import op

from lakeward.db.migrations import parts as p

revision = "0001"
down_revision = None

metadata = p.new_metadata()
table = partial(p.table, metadata)

registry_info = table(
    "registry_info",
    sa.Column("id", p.INT32, sa.CheckConstraint("id = 1", name="one_row"), primary_key=True, autoincrement=False),
    p.column("registry_uuid", p.TEXT),
    p.column("schema_version", p.INT32),
    p.column("minimum_version", p.INT32),
    p.column("created_at", p.TIME),
)

warehouses = table(
    "warehouses",
    p.id_column("warehouse_id"),
    p.column("warehouse_uuid", p.TEXT),
    p.column("name", p.TEXT),
    p.column("location", p.TEXT),
    p.column("created_at", p.TIME),
    sa.UniqueConstraint("warehouse_uuid"),
    sa.UniqueConstraint("name"),
)

namespaces = table(
    "namespaces",
    p.id_column("namespace_id"),
    p.column("warehouse_id", p.INT64, p.reference("warehouses.warehouse_id")),
    p.column("levels", p.JSON),
    p.column("path", p.NAME),  # the levels joined by U+001F: unique, and sorted as the REST catalog lists them
    p.column("properties", p.JSON),
    p.column("created_at", p.TIME),
    sa.UniqueConstraint("warehouse_id", "path"),
)

tables = table(
    "tables",
    p.id_column("table_id"),
    p.column("table_uuid", p.TEXT),
    p.column("namespace_id", p.INT64, p.reference("namespaces.namespace_id"), null=True),  # none once dropped
    p.column("name", p.NAME),
    p.column("location", p.TEXT),
    p.column("format", p.TEXT),
    p.column("format_version", p.INT32),
    p.column("version", p.INT64),
    p.column("row_count", p.INT64, default="0"),
    p.column("deleted_row_count", p.INT64, default="0"),
    p.column("total_size", p.INT64, default="0"),
    p.column("file_count", p.INT64, default="0"),
    p.column("landing_row_count", p.INT64, default="0"),
    p.column("landing_size", p.INT64, default="0"),
    p.column("landing_file_count", p.INT64, default="0"),
    p.column("last_modified", p.TIME),
    p.column("last_column_id", p.INT32),
    p.column("last_partition_id", p.INT32),
    p.column("metadata_location", p.TEXT, null=True),
    p.column("iceberg_version", p.INT64, default="0"),
    p.column("current_snapshot_id", p.INT64, null=True),
    p.column("created_at", p.TIME),
    p.column("dropped_at", p.TIME, null=True),
    sa.UniqueConstraint("table_uuid"),
    sa.UniqueConstraint("location"),
    p.one_of("format", "parquet", "json"),
    sa.CheckConstraint("format_version IN (2, 3)", name="format_version"),
    sa.CheckConstraint("(namespace_id IS NULL) = (dropped_at IS NOT NULL)", name="dropped"),
    *p.not_negative("row_count", "deleted_row_count", "total_size", "file_count"),
    *p.not_negative("landing_row_count", "landing_size", "landing_file_count"),
    # A dropped table's name is free again: it has no namespace, and NULLs do not collide.
    sa.UniqueConstraint("namespace_id", "name"),
)
p.partial_index("ix_tables_dropped_at", tables.c.dropped_at, where=tables.c.dropped_at.is_not(None))

table_columns = table(
    "table_columns",
    sa.Column("table_id", p.INT64, p.reference("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("field_id", p.INT32, primary_key=True, autoincrement=False),
    p.column("position", p.INT32),
    p.column("name", p.TEXT),
    p.column("type", p.JSON),
    p.column("required", p.FLAG),
    p.column("doc", p.TEXT, null=True),
    sa.CheckConstraint("field_id > 0", name="field_id"),
    sa.CheckConstraint("required IN (0, 1)", name="required").ddl_if(dialect="sqlite"),
)

table_metadata = table(
    "table_metadata",
    sa.Column("table_id", p.INT64, p.reference("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("metadata_version", p.INT64, primary_key=True, autoincrement=False),
    p.column("schema_version", p.INT32),
    p.column("schema", p.JSON),
    p.column("spec_id", p.INT32),
    p.column("partition_by", p.JSON),
    p.column("sort_order_id", p.INT32),
    p.column("sort_by", p.JSON),
    p.column("properties", p.JSON),
    p.column("storage_engine", p.TEXT),
    p.column("engine_config", p.JSON),
    p.column("format", p.TEXT),
    p.column("compression", p.TEXT),
    p.column("change", p.TEXT),
    p.column("created_at", p.TIME),
    p.one_of("storage_engine", "local", "s3"),
    p.one_of("format", "parquet", "json"),
    sa.CheckConstraint("metadata_version > 0", name="metadata_version"),
)

table_files = table(
    "table_files",
    p.id_column("file_id"),
    p.column("table_id", p.INT64, p.reference("tables.table_id")),
    p.column("file_name", p.TEXT),
    p.column("file_path", p.TEXT),
    p.column("file_size", p.INT64),
    p.column("file_type", p.TEXT),
    p.column("content", p.INT32, default="0"),
    p.column("referenced_data_file", p.TEXT, null=True),
    p.column("partition_key", p.TEXT),
    p.column("partition_path", p.TEXT),
    p.column("row_count", p.INT64),
    p.column("checksum", p.TEXT, null=True),
    p.column("is_compressed", p.FLAG),
    p.column("statistics", p.JSON),
    p.column("split_offsets", p.JSON),
    p.column("schema_id", p.INT32),
    p.column("spec_id", p.INT32),
    p.column("sort_order_id", p.INT32),
    p.column("created_at", p.TIME),
    p.column("modified_at", p.TIME),
    p.column("registered_at", p.TIME),
    p.column("intent_id", p.TEXT, null=True),
    p.column("snapshot_id", p.INT64, null=True),
    p.column("sequence_number", p.INT64, null=True),
    p.column("first_row_id", p.INT64, null=True),
    p.column("set_aside_reason", p.TEXT, null=True),
    p.one_of("file_type", "parquet", "json"),
    sa.CheckConstraint("content IN (0, 1, 2)", name="content"),
    sa.CheckConstraint("is_compressed IN (0, 1)", name="is_compressed").ddl_if(dialect="sqlite"),
    sa.CheckConstraint("snapshot_id IS NULL OR set_aside_reason IS NULL", name="set_aside"),
    *p.not_negative("file_size", "row_count"),
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
p.partial_index("ix_table_files_pending", table_files.c.table_id, table_files.c.file_id, where=PENDING)
p.partial_index(
    "ix_table_files_set_aside",
    table_files.c.table_id,
    table_files.c.file_id,
    where=table_files.c.set_aside_reason.is_not(None),
)

table_stats = table(
    "table_stats",
    sa.Column("table_id", p.INT64, p.reference("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("spec_id", p.INT32, primary_key=True, autoincrement=False),
    sa.Column("partition_key", p.TEXT, primary_key=True),
    sa.Column("file_type", p.TEXT, primary_key=True),
    p.column("partition_path", p.TEXT),
    p.column("row_count", p.INT64),
    p.column("file_count", p.INT64),
    p.column("total_size", p.INT64),
    p.column("last_modified", p.TIME),
    p.column("columns", p.JSON),
    *p.not_negative("row_count", "file_count", "total_size"),
)

table_snapshots = table(
    "table_snapshots",
    sa.Column("table_id", p.INT64, p.reference("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("snapshot_id", p.INT64, primary_key=True, autoincrement=False),
    p.column("parent_snapshot_id", p.INT64, null=True),
    p.column("sequence_number", p.INT64),
    p.column("timestamp_ms", p.INT64),
    p.column("operation", p.TEXT),
    p.column("summary", p.JSON),
    p.column("manifest_list", p.TEXT),
    p.column("schema_id", p.INT32),
    p.column("metadata_location", p.TEXT),
    p.column("trigger", p.TEXT),
    p.column("created_at", p.TIME),
    p.column("expired_at", p.TIME, null=True),  # when it left metadata.json
    p.one_of("trigger", "query", "manual", "sync", "time", "size", "client"),
    sa.UniqueConstraint("table_id", "sequence_number"),
)
p.partial_index(
    "ix_table_snapshots_retained",
    table_snapshots.c.table_id,
    table_snapshots.c.sequence_number,
    where=table_snapshots.c.expired_at.is_(None),
)

partition_metadata = table(
    "partition_metadata",
    sa.Column("file_path", p.TEXT, primary_key=True),
    p.column("table_id", p.INT64, p.reference("tables.table_id")),
    p.column("metadata", p.BYTES, null=True),
    p.column("metadata_size", p.INT64),
    p.column("insert_time", p.TIME),
    sa.Index("ix_partition_metadata_table_id", "table_id"),
)

pending_writes = table(
    "pending_writes",
    sa.Column("intent_id", p.TEXT, primary_key=True),
    p.column("table_id", p.INT64, p.reference("tables.table_id")),
    p.column("kind", p.TEXT),
    p.column("prefix", p.TEXT),
    p.column("owner", p.TEXT),
    p.column("started_at", p.TIME),
    p.column("lease_until", p.TIME),
    p.column("recovered_at", p.TIME, null=True),  # set by recovery; the prefix is swept once more after sweep_after
    p.column("sweep_after", p.TIME, null=True),
    sa.UniqueConstraint("prefix"),
    p.one_of("kind", "write", "flush"),
    sa.Index("ix_pending_writes_lease_until", "lease_until"),
    sa.Index("ix_pending_writes_table_id", "table_id"),
    sa.Index("ix_pending_writes_owner", "owner"),
)
p.partial_index(
    "ix_pending_writes_sweep_after", pending_writes.c.sweep_after, where=pending_writes.c.sweep_after.is_not(None)
)

retired_files = table(
    "retired_files",
    p.id_column("retired_id"),
    p.column("table_id", p.INT64, p.reference("tables.table_id")),
    p.column("file_path", p.TEXT),
    p.column("file_size", p.INT64),
    p.column("kind", p.TEXT),
    p.column("reason", p.TEXT),
    p.column("retired_at", p.TIME),
    p.column("expires_at", p.TIME),
    p.column("sequence_number", p.INT64, null=True),  # of the snapshot that added it
    p.column("snapshot_id", p.INT64, null=True),  # the snapshot that added it
    p.column(
        "removed_by", p.INT64, null=True
    ),  # the snapshot that removed it; none while the current one still lists it
    p.column("removed_sequence", p.INT64, null=True),
    p.column("ended_at", p.TIME, null=True),  # the quarantine is over: the footer is gone, the object goes next
    p.column("record", p.JSON, null=True),
    p.one_of("kind", "data", "metadata", "manifest", "manifest_list", "stray"),
    sa.UniqueConstraint("file_path"),
    sa.Index("ix_retired_files_expires_at", "expires_at", "retired_id"),
    sa.Index("ix_retired_files_table_id", "table_id"),
)
p.partial_index(
    "ix_retired_files_removal_pending",
    retired_files.c.table_id,
    where=sa.and_(retired_files.c.snapshot_id.is_not(None), retired_files.c.removed_by.is_(None)),
)

leases = table(
    "leases",
    sa.Column("name", p.TEXT, primary_key=True),
    p.column("owner", p.TEXT),
    p.column("fence", p.INT64),
    p.column("expires_at", p.TIME),
    sa.CheckConstraint("fence > 0", name="fence"),
)

applied_batches = table(
    "applied_batches",
    sa.Column("table_id", p.INT64, p.reference("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("stream", p.TEXT, primary_key=True),
    sa.Column("batch_id", p.TEXT, primary_key=True),
    p.column("start_position", p.JSON, null=True),
    p.column("end_position", p.JSON, null=True),
    p.column("answer", p.JSON),
    p.column("applied_at", p.TIME),
)

stream_positions = table(
    "stream_positions",
    sa.Column("table_id", p.INT64, p.reference("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("stream", p.TEXT, primary_key=True),
    p.column("position", p.JSON, null=True),
    p.column("batch_id", p.TEXT),
    p.column("updated_at", p.TIME),
)

# Written by triggers only (feed.py). On PostgreSQL it has a column more: xid, the writing transaction's id.
registry_changes = table(
    "registry_changes",
    p.id_column("sequence"),
    p.column("table_name", p.TEXT),
    p.column("operation", p.TEXT),
    p.column("table_id", p.INT64),
    p.column("data", p.JSON),
    p.column("changed_at", p.TIME),
    p.one_of("operation", "INSERT", "UPDATE", "DELETE"),
)


def upgrade() -> None:
    connection = op.get_bind()
    p.make(connection, metadata.sorted_tables)
    if connection.dialect.name == "postgresql":
        # The writing transaction: what a reader of the feed compares with its snapshots.
        op.execute("ALTER TABLE registry_changes ADD COLUMN xid xid8 NOT NULL DEFAULT pg_current_xact_id()")
        op.execute("CREATE INDEX ix_registry_changes_xid ON registry_changes (xid, sequence)")
        now = connection.execute(sa.text("SELECT clock_timestamp()")).scalar_one()
    else:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    connection.execute(
        registry_info.insert().values(
            id=1, registry_uuid=str(uuid.uuid4()), schema_version=1, minimum_version=1, created_at=now
        )
    )
