"""The log's commit: segments of a write get their offsets and become part of their topic, in one transaction."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
import sqlalchemy as sa

from lakeward.db import dialect
from lakeward.log import segments, topics
from lakeward.log.records import AppendedSegment, LogAppendResult, Partition, SegmentInfo, Topic
from lakeward.log.sql import producers
from lakeward.log.sql import segments as segment_store
from lakeward.log.sql import topics as topic_store
from lakeward.ops.records.operations import SyncRunStatistics
from lakeward.ops.run_recorder import Recorder
from lakeward.registry import intents
from lakeward.registry.handle import Registry
from lakeward.registry.sql import intents as intent_store
from lakeward.tables.records.files import Intent

# (producer, sequence): the key under which an append happens once.
ProducerKey: TypeAlias = tuple[str, int]


class SegmentFile(NamedTuple):
    """A finished file of records of one partition. Times in milliseconds since 1970."""

    partition_id: int
    location: str
    records: int
    size: int
    first_timestamp: int | None
    last_timestamp: int | None

    def placed(self, topic: Topic, partition_id: int, base_offset: int) -> SegmentInfo:
        """The segment that it is once it has its offsets."""
        return SegmentInfo(
            topic=topic.name,
            partition_id=partition_id,
            base_offset=base_offset,
            end_offset=base_offset + self.records - 1,
            record_count=self.records,
            size_bytes=self.size,
            location=self.location,
            first_timestamp=self.first_timestamp,
            last_timestamp=self.last_timestamp,
        )


def register(
    registry: Registry,
    topic: Topic,
    intent: Intent,
    files: Sequence[SegmentFile],
    *,
    producer: ProducerKey | None = None,
    run: Recorder | None = None,
    outlived: bool = False,
) -> LogAppendResult:
    """Append segments: offsets are given here, so an append that fails leaves no hole and two never overlap.

    Args:
        producer: an append that was made under this key changes nothing: its first answer comes back with `replayed`, the
            intent stays open and the files are the caller's to give up.
        run: the one that this commit counts for.
        outlived: others may have left more below the intent's prefix, or still write there; see `intents.take`.

    Raises:
        IntentLost: the intent's lease ran out and recovery has taken it.
        TopicNotFound: the topic was deleted.
        RegistryUnavailable: no answer; if it came from the commit and could not be settled, the message says so.
    """
    started = time.perf_counter()
    write = _Write(registry, topic, intent, files, producer, run, outlived)
    may_wait = run is not None and run.is_shared
    result = intents.commit_intent(
        registry, topic, intent, write.commit, write.answer, weight=len(files), may_wait=may_wait
    )
    return msgspec.structs.replace(result, seconds={"register": time.perf_counter() - started})


class _Write(NamedTuple):
    registry: Registry
    topic: Topic
    intent: Intent
    files: Sequence[SegmentFile]
    producer: ProducerKey | None
    run: Recorder | None
    outlived: bool

    def commit(self, connection: sa.Connection, _before: dialect.Clock) -> LogAppendResult:
        """All that the append changes; it locks the topic's row for the key, then the partitions, in order."""
        topic, producer = self.topic, self.producer
        if producer is not None and topic_store.lock(connection, topic.topic_id) is None:
            raise topics.unknown(topic)
        known = topics.locked_partitions(connection, topic, self.partitions) if self.files else {}
        if producer is not None and (first := first_answer_in(connection, topic, producer)) is not None:
            return first
        clock = dialect.clock(connection)  # after the wait for the partitions
        intents.take(connection, self.registry, topic, self.intent, clock, outlived=self.outlived)
        now = clock()
        infos = _placed(connection, topic, self.files, known)
        segments.insert_in(connection, topic, infos, now, self.intent.intent_id)
        result = _result(topic, infos)
        if producer is not None:
            producers.insert(connection, topic.topic_id, *producer, result, now)
        if self.run is not None:
            counts = SyncRunStatistics(result.records, result.records, bytes_processed=result.bytes)
            self.run.count(connection, counts, now)
        return result

    def answer(self, connection: sa.Connection) -> LogAppendResult | None:
        """What the append was answered, its intent being gone; None if it was given up: a registration deletes the intent, and
        whoever gives a write up leaves its row for the last sweep.
        """
        topic, producer = self.topic, self.producer
        if producer is not None and (first := first_answer_in(connection, topic, producer)) is not None:
            return msgspec.structs.replace(first, replayed=not self.has_made(first))
        if intent_store.is_known(connection, self.intent.intent_id):
            return None
        found = [
            info
            for number in sorted(self.partitions)
            for info in segment_store.of_intent(connection, topic.topic_id, number, self.intent.intent_id)
        ]
        return _result(topic, found)

    @property
    def partitions(self) -> set[int]:
        return {file.partition_id for file in self.files}

    def has_made(self, result: LogAppendResult) -> bool:
        """Whether an answer is of this append, and not of another one under its key."""
        return {each.location for each in result.segments} == {file.location for file in self.files}


def _placed(
    connection: sa.Connection, topic: Topic, files: Sequence[SegmentFile], known: Mapping[int, Partition]
) -> list[SegmentInfo]:
    """The files with their offsets, after what each of the locked partitions has."""
    next_base = {number: segments.next_base(connection, topic, each) for number, each in known.items()}
    infos: list[SegmentInfo] = []
    for file in files:
        base = next_base[file.partition_id]
        next_base[file.partition_id] = base + file.records
        infos.append(file.placed(topic, file.partition_id, base))
    return infos


def _result(topic: Topic, infos: Sequence[SegmentInfo]) -> LogAppendResult:
    return LogAppendResult(
        topic=topic.name,
        records=sum(info.record_count for info in infos),
        segments=[
            AppendedSegment(info.partition_id, info.base_offset, info.end_offset, info.location) for info in infos
        ],
        bytes=sum(info.size_bytes for info in infos),
    )


def first_answer(registry: Registry, topic: Topic, producer: ProducerKey) -> LogAppendResult | None:
    """What the append under this key was answered; None if there was none."""
    with registry.database.read() as connection:
        return first_answer_in(connection, topic, producer)


def first_answer_in(connection: sa.Connection, topic: Topic, producer: ProducerKey) -> LogAppendResult | None:
    answer = producers.answer(connection, topic.topic_id, *producer)
    if answer is None:
        return None
    return msgspec.structs.replace(msgspec.convert(answer, LogAppendResult), replayed=True)
