"""The topic log: topics, partitions, segments, and who has read how far."""

from __future__ import annotations

import sqlalchemy as sa

from lakeward.db.schema.parts import column, id_column, not_negative, partial_index, reference, table
from lakeward.db.types import Int32, Int64, Json, Name, Text, UtcTime

topics = table(
    "topics",
    id_column("topic_id"),
    column("topic_uuid", Text),
    column("warehouse_id", Int64, reference("warehouses.warehouse_id")),
    column("name", Name),
    column("partition_count", Int32),
    column("retention_ms", Int64, null=True),
    column("config", Json(dict[str, str])),
    column("value_schema", Json(), null=True),
    column("location", Text),
    column("created_at", UtcTime),
    column("deleted_at", UtcTime, null=True),
    column("updated_at", UtcTime, null=True),  # None: never changed
    sa.UniqueConstraint("topic_uuid"),
    sa.UniqueConstraint("location"),
    sa.CheckConstraint("partition_count > 0", name="partition_count"),
    *not_negative("retention_ms"),
    sa.Index("ix_topics_warehouse_id", "warehouse_id"),
)
# A deleted topic's name is free again.
partial_index(
    "uq_topics_warehouse_id_name",
    topics.c.warehouse_id,
    topics.c.name,
    where=topics.c.deleted_at.is_(None),
    unique=True,
)
partial_index("ix_topics_deleted_at", topics.c.deleted_at, where=topics.c.deleted_at.is_not(None))

partitions = table(
    "partitions",
    sa.Column("topic_id", Int64, reference("topics.topic_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("partition_id", Int32, primary_key=True, autoincrement=False),
    column("log_start_offset", Int64, default="0"),
    column("high_watermark", Int64, default="0"),
    column("created_at", UtcTime, null=True),  # None: with its topic
    column("updated_at", UtcTime, null=True),  # None: neither offset has moved
    *not_negative("partition_id", "log_start_offset"),
    sa.CheckConstraint("high_watermark >= log_start_offset", name="high_watermark"),
)


def _partition_ref() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["topic_id", "partition_id"], ["partitions.topic_id", "partitions.partition_id"], ondelete="CASCADE"
    )


segments = table(
    "segments",
    id_column("segment_id"),
    column("topic_id", Int64),
    column("partition_id", Int32),
    column("base_offset", Int64),
    column("end_offset", Int64),
    column("record_count", Int64),
    column("size_bytes", Int64),
    column("s3_bucket", Text, null=True),
    column("s3_key", Text, null=True),
    column("location", Text),
    column("first_timestamp", Int64, null=True),
    column("last_timestamp", Int64, null=True),
    column("intent_id", Text, null=True),
    column("created_at", UtcTime),
    column("given_id", Json(), null=True),  # as whoever registered it by hand has it
    column("given_created_at", UtcTime, null=True),
    _partition_ref(),
    sa.UniqueConstraint("topic_id", "partition_id", "base_offset"),
    *not_negative("base_offset", "size_bytes"),
    sa.CheckConstraint("end_offset >= base_offset", name="end_offset"),
    sa.CheckConstraint("record_count = end_offset - base_offset + 1", name="record_count"),
    sa.CheckConstraint("(s3_bucket IS NULL) = (s3_key IS NULL)", name="s3_key"),
    sa.Index("ix_segments_topic_id_partition_id_offsets", "topic_id", "partition_id", "base_offset", "end_offset"),
    sa.Index("ix_segments_s3_bucket_s3_key", "s3_bucket", "s3_key"),
    sa.Index("ix_segments_created_at", "created_at"),
    sa.Index("ix_segments_location", "location"),
)

consumer_groups = table(
    "consumer_groups",
    id_column("group_key"),
    column("warehouse_id", Int64, reference("warehouses.warehouse_id")),
    column("group_id", Name),
    column("created_at", UtcTime),
    column("updated_at", UtcTime, null=True),  # of the last commit; None before the first
    sa.UniqueConstraint("warehouse_id", "group_id"),
)

consumer_offsets = table(
    "consumer_offsets",
    sa.Column(
        "group_key", Int64, reference("consumer_groups.group_key", cascade=True), primary_key=True, autoincrement=False
    ),
    sa.Column("topic_id", Int64, primary_key=True, autoincrement=False),
    sa.Column("partition_id", Int32, primary_key=True, autoincrement=False),
    column("committed_offset", Int64),
    column("metadata", Text, null=True),
    column("committed_at", UtcTime),
    _partition_ref(),
    *not_negative("committed_offset"),
    sa.Index("ix_consumer_offsets_topic_id_partition_id", "topic_id", "partition_id"),
    sa.Index("ix_consumer_offsets_committed_at", "committed_at"),
)

producer_batches = table(
    "producer_batches",
    sa.Column("topic_id", Int64, reference("topics.topic_id", cascade=True), primary_key=True, autoincrement=False),
    sa.Column("producer", Text, primary_key=True),
    sa.Column("sequence", Int64, primary_key=True, autoincrement=False),
    column("answer", Json()),
    column("created_at", UtcTime),
    sa.Index("ix_producer_batches_created_at", "created_at"),
)

# How far streams have planned to read: a stream that limits its batches resumes from here (log/source.py).
stream_plans = table(
    "stream_plans",
    sa.Column(
        "group_key", Int64, reference("consumer_groups.group_key", cascade=True), primary_key=True, autoincrement=False
    ),
    sa.Column("topic_id", Int64, reference("topics.topic_id", cascade=True), primary_key=True, autoincrement=False),
    column("offsets", Json(dict[str, int])),
    column("updated_at", UtcTime),
    sa.Index("ix_stream_plans_topic_id", "topic_id"),
)
