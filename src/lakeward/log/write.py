"""Records into segment files: each partition's in files of its own, in the order in which they came."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from lakeward.arrow.file_writer import write_files
from lakeward.arrow.partitioner import partitions_of
from lakeward.arrow.target import WriteTarget
from lakeward.arrow.write import ParquetSink
from lakeward.log.arrow_records import KEY, TIMESTAMP_ID, record_batches, record_schema
from lakeward.log.records import Topic
from lakeward.log.registration import SegmentFile
from lakeward.storage.engine import StorageEngine
from lakeward.tables.records.files import DataFile, Intent, PartitionValues
from lakeward.tables.records.properties import SEGMENT_BYTES, SEGMENT_COMPRESSION

PARTITION_ID = 0  # the field id under which a file's partition is kept while it is written


def segment_target(
    topic: Topic,
    intent: Intent,
    engine: StorageEngine,
    *,
    file_size: int | None = None,
    outlived: threading.Event | None = None,
) -> WriteTarget:
    """Where a topic's segment files go; `file_size` in place of the topic's segment.bytes."""
    return WriteTarget(
        location=topic.location,
        intent=intent,
        engine=engine,
        schema=record_schema(topic),
        compression=SEGMENT_COMPRESSION.of(topic.config),
        file_size=SEGMENT_BYTES.of(topic.config) if file_size is None else file_size,
        outlived=threading.Event() if outlived is None else outlived,
    )


def write_records(
    target: WriteTarget, topic: Topic, data: Any, partition: int | None = None, key: bytes | str | None = None
) -> list[SegmentFile]:
    """Write records (see `record_batches`) as segment files below the intent's prefix; no records, no file.

    A record goes to `partition`; without it, to the one of its key (Kafka's murmur2); records without a key to one partition
    of this append, taken by chance.

    Raises:
        FileRefused, InvalidInput: see `record_batches`; StorageError.
    """
    batches = record_batches(data, topic, key)
    files = write_files(target, batches, ParquetSink, _split(topic, partition))
    return [segment_of(file, file.partition[PARTITION_ID]) for file in files]


def _split(
    topic: Topic, partition: int | None
) -> Callable[[pa.RecordBatch], Iterator[tuple[PartitionValues, pa.RecordBatch]]]:
    without_key = random.randrange(topic.partition_count)

    def split(batch: pa.RecordBatch) -> Iterator[tuple[PartitionValues, pa.RecordBatch]]:
        if partition is not None or topic.partition_count == 1:
            yield {PARTITION_ID: partition or 0}, batch
            return
        numbers = np.asarray(partitions_of(batch.column(KEY), topic.partition_count).fill_null(without_key))
        for number in np.unique(numbers):
            rows = np.flatnonzero(numbers == number)
            yield {PARTITION_ID: int(number)}, batch if len(rows) == len(numbers) else batch.take(pa.array(rows))

    return split


def segment_of(file: DataFile, partition: int) -> SegmentFile:
    times = (bounds.get(TIMESTAMP_ID) for bounds in (file.statistics.lower, file.statistics.upper))
    return SegmentFile(partition, file.path, file.row_count, file.size, *map(_time_ms, times))


def _time_ms(bound: bytes | None) -> int | None:
    """Microseconds as single-value binary (Iceberg specification, appendix D) -> milliseconds."""
    return None if bound is None else int.from_bytes(bound, "little", signed=True) // 1000
