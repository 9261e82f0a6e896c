"""Segments of partitions: they neither overlap nor leave holes, and the high watermark moves with them."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, overload

import msgspec
import sqlalchemy as sa

from lakeward.db import dialect
from lakeward.db.retry import retried
from lakeward.db.rows import from_row
from lakeward.errors import InvalidInput, InvalidOffset
from lakeward.log import topics
from lakeward.log.records import MAX_OFFSET, Partition, SegmentInfo, Topic, TopicRef
from lakeward.log.sql import partitions, segments
from lakeward.names import is_storable
from lakeward.registry.handle import Registry
from lakeward.storage.locations import LOCAL_SCHEME, S3_SCHEME

PAGE = 1_000
REMEMBERED = 1_000  # segments of a partition, by each thread


# Adding -------------------------------------------------------------------------------------------------------------------
@retried
def add(registry: Registry, new: Sequence[SegmentInfo]) -> int:
    """Register segments, of one topic or several, in one transaction; how many were. All of them, or none.

    Those of a partition are given in the order of their offsets.

    Raises:
        TopicNotFound, PartitionNotFound.
        InvalidOffset: an overlap, a hole, or offsets and count that do not fit each other.
        InvalidInput: a segment without a place, or with a negative size.
    """
    by_topic: dict[str, list[SegmentInfo]] = defaultdict(list)
    for info in new:
        _check(info)
        by_topic[info.topic].append(info)
    with registry.database.transaction() as connection:
        now = dialect.now(connection)
        found = [topics.load_in(connection, registry, name) for name in by_topic]
        for topic in sorted(found, key=lambda each: each.topic_id):  # two writers take locks in one order
            infos = by_topic[topic.name]
            numbers = {info.partition_id for info in infos}
            for number, partition in topics.locked_partitions(connection, topic, numbers).items():
                _fitting(connection, topic, partition, [info for info in infos if info.partition_id == number])
            insert_in(connection, topic, infos, now)
    return len(new)


def insert_in(
    connection: sa.Connection,
    topic: Topic,
    infos: Sequence[SegmentInfo],
    now: datetime,
    intent_id: str | None = None,
) -> None:
    """Insert segments that fit, in order, into partitions that the caller's transaction has locked."""
    if not infos:
        return
    segments.insert(connection, [_row(topic, info, now, intent_id) for info in infos])
    ends = {info.partition_id: info.end_offset + 1 for info in infos}  # a partition's last segment comes last
    for number, end in ends.items():
        partitions.raise_watermark(connection, topic.topic_id, number, end, now)


@retried
def add_one(registry: Registry, segment: SegmentInfo) -> SegmentInfo:
    """Register a segment, and raise the high watermark to its end_offset + 1; as it is registered, with its id.

    An `id` and a `created_at` that it is given with are kept as `given_id` and `given_created_at`.

    Raises:
        TopicNotFound, PartitionNotFound.
        InvalidOffset: it overlaps another or leaves a hole, or its offsets and its count do not fit each other.
        InvalidInput: it is without a place, or with a negative size.
    """
    _check(segment)
    with registry.database.transaction() as connection:
        now = dialect.now(connection)
        topic = topics.load_in(connection, registry, segment.topic)
        number = segment.partition_id
        partition = topics.locked_partitions(connection, topic, [number])[number]
        end = _fitting(connection, topic, partition, [segment])
        row = _row(topic, segment, now, None)
        segment_id = segments.insert_one(connection, row)
        partitions.raise_watermark(connection, topic.topic_id, number, end, now)
    return msgspec.structs.replace(
        segment,
        id=segment_id,
        location=row["location"],
        created_at=now,
        given_id=row["given_id"],
        given_created_at=row["given_created_at"],
    )


def _fitting(connection: sa.Connection, topic: Topic, partition: Partition, infos: Iterable[SegmentInfo]) -> int:
    """The offset after new segments of a locked partition. Raises InvalidOffset."""
    expected = next_base(connection, topic, partition)
    for info in infos:
        if info.base_offset != expected:
            raise _misplaced(connection, topic, info, expected)
        expected = info.end_offset + 1
    return expected


def next_base(connection: sa.Connection, topic: Topic, partition: Partition) -> int:
    """Where the next segment of a locked partition begins."""
    last = segments.last_end(connection, topic.topic_id, partition.partition_id)
    return partition.log_start_offset if last is None else last + 1


def _misplaced(connection: sa.Connection, topic: Topic, info: SegmentInfo, expected: int) -> InvalidOffset:
    where = f"segment {info.base_offset} to {info.end_offset} of {topic.name}, partition {info.partition_id}"
    if info.base_offset > expected:
        return InvalidOffset(f"{where} leaves a hole: the next segment begins at {expected}; add what is between first")
    return InvalidOffset(f"{where} overlaps what is there: the next segment begins at {expected}")


def _check(info: SegmentInfo) -> None:
    """What can be said of a segment without its neighbours."""
    held = info.end_offset - info.base_offset + 1
    has_place = info.s3_key is not None if info.s3_bucket is not None else _is_place(info)
    if info.base_offset < 0 or info.end_offset > MAX_OFFSET or held < 1 or info.record_count != held:
        raise InvalidOffset(_misfit(info, held))
    if info.size_bytes < 0 or not has_place:
        raise InvalidInput(_misfit(info, held))
    for given in (info.id, info.given_id):
        if not (given is None or (isinstance(given, str) and is_storable(given)) or isinstance(given, int)):
            raise InvalidInput(f"id {str(given)[:80]!r} of a segment is neither a text without NUL nor a whole number")
    for at in (info.created_at, info.given_created_at):
        if at is not None and at.tzinfo is None:
            raise InvalidInput(f"created_at {at} of a segment has no zone; give it one, such as tzinfo=UTC")


def _is_place(info: SegmentInfo) -> bool:
    """Whether a segment's location is one, and says itself in which folder it is."""
    parts = info.location.split("/")
    is_plain = not {".", ".."}.intersection(parts)
    return info.s3_key is None and is_plain and info.location.startswith((LOCAL_SCHEME, S3_SCHEME))


def _misfit(info: SegmentInfo, held: int) -> str:
    """What is wrong with a segment that `_check` refuses. Apart from it: a text for each of many segments takes its time."""
    where = f"segment {info.base_offset} to {info.end_offset} of {info.topic}, partition {info.partition_id}"
    if info.base_offset < 0 or info.end_offset > MAX_OFFSET:
        return f"{where}: offsets are from 0 to {MAX_OFFSET}"
    if held < 1:
        return f"{where} ends before it begins"
    if info.record_count != held:
        return f"{where} holds {held} offsets, and record_count says {info.record_count}"
    if info.size_bytes < 0:
        return f"{where} has size_bytes {info.size_bytes}; it is 0 or more"
    if (info.s3_bucket is None) != (info.s3_key is None):
        return f"{where} has only one of s3_bucket and s3_key; give both, or a location"
    return (
        f"{where} has the location {info.location!r}; give s3_bucket and s3_key, or a location file:///... or s3://... "
        "without '.' and '..'"
    )


def _row(topic: Topic, info: SegmentInfo, now: datetime, intent_id: str | None) -> dict[str, Any]:
    return {
        "topic_id": topic.topic_id,
        "partition_id": info.partition_id,
        "base_offset": info.base_offset,
        "end_offset": info.end_offset,
        "record_count": info.record_count,
        "size_bytes": info.size_bytes,
        "s3_bucket": info.s3_bucket,
        "s3_key": info.s3_key,
        "location": f"{S3_SCHEME}{info.s3_bucket}/{info.s3_key}" if info.s3_bucket is not None else info.location,
        "first_timestamp": info.first_timestamp,
        "last_timestamp": info.last_timestamp,
        "intent_id": intent_id,
        "created_at": now,
        "given_id": info.id if info.given_id is None else info.given_id,
        "given_created_at": info.created_at if info.given_created_at is None else info.given_created_at,
    }


@retried
def raise_watermark(registry: Registry, topic: str, partition_id: int, high_watermark: int) -> Partition:
    """Raise the high watermark, at most to the end of the last segment; where it stands there already, nothing changes.

    Segments raise it as they are added: past them there is no record, and what is appended next would get offsets below it,
    which consumers would not read.

    Raises:
        TopicNotFound, PartitionNotFound.
        InvalidOffset: it would go back, or past the last segment.
    """
    if not 0 <= high_watermark <= MAX_OFFSET + 1:
        raise InvalidOffset(
            f"high watermark {high_watermark} of {topic}, partition {partition_id}: offsets are from 0 to {MAX_OFFSET}"
        )
    with registry.database.transaction() as connection:
        found = topics.load_in(connection, registry, topic)
        partition = topics.locked_partitions(connection, found, [partition_id])[partition_id]
        stands, end = partition.high_watermark, next_base(connection, found, partition)
        if high_watermark > max(stands, end):
            raise InvalidOffset(
                f"the high watermark of {topic}, partition {partition_id}, cannot be {high_watermark}: the last segment ends before {end}; "
                "add segments, which raise it"
            )
        if high_watermark < stands:
            raise InvalidOffset(
                f"the high watermark of {topic}, partition {partition_id}, is {stands} and never goes back to {high_watermark}"
            )
        partitions.raise_watermark(connection, found.topic_id, partition_id, high_watermark, dialect.now(connection))
        changed = partitions.load(connection, found.topic_id, partition_id)
    assert changed is not None
    return changed


# Looking ------------------------------------------------------------------------------------------------------------------
def find(registry: Registry, topic: TopicRef, partition_id: int, offset: int) -> SegmentInfo | None:
    """The segment that holds an offset; None if no segment does.

    On SQLite one that this thread has found before is remembered until anything is committed to the registry.
    """
    lookups = registry.database.lookups
    memory = lookups.memory()
    known: _Known | None = None
    if memory is not None:
        place = (topic.topic_id if isinstance(topic, Topic) else topic, partition_id)
        known = memory.get(place) or memory.setdefault(place, _Known())
        if (found := known.find(offset)) is not None:
            return found
    query = segments.AT_OFFSET_BY_ID if isinstance(topic, Topic) else segments.AT_OFFSET
    parameters = {**topics.key_of(registry, topic), "partition_id": partition_id, "offset": offset}
    found = from_row(SegmentInfo, lookups.one(query, parameters))
    if found is None or found.end_offset < offset:
        return None
    if known is not None:
        known.add(found)
    return found


class _Known:
    """Segments of one partition that were found of late, in order. They do not overlap, so the last before an offset tells."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._segments: list[SegmentInfo] = []

    def find(self, offset: int) -> SegmentInfo | None:
        at = bisect_left(self._ends, offset)
        if at < len(self._segments) and self._segments[at].base_offset <= offset:
            return self._segments[at]
        return None

    def add(self, found: SegmentInfo) -> None:
        if len(self._ends) >= REMEMBERED:
            self._ends.clear()
            self._segments.clear()
        at = bisect_left(self._ends, found.end_offset)
        self._ends.insert(at, found.end_offset)
        self._segments.insert(at, found)


def iterate(
    registry: Registry, topic: TopicRef, partition_id: int, start: int = 0, end: int | None = None
) -> Iterator[SegmentInfo]:
    """Segments that hold offsets from `start` to before `end`, by offset: a thousand at a time, however many there are.

    Raises (when the first one is asked for):
        TopicNotFound: at any time later too, if the topic is deleted meanwhile.
        PartitionNotFound.
    """
    while True:
        with registry.database.read() as connection:
            topic = topics.load_in(connection, registry, topic)  # by id, from the second page on
            topics.check_partition(topic, partition_id)
            found = segments.page(connection, topic.topic_id, partition_id, start=start, end=end, limit=PAGE)
        yield from found
        if len(found) < PAGE:
            return
        start = found[-1].end_offset + 1


class Segments(Sequence[SegmentInfo]):
    """Segments with offsets from `start_offset` to before `end_offset`, by offset, read as they are asked for: each look sees
    what there is then, and iterating holds a thousand at a time.

    Raises (each look): TopicNotFound, PartitionNotFound.
    """

    def __init__(
        self,
        registry: Registry,
        topic: TopicRef,
        partition_id: int,
        start_offset: int = 0,
        end_offset: int | None = None,
    ) -> None:
        self._registry, self._topic, self._partition_id = registry, topic, partition_id
        self._start, self._end = start_offset, end_offset

    def __iter__(self) -> Iterator[SegmentInfo]:
        return iterate(self._registry, self._topic, self._partition_id, self._start, self._end)

    def __len__(self) -> int:
        with self._registry.database.read() as connection:
            topic = topics.load_in(connection, self._registry, self._topic)
            topics.check_partition(topic, self._partition_id)
            return segments.count_of_range(connection, topic.topic_id, self._partition_id, self._start, self._end)

    @overload
    def __getitem__(self, index: int) -> SegmentInfo: ...

    @overload
    def __getitem__(self, index: slice) -> list[SegmentInfo]: ...

    def __getitem__(self, index: int | slice) -> SegmentInfo | list[SegmentInfo]:
        if isinstance(index, slice):
            chosen = range(*index.indices(len(self)))
            first, last = min(chosen, default=0), max(chosen, default=-1)
            found = dict(enumerate(islice(self, first, last + 1), first))
            return [found[place] for place in chosen if place in found]
        place = index if index >= 0 else len(self) + index
        one = next(islice(self, place, None), None) if place >= 0 else None
        if one is None:
            raise IndexError(f"there is no segment {index} in this range of partition {self._partition_id}")
        return one


def count(registry: Registry, topic: Topic) -> tuple[int, int]:
    """(segments, bytes) of a topic."""
    with registry.database.read() as connection:
        return segments.count(connection, topic.topic_id)


# Leaving ------------------------------------------------------------------------------------------------------------------
@retried
def delete_before(registry: Registry, topic: str, partition_id: int, offset: int) -> int:
    """Delete the segments that end before an offset; how many were. The log then starts after them.

    Files below the topic's own location wait in quarantine; those that were given from outside are left alone.

    Raises TopicNotFound, PartitionNotFound.
    """
    with registry.database.transaction() as connection:
        found = topics.load_in(connection, registry, topic)
        topics.locked_partitions(connection, found, [partition_id])
        return delete_before_in(connection, registry, found, partition_id, offset, "deleted")


def delete_before_in(
    connection: sa.Connection, registry: Registry, topic: Topic, partition_id: int, offset: int, reason: str
) -> int:
    """As `delete_before`, in the caller's transaction, which has locked the partition."""
    now = dialect.now(connection)
    end = segments.end_before(connection, topic.topic_id, partition_id, offset)
    if end is None:
        return 0
    segments.retire(
        connection,
        topic.topic_id,
        topic.location + "/",
        partition_id=partition_id,
        before=offset,
        reason=reason,
        now=now,
        expires_at=registry.quarantine_ends(now),
    )
    gone = segments.delete(connection, topic.topic_id, partition_id=partition_id, before=offset)
    partitions.raise_start(connection, topic.topic_id, partition_id, end + 1, now)
    return gone


def replace_in(
    connection: sa.Connection,
    registry: Registry,
    topic: Topic,
    old: Iterable[SegmentInfo],
    new: SegmentInfo,
    intent_id: str,
) -> None:
    """Put one segment in the place of several that follow each other, in the caller's transaction."""
    now = dialect.now(connection)
    ids = [info.id for info in old if isinstance(info.id, int)]
    expires_at = registry.quarantine_ends(now)
    below = topic.location + "/"
    segments.retire(connection, topic.topic_id, below, ids=ids, reason="merged", now=now, expires_at=expires_at)
    segments.delete(connection, topic.topic_id, ids=ids)
    segments.insert(connection, [_row(topic, new, now, intent_id)])
