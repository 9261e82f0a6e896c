"""The topic log: topics, partitions, segments, groups and producers. Intents and quarantine serve topics too.

Its definitions are its own, so that it makes the same tables for ever, whatever the code's become.
"""

from __future__ import annotations

from functools import partial

import sqlalchemy as sa
from alembic import op

from lakeward.db.migrations import parts as p

revision = "0002"
down_revision = "0001"

metadata = p.new_metadata()
table = partial(p.table, metadata)

# What the keys refer to; 0001 has made them.
_known = [
    sa.Table(f"{name}s", metadata, sa.Column(f"{name}_id", p.INT64, primary_key=True))
    for name in ("warehouse", "table")
]

# The topic log -------------------------------------------------------------------------------------------------------
topics = table(
    "topics",
    p.id_column("topic_id"),
    p.column("topic_uuid", p.TEXT),
    p.column("warehouse_id", p.INT64, p.reference("warehouses.warehouse_id")),
    p.column("name", p.NAME),
    p.column("partition_count", p.INT32),
    p.column("retention_ms", p.INT64, null=True),
    p.column("config", p.JSON),
    p.column("value_schema", p.JSON, null=True),
    p.column("location", p.TEXT),
    p.column("created_at", p.TIME),
    p.column("deleted_at", p.TIME, null=True),
    sa.UniqueConstraint("topic_uuid"),
    sa.UniqueConstraint("location"),
    sa.CheckConstraint("partition_count > 0", name="partition_count"),
    *p.not_negative("retention_ms"),
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
p.partial_index("ix_topics_deleted_at", topics.c.deleted_at, where=topics.c.deleted_at.is_not(None))

partitions = table(
    "partitions",
    sa.Column("topic_id", p.INT64, p.reference("topics.topic_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("partition_id", p.INT32, primary_key=True, autoincrement=False),
    p.column("log_start_offset", p.INT64, default="0"),
    p.column("high_watermark", p.INT64, default="0"),
    *p.not_negative("partition_id", "log_start_offset"),
    sa.CheckConstraint("high_watermark >= log_start_offset", name="high_watermark"),
)


def _partition_ref() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["topic_id", "partition_id"], ["partitions.topic_id", "partitions.partition_id"], ondelete="CASCADE"
    )


segments = table(
    "segments",
    p.id_column("segment_id"),
    p.column("topic_id", p.INT64),
    p.column("partition_id", p.INT32),
    p.column("base_offset", p.INT64),
    p.column("end_offset", p.INT64),
    p.column("record_count", p.INT64),
    p.column("size_bytes", p.INT64),
    p.column("s3_bucket", p.TEXT, null=True),
    p.column("s3_key", p.TEXT, null=True),
    p.column("location", p.TEXT),
    p.column("first_timestamp", p.INT64, null=True),
    p.column("last_timestamp", p.INT64, null=True),
    p.column("intent_id", p.TEXT, null=True),
    p.column("created_at", p.TIME),
    _partition_ref(),
    sa.UniqueConstraint("topic_id", "partition_id", "base_offset"),
    *p.not_negative("base_offset", "size_bytes"),
    sa.CheckConstraint("end_offset >= base_offset", name="end_offset"),
    sa.CheckConstraint("record_count = end_offset - base_offset + 1", name="record_count"),
    sa.CheckConstraint("(s3_bucket IS NULL) = (s3_key IS NULL)", name="s3_key"),
    sa.Index("ix_segments_topic_id_partition_id_offsets", "topic_id", "partition_id", "base_offset", "end_offset"),
    sa.Index("ix_segments_s3_bucket_s3_key", "s3_bucket", "s3_key"),
    sa.Index("ix_segments_created_at", "created_at"),
)

consumer_groups = table(
    "consumer_groups",
    p.id_column("group_key"),
    p.column("warehouse_id", p.INT64, p.reference("warehouses.warehouse_id")),
    p.column("group_id", p.NAME),
    p.column("created_at", p.TIME),
    sa.UniqueConstraint("warehouse_id", "group_id"),
)

consumer_offsets = table(
    "consumer_offsets",
    sa.Column(
        "group_key",
        p.INT64,
        p.reference("consumer_groups.group_key", cascade=True),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column("topic_id", p.INT64, primary_key=True, autoincrement=False),
    sa.Column("partition_id", p.INT32, primary_key=True, autoincrement=False),
    p.column("committed_offset", p.INT64),
    p.column("metadata", p.TEXT, null=True),
    p.column("committed_at", p.TIME),
    _partition_ref(),
    *p.not_negative("committed_offset"),
    sa.Index("ix_consumer_offsets_topic_id_partition_id", "topic_id", "partition_id"),
    sa.Index("ix_consumer_offsets_committed_at", "committed_at"),
)

producer_batches = table(
    "producer_batches",
    sa.Column("topic_id", p.INT64, p.reference("topics.topic_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("producer", p.TEXT, primary_key=True),
    sa.Column("sequence", p.INT64, primary_key=True, autoincrement=False),
    p.column("answer", p.JSON),
    p.column("created_at", p.TIME),
    sa.Index("ix_producer_batches_created_at", "created_at"),
)

# How far streams have planned to read: a stream that limits its batches resumes from here (log/source.py).
stream_plans = table(
    "stream_plans",
    sa.Column(
        "group_key",
        p.INT64,
        p.reference("consumer_groups.group_key", cascade=True),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column("topic_id", p.INT64, p.reference("topics.topic_id", cascade=True), primary_key=True, autoincrement=False),
    p.column("offsets", p.JSON),
    p.column("updated_at", p.TIME),
    sa.Index("ix_stream_plans_topic_id", "topic_id"),
)


pending_writes = table(
    "pending_writes",
    sa.Column("intent_id", p.TEXT, primary_key=True),
    p.column("table_id", p.INT64, p.reference("tables.table_id"), null=True),
    p.column("kind", p.TEXT),
    p.column("prefix", p.TEXT),
    p.column("owner", p.TEXT),
    p.column("started_at", p.TIME),
    p.column("lease_until", p.TIME),
    p.column("recovered_at", p.TIME, null=True),  # set by recovery; the prefix is swept once more after sweep_after
    p.column("sweep_after", p.TIME, null=True),
    p.column("topic_id", p.INT64, p.reference("topics.topic_id"), null=True),
    sa.UniqueConstraint("prefix"),
    # Whose it is: a table's or a topic's.
    sa.CheckConstraint("(table_id IS NULL) <> (topic_id IS NULL)", name="owner"),
    p.one_of("kind", "write", "flush"),
    sa.Index("ix_pending_writes_lease_until", "lease_until"),
    sa.Index("ix_pending_writes_table_id", "table_id"),
    sa.Index("ix_pending_writes_topic_id", "topic_id"),
    sa.Index("ix_pending_writes_owner", "owner"),
)
p.partial_index(
    "ix_pending_writes_sweep_after", pending_writes.c.sweep_after, where=pending_writes.c.sweep_after.is_not(None)
)

retired_files = table(
    "retired_files",
    p.id_column("retired_id"),
    p.column("table_id", p.INT64, p.reference("tables.table_id"), null=True),
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
    p.column("topic_id", p.INT64, p.reference("topics.topic_id"), null=True),
    # Whose it is: a table's or a topic's.
    sa.CheckConstraint("(table_id IS NULL) <> (topic_id IS NULL)", name="owner"),
    p.one_of("kind", "data", "metadata", "manifest", "manifest_list", "stray", "segment"),
    sa.UniqueConstraint("file_path"),
    sa.Index("ix_retired_files_expires_at", "expires_at", "retired_id"),
    sa.Index("ix_retired_files_table_id", "table_id"),
    sa.Index("ix_retired_files_topic_id", "topic_id"),
)
p.partial_index(
    "ix_retired_files_removal_pending",
    retired_files.c.table_id,
    where=sa.and_(retired_files.c.snapshot_id.is_not(None), retired_files.c.removed_by.is_(None)),
)


NEW = (topics, partitions, segments, consumer_groups, consumer_offsets, producer_batches, stream_plans)
CHANGED = (pending_writes, retired_files)


def upgrade() -> None:
    connection = op.get_bind()
    p.make(connection, NEW)
    for table in CHANGED:
        (_rebuild if connection.dialect.name == "sqlite" else _alter)(connection, table)
    connection.execute(sa.text("UPDATE registry_info SET schema_version = 2, minimum_version = 2"))


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
    p.make_indexes(connection, table)


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
