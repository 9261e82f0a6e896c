"""A plain consumer of topics, for small jobs without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Self

import msgspec

from lakeward.db.types import epoch_ms
from lakeward.errors import InvalidInput, InvalidOffset
from lakeward.log import groups, segments, topics
from lakeward.log.read import Slice, Where, after_start, check_files, resolved, slice_batches
from lakeward.log.read_run import log_recorder
from lakeward.log.records import Partition, SegmentInfo, Topic, TopicRef
from lakeward.ops.run_recorder import Recorder
from lakeward.registry import Registry
from lakeward.retry import until

POLL_SECONDS = 0.05
BATCH_ROWS = 1_000

_Partition = tuple[str, int]  # topic, partition
_Offsets = dict[_Partition, int]


class Record(msgspec.Struct, frozen=True):
    """One record. `value` is bytes, or a dict where the topic declares what values are."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime
    key: bytes | None
    value: Any
    headers: list[tuple[str, bytes | None]]


class Consumer:
    """Reads topics partition by partition, each in the order of offsets, and remembers where it stands.

    With a group it starts where the group has committed, and `commit` moves the group on. Consumers of one group do not
    share partitions out among themselves: give each its own `partitions`. A consumer belongs to one thread.

    With a group it is a sync run too, from its first `poll` on until it is closed (as a context manager, or by `close`): one
    that is forgotten instead, or still open when the lake is closed, is a cancelled run.
    """

    def __init__(
        self,
        registry: Registry,
        topic: str | Iterable[str],
        group: str | None = None,
        *,
        start: Where = "earliest",
        partitions: Iterable[int] | None = None,
        fail_on_data_loss: bool = True,
    ) -> None:
        """Begin where the group has committed, or at `start`.

        Args:
            topic: one, or several.
            start: where to begin in partitions in which the group has committed nothing.
            partitions: the ones to read; all without.
            fail_on_data_loss: raise where records are gone that were to be read; else go on after them, and log it.

        Raises:
            TopicNotFound, InvalidOffset.
        """
        self._registry = registry
        self._group = group
        self._fail = fail_on_data_loss
        self._recorder: Recorder | None = None
        self._failure: Exception | None = None  # of the last poll
        self._topics: dict[str, Topic] = {}
        self._offsets: _Offsets = {}
        self._readers: dict[_Partition, Iterator[Record]] = {}
        wanted = None if partitions is None else set(partitions)
        self._group_key = None if group is None else groups.find_key(registry, group)
        for name in [topic] if isinstance(topic, str) else list(topic):
            found = self._topics[name] = topics.load(registry, name)
            known = topics.list_partitions(registry, found)
            committed = [] if group is None else groups.offsets(registry, group, found)
            done = {each.partition_id: each.committed_offset for each in committed}
            for number, offset in resolved(known, start, "start", ending=False).items():
                if wanted is None or number in wanted:
                    self._offsets[name, number] = done.get(number, offset)
        if not self._offsets:
            raise InvalidInput(f"there is nothing to read: topics {topic!r}, partitions {partitions!r}")

    @property
    def offsets(self) -> Mapping[_Partition, int]:
        """The next offset to read, by (topic, partition)."""
        return dict(self._offsets)

    positions = offsets
    """`offsets`, by its earlier name."""

    def poll(self, max_records: int = 500, timeout: float = 0.0) -> list[Record]:
        """The next records, at most `max_records`; waits up to `timeout` seconds for the first one.

        The offsets move as the records are handed over: a poll that raises leaves them where they are, and the next one
        gives the same records.

        Raises:
            DataLoss: records that were to be read are gone.
            TopicNotFound: a topic was deleted, even if one was made again under its name.
            StorageError.
        """
        if self._group is not None and self._recorder is None:
            self._recorder = log_recorder(self._registry, self._topics, {"group": self._group}, owner=self)
        try:
            offsets = dict(self._offsets)
            found = until(lambda: self._look(offsets, max_records), timeout, POLL_SECONDS)
            if self._recorder is not None:
                self._recorder.add(records_processed=len(found), bytes_processed=sum(map(_size, found)))
        except BaseException as error:
            self._readers.clear()  # they are past records that are not handed over
            if self._recorder is not None and isinstance(error, Exception):
                self._failure = error
                self._recorder.failed(error)
            raise
        self._failure, self._offsets = None, offsets
        return found

    def _look(self, offsets: _Offsets, count: int) -> list[Record]:
        """The next records; the offsets move to behind them."""
        for topic in self._topics.values():
            topics.load(self._registry, topic)
        found: list[Record] = []
        for place in list(offsets):
            found += self._take(place, offsets, count - len(found))
        if found:
            # The partition that was asked first comes last the next time, so that none starves.
            first = next(iter(offsets))
            offsets[first] = offsets.pop(first)
        return found

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Read on from an offset. Raises InvalidOffset: it is negative, or the partition is none of this consumer's."""
        if (topic, partition) not in self._offsets or offset < 0:
            raise InvalidOffset(f"this consumer cannot seek offset {offset} of {topic}, partition {partition}")
        self._move((topic, partition), offset)

    def seek_to_time(self, time_: datetime) -> None:
        """Read on, in each partition, from the first record that is not older; where there is none, from the end.

        Raises:
            InvalidInput: a time without a zone.
            TopicNotFound, StorageError: no offset has moved.
        """
        if time_.tzinfo is None:
            raise InvalidInput(f"{time_!r} has no zone; give it one, such as tzinfo=UTC")
        found = {
            (name, number): offset_at(self._registry, self._topics[name], number, time_)
            for name, number in self._offsets
        }
        for place, offset in found.items():
            self._move(place, offset)

    def commit(self) -> None:
        """Commit where this consumer stands, in one transaction.

        Raises:
            InvalidInput: it has no group.
            TopicNotFound: a topic was deleted, even if one was made again under its name.
            ConsumerGroupNotFound: the group was deleted since this consumer was opened or has committed last.
        """
        if self._group is None:
            raise InvalidInput("this consumer has no group to commit for; open it with group='...'")
        offsets: dict[str, dict[int, int]] = {name: {} for name in self._topics}
        for (name, number), offset in self._offsets.items():
            offsets[name][number] = offset
        read = [(self._topics[name], numbers) for name, numbers in offsets.items()]
        self._group_key = groups.commit_read(self._registry, self._group, read, self._group_key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        self._end(error)

    def close(self) -> None:
        """End its run, which failed if the last poll did. A closed consumer that is polled again begins another."""
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        self._readers.clear()
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.end(error or self._failure)
        self._failure = None

    def _move(self, place: _Partition, offset: int) -> None:
        self._offsets[place] = offset
        self._readers.pop(place, None)

    def _take(self, place: _Partition, offsets: _Offsets, count: int) -> list[Record]:
        found: list[Record] = []
        while len(found) < count:
            reader = self._readers.get(place)
            if reader is None:
                segment = self._segment(place, offsets)
                if segment is None:
                    break
                reader = self._readers[place] = self._records(segment, offsets[place])
            record = next(reader, None)
            if record is None:
                del self._readers[place]
                continue
            offsets[place] = record.offset + 1
            found.append(record)
        return found

    def _segment(self, place: _Partition, offsets: _Offsets) -> SegmentInfo | None:
        """The segment to read next, after those that are lost and may be; none at the end of the log."""
        topic, number = self._topics[place[0]], place[1]
        while True:
            at = offsets[place]
            found = segments.find(self._registry, topic, number, at)
            if found is None:
                partition = _partition(self._registry, topic, number)
                if at >= partition.log_start_offset:
                    return None
                offsets[place] = after_start(partition, at, partition.log_start_offset, fail=self._fail)
                continue
            slice_ = Slice(found, at, found.end_offset + 1)
            if check_files([slice_], self._registry.engine, fail_on_data_loss=self._fail):
                return found
            offsets[place] = slice_.end

    def _records(self, segment: SegmentInfo, first: int) -> Iterator[Record]:
        engine = self._registry.engine(segment.location)
        for batch in slice_batches(Slice(segment, first, segment.end_offset + 1), engine, BATCH_ROWS):
            for row in batch.to_pylist():
                headers = [(each["key"], each["value"]) for each in row["headers"] or ()]
                yield Record(
                    row["topic"], row["partition"], row["offset"], row["timestamp"], row["key"], row["value"], headers
                )


def _size(record: Record) -> int:
    """Bytes of a record's key and value; a declared value counts none, having no bytes of its own."""
    value = record.value if isinstance(record.value, bytes) else b""
    return len(record.key or b"") + len(value)


def offset_at(registry: Registry, topic: TopicRef, number: int, time_: datetime) -> int:
    """The offset of a partition's first record that is not older than a time; its end where there is none.

    Raises TopicNotFound, PartitionNotFound.
    """
    wanted = epoch_ms(time_)
    found = topics.load(registry, topic)
    for segment in segments.iterate(registry, found, number):
        if segment.last_timestamp is not None and segment.last_timestamp < wanted:
            continue
        engine = registry.engine(segment.location)
        for batch in slice_batches(Slice(segment, segment.base_offset, segment.end_offset + 1), engine, BATCH_ROWS):
            for offset, at in zip(batch.column("offset"), batch.column("timestamp"), strict=True):
                if at.as_py() is not None and at.as_py() >= time_:
                    return int(offset.as_py())
    return _partition(registry, found, number).high_watermark


def _partition(registry: Registry, topic: Topic, number: int) -> Partition:
    """Raises TopicNotFound: the topic is gone."""
    partition = topics.get_partition(registry, topic, number)
    if partition is None:
        raise topics.unknown(topic)
    return partition
