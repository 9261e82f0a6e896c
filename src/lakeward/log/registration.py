"""The log's commit: segments of a write get their offsets and become part of their topic, in one transaction."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias

import msgspec
import sqlalchemy as sa

from lakeward.db import dialect
from lakeward.errors import IntentLost
from lakeward.log import segments, topics
from lakeward.log.records import AppendedSegment, LogAppendResult, Partition, SegmentInfo, Topic
from lakeward.log.sql import producers
from lakeward.log.sql import segments as segment_store
from lakeward.log.sql import topics as topic_store
from lakeward.registry import intents, leases
from lakeward.registry.handle import Registry
from lakeward.registry.leases import Lease
from lakeward.registry.resolve_unknown_commit import Also, settled
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


def register(
    registry: Registry,
    topic: Topic,
    intent: Intent,
    files: Sequence[SegmentFile],
    *,
    producer: ProducerKey | None = None,
    lease: Lease | None = None,
    also: Also | None = None,
    outlived: bool = False,
) -> LogAppendResult:
    """Append segments: offsets are given here, so an append that fails leaves no hole and two never overlap.

    Args:
        producer: an append that was made under this key changes nothing: its first answer comes back with `replayed`, the
            intent stays open and the files are the caller's to give up.
        also: what else belongs to this commit; it gets the connection and the registry's time.
        outlived: others may have left more below the intent's prefix, or still write there; see `intents.take_registered`.

    Raises:
        IntentLost: the intent's lease ran out and recovery has taken it.
        TopicNotFound: the topic was deleted.
        LeaseLost: the lease's fence is no longer current.
        RegistryUnavailable: no answer; if it came from the commit and could not be settled, the message says so.
    """
    started = time.perf_counter()
    write = _Write(topic, intent, files, producer, lease, also, outlived)
    result = settled(
        registry,
        intent,
        topic.name,
        commit=lambda: _register(registry, write),
        lock=lambda connection: _lock(connection, write),
        answer=lambda connection: _answer_of(connection, write),
    )
    return msgspec.structs.replace(result, seconds={"register": time.perf_counter() - started})


class _Write(NamedTuple):
    topic: Topic
    intent: Intent
    files: Sequence[SegmentFile]
    producer: ProducerKey | None
    lease: Lease | None
    also: Also | None
    outlived: bool

    @property
    def partitions(self) -> set[int]:
        return {file.partition_id for file in self.files}


def _lock(connection: sa.Connection, write: _Write) -> dict[int, Partition]:
    """The topic's row for the key (an append under it may be under way), then the partitions, in order."""
    if write.producer is not None and topic_store.lock(connection, write.topic.topic_id) is None:
        raise topics.unknown(write.topic)
    return topics.locked_partitions(connection, write.topic, write.partitions) if write.files else {}


def _register(registry: Registry, write: _Write) -> LogAppendResult:
    def work(connection: sa.Connection, _now: datetime) -> LogAppendResult:
        return _register_in(connection, registry, write)

    if write.also is not None or write.lease is not None:  # both may wait for what other writers hold
        return registry.front.commit_alone(work)
    return registry.front.commit(work, weight=len(write.files))


def _register_in(connection: sa.Connection, registry: Registry, write: _Write) -> LogAppendResult:
    topic = write.topic
    known = _lock(connection, write)
    if write.producer is not None and (first := first_answer_in(connection, topic, write.producer)) is not None:
        return first
    now = dialect.now(connection)  # after the wait for the partitions
    if not intents.take_registered(connection, registry, write.intent, now, outlived=write.outlived):
        raise IntentLost(
            f"the append {write.intent.intent_id} to {topic.name} took longer than its lease, and recovery has taken it; "
            "nothing was registered: append again, or raise lease_seconds"
        )
    if write.lease is not None:
        leases.check(connection, write.lease)
    infos = _placed(connection, write, known)
    segments.insert_in(connection, topic, infos, now, write.intent.intent_id)
    result = _result(topic, infos)
    if write.producer is not None:
        producers.insert(connection, topic.topic_id, *write.producer, result, now)
    if write.also is not None:
        write.also(connection, now)
    return result


def _placed(connection: sa.Connection, write: _Write, known: Mapping[int, Partition]) -> list[SegmentInfo]:
    """The files with their offsets, after what each of the locked partitions has."""
    next_base = {number: segments.next_base(connection, write.topic, each) for number, each in known.items()}
    infos: list[SegmentInfo] = []
    for file in write.files:
        base = next_base[file.partition_id]
        next_base[file.partition_id] = base + file.records
        infos.append(
            SegmentInfo(
                topic=write.topic.name,
                partition_id=file.partition_id,
                base_offset=base,
                end_offset=base + file.records - 1,
                record_count=file.records,
                size_bytes=file.size,
                location=file.location,
                first_timestamp=file.first_timestamp,
                last_timestamp=file.last_timestamp,
            )
        )
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
    """What the append under this key was answered; none if there was none."""
    with registry.database.read() as connection:
        return first_answer_in(connection, topic, producer)


def first_answer_in(connection: sa.Connection, topic: Topic, producer: ProducerKey) -> LogAppendResult | None:
    answer = producers.answer(connection, topic.topic_id, *producer)
    if answer is None:
        return None
    return msgspec.structs.replace(msgspec.convert(answer, LogAppendResult), replayed=True)


def _answer_of(connection: sa.Connection, write: _Write) -> LogAppendResult | None:
    """What a write that is over was answered; none if it was given up: a registration deletes the intent, and whoever gives
    a write up leaves its row for the last sweep.
    """
    if write.producer is not None and (first := first_answer_in(connection, write.topic, write.producer)) is not None:
        return msgspec.structs.replace(first, replayed=False)
    if intent_store.is_known(connection, write.intent.intent_id):
        return None
    found = [
        info
        for number in sorted(write.partitions)
        for info in segment_store.of_intent(connection, write.topic.topic_id, number, write.intent.intent_id)
    ]
    return _result(write.topic, found)
