"""The topic log: topics, partitions, segments, groups and producers. Intents and quarantine serve topics too.

Its definitions are its own, so that it makes the same tables for ever, whatever the code's become.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
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


# What the keys refer to; 0001 has made them.
_known = [
    sa.Table(f"{name}s", metadata, sa.Column(f"{name}_id", INT64, primary_key=True)) for name in ("warehouse", "table")
]

# The topic log -------------------------------------------------------------------------------------------------------
topics = _table(
    "topics",
    _id("topic_id"),
    _col("topic_uuid", TEXT),
    _col("warehouse_id", INT64, _ref("warehouses.warehouse_id")),
    _col("name", NAME),
    _col("partition_count", INT32),
    _col("retention_ms", INT64, null=True),
    _col("config", JSON),
    _col("value_schema", JSON, null=True),
    _col("location", TEXT),
    _col("created_at", TIME),
    _col("deleted_at", TIME, null=True),
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
    sa.Column("topic_id", INT64, _ref("topics.topic_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("partition_id", INT32, primary_key=True, autoincrement=False),
    _col("log_start_offset", INT64, default="0"),
    _col("high_watermark", INT64, default="0"),
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
    _col("topic_id", INT64),
    _col("partition_id", INT32),
    _col("base_offset", INT64),
    _col("end_offset", INT64),
    _col("record_count", INT64),
    _col("size_bytes", INT64),
    _col("s3_bucket", TEXT, null=True),
    _col("s3_key", TEXT, null=True),
    _col("location", TEXT),
    _col("first_timestamp", INT64, null=True),
    _col("last_timestamp", INT64, null=True),
    _col("intent_id", TEXT, null=True),
    _col("created_at", TIME),
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
    _col("warehouse_id", INT64, _ref("warehouses.warehouse_id")),
    _col("group_id", NAME),
    _col("created_at", TIME),
    sa.UniqueConstraint("warehouse_id", "group_id"),
)

consumer_offsets = _table(
    "consumer_offsets",
    sa.Column(
        "group_key", INT64, _ref("consumer_groups.group_key", cascade=True), primary_key=True, autoincrement=False
    ),
    sa.Column("topic_id", INT64, primary_key=True, autoincrement=False),
    sa.Column("partition_id", INT32, primary_key=True, autoincrement=False),
    _col("committed_offset", INT64),
    _col("metadata", TEXT, null=True),
    _col("committed_at", TIME),
    _partition_ref(),
    *_not_negative("committed_offset"),
    sa.Index("ix_consumer_offsets_topic_id_partition_id", "topic_id", "partition_id"),
    sa.Index("ix_consumer_offsets_committed_at", "committed_at"),
)

producer_batches = _table(
    "producer_batches",
    sa.Column("topic_id", INT64, _ref("topics.topic_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("producer", TEXT, primary_key=True),
    sa.Column("sequence", INT64, primary_key=True, autoincrement=False),
    _col("answer", JSON),
    _col("created_at", TIME),
    sa.Index("ix_producer_batches_created_at", "created_at"),
)

# How far streams have planned to read: a stream that limits its batches resumes from here (log/source.py).
stream_plans = _table(
    "stream_plans",
    sa.Column(
        "group_key", INT64, _ref("consumer_groups.group_key", cascade=True), primary_key=True, autoincrement=False
    ),
    sa.Column("topic_id", INT64, _ref("topics.topic_id", cascade=True), primary_key=True, autoincrement=False),
    _col("offsets", JSON),
    _col("updated_at", TIME),
    sa.Index("ix_stream_plans_topic_id", "topic_id"),
)


pending_writes = _table(
    "pending_writes",
    sa.Column("intent_id", TEXT, primary_key=True),
    _col("table_id", INT64, _ref("tables.table_id"), null=True),
    _col("kind", TEXT),
    _col("prefix", TEXT),
    _col("owner", TEXT),
    _col("started_at", TIME),
    _col("lease_until", TIME),
    _col("recovered_at", TIME, null=True),  # set by recovery; the prefix is swept once more after sweep_after
    _col("sweep_after", TIME, null=True),
    _col("topic_id", INT64, _ref("topics.topic_id"), null=True),
    sa.UniqueConstraint("prefix"),
    # Whose it is: a table's or a topic's.
    sa.CheckConstraint("(table_id IS NULL) <> (topic_id IS NULL)", name="owner"),
    _one_of("kind", "write", "flush"),
    sa.Index("ix_pending_writes_lease_until", "lease_until"),
    sa.Index("ix_pending_writes_table_id", "table_id"),
    sa.Index("ix_pending_writes_topic_id", "topic_id"),
    sa.Index("ix_pending_writes_owner", "owner"),
)
_partial_index(
    "ix_pending_writes_sweep_after", pending_writes.c.sweep_after, where=pending_writes.c.sweep_after.is_not(None)
)

retired_files = _table(
    "retired_files",
    _id("retired_id"),
    _col("table_id", INT64, _ref("tables.table_id"), null=True),
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
    _col("topic_id", INT64, _ref("topics.topic_id"), null=True),
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


NEW = (topics, partitions, segments, consumer_groups, consumer_offsets, producer_batches, stream_plans)
CHANGED = (pending_writes, retired_files)


def upgrade() -> None:
    connection = op.get_bind()
    for table in NEW:
        connection.execute(sa.schema.CreateTable(table))
        _make_indexes(connection, table)
    for table in CHANGED:
        (_rebuild if connection.dialect.name == "sqlite" else _alter)(connection, table)
    connection.execute(sa.text("UPDATE registry_info SET schema_version = 2, minimum_version = 2"))


def _make_indexes(connection: sa.Connection, table: sa.Table) -> None:
    # Partial indexes last: of two that seem equal to it, SQLite takes the one that was made later.
    for index in sorted(table.indexes, key=lambda each: (_is_partial(each), each.name)):
        connection.execute(sa.schema.CreateIndex(index))


def _is_partial(index: sa.Index) -> bool:
    return index.dialect_options["sqlite"]["where"] is not None


def _rebuild(connection: sa.Connection, table: sa.Table) -> None:
    """SQLite cannot let go of NOT NULL: the table is made anew. Its numbers go on where they were."""
    old = f"old_{table.name}"
    connection.execute(sa.text(f"ALTER TABLE {table.name} RENAME TO {old}"))
    connection.execute(sa.schema.CreateTable(table))
    columns = ", ".join(column.name for column in table.columns if column.name != "topic_id")
    connection.execute(sa.text(f"INSERT INTO {table.name} ({columns}) SELECT {columns} FROM {old}"))
    connection.execute(
        sa.text(
            f"UPDATE sqlite_sequence SET seq = (SELECT seq FROM sqlite_sequence WHERE name = '{old}') "
            f"WHERE name = '{table.name}' AND EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = '{old}')"
        )
    )
    connection.execute(
        sa.text(
            f"INSERT INTO sqlite_sequence (name, seq) SELECT '{table.name}', seq FROM sqlite_sequence WHERE name = '{old}' "
            f"AND NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = '{table.name}')"
        )
    )
    connection.execute(sa.text(f"DROP TABLE {old}"))
    _make_indexes(connection, table)


def _alter(connection: sa.Connection, table: sa.Table) -> None:
    name = table.name
    for change in (
        "ALTER COLUMN table_id DROP NOT NULL",
        "ADD COLUMN topic_id BIGINT",
        f"ADD CONSTRAINT fk_{name}_topic_id FOREIGN KEY (topic_id) REFERENCES topics (topic_id) ON DELETE RESTRICT",
        f"ADD CONSTRAINT ck_{name}_owner CHECK ((table_id IS NULL) <> (topic_id IS NULL))",
    ):
        connection.execute(sa.text(f"ALTER TABLE {name} {change}"))
    connection.execute(sa.text(f"CREATE INDEX ix_{name}_topic_id ON {name} (topic_id)"))
    if name == "retired_files":
        kinds = "'data', 'metadata', 'manifest', 'manifest_list', 'stray', 'segment'"
        connection.execute(sa.text(f"ALTER TABLE {name} DROP CONSTRAINT ck_{name}_kind"))
        connection.execute(sa.text(f"ALTER TABLE {name} ADD CONSTRAINT ck_{name}_kind CHECK (kind IN ({kinds}))"))


def downgrade() -> None:
    raise NotImplementedError("the registry's schema only goes forward; restore a backup to go back")
