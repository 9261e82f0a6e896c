"""The Spark data source `lakeward`: topics as batches and as streams, with the options of Spark's Kafka source.

    spark.readStream.format("lakeward").option("subscribe", "orders").load()

Where the registry is, is said by options named as the settings are (registry, warehouse, config, ...), or by the settings
file and LAKEWARD_* variables as everywhere else. A stream's offsets are {topic: {"topic_uuid": ..., "0": offset, ...}}.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from lakeward.config import Settings, load_settings
from lakeward.db import dialect
from lakeward.db.retry import retried
from lakeward.errors import InvalidInput, LakewardError, TopicNotFound
from lakeward.log import groups, topics
from lakeward.log.read import EARLIEST, LATEST, Slice, Where, check_files, resolved, slice_batches, slices_of, tell_loss
from lakeward.log.read_run import StreamRun
from lakeward.log.records import Topic
from lakeward.log.sql import groups as group_store
from lakeward.log.sql import partitions
from lakeward.logs import log
from lakeward.registry import Registry, open_registry
from lakeward.storage.engines import engine_for, engine_name
from lakeward.tables.records.properties import FLAG, Kind, whole

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
OPTIONS = (
    *("subscribe", "startingoffsets", "endingoffsets", "maxoffsetspertrigger", "failondataloss", "group"),
    "config",
    "path",
)
PARTITION_BYTES = 64 << 20  # of segments that one task reads
TOPIC_UUID = "topic_uuid"
ONE_BATCH = (
    "of a Python source Spark reads one batch under the triggers availableNow and once; to read on in batches up to the end: "
    "option endingOffsets=latest and lake.log.run_to_end(writer)"
)
Offsets = dict[str, dict[str, Any]]
T = TypeVar("T")


class LogSource(DataSource):
    """Format `lakeward`. Columns are those of Spark's Kafka source; headers are always there.

    Names of topics are looked up as it is made, which is at `load`: Spark hands it on from there, so that a DataFrame means
    these very topics whenever it is read.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        with _Reading(options) as reading:
            self._topics = reading.topics

    @classmethod
    def name(cls) -> str:
        return "lakeward"

    def schema(self) -> StructType:
        from lakeward.log.spark import spark_schema

        schemas = [spark_schema(topic) for topic in self._topics]
        if any(schema["value"].dataType != schemas[0]["value"].dataType for schema in schemas):
            names = ", ".join(topic.name for topic in self._topics)
            raise InvalidInput(f"the topics {names} have values of different types; read one by one")
        types = {field.name: field.dataType for field in schemas[0]}
        types |= {
            "topic": StringType(),
            "partition": IntegerType(),
            "offset": LongType(),
            "timestampType": IntegerType(),
        }
        return StructType([StructField(name, types[name]) for name in COLUMNS])

    def reader(self, schema: StructType) -> DataSourceReader:
        return _BatchReader(dict(self.options), self._topics)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(dict(self.options), self._topics)


class _Reading:
    """The options of one read, and the registry that they name."""

    def __init__(self, options: Mapping[str, str], known: Sequence[Topic] | None = None) -> None:
        """`known`: the topics, once their names have been looked up. Raises InvalidInput, TopicNotFound."""
        given = {name.lower(): value for name, value in options.items()}
        settable = {field.name for field in fields(Settings)}
        if unknown := sorted(given.keys() - settable - set(OPTIONS)):
            raise InvalidInput(
                f"option {unknown[0]!r} is not known; there are subscribe, startingOffsets, endingOffsets, maxOffsetsPerTrigger, "
                "failOnDataLoss, group, config, and the settings"
            )
        self.names = [
            name.strip() for name in (given.get("subscribe") or given.get("path", "")).split(",") if name.strip()
        ]
        if not self.names:
            raise InvalidInput("say what to read: .option('subscribe', 'topic') or 'one,another'")
        self.fail = _option(given, "failOnDataLoss", FLAG) is not False
        self.group = given.get("group")
        self.limit = _option(given, "maxOffsetsPerTrigger", whole(1))
        if self.limit is not None and self.group is None:
            raise InvalidInput("maxOffsetsPerTrigger needs a group: .option('group', 'a name of this query alone')")
        self.starting = given.get("startingoffsets")
        self.ending = given.get("endingoffsets")
        settings: dict[str, Any] = {name: value for name, value in given.items() if name in settable}
        self.settings = load_settings(given.get("config"), **settings)
        self.registry: Registry = open_registry(self.settings, touch_warehouse=False)
        try:
            self.topics = [topics.load(self.registry, each) for each in known or self.names]
        except BaseException:
            self.registry.close()
            raise

    def __enter__(self) -> _Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self.registry.close()

    def where(self, text: str | None, default: str, topic: Topic, *, ending: bool) -> dict[int, int]:
        """What startingOffsets or endingOffsets says of a topic: an offset for each partition."""
        name = "endingOffsets" if ending else "startingOffsets"
        where: Where = text or default
        if where not in (EARLIEST, LATEST):
            where = _by_topic(name, str(where)).get(topic.name, {})
        with self.registry.database.read() as connection:
            known = partitions.of_topic(connection, topic.topic_id)
        return resolved(known, where, name, ending=ending)

    def slices(self, starts: Mapping[str, Mapping[int, int]], ends: Mapping[str, Mapping[int, int]]) -> list[Slice]:
        found: list[Slice] = []
        with self.registry.database.read() as connection:
            for topic in self.topics:
                found += slices_of(connection, topic, starts[topic.name], ends[topic.name], fail_on_data_loss=self.fail)
        return check_files(found, self.registry.engine, fail_on_data_loss=self.fail)

    def tasks(self, slices: list[Slice]) -> list[InputPartition]:
        """Slices, some together where they are small."""
        config = self.settings.engine_config
        tasks: list[InputPartition] = []
        waiting: list[Slice] = []
        for slice_ in slices:
            if (
                waiting
                and sum(each.segment.size_bytes for each in waiting) + slice_.segment.size_bytes > PARTITION_BYTES
            ):
                tasks.append(_Task(waiting, config, self.fail))
                waiting = []
            waiting.append(slice_)
        return [*tasks, _Task(waiting, config, self.fail)] if waiting else tasks


class _Shipped:
    """What is sent to executors, and says there what is missing where Lakeward is: by itself it could not even be read."""

    def __reduce__(self) -> tuple[Any, ...]:
        def arrive(name: str, state: bytes) -> Any:  # pickled by its code
            import pickle
            import sys

            try:
                from lakeward.log import source as log_source
            except ImportError as error:
                raise RuntimeError(
                    f"the format lakeward runs Lakeward's code on executors, and {sys.executable} lacks {error.name or 'it'}: install lakeward "
                    "for their interpreter (spark.pyspark.python), or ship an environment that has it (spark.archives); or read with "
                    "lake.log.read(spark, topic), which needs nothing there"
                ) from error
            made = object.__new__(getattr(log_source, name))
            made.__dict__.update(pickle.loads(state))  # noqa: S301 - from where the rest of the job is from
            return made

        return arrive, (type(self).__name__, pickle.dumps(self.__dict__))


class _Task(_Shipped, InputPartition):
    def __init__(self, slices: list[Slice], config: dict[str, Any], fail: bool) -> None:
        super().__init__(None)
        self.slices, self.config, self.fail = slices, config, fail

    def batches(self) -> Iterator[pa.RecordBatch]:
        for slice_ in self.slices:
            location = slice_.segment.location
            engine = engine_for(location, self.config if engine_name(location) == "s3" else {})
            try:
                yield from map(_as_columns, slice_batches(slice_, engine))
            except LakewardError as error:
                segment = slice_.segment
                tell_loss(segment.topic, segment.partition_id, slice_.first, slice_.end, str(error), fail=self.fail)


def _as_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    kind = pa.repeat(pa.scalar(0, pa.int32()), batch.num_rows)  # CreateTime, as Kafka counts them
    columns = [kind if name == "timestampType" else batch.column(name) for name in COLUMNS]
    return pa.RecordBatch.from_arrays(columns, names=list(COLUMNS))


def _option(given: Mapping[str, str], name: str, kind: Kind[T]) -> T | None:
    """Raises InvalidInput."""
    text = given.get(name.lower())
    try:
        return None if text is None else kind.read(text)
    except ValueError:
        raise InvalidInput(f"{name}={text!r} must be {kind.what}") from None


def _by_topic(name: str, text: str) -> dict[str, dict[int, int]]:
    try:
        return msgspec.json.decode(text, type=dict[str, dict[int, int]], strict=False)
    except msgspec.DecodeError as error:
        raise InvalidInput(
            f'{name}={text!r} is neither \'earliest\' nor \'latest\' nor JSON such as {{"orders":{{"0":23,"1":-2}}}}'
        ) from error


# Batches ------------------------------------------------------------------------------------------------------------------
class _Reader(_Shipped):
    def __init__(self, options: dict[str, str], known: Sequence[Topic]) -> None:
        self._options, self._known = options, known

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Task)
        return partition.batches()


class _BatchReader(_Reader, DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        with _Reading(self._options, self._known) as reading:
            starts = {t.name: reading.where(reading.starting, EARLIEST, t, ending=False) for t in reading.topics}
            ends = {t.name: reading.where(reading.ending, LATEST, t, ending=True) for t in reading.topics}
            return reading.tasks(reading.slices(starts, ends))


# Streams ------------------------------------------------------------------------------------------------------------------
class _StreamReader(_Reader, DataSourceStreamReader):
    """One process of Spark's calls all but `read`, one call after the other; tasks call `read`."""

    def __init__(self, options: dict[str, str], known: Sequence[Topic]) -> None:
        super().__init__(options, known)
        self._run: StreamRun | None = None  # of a stream with a group, from its first batch on
        self._group_key: int | None = None  # of the group that it plans and commits for
        self._ends: dict[int, dict[int, int]] | None = None  # by topic id: where a stream with an end stops
        self._asked = 0  # how often for the end of a batch
        self._left = 0  # records that the limit has left out of the last batch

    def initialOffset(self) -> Offsets:
        with _Reading(self._options, self._known) as reading:
            return _offsets(reading, _initial(reading))

    def latestOffset(self) -> Offsets:
        with _Reading(self._options, self._known) as reading:
            marks = {
                t.name: {p.partition_id: p.high_watermark for p in topics.list_partitions(reading.registry, t)}
                for t in reading.topics
            }
            if reading.ending is not None:
                marks = self._up_to_the_end(reading, marks)
            if reading.limit is not None:
                wanted, marks = marks, _limited(reading.limit, _planned(reading), marks)
                self._left = _sum(wanted) - _sum(marks)
            self._asked += 1
            self._group_key = _plan(reading, marks, self._group_key)
            return _offsets(reading, marks)

    def _up_to_the_end(self, reading: _Reading, marks: dict[str, dict[int, int]]) -> dict[str, dict[int, int]]:
        """`marks`, but none past the high watermarks of the first time that this was asked."""
        if reading.ending != LATEST:
            raise InvalidInput(
                f"endingOffsets={reading.ending!r}: a stream ends nowhere, or at 'latest', the end that the log has as it starts"
            )
        by_id = {topic.topic_id: marks[topic.name] for topic in reading.topics}
        ends = self._ends = self._ends or by_id
        return {
            t.name: {n: min(mark, ends.get(t.topic_id, {}).get(n, 0)) for n, mark in by_id[t.topic_id].items()}
            for t in reading.topics
        }

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        with _Reading(self._options, self._known) as reading, self._told():
            if self._run is None and reading.group is not None:
                self._run = StreamRun(reading.settings, reading.group, reading.names)
            starts, ends = _numbers(start, reading), _numbers(end, reading)
            for name, numbers in starts.items():
                for number, offset in numbers.items():
                    if offset > (until := ends[name].get(number, offset)):
                        why = f"the log ends at {until}: it is an older one than the stream has read"
                        tell_loss(name, number, until, offset, why, fail=reading.fail)
            slices = reading.slices(starts, ends)
            if self._run is not None:
                self._run.planned(end, slices)
            return reading.tasks(slices)

    def commit(self, end: Offsets) -> None:
        with _Reading(self._options, self._known) as reading, self._told():
            if reading.group is None:
                return
            numbers = _numbers(end, reading)
            done = [(topic, numbers[topic.name]) for topic in reading.topics]
            self._group_key = groups.commit_read(reading.registry, reading.group, done, self._group_key)
            if self._run is not None:
                self._run.committed(end)

    def stop(self) -> None:
        if self._asked == 1 and self._left:  # Spark does not tell a source what the trigger is
            log.warning("stream_stopped_after_one_batch", records_left=self._left, way_out=ONE_BATCH)
        run, self._run = self._run, None
        if run is not None:
            run.end()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What fails here fails the stream, and its run."""
        try:
            yield
        except BaseException as error:
            if self._run is not None:
                self._run.failed(error)
            raise


def _sum(offsets: Mapping[str, Mapping[int, int]]) -> int:
    return sum(sum(numbers.values()) for numbers in offsets.values())


def _initial(reading: _Reading) -> dict[str, dict[int, int]]:
    return {t.name: reading.where(reading.starting, LATEST, t, ending=False) for t in reading.topics}


def _offsets(reading: _Reading, found: Mapping[str, Mapping[int, int]]) -> Offsets:
    return {
        t.name: {TOPIC_UUID: t.topic_uuid, **{str(number): offset for number, offset in sorted(found[t.name].items())}}
        for t in reading.topics
    }


def _numbers(offsets: Offsets, reading: _Reading) -> dict[str, dict[int, int]]:
    """By topic and partition; a partition that is newer than the offsets starts at 0.

    Raises TopicNotFound: they are those of a topic that was deleted, and whose name another one has.
    """
    found: dict[str, dict[int, int]] = {}
    for topic in reading.topics:
        _check_same_topic(topic, offsets)
        said = {int(key): int(value) for key, value in offsets.get(topic.name, {}).items() if key != TOPIC_UUID}
        found[topic.name] = {number: said.get(number, 0) for number in range(topic.partition_count)}
    return found


def _check_same_topic(topic: Topic, offsets: Offsets) -> None:
    said = offsets.get(topic.name, {}).get(TOPIC_UUID, topic.topic_uuid)
    if said != topic.topic_uuid:
        raise TopicNotFound(
            f"Topic does not exist: the stream has read {topic.name} ({said}), which was deleted; the topic that has its name "
            f"now ({topic.topic_uuid}) is another one: start the query with a new checkpoint"
        )


# Limited batches: Spark does not say where a stream stands when it asks how far to read, so the registry remembers.
def _planned(reading: _Reading) -> dict[str, dict[int, int]]:
    """How far this group's stream has planned to read; a new one, to where it starts (Spark asks for the end first).

    Never less than where it stands: what was planned last may not have been begun when it stopped, so after a restart one
    batch may be larger than the limit.
    """
    assert reading.group is not None
    found = _initial(reading)
    with reading.registry.database.read() as connection:
        key = group_store.key(connection, reading.registry.warehouse.warehouse_id, reading.group)
        for topic in reading.topics:
            plan = None if key is None else group_store.plan(connection, key, topic.topic_id)
            found[topic.name] = plan or found[topic.name]
    return found


@retried
def _plan(reading: _Reading, offsets: Mapping[str, Mapping[int, int]], group_key: int | None) -> int | None:
    """Remember how far the stream has planned to read; the group's key. Raises ConsumerGroupNotFound: it was deleted."""
    if reading.group is None:
        return None
    with reading.registry.database.transaction() as connection:
        now = dialect.now(connection)
        key = groups.ensure_same_in(connection, reading.registry, reading.group, group_key, now)
        for topic in reading.topics:
            if group_store.plan(connection, key, topic.topic_id) != dict(offsets[topic.name]):
                group_store.set_plan(connection, key, topic.topic_id, offsets[topic.name], now)
    return key


def _limited(
    limit: int, done: Mapping[str, Mapping[int, int]], marks: Mapping[str, Mapping[int, int]]
) -> dict[str, dict[int, int]]:
    """Ends of the next batch: at most `limit` records, shared out in proportion to what waits in each partition."""
    waiting = {
        (name, number): mark - min(done[name].get(number, 0), mark)
        for name, offsets in marks.items()
        for number, mark in offsets.items()
    }
    total = sum(waiting.values())
    if total > limit:
        shares = {place: count * limit // total for place, count in waiting.items()}
        for place in sorted(waiting, key=lambda each: waiting[each], reverse=True)[: limit - sum(shares.values())]:
            shares[place] = min(shares[place] + 1, waiting[place])
        waiting = shares
    return {
        name: {number: min(done[name].get(number, 0), mark) + waiting[name, number] for number, mark in offsets.items()}
        for name, offsets in marks.items()
    }
