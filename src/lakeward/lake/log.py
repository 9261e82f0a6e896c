"""The topic log of a lake: append and read records, consume them, keep the log in order."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import pyarrow as pa

from lakeward import validation
from lakeward.arrow.target import WriteTarget
from lakeward.errors import InvalidInput
from lakeward.fronts import bound
from lakeward.lake import writes
from lakeward.log import compact, retention, topics
from lakeward.log import registration as log
from lakeward.log.consumer import Consumer
from lakeward.log.read import Where, planned, slice_batches
from lakeward.log.records import LogAppendResult, Topic
from lakeward.log.registration import ProducerKey, SegmentFile
from lakeward.log.write import segment_target, write_records
from lakeward.ops.records.operations import OperationType, SyncMode
from lakeward.ops.run_recorder import Recorder, recorded
from lakeward.registry import Registry, intents

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Write: TypeAlias = Callable[[WriteTarget], list[SegmentFile]]


class TopicLog:
    """`lake.log`. Topics themselves are made and changed through `MetadataStore(lake)`."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def append(
        self,
        topic: str,
        records: Any,
        *,
        partition: int | None = None,
        key: bytes | str | None = None,
        producer: ProducerKey | None = None,
    ) -> LogAppendResult:
        """Append records: Arrow data, rows, or a Spark DataFrame with the columns value and, if wanted, key, timestamp and
        headers; or rows that are values alone.

        Args:
            partition: of all records. Without it a record goes where a Kafka client would put its key (murmur2); records
                without a key go to one partition of this append, taken by chance.
            key: of the records that have none.
            producer: (name, sequence): sent again, the append changes nothing and returns the first offsets.

        An append of a DataFrame is a sync run.

        Raises:
            TopicNotFound, PartitionNotFound, FileRefused, InvalidInput, IntentLost, StorageError.
        """
        found = topics.load(self.registry, topic)
        if partition is not None:
            topics.check_partition(found, partition)
        producer = None if producer is None else _checked(producer)
        if not writes.is_dataframe(records):
            return self._append(found, lambda target: write_records(target, found, records, partition, key), producer)
        from lakeward.log.spark import write_dataframe

        with recorded(
            self.registry,
            found.name,
            SyncMode.BATCH,
            operation=OperationType.INSERT,
            source_info={"kind": "dataframe"},
            destination_info={"topic": found.name},
            is_last=True,
        ) as run:
            return self._append(
                found, lambda target: write_dataframe(target, found, records, partition, key), producer, run
            )

    def _append(
        self, found: Topic, write: Write, producer: ProducerKey | None, run: Recorder | None = None
    ) -> LogAppendResult:
        registry = self.registry
        if producer is not None and (first := log.first_answer(registry, found, producer)) is not None:
            return first
        started, outlived = time.perf_counter(), threading.Event()
        with intents.declared(registry, found, outlived=outlived) as intent:
            files = write(segment_target(found, intent, registry.engine(found.location), outlived=outlived))
            wrote = time.perf_counter() - started
            is_outlived = outlived.is_set()
            if not files and producer is None:  # nothing to commit, and no key to remember
                intents.give_up(registry, intent, sweep_again=is_outlived)
                return LogAppendResult(topic=found.name, records=0, segments=[], bytes=0)
            result = log.register(registry, found, intent, files, producer=producer, run=run, outlived=is_outlived)
            if result.replayed:
                intents.give_up(registry, intent, sweep_again=is_outlived)
        return msgspec.structs.replace(result, seconds={"write": wrote, **result.seconds})

    def read(
        self,
        spark: SparkSession,
        topic: str,
        start: Where = "earliest",
        end: Where = "latest",
        *,
        fail_on_data_loss: bool = True,
    ) -> DataFrame:
        """Records from `start` to before `end`: topic, partition, offset, timestamp, key, value, headers.

        Read by Spark's own Parquet reader, from just the segments that the range needs. What is committed now is read:
        'latest' is the high watermark of this moment.

        Args:
            start, end: 'earliest', 'latest', an offset for every partition, or offsets by partition.

        Raises:
            TopicNotFound, InvalidOffset.
            DataLoss: the range begins before the log does, or a segment's file is missing or cut short. With
                `fail_on_data_loss` false such records are left out, and that is logged.
        """
        from lakeward.log.spark import read_dataframe

        found, slices = planned(self.registry, topic, start, end, fail_on_data_loss=fail_on_data_loss)
        return read_dataframe(spark, found, slices)

    @staticmethod
    def run_to_end(writer: DataStreamWriter, *, name: str | None = None) -> list[dict[str, Any]]:
        """Run a streaming query up to the end that the log has as it starts, in batches of maxOffsetsPerTrigger, and stop it.

        What the trigger availableNow does for sources that Spark can bound: of those in Python it reads one batch.

        Args:
            writer: `frame.writeStream` with its sink and its checkpoint; `frame` read in the format `lakeward` with the option
                endingOffsets=latest.
            name: of the query.

        Returns:
            Spark's progress of the last batches that had records (it keeps about a hundred).

        Raises:
            StreamingQueryException: the query has failed.
        """
        query = writer.trigger(processingTime="0 seconds").start(queryName=name)
        try:
            query.processAllAvailable()
            progress = [each if isinstance(each, dict) else json.loads(each.json) for each in query.recentProgress]
        finally:
            query.stop()
        return [each for each in progress if each["numInputRows"]]

    def scan(
        self, topic: str, start: Where = "earliest", end: Where = "latest", *, fail_on_data_loss: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """As `read`, without Spark: batches of the same columns, partition by partition in the order of offsets."""
        _, slices = planned(self.registry, topic, start, end, fail_on_data_loss=fail_on_data_loss)
        return (batch for each in slices for batch in slice_batches(each, self.registry.engine(each.segment.location)))

    consumer = bound(Consumer)
    compact_segments = bound(compact.compact_segments)
    enforce_retention = bound(retention.enforce)


def _checked(producer: Any) -> ProducerKey:
    if not (isinstance(producer, tuple) and len(producer) == 2 and writes.is_key(producer[0])):
        raise InvalidInput(f"producer={producer!r} is not (name, sequence): a text, and a whole number from 0 on")
    return producer[0], validation.whole(producer[1], "the sequence of the producer", 0)
