"""The lakehouse: namespaces, tables, files, statistics, snapshots, intents, quarantine, leases, batches, the feed.

Its definitions are its own, so that it makes the same tables for ever, whatever the code's become.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

INT64 = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INT32 = sa.Integer()
TEXT = sa.Text()
# By code point whatever the collation of the database, as SQLite has it: pages and ranges go by these.
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
BYTES = sa.LargeBinary()
FLAG = sa.Boolean().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
JSON = postgresql.JSON().with_variant(sa.Text(), "sqlite")

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
    sa.Column("id", INT32, sa.CheckConstraint("id = 1", name="one_row"), primary_key=True, autoincrement=False),
    _col("registry_uuid", TEXT),
    _col("schema_version", INT32),
    _col("minimum_version", INT32),
    _col("created_at", TIME),
)

warehouses = _table(
    "warehouses",
    _id("warehouse_id"),
    _col("warehouse_uuid", TEXT),
    _col("name", TEXT),
    _col("location", TEXT),
    _col("created_at", TIME),
    sa.UniqueConstraint("warehouse_uuid"),
    sa.UniqueConstraint("name"),
)

namespaces = _table(
    "namespaces",
    _id("namespace_id"),
    _col("warehouse_id", INT64, _ref("warehouses.warehouse_id")),
    _col("levels", JSON),
    _col("path", NAME),  # the levels joined by U+001F: unique, and sorted as the REST catalog lists them
    _col("properties", JSON),
    _col("created_at", TIME),
    sa.UniqueConstraint("warehouse_id", "path"),
)

tables = _table(
    "tables",
    _id("table_id"),
    _col("table_uuid", TEXT),
    _col("namespace_id", INT64, _ref("namespaces.namespace_id"), null=True),  # none once dropped
    _col("name", NAME),
    _col("location", TEXT),
    _col("format", TEXT),
    _col("format_version", INT32),
    _col("version", INT64),
    _col("row_count", INT64, default="0"),
    _col("deleted_row_count", INT64, default="0"),
    _col("total_size", INT64, default="0"),
    _col("file_count", INT64, default="0"),
    _col("landing_row_count", INT64, default="0"),
    _col("landing_size", INT64, default="0"),
    _col("landing_file_count", INT64, default="0"),
    _col("last_modified", TIME),
    _col("last_column_id", INT32),
    _col("last_partition_id", INT32),
    _col("metadata_location", TEXT, null=True),
    _col("iceberg_version", INT64, default="0"),
    _col("current_snapshot_id", INT64, null=True),
    _col("created_at", TIME),
    _col("dropped_at", TIME, null=True),
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
    sa.Column("table_id", INT64, _ref("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("field_id", INT32, primary_key=True, autoincrement=False),
    _col("position", INT32),
    _col("name", TEXT),
    _col("type", JSON),
    _col("required", FLAG),
    _col("doc", TEXT, null=True),
    sa.CheckConstraint("field_id > 0", name="field_id"),
    sa.CheckConstraint("required IN (0, 1)", name="required").ddl_if(dialect="sqlite"),
)

table_metadata = _table(
    "table_metadata",
    sa.Column("table_id", INT64, _ref("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("metadata_version", INT64, primary_key=True, autoincrement=False),
    _col("schema_version", INT32),
    _col("schema", JSON),
    _col("spec_id", INT32),
    _col("partition_by", JSON),
    _col("sort_order_id", INT32),
    _col("sort_by", JSON),
    _col("properties", JSON),
    _col("storage_engine", TEXT),
    _col("engine_config", JSON),
    _col("format", TEXT),
    _col("compression", TEXT),
    _col("change", TEXT),
    _col("created_at", TIME),
    _one_of("storage_engine", "local", "s3"),
    _one_of("format", "parquet", "json"),
    sa.CheckConstraint("metadata_version > 0", name="metadata_version"),
)

table_files = _table(
    "table_files",
    _id("file_id"),
    _col("table_id", INT64, _ref("tables.table_id")),
    _col("file_name", TEXT),
    _col("file_path", TEXT),
    _col("file_size", INT64),
    _col("file_type", TEXT),
    _col("content", INT32, default="0"),
    _col("referenced_data_file", TEXT, null=True),
    _col("partition_key", TEXT),
    _col("partition_path", TEXT),
    _col("row_count", INT64),
    _col("checksum", TEXT, null=True),
    _col("is_compressed", FLAG),
    _col("statistics", JSON),
    _col("split_offsets", JSON),
    _col("schema_id", INT32),
    _col("spec_id", INT32),
    _col("sort_order_id", INT32),
    _col("created_at", TIME),
    _col("modified_at", TIME),
    _col("registered_at", TIME),
    _col("intent_id", TEXT, null=True),
    _col("snapshot_id", INT64, null=True),
    _col("sequence_number", INT64, null=True),
    _col("first_row_id", INT64, null=True),
    _col("set_aside_reason", TEXT, null=True),
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
    sa.Column("table_id", INT64, _ref("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("spec_id", INT32, primary_key=True, autoincrement=False),
    sa.Column("partition_key", TEXT, primary_key=True),
    sa.Column("file_type", TEXT, primary_key=True),
    _col("partition_path", TEXT),
    _col("row_count", INT64),
    _col("file_count", INT64),
    _col("total_size", INT64),
    _col("last_modified", TIME),
    _col("columns", JSON),
    *_not_negative("row_count", "file_count", "total_size"),
)

table_snapshots = _table(
    "table_snapshots",
    sa.Column("table_id", INT64, _ref("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("snapshot_id", INT64, primary_key=True, autoincrement=False),
    _col("parent_snapshot_id", INT64, null=True),
    _col("sequence_number", INT64),
    _col("timestamp_ms", INT64),
    _col("operation", TEXT),
    _col("summary", JSON),
    _col("manifest_list", TEXT),
    _col("schema_id", INT32),
    _col("metadata_location", TEXT),
    _col("trigger", TEXT),
    _col("created_at", TIME),
    _col("expired_at", TIME, null=True),  # when it left metadata.json
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
    sa.Column("file_path", TEXT, primary_key=True),
    _col("table_id", INT64, _ref("tables.table_id")),
    _col("metadata", BYTES, null=True),
    _col("metadata_size", INT64),
    _col("insert_time", TIME),
    sa.Index("ix_partition_metadata_table_id", "table_id"),
)

pending_writes = _table(
    "pending_writes",
    sa.Column("intent_id", TEXT, primary_key=True),
    _col("table_id", INT64, _ref("tables.table_id")),
    _col("kind", TEXT),
    _col("prefix", TEXT),
    _col("owner", TEXT),
    _col("started_at", TIME),
    _col("lease_until", TIME),
    _col("recovered_at", TIME, null=True),  # set by recovery; the prefix is swept once more after sweep_after
    _col("sweep_after", TIME, null=True),
    sa.UniqueConstraint("prefix"),
    _one_of("kind", "write", "flush"),
    sa.Index("ix_pending_writes_lease_until", "lease_until"),
    sa.Index("ix_pending_writes_table_id", "table_id"),
    sa.Index("ix_pending_writes_owner", "owner"),
)
_partial_index(
    "ix_pending_writes_sweep_after", pending_writes.c.sweep_after, where=pending_writes.c.sweep_after.is_not(None)
)

retired_files = _table(
    "retired_files",
    _id("retired_id"),
    _col("table_id", INT64, _ref("tables.table_id")),
    _col("file_path", TEXT),
    _col("file_size", INT64),
    _col("kind", TEXT),
    _col("reason", TEXT),
    _col("retired_at", TIME),
    _col("expires_at", TIME),
    _col("sequence_number", INT64, null=True),  # of the snapshot that added it
    _col("snapshot_id", INT64, null=True),  # the snapshot that added it
    _col("removed_by", INT64, null=True),  # the snapshot that removed it; none while the current one still lists it
    _col("removed_sequence", INT64, null=True),
    _col("ended_at", TIME, null=True),  # the quarantine is over: the footer is gone, the object goes next
    _col("record", JSON, null=True),
    _one_of("kind", "data", "metadata", "manifest", "manifest_list", "stray"),
    sa.UniqueConstraint("file_path"),
    sa.Index("ix_retired_files_expires_at", "expires_at", "retired_id"),
    sa.Index("ix_retired_files_table_id", "table_id"),
)
_partial_index(
    "ix_retired_files_removal_pending",
    retired_files.c.table_id,
    where=sa.and_(retired_files.c.snapshot_id.is_not(None), retired_files.c.removed_by.is_(None)),
)

leases = _table(
    "leases",
    sa.Column("name", TEXT, primary_key=True),
    _col("owner", TEXT),
    _col("fence", INT64),
    _col("expires_at", TIME),
    sa.CheckConstraint("fence > 0", name="fence"),
)

applied_batches = _table(
    "applied_batches",
    sa.Column("table_id", INT64, _ref("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("stream", TEXT, primary_key=True),
    sa.Column("batch_id", TEXT, primary_key=True),
    _col("start_position", JSON, null=True),
    _col("end_position", JSON, null=True),
    _col("answer", JSON),
    _col("applied_at", TIME),
)

stream_positions = _table(
    "stream_positions",
    sa.Column("table_id", INT64, _ref("tables.table_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("stream", TEXT, primary_key=True),
    _col("position", JSON, null=True),
    _col("batch_id", TEXT),
    _col("updated_at", TIME),
)

# Written by triggers only (feed.py). On PostgreSQL it has a column more: xid, the writing transaction's id.
registry_changes = _table(
    "registry_changes",
    _id("sequence"),
    _col("table_name", TEXT),
    _col("operation", TEXT),
    _col("table_id", INT64),
    _col("data", JSON),
    _col("changed_at", TIME),
    _one_of("operation", "INSERT", "UPDATE", "DELETE"),
)


def upgrade() -> None:
    connection = op.get_bind()
    for table in metadata.sorted_tables:
        connection.execute(sa.schema.CreateTable(table))
        # Partial indexes last: of two that seem equal to it, SQLite takes the one that was made later.
        for index in sorted(table.indexes, key=lambda each: (_is_partial(each), each.name)):
            connection.execute(sa.schema.CreateIndex(index))
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


def _is_partial(index: sa.Index) -> bool:
    return index.dialect_options["sqlite"]["where"] is not None


def downgrade() -> None:
    raise NotImplementedError("the registry's schema only goes forward; restore a backup to go back")
