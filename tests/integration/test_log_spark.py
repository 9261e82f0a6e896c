"""The log on Spark: DataFrames appended, ranges read by Spark's own reader, and the data source in batches and streams."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import lakeward
from lakeward import MetadataStore, TopicConfig
from lakeward.errors import DataLoss, FileRefused
from lakeward.log.file_constants import with_file_constants
from lakeward.ops import error_log, runs
from lakeward.ops.records.operations import SyncMode, SyncRunStatistics, SyncStatus
from lakeward.storage.locations import local_path
from tests.support.checksums import of_one_checksum
from tests.support.lakes import open_lake
from tests.support.waiting import until


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lakeward.Lake]:
    """In a folder whose name Spark encodes."""
    with open_lake(str(tmp_path / "registry.db"), tmp_path / "an ödd folder") as opened:
        MetadataStore(opened).create_topic(TopicConfig("orders", 3))
        yield opened


@pytest.fixture
def options(lake: lakeward.Lake) -> dict[str, str]:
    settings = lake.settings
    return {"registry": settings.registry, "warehouse": settings.warehouse, "subscribe": "orders"}


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    chosen = frame.selectExpr("partition", "offset", "cast(key AS string)", "cast(value AS string)")
    return sorted(tuple(row) for row in chosen.collect())


def scanned(lake: lakeward.Lake, **range_: Any) -> list[tuple[Any, ...]]:
    found = [row for batch in lake.log.scan("orders", **range_) for row in batch.to_pylist()]
    return sorted((r["partition"], r["offset"], (r["key"] or b"").decode() or None, r["value"].decode()) for r in found)


def numbered(count: int) -> list[dict[str, Any]]:
    return [{"key": str(i), "value": f"v{i}", "headers": {"h": str(i)}} for i in range(count)]


def test_spark_reads_the_very_records_that_were_appended(lake: lakeward.Lake, spark: SparkSession) -> None:
    for _ in range(3):
        lake.log.append("orders", numbered(50))
    frame = lake.log.read(spark, "orders")
    assert frame.columns == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    assert rows(frame) == scanned(lake)
    assert frame.where("headers[0].key = 'h' AND cast(headers[0].value AS string) = cast(key AS string)").count() == 150
    for start, end in ((5, 17), ({0: 3, 2: 1}, {0: 20}), ("earliest", 1), ("latest", "latest")):
        assert rows(lake.log.read(spark, "orders", start, end)) == scanned(lake, start=start, end=end)


def test_merged_segments_and_those_after_a_deletion_keep_their_offsets(
    lake: lakeward.Lake, spark: SparkSession
) -> None:
    for _ in range(4):
        lake.log.append("orders", numbered(20), partition=1)
    before = rows(lake.log.read(spark, "orders"))
    assert lake.log.compact_segments("orders").before == 4
    assert rows(lake.log.read(spark, "orders")) == before
    lake.log.append("orders", ["last"], partition=1)
    MetadataStore(lake).delete_segments_before("orders", 1, 80)
    assert rows(lake.log.read(spark, "orders")) == [(1, 80, None, "last")]
    with pytest.raises(DataLoss):
        lake.log.read(spark, "orders", 5)


def test_a_dataframe_is_appended_by_the_same_keys_and_leaves_nothing_but_segments(
    lake: lakeward.Lake, spark: SparkSession
) -> None:
    lake.log.append("orders", numbered(100))
    frame = spark.range(100).selectExpr("cast(id AS string) AS key", "concat('w', id) AS value")
    result = lake.log.append("orders", frame, producer=("job", 1))
    assert result.records == 100
    assert lake.log.append("orders", frame, producer=("job", 1)).replayed
    found = scanned(lake)
    assert len(found) == 200
    assert len({(partition, key) for partition, _, key, _ in found}) == 100
    store = MetadataStore(lake)
    topic = store.get_topic("orders")
    assert topic is not None
    files = {each.location for p in range(3) for each in store.get_segments("orders", p)}
    assert {info.location for info in lake.registry.engine(topic.location).list(topic.location + "/")} == files
    times = [s for p in range(3) for s in store.get_segments("orders", p)]
    assert all(s.first_timestamp is not None and s.last_timestamp is not None for s in times)
    assert rows(lake.log.read(spark, "orders")) == found


def test_a_dataframe_may_say_where_its_records_go(lake: lakeward.Lake, spark: SparkSession) -> None:
    frame = spark.range(10).selectExpr("'k' AS key", "cast(id AS string) AS value", "cast(id % 3 AS int) AS partition")
    lake.log.append("orders", frame)
    assert {partition: value for partition, _, _, value in scanned(lake) if int(value) < 3} == {0: "0", 1: "1", 2: "2"}
    lake.log.append("orders", spark.range(3).selectExpr("cast(id AS string) AS value"), partition=2)
    for wrong in ("1 AS value", "'x' AS valve", "'x' AS value, 1 AS key", "'x' AS value, 5 AS extra"):
        with pytest.raises(FileRefused):
            lake.log.append("orders", spark.range(1).selectExpr(*wrong.split(", ")))
    with pytest.raises(PySparkException, match="has no partition 7"):
        lake.log.append("orders", spark.range(1).selectExpr("'x' AS value", "7 AS partition"))
    assert len(scanned(lake)) == 13
    lake.recover()
    lake.recover()


def test_declared_values_are_columns(lake: lakeward.Lake, spark: SparkSession) -> None:
    MetadataStore(lake).create_topic(TopicConfig("typed", value_schema={"id": "long", "name": "string"}))
    lake.log.append("typed", [{"id": 1, "name": "a"}])
    lake.log.append("typed", spark.range(2, 4).selectExpr("named_struct('id', id, 'name', 'b') AS value"))
    found = lake.log.read(spark, "typed").selectExpr("value.*").collect()
    assert sorted((row.id, row.name) for row in found) == [(1, "a"), (2, "b"), (3, "b")]


# The data source ----------------------------------------------------------------------------------------------------------
def test_the_format_reads_batches_with_the_options_of_kafkas(
    lake: lakeward.Lake, spark: SparkSession, options: dict[str, str]
) -> None:
    lake.log.append("orders", numbered(60))
    reader = spark.read.format("lakeward").options(**options)
    whole = reader.load()
    assert whole.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert rows(whole) == scanned(lake)
    starting, ending = '{"orders": {"0": 3, "1": -2, "2": -1}}', '{"orders": {"0": 9, "1": 2}}'
    part = reader.option("startingOffsets", starting).option("endingOffsets", ending).load()
    assert rows(part) == scanned(lake, start={0: 3, 1: -2, 2: -1}, end={0: 9, 1: 2, 2: -1})
    assert rows(spark.read.format("lakeward").options(**{**options, "subscribe": ""}).load("orders")) == scanned(lake)
    # What was loaded means that topic, not one made under its name since.
    unread = spark.read.format("lakeward").options(**options).load()
    MetadataStore(lake).delete_topic("orders")
    MetadataStore(lake).create_topic(TopicConfig("orders", 3))
    lake.log.append("orders", numbered(5))
    with pytest.raises(PySparkException, match="orders was deleted and made again"):
        unread.count()
    assert rows(spark.read.format("lakeward").options(**options).load()) == scanned(lake)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"startingOffsets": "soon"}, "neither 'earliest' nor 'latest' nor JSON"),
        ({"startingOffsets": '{"orders": {"9": 0}}'}, "names partition 9"),
        ({"failOnDataLoss": "maybe"}, "must be `true` or `false`"),
        ({"maxOffsetsPerTrigger": "0", "group": "g"}, "a whole number, 1 or more"),
        ({"maxOffsetsPerTrigger": "5"}, "needs a group"),
        ({"subscribe": "none"}, "Topic does not exist: none"),
        ({"subscribe": " "}, "say what to read"),
        ({"subscribr": "orders"}, "option 'subscribr' is not known"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(
    lake: lakeward.Lake, spark: SparkSession, options: dict[str, str], wrong: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        spark.read.format("lakeward").options(**{**options, **wrong}).load().count()


def run_stream(spark: SparkSession, folder: Path, options: dict[str, str]) -> list[int]:
    """Read all there is into Parquet files; how many records each batch had."""
    source = spark.readStream.format("lakeward").options(**options).load()
    rows_of = source.selectExpr("partition", "offset", "cast(key AS string) AS key", "cast(value AS string) AS value")
    writer = rows_of.writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    try:
        query.processAllAvailable()
        progress = [json.loads(each.json) if hasattr(each, "json") else each for each in query.recentProgress]
        return [each["numInputRows"] for each in progress if each["numInputRows"]]
    finally:
        query.stop()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_stream_goes_on_after_a_restart_and_reads_each_record_once(
    lake: lakeward.Lake, spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    options = {**options, "startingOffsets": "earliest", "group": "query", "maxOffsetsPerTrigger": "40"}
    store = MetadataStore(lake)
    lake.log.append("orders", numbered(100))
    assert run_stream(spark, tmp_path, options) == [40, 40, 20]
    assert sum(each.lag for each in store.lag("query")) == 20  # the last batch is committed with the next one
    lake.log.append("orders", numbered(30))
    store.update_topic_config("orders", partition_count=4)
    lake.log.append("orders", ["in a new partition"], partition=3)
    assert sum(run_stream(spark, tmp_path, options)) == 31
    out = spark.read.parquet(str(tmp_path / "out"))
    assert sorted(tuple(row) for row in out.select("partition", "offset", "key", "value").collect()) == scanned(lake)
    # What is lost is told, and a topic made again is another one.
    store.delete_segments_before("orders", 0, 1_000)
    lake.log.append("orders", numbered(30))
    assert sum(run_stream(spark, tmp_path, options)) == 30
    store.delete_topic("orders")
    store.create_topic(TopicConfig("orders", 4))
    lake.log.append("orders", numbered(30))
    with pytest.raises(PySparkException, match="start the query with a new checkpoint"):
        run_stream(spark, tmp_path, options)


@pytest.mark.slow
def test_a_stream_that_is_run_to_the_end_reads_what_there_is_in_bounded_batches_whatever_is_appended_meanwhile(
    lake: lakeward.Lake, spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    options = {**options, "startingOffsets": "earliest", "group": "query", "maxOffsetsPerTrigger": "40"}
    options["endingOffsets"] = "latest"
    lake.log.append("orders", numbered(100))
    sizes: list[int] = []

    def append_more(batch: DataFrame, _id: int) -> None:
        sizes.append(batch.count())
        lake.log.append("orders", numbered(10))

    def run() -> list[int]:
        frame = spark.readStream.format("lakeward").options(**options).load()
        writer = frame.writeStream.foreachBatch(append_more).option("checkpointLocation", str(tmp_path / "checkpoint"))
        return [each["numInputRows"] for each in lake.log.run_to_end(writer)]

    assert run() == sizes == [40, 40, 20]
    assert run() == [30], "what was appended while the first one ran"
    assert run() == [10]


@pytest.mark.slow
def test_a_stream_ends_at_latest_or_nowhere(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="a stream ends nowhere, or at 'latest'"):
        run_stream(spark, tmp_path, {**options, "endingOffsets": '{"orders": {"0": 5}}'})


def test_an_append_of_a_dataframe_to_the_log_is_a_run(lake: lakeward.Lake, spark: SparkSession) -> None:
    frame = spark.range(10).selectExpr("cast(id AS string) AS value")
    result = lake.log.append("orders", frame, producer=("p", 1))
    assert lake.log.append("orders", frame, producer=("p", 1)).replayed
    with pytest.raises(FileRefused):
        lake.log.append("orders", frame.withColumnRenamed("value", "odd"))
    failed, replayed, done = runs.list_runs(lake.registry)
    assert (done.status, done.sync_mode, done.schema_name) == (SyncStatus.COMPLETED, SyncMode.BATCH, "orders")
    assert done.statistics == SyncRunStatistics(10, 10, bytes_processed=result.bytes)
    assert (done.source_info, done.destination_info) == ({"kind": "dataframe"}, {"topic": "orders"})
    assert (replayed.status, replayed.records_processed) == (SyncStatus.COMPLETED, 0)
    assert failed.status == SyncStatus.FAILED
    assert [error.sync_run_id for error in error_log.list_errors(lake.registry)] == [failed.id]


@pytest.mark.slow
def test_a_stream_of_a_group_is_a_run_that_counts_what_is_committed_and_ends_with_the_query(
    lake: lakeward.Lake, spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    options = {**options, "startingOffsets": "earliest", "group": "query", "maxOffsetsPerTrigger": "40"}
    lake.log.append("orders", numbered(100))
    assert run_stream(spark, tmp_path, options) == [40, 40, 20]
    (run,) = runs.list_runs(lake.registry)
    until(lambda: runs.get(lake.registry, run.id).status != SyncStatus.RUNNING)
    run = runs.get(lake.registry, run.id)
    assert run.status == SyncStatus.COMPLETED
    assert run.records_processed == 80, "the last batch is committed with the next one"
    assert (run.schema_name, run.sync_mode) == ("orders", SyncMode.STREAM)
    assert run.destination_info == {"group": "query", "engine": "spark"}


@pytest.mark.slow
def test_a_stream_below_the_log_fails_or_skips_as_it_is_told(
    lake: lakeward.Lake, spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    options = {**options, "startingOffsets": "earliest"}
    for start in range(3):
        lake.log.append("orders", [f"{start}-{i}" for i in range(10)], partition=0)
    assert run_stream(spark, tmp_path, options) == [30]
    for start in range(3, 6):
        lake.log.append("orders", [f"{start}-{i}" for i in range(10)], partition=0)
    MetadataStore(lake).delete_segments_before("orders", 0, 40)
    with pytest.raises(PySparkException, match="offsets 30 to 39 cannot be read"):
        run_stream(spark, tmp_path, options)
    assert run_stream(spark, tmp_path, {**options, "failOnDataLoss": "false"}) == [20]
    segment = next(iter(MetadataStore(lake).get_segments("orders", 0)))
    Path(local_path(segment.location)).unlink()
    batch = spark.read.format("lakeward").options(**options)
    with pytest.raises(PySparkException, match="is missing"):
        batch.load().count()
    assert batch.option("failOnDataLoss", "false").load().count() == 10


def test_segments_whose_names_have_one_checksum_keep_their_own_offsets(
    lake: lakeward.Lake, spark: SparkSession, tmp_path: Path
) -> None:
    lake.log.append("orders", ["first", "second"], partition=0)
    store = MetadataStore(lake)
    (written,) = store.get_segments("orders", 0)
    folder = tmp_path / "outside"
    folder.mkdir()
    texts = of_one_checksum(lambda text: f"file:{folder}/{text}.parquet")  # as Spark names files
    for place, text in enumerate(texts, 1):
        location = f"file://{folder}/{text}.parquet"
        shutil.copy(local_path(written.location), local_path(location))
        store.add_segment(
            msgspec.structs.replace(written, partition_id=place, base_offset=0, end_offset=1, location=location)
        )
    assert rows(lake.log.read(spark, "orders")) == [
        (partition, offset, None, value) for partition in range(3) for offset, value in enumerate(("first", "second"))
    ]


def test_a_file_of_which_nothing_is_known_ends_the_job(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "files"))
    frame = with_file_constants(spark.read.parquet(str(tmp_path / "files")), {"file:/another": {"base": 7}})
    with pytest.raises(PySparkException, match=r"nothing is known of the file .*files/part-"):
        frame.collect()
