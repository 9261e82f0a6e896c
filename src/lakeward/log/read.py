"""Reading a topic: which records of which segments a range of offsets is, and the same without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

from lakeward.errors import DataLoss, InvalidOffset, ObjectNotFound, StorageError
from lakeward.log import topics
from lakeward.log.arrow_records import HEADERS, KEY, TIMESTAMP, VALUE
from lakeward.log.records import Partition, SegmentInfo, Topic
from lakeward.log.sql import partitions
from lakeward.log.sql import segments as segment_store
from lakeward.logs import log
from lakeward.registry.handle import Registry
from lakeward.storage.engine import StorageEngine

PARTITION = "partition"
COLUMNS = ("topic", PARTITION, "offset", TIMESTAMP, KEY, VALUE, HEADERS)  # of what is read
EARLIEST, LATEST = "earliest", "latest"
BATCH_ROWS = 1 << 16
_THREADS = 16

# 'earliest', 'latest', one offset for every partition, or offsets by partition (-2 earliest, -1 latest, as Kafka has them).
Where: TypeAlias = "str | int | Mapping[int, int]"


class Slice(NamedTuple):
    """The records of one segment from `first` to before `end`."""

    segment: SegmentInfo
    first: int
    end: int


def resolved(known: Sequence[Partition], where: Where, name: str, *, ending: bool) -> dict[int, int]:
    """An offset for each partition. Partitions that a mapping leaves out start at the earliest, and end at the latest.

    Raises:
        InvalidOffset: it is none of these, or names a partition that is not there.
    """
    numbers = {each.partition_id for each in known}
    if isinstance(where, Mapping):
        if unknown := sorted(set(where) - numbers):
            raise InvalidOffset(f"{name}={dict(where)!r} names partition {unknown[0]}, which the topic does not have")
        offsets: Mapping[int, int | str] = where
    elif where in (EARLIEST, LATEST) or (isinstance(where, int) and where >= -2):
        offsets = dict.fromkeys(numbers, where)
    else:
        raise InvalidOffset(f"{name}={where!r} is not 'earliest', 'latest', an offset, or offsets by partition")
    left_out = LATEST if ending else EARLIEST
    return {each.partition_id: _offset(each, offsets.get(each.partition_id, left_out), name) for each in known}


def _offset(partition: Partition, where: int | str, name: str) -> int:
    if where in (EARLIEST, -2):
        return partition.log_start_offset
    if where in (LATEST, -1):
        return partition.high_watermark
    if not isinstance(where, int) or where < 0:
        raise InvalidOffset(f"{name}: offset {where!r} of partition {partition.partition_id} is not a number from 0 on")
    return where


def slices_of(
    connection: sa.Connection,
    topic: Topic,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    *,
    fail_on_data_loss: bool = True,
) -> list[Slice]:
    """The records between offsets, as of the connection's transaction, by partition and offset.

    Raises:
        DataLoss: a range begins before the log does; with `fail_on_data_loss` false it begins there, and that is logged.
    """
    found: list[Slice] = []
    for partition in partitions.of_topic(connection, topic.topic_id):
        number = partition.partition_id
        start, end = starts.get(number, 0), min(ends.get(number, 0), partition.high_watermark)
        if start >= end:
            continue
        start = after_start(partition, start, end, fail=fail_on_data_loss)
        if start < end:
            of_range = segment_store.page(connection, topic.topic_id, number, start=start, end=end)
            found += [Slice(s, max(start, s.base_offset), min(end, s.end_offset + 1)) for s in of_range]
    return found


def after_start(partition: Partition, start: int, end: int, *, fail: bool) -> int:
    """Where reading from `start` to `end` can begin. Raises DataLoss, or only logs it: the log begins later."""
    first = partition.log_start_offset
    if start >= first:
        return start
    why = f"the log starts at {first}: retention has deleted what was before"
    tell_loss(partition.topic, partition.partition_id, start, min(end, first), why, fail=fail)
    return first


def planned(
    registry: Registry, name: str, start: Where, end: Where, *, fail_on_data_loss: bool
) -> tuple[Topic, list[Slice]]:
    """A topic, and where the records between two places of it are, as of one moment.

    Raises: as `resolved`, `slices_of` and `check_files`; TopicNotFound.
    """
    with registry.database.read() as connection:
        topic = topics.load_in(connection, registry, name)
        known = partitions.of_topic(connection, topic.topic_id)
        starts = resolved(known, start, "start", ending=False)
        ends = resolved(known, end, "end", ending=True)
        slices = slices_of(connection, topic, starts, ends, fail_on_data_loss=fail_on_data_loss)
    return topic, check_files(slices, registry.engine, fail_on_data_loss=fail_on_data_loss)


def check_files(
    slices: Sequence[Slice], engine_of: Callable[[str], StorageEngine], *, fail_on_data_loss: bool
) -> list[Slice]:
    """The slices whose files are there as they were registered.

    Raises:
        DataLoss: a file is missing or has another size; with `fail_on_data_loss` false it is left out, and that is logged.
    """

    def loss(slice_: Slice) -> str | None:
        segment = slice_.segment
        try:
            size = engine_of(segment.location).size(segment.location)
        except ObjectNotFound:
            return f"the file {segment.location} is missing"
        if size != segment.size_bytes:
            return f"the file {segment.location} has {size} bytes, and {segment.size_bytes} were registered"
        return None

    with ThreadPoolExecutor(_THREADS, "lakeward-segments") as threads:
        losses = list(threads.map(loss, slices))
    for (segment, first, end), why in zip(slices, losses, strict=True):
        if why is not None:
            tell_loss(segment.topic, segment.partition_id, first, end, why, fail=fail_on_data_loss)
    return [slice_ for slice_, why in zip(slices, losses, strict=True) if why is None]


def tell_loss(topic: str, partition: int, first: int, end: int, why: str, *, fail: bool) -> None:
    """Raises DataLoss, or only logs it."""
    if fail:
        raise DataLoss(
            f"{topic}, partition {partition}, offsets {first} to {end - 1} cannot be read: {why}; to go on without these "
            "records give fail_on_data_loss=False, or Spark the option failOnDataLoss=false"
        )
    log.warning("records_skipped", topic=topic, partition=partition, first=first, end=end, why=why)


def slice_batches(slice_: Slice, engine: StorageEngine, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """The records of a slice: the columns of COLUMNS, values as the file has them. Row groups outside of it are not read.

    Raises:
        ObjectNotFound, StorageError: the file cannot be read.
    """
    segment = slice_.segment
    with engine.open_input(segment.location) as source:
        try:
            file = pq.ParquetFile(source, pre_buffer=engine.name != "local")
            offset = segment.base_offset
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if offset < slice_.end and offset + rows > slice_.first:
                    for batch in file.iter_batches(batch_size=batch_rows, row_groups=[group]):
                        if (cut := _cut(slice_, batch, offset)) is not None:
                            yield cut
                        offset += batch.num_rows
                else:
                    offset += rows
        except (pa.ArrowException, OSError) as error:
            raise StorageError(
                f"cannot read {segment.location}: it is damaged, or the storage broke off; try again, or bring it back from a backup"
            ) from error


def _cut(slice_: Slice, batch: pa.RecordBatch, offset: int) -> pa.RecordBatch | None:
    """The batch's rows in the slice, with their places; `offset` is that of the batch's first row."""
    first, end = max(slice_.first, offset), min(slice_.end, offset + batch.num_rows)
    if first >= end:
        return None
    rows = batch.slice(first - offset, end - first)
    count, segment = rows.num_rows, slice_.segment
    places = {
        "topic": pa.repeat(pa.scalar(segment.topic), count),
        PARTITION: pa.repeat(pa.scalar(segment.partition_id, pa.int32()), count),
        "offset": pa.arange(first, end),
    }
    columns = [places[name] if name in places else rows.column(name) for name in COLUMNS]
    return pa.RecordBatch.from_arrays(columns, names=list(COLUMNS))
