"""The topic log on Spark: DataFrames into segments, and segments as DataFrames, by Spark's own Parquet writer and reader.

Only what Spark Connect has too is used.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.arrow.partitioner import partitions_of
from lakeward.arrow.target import WriteTarget, arrow_schema
from lakeward.db.types import epoch_ms
from lakeward.errors import FileRefused, InvalidInput
from lakeward.log.arrow_records import HEADERS, KEY, TIMESTAMP, VALUE, record_schema
from lakeward.log.file_constants import ROW, told_apart, with_file_constants
from lakeward.log.read import COLUMNS, PARTITION, Slice
from lakeward.log.records import Topic
from lakeward.log.registration import SegmentFile
from lakeward.spark.executors import check_lakeward, check_storage, writing
from lakeward.storage.locations import LOCAL_SCHEME
from lakeward.storage.parquet_footers import read_footer

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_THREADS = 16


def spark_schema(topic: Topic) -> StructType:
    """The columns of a topic's segment files, as Spark's types."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema: StructType = from_arrow_schema(arrow_schema(record_schema(topic)))
    return schema


# Writing ------------------------------------------------------------------------------------------------------------------
def write_dataframe(
    target: WriteTarget, topic: Topic, records: DataFrame, partition: int | None, key: bytes | str | None
) -> list[SegmentFile]:
    """Write a DataFrame's records as segment files below the intent's prefix.

    Columns: value, and if wanted key, timestamp, headers and partition (which says where a record goes, as for Kafka's sink).
    Records of one partition follow each other as Spark's tasks have them.

    Raises:
        FileRefused: an unknown column, or a type that does not fit.
        ExecutorsUnfit: the executors of a cluster lack Lakeward, where there are keys, or keys or a folder for the warehouse.
    """
    spark = records.sparkSession
    if _goes_by_keys(topic, records, partition):
        check_lakeward(spark, "a key column")
    prepared = _prepared(topic, records, partition, key)
    check_storage(spark, target, lambda rows, prefix: rows.write.parquet(prefix))
    codec = "uncompressed" if target.codec == "none" else target.codec
    prefix = target.intent.prefix + "spark"
    with writing(spark, target), _microseconds(spark):
        writer = prepared.repartition(PARTITION).write.partitionBy(PARTITION).mode("append")
        writer = writer.option("compression", codec).option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        writer.parquet(prefix)
    return _segments(target, prefix + "/")


@contextmanager
def _microseconds(spark: SparkSession) -> Iterator[None]:
    """Have Spark write times as Parquet's timestamps: its own default, INT96, has no statistics, and other readers read it
    as nanoseconds. It is a setting of the session alone, so it is put back once no append needs it.
    """
    key = str(id(spark))
    with _writers_lock:
        count, before = _writers.get(key, (0, spark.conf.get(_TIME_TYPE)))
        _writers[key] = (count + 1, before)
        spark.conf.set(_TIME_TYPE, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        with _writers_lock:
            count, before = _writers.pop(key)
            if count > 1:
                _writers[key] = (count - 1, before)
            else:
                spark.conf.set(_TIME_TYPE, str(before))


_TIME_TYPE = "spark.sql.parquet.outputTimestampType"
_writers: dict[str, tuple[int, str | None]] = {}  # by session: how many write, and what was set before
_writers_lock = threading.Lock()


def _prepared(topic: Topic, records: DataFrame, partition: int | None, key: bytes | str | None) -> DataFrame:
    from pyspark.sql import functions as F

    columns = _matched(topic, records)
    data = key.encode() if isinstance(key, str) else key
    keyed = columns[KEY] if data is None else F.coalesce(columns[KEY], F.lit(data))
    frame = records.select(
        keyed.alias(KEY),
        columns[VALUE].alias(VALUE),
        F.coalesce(columns[TIMESTAMP], F.current_timestamp()).alias(TIMESTAMP),
        columns[HEADERS].alias(HEADERS),
        columns[PARTITION].alias(PARTITION),
    )
    count = topic.partition_count
    if partition is not None or count == 1:
        return frame.withColumn(PARTITION, F.lit(partition or 0))
    if _goes_by_keys(topic, records, partition):
        by_key = _partition_udf(count)(F.col(KEY))
    else:
        by_key = F.lit(None if data is None else partitions_of(pa.array([data], pa.binary()), count)[0].as_py())
    by_chance = F.floor(F.rand() * count).cast("int")
    if PARTITION not in records.columns:
        return frame.withColumn(PARTITION, F.coalesce(by_key, by_chance))
    given = F.when(F.col(PARTITION).between(0, count - 1), F.col(PARTITION)).when(
        F.col(PARTITION).isNotNull(),
        F.raise_error(F.concat(F.lit(f"{topic.name} has no partition "), F.col(PARTITION).cast("string"))),
    )
    return frame.withColumn(PARTITION, F.coalesce(given.cast("int"), by_key, by_chance))


def _goes_by_keys(topic: Topic, records: DataFrame, partition: int | None) -> bool:
    """Whether each record's own key says where it goes."""
    return partition is None and topic.partition_count > 1 and KEY in records.columns


def _partition_udf(count: int) -> Callable[[Column], Column]:
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # of Spark 4.1, and not in its stubs

    def partition_of(keys: pa.Array) -> pa.Array:
        return partitions_of(keys, count)

    udf: Callable[[Column], Column] = arrow_udf(partition_of, "int")
    return udf


def _matched(topic: Topic, records: DataFrame) -> dict[str, Column]:
    """Each column of a record as it is to be written; null where the DataFrame lacks it."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import IntegerType, StringType

    wanted: dict[str, DataType] = {field.name: field.dataType for field in spark_schema(topic)}
    given = {field.name: field.dataType for field in records.schema}
    if unknown := sorted(given.keys() - wanted.keys() - {PARTITION}):
        raise FileRefused(
            "unknown_column",
            f"column {unknown[0]!r} is no part of a record; it has key, value, timestamp, headers and partition: put what "
            "the record says into value",
        )
    if VALUE not in given:
        raise FileRefused("missing_column", "column 'value' is missing; select what the record says as value")
    found: dict[str, Column] = {}
    for name, type_ in {**wanted, PARTITION: IntegerType()}.items():
        if name not in given:
            found[name] = F.lit(None).cast(type_)
        elif given[name] == StringType() and type_.typeName() == "binary":
            found[name] = F.encode(F.col(name), "UTF-8")
        elif _fits(given[name], type_):
            found[name] = F.col(name).cast(type_)
        else:
            raise FileRefused(
                "wrong_type", f"column {name!r} is {given[name].simpleString()}, not {type_.simpleString()}; cast it"
            )
    return found


def _fits(given: DataType, wanted: DataType) -> bool:
    """Whether the types are equal but for what may be null, or a timestamp is one without a zone."""
    plain = {"timestamp_ntz": "timestamp", "smallint": "int", "tinyint": "int"}
    name, target = given.simpleString(), wanted.simpleString()
    return name == target or plain.get(name) == target


def _segments(target: WriteTarget, prefix: str) -> list[SegmentFile]:
    """The files that Spark has made, durable; what else it left there is deleted."""
    objects = {info.location: info.size for info in target.engine.list(prefix)}
    folder = prefix + PARTITION + "="  # where Spark's commit puts files; elsewhere are those of tasks that were lost
    ours = sorted(each for each in objects if each.startswith(folder) and each.endswith(".parquet"))
    target.engine.delete([location for location in objects if location not in ours])
    target.engine.sync(ours)

    def segment(location: str) -> SegmentFile:
        footer = read_footer(target.engine, location)
        number = int(location[len(prefix) :].partition("/")[0].removeprefix(f"{PARTITION}="))
        return SegmentFile(number, location, footer.num_rows, objects[location], *_times(footer))

    with ThreadPoolExecutor(_THREADS, "lakeward-footer") as threads:
        return [each for each in threads.map(segment, ours) if each.records]


def _times(footer: pq.FileMetaData) -> tuple[int | None, int | None]:
    """The first and last time in a file, in milliseconds, by its statistics."""
    index = footer.schema.names.index(TIMESTAMP)
    bounds = [footer.row_group(i).column(index).statistics for i in range(footer.num_row_groups)]
    if not bounds or any(each is None or not each.has_min_max for each in bounds):
        return None, None
    first, last = min(each.min for each in bounds), max(each.max for each in bounds)
    return epoch_ms(first), epoch_ms(last)


# Reading ------------------------------------------------------------------------------------------------------------------
def read_dataframe(spark: SparkSession, topic: Topic, slices: Sequence[Slice]) -> DataFrame:
    """The records of slices: topic, partition, offset, timestamp, key, value, headers."""
    from pyspark.sql import DataFrame

    if not slices:
        return spark.createDataFrame([], _result_schema(topic)).select(*COLUMNS)
    # Without partitions taken from folders' names.
    reader = spark.read.schema(spark_schema(topic)).option("recursiveFileLookup", "true")
    paths = [slice_.segment.location for slice_ in slices]
    files = reader.parquet(*paths)
    names = _as_spark_names(paths, files.inputFiles())
    _check_spelling(files, set(names.values()))
    by_name = {names[slice_.segment.location]: slice_ for slice_ in slices}
    groups = told_apart(by_name)
    if len(groups) == 1:
        return _records(topic, files, by_name)
    parts = [{name: by_name[name] for name in group} for group in groups]
    frames = [_records(topic, reader.parquet(*(s.segment.location for s in part.values())), part) for part in parts]
    return reduce(DataFrame.unionAll, frames)


def _records(topic: Topic, files: DataFrame, slices: Mapping[str, Slice]) -> DataFrame:
    from pyspark.sql import functions as F

    constants = {
        name: {"part": s.segment.partition_id, "base": s.segment.base_offset, "first": s.first, "end": s.end}
        for name, s in slices.items()
    }
    placed = with_file_constants(files, constants)
    offset = F.col("base") + F.col(ROW)
    if any(s.first > s.segment.base_offset or s.end <= s.segment.end_offset for s in slices.values()):
        placed = placed.where((offset >= F.col("first")) & (offset < F.col("end")))
    return placed.select(
        F.lit(topic.name).alias("topic"),
        F.col("part").cast("int").alias(PARTITION),
        offset.alias("offset"),
        TIMESTAMP,
        KEY,
        VALUE,
        HEADERS,
    )


def _check_spelling(files: DataFrame, expected: set[str]) -> None:
    """Once for each kind of storage: a file whose name Spark spells in a way that was not foreseen would vanish in silence.

    Raises InvalidInput.
    """
    scheme = next(iter(expected)).partition(":")[0]
    if scheme in _spelled:
        return
    row = files.select("_metadata.file_path").first()
    if row is None or row[0] not in expected:
        raise InvalidInput(f"this Spark names files in a way that is not known ({row}); read with lake.log.scan")
    _spelled.add(scheme)


_spelled: set[str] = set()


def _result_schema(topic: Topic) -> str:
    types = {field.name: field.dataType.simpleString() for field in spark_schema(topic)}
    return f"topic string, {PARTITION} int, offset bigint, " + ", ".join(f"{n} {t}" for n, t in types.items())


def _as_spark_names(locations: Sequence[str], named: Sequence[str]) -> dict[str, str]:
    """Each location as Spark's _metadata.file_path has it: percent-encoded, and as many slashes as it likes."""
    # Its names of input files have three slashes where _metadata has one.
    by_path = {_plain(unquote(name)): name.replace("file:///", "file:/", 1) for name in named}
    missing = next((location for location in locations if _plain(location) not in by_path), None)
    if missing is not None:
        raise InvalidInput(f"Spark does not see the file {missing}; does it reach the storage that the log is on?")
    return {location: by_path[_plain(location)] for location in locations}


def _plain(location: str) -> str:
    return LOCAL_SCHEME + "/" + location.removeprefix("file:").lstrip("/") if location.startswith("file:") else location
