"""Small neighbouring segments become larger ones with the same offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import sqlalchemy as sa

from lakeward.arrow.file_writer import write_files
from lakeward.arrow.write import ParquetSink
from lakeward.db.dialect import Clock
from lakeward.errors import DataLoss, IntentLost
from lakeward.log import segments, topics
from lakeward.log.arrow_records import HEADERS, KEY, TIMESTAMP, VALUE
from lakeward.log.read import Slice, slice_batches
from lakeward.log.records import SegmentInfo, Topic
from lakeward.log.sql import segments as segment_store
from lakeward.log.write import segment_of, segment_target
from lakeward.registry import Registry, intents, leases
from lakeward.registry.intents import Overtaken
from lakeward.registry.sql import intents as intent_store
from lakeward.storage.engine import StorageEngine
from lakeward.sums import Sum
from lakeward.tables.records.files import Intent

LEASE_SECONDS = 30.0
TARGET_BYTES = 128 << 20
WHOLE = 1 << 59  # bytes: a merged file is never cut
_RECORD = (KEY, VALUE, TIMESTAMP, HEADERS)


class CompactionResult(Sum, frozen=True):
    before: int = 0  # segments that were merged
    after: int = 0  # into so many
    bytes_before: int = 0
    bytes_after: int = 0


def compact_segments(registry: Registry, topic: str, target_bytes: int = TARGET_BYTES) -> CompactionResult:
    """Merge segments that follow each other and are small, up to `target_bytes` each. Offsets stay as they are.

    A merged file is read again and compared with what it is made of before it takes its place. The old files wait in
    quarantine: a reader in the middle of them is not disturbed. Segments from outside are left alone.

    Raises:
        TopicNotFound.
        LeaseHeld: somebody else is at it.
        DataLoss, StorageError: a segment cannot be read; those before it are merged.
    """
    found = topics.load(registry, topic)
    total = CompactionResult()
    with leases.held(registry, f"compact:{found.topic_uuid}", seconds=LEASE_SECONDS) as lease:
        for number in range(found.partition_count):
            for run in _runs(segments.iterate(registry, found, number), found, target_bytes):
                size = _merge(registry, found, run, lease)
                if size is not None:
                    total += CompactionResult(len(run), 1, sum(info.size_bytes for info in run), size)
    return total


def _runs(found: Iterable[SegmentInfo], topic: Topic, target_bytes: int) -> Iterator[list[SegmentInfo]]:
    """Two or more small segments that follow each other, together no larger than wanted."""
    run: list[SegmentInfo] = []
    for info in found:
        is_small = info.size_bytes <= target_bytes // 2 and info.location.startswith(topic.location + "/")
        if run and (not is_small or sum(each.size_bytes for each in run) + info.size_bytes > target_bytes):
            if len(run) > 1:
                yield run
            run = []
        if is_small:
            run.append(info)
    if len(run) > 1:
        yield run


def _merge(registry: Registry, topic: Topic, run: Sequence[SegmentInfo], lease: leases.Lease) -> int | None:
    """Merge one run; the new segment's bytes, or none if the run has changed meanwhile."""
    engine = registry.engine(topic.location)
    try:
        with intents.declared(registry, topic) as intent:
            target = segment_target(topic, intent, engine, file_size=WHOLE)
            whole = (pa.RecordBatch.from_arrays(b.columns, schema=target.arrow_schema) for b in _records(run, engine))
            (file,) = write_files(target, whole, ParquetSink)
            made = segment_of(file, 0)
            merged = made.placed(topic, run[0].partition_id, run[0].base_offset)
            _check(run, merged, engine)
            _swap(registry, topic, intent, run, merged, lease)
    except (Overtaken, IntentLost):  # retention was quicker, or recovery
        return None
    return made.size


def _swap(
    registry: Registry,
    topic: Topic,
    intent: Intent,
    run: Sequence[SegmentInfo],
    merged: SegmentInfo,
    lease: leases.Lease,
) -> None:
    """Put a merged segment in the place of its run. Raises Overtaken, and as `commit_intent`."""

    def exchange(connection: sa.Connection, clock: Clock) -> bool:
        topics.locked_partitions(connection, topic, [run[0].partition_id])
        if not _is_there(connection, topic, run):
            raise Overtaken("a segment has left meanwhile")
        intents.take(connection, registry, topic, intent, clock, lease=lease)
        segments.replace_in(connection, registry, topic, run, merged, intent.intent_id)
        return True

    def answer(connection: sa.Connection) -> bool | None:
        return None if intent_store.is_known(connection, intent.intent_id) else True

    intents.commit_intent(registry, topic, intent, exchange, answer, weight=len(run) + 1, may_wait=True)


def _is_there(connection: sa.Connection, topic: Topic, run: Sequence[SegmentInfo]) -> bool:
    start, end = run[0].base_offset, run[-1].end_offset + 1
    now = segment_store.page(connection, topic.topic_id, run[0].partition_id, start=start, end=end)
    return [info.id for info in now] == [info.id for info in run]


def _records(run: Sequence[SegmentInfo], engine: StorageEngine) -> Iterator[pa.RecordBatch]:
    for info in run:
        rows = 0
        for batch in slice_batches(Slice(info, info.base_offset, info.end_offset + 1), engine):
            rows += batch.num_rows
            yield batch.select(list(_RECORD))
        if rows != info.record_count:
            raise DataLoss(f"{info.location} has {rows} records, and {info.record_count} were registered")


def _check(run: Sequence[SegmentInfo], merged: SegmentInfo, engine: StorageEngine) -> None:
    """Compare a merged file with what it is made of, record by record. Raises DataLoss."""
    if merged.end_offset != run[-1].end_offset or not _same(_records([merged], engine), _records(run, engine)):
        raise DataLoss(f"the merged file {merged.location} is not what it was made of; the segments stay as they are")


def _same(left: Iterator[pa.RecordBatch], right: Iterator[pa.RecordBatch]) -> bool:
    """Whether two streams hold the same rows, however they are cut."""
    a_left, b_left = next(left, None), next(right, None)
    while a_left is not None and b_left is not None:
        count = min(a_left.num_rows, b_left.num_rows)
        a, b = a_left.slice(0, count), b_left.slice(0, count)
        if not all(x.equals(y.cast(x.type)) for x, y in zip(a.columns, b.columns, strict=True)):
            return False
        a_left = a_left.slice(count) if a_left.num_rows > count else next(left, None)
        b_left = b_left.slice(count) if b_left.num_rows > count else next(right, None)
    return a_left is None and b_left is None
