"""Retention of the topic log: whole segments whose newest record is older than the topic keeps records."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import sqlalchemy as sa

from lakeward.db import dialect
from lakeward.db.retry import retried
from lakeward.db.types import epoch_ms
from lakeward.errors import TopicNotFound
from lakeward.log import segments, topics
from lakeward.log.records import Partition, SegmentInfo, Topic
from lakeward.log.sql import groups
from lakeward.log.sql import segments as segment_store
from lakeward.logs import log
from lakeward.registry import Registry
from lakeward.tables.records.properties import STRICT_RETENTION

PAGE = 1_000


class Kept(msgspec.Struct, frozen=True):
    """Segments that are old enough to go, and stay since a group has not read them."""

    topic: str
    partition_id: int
    group_id: str  # the one that is furthest behind
    committed_offset: int


class RetentionResult(msgspec.Struct, frozen=True):
    segments: int = 0  # deleted
    kept: list[Kept] = []


def enforce(registry: Registry, topic: str | None = None) -> RetentionResult:
    """Delete the segments of a topic (of all) that are past its retention_ms; their files wait in quarantine.

    A segment that some group with a committed offset in its partition has not read yet is kept however old, unless the
    topic's config says retention.strict=true.

    Raises TopicNotFound.
    """
    chosen = topics.list_topics(registry) if topic is None else [topics.load(registry, topic)]
    deleted, kept = 0, list[Kept]()
    for each in chosen:
        if each.retention_ms is None:
            continue
        for number in range(each.partition_count):
            try:
                gone, held = _enforce_in(registry, each, number)
            except TopicNotFound:  # deleted meanwhile
                break
            deleted += gone
            kept += held
    for held_back in kept:
        log.warning("segments_kept_for_group", **msgspec.structs.asdict(held_back))
    return RetentionResult(deleted, kept)


@retried
def _enforce_in(registry: Registry, topic: Topic, number: int) -> tuple[int, list[Kept]]:
    with registry.database.transaction() as connection:
        partition = topics.locked_partitions(connection, topic, [number])[number]
        cutoff = epoch_ms(dialect.now(connection)) - (topic.retention_ms or 0)
        offset = _first_young(connection, topic, partition, cutoff)
        if offset is None:
            return 0, []
        held = None if STRICT_RETENTION.of(topic.config) else _furthest_behind(connection, topic, number, offset)
        until = offset if held is None else held.committed_offset
        gone = segments.delete_before_in(connection, registry, topic, number, until, "retention")
        return gone, [] if held is None else [held]


def _first_young(connection: sa.Connection, topic: Topic, partition: Partition, cutoff: int) -> int | None:
    """The offset up to which all segments are old; None if the first one is not."""
    offset: int | None = None
    for segment in _from_the_start(connection, topic, partition):
        if _newest(segment) >= cutoff:
            break
        offset = segment.end_offset + 1
    return offset


def _from_the_start(connection: sa.Connection, topic: Topic, partition: Partition) -> Iterator[SegmentInfo]:
    start = partition.log_start_offset
    while found := segment_store.page(connection, topic.topic_id, partition.partition_id, start=start, limit=PAGE):
        yield from found
        start = found[-1].end_offset + 1


def _newest(segment: SegmentInfo) -> int:
    """The time of a segment's newest record, in milliseconds; that of its registration where none is known."""
    if segment.last_timestamp is not None:
        return segment.last_timestamp
    assert segment.created_at is not None
    return epoch_ms(segment.created_at)


def _furthest_behind(connection: sa.Connection, topic: Topic, number: int, offset: int) -> Kept | None:
    """The group that has read least, if it has not read up to an offset."""
    found = groups.offsets_of_partition(connection, topic.topic_id, number)
    last = min(found, key=lambda each: each.committed_offset, default=None)
    if last is None or last.committed_offset >= offset:
        return None
    return Kept(topic.name, number, last.group_id, last.committed_offset)
