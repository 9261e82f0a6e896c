"""The topic log: topics, partitions, segments, and how far groups have read.

Offsets mean what they mean in Kafka: the high watermark is the offset that the next record gets, a committed offset is the
next one to read.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

import msgspec

from lakeward.tables.records.tables import Document

MAX_OFFSET = (1 << 63) - 2  # so that end_offset + 1 fits 64 bits too


class TopicConfig(msgspec.Struct, frozen=True):
    """What a topic is made with. `retention_ms`: records may go when they are older; none keeps them for ever.

    `value_schema` declares what values are, in place of bytes: an Arrow, Spark or Iceberg schema, or {name: type}.
    """

    name: str
    partition_count: int = 1
    retention_ms: int | None = None
    config: dict[str, str] = {}
    value_schema: object = None


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """One row of topics. `topic_id` is never used again, nor is the UUID: a topic made again under a name is another one."""

    name: str
    partition_count: int
    retention_ms: int | None
    config: dict[str, str]
    created_at: datetime
    topic_id: int
    topic_uuid: str
    location: str  # fixed at creation, without a slash at its end
    value_schema: Document | None  # an Iceberg struct, field ids given; None for bytes
    deleted_at: datetime | None
    updated_at: datetime  # of its settings, not of what is in it


# A name means the topic that has it now; a Topic means that very one, whatever has been made under its name since.
TopicRef: TypeAlias = "str | Topic"


class Partition(msgspec.Struct, frozen=True):
    """One row of partitions. Both offsets only advance."""

    topic: str
    partition_id: int
    high_watermark: int = 0  # the offset that the next record gets
    log_start_offset: int = 0  # the first one that may still be read
    created_at: datetime | None = None
    updated_at: datetime | None = None  # when one of the offsets moved last


class SegmentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One segment: a file of records, whose offsets run from base_offset to end_offset without a hole.

    A record's offset is base_offset plus its row in the file. Where the file is: `location`, or `s3_bucket` and `s3_key` as
    they were given. Times of records in milliseconds since 1970.

    A segment that is registered with an `id` and a `created_at` of the caller's comes back with the registry's own, and the
    caller's beside them.
    """

    topic: str
    partition_id: int
    base_offset: int
    end_offset: int
    record_count: int
    size_bytes: int
    s3_bucket: str | None = None
    s3_key: str | None = None
    location: str = ""
    id: int | str | None = None  # the registry's is a number; None before it is registered
    created_at: datetime | None = None  # when it was registered
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    given_id: int | str | None = None
    given_created_at: datetime | None = None


class ConsumerGroup(msgspec.Struct, frozen=True):
    group_id: str
    created_at: datetime
    updated_at: datetime  # of its last commit; as it was made, before the first


class ConsumerOffset(msgspec.Struct, frozen=True):
    group_id: str
    topic: str
    partition_id: int
    committed_offset: int  # the next offset to read
    metadata: str | None = None
    committed_at: datetime | None = None


class PartitionLag(msgspec.Struct, frozen=True):
    """How far a group is behind in one partition: the records between what it committed and the high watermark."""

    topic: str
    partition_id: int
    committed_offset: int
    high_watermark: int
    lag: int


class AppendedSegment(msgspec.Struct, frozen=True):
    """The offsets that an append got in one partition."""

    partition_id: int
    base_offset: int
    end_offset: int
    location: str


class LogAppendResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an append to a topic did; one that is sent again gets the first answer with `replayed` true."""

    topic: str
    records: int
    segments: list[AppendedSegment]
    bytes: int
    replayed: bool = False
    seconds: dict[str, float] = {}  # write, register
