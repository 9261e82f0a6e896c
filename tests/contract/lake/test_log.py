"""The log: records appended are read once each, in order, whatever happens to segments meanwhile. On both databases."""

from __future__ import annotations

import gc
import pickle
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from lakeward import Lake, MetadataStore, TopicConfig
from lakeward.db import dialect
from lakeward.errors import (
    CommitUnknown,
    ConsumerGroupNotFound,
    DataLoss,
    FileRefused,
    IntentLost,
    InvalidInput,
    InvalidOffset,
    PartitionNotFound,
    StorageError,
    TopicNotFound,
)
from lakeward.log import compact as log_compact
from lakeward.log import consumer as consumer_module
from lakeward.log import groups, topics
from lakeward.log import registration as log
from lakeward.log import segments as segments_registry
from lakeward.log import source as log_source
from lakeward.log.consumer import offset_at
from lakeward.log.records import SegmentInfo, Topic, TopicRef
from lakeward.log.write import segment_target, write_records
from lakeward.ops import error_log, run_recorder, runs
from lakeward.ops.records.operations import ErrorType, OperationType, SyncMode, SyncStatus
from lakeward.ops.run_recorder import Recorder
from lakeward.registry import Registry, intents
from lakeward.registry.sql import intents as intent_store
from lakeward.storage.locations import local_path
from tests.contract.db import processes
from tests.support.lakes import open_lake
from tests.support.registries import rows_of
from tests.support.waiting import until

TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path, durable=False) as opened:
        MetadataStore(opened).create_topic(TopicConfig("orders", 3))
        yield opened


def values(lake: Lake, topic: str = "orders", **range_: Any) -> dict[int, list[tuple[int, Any]]]:
    """By partition: (offset, value), as read."""
    found: dict[int, list[tuple[int, Any]]] = {}
    for batch in lake.log.scan(topic, **range_):
        for row in batch.to_pylist():
            found.setdefault(row["partition"], []).append((row["offset"], row["value"]))
    return found


def numbered(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"key": str(i), "value": str(i)} for i in range(start, start + count)]


def objects(lake: Lake, topic: str = "orders") -> set[str]:
    location = topics.load(lake.registry, topic).location + "/"
    return {info.location for info in lake.registry.engine(location).list(location)}


# Appending ----------------------------------------------------------------------------------------------------------------
def test_records_come_back_as_they_were_given(lake: Lake) -> None:
    given = [
        {"key": b"k", "value": b"\x00\xff", "timestamp": TIME, "headers": [("h", b"1"), ("h", None)]},
        {"key": "text", "value": "ü", "headers": {"a": "b"}},
        {"value": None},
        b"alone",
        "text alone",
    ]
    result = lake.log.append("orders", given, partition=1)
    assert (result.records, [(s.partition_id, s.base_offset, s.end_offset) for s in result.segments]) == (
        5,
        [(1, 0, 4)],
    )
    (batch,) = lake.log.scan("orders")
    rows = batch.to_pylist()
    assert [row["offset"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["key"] for row in rows] == [b"k", b"text", None, None, None]
    assert [row["value"] for row in rows] == [b"\x00\xff", "ü".encode(), None, b"alone", b"text alone"]
    assert rows[0]["timestamp"] == TIME and abs(rows[1]["timestamp"] - datetime.now(UTC)) < timedelta(minutes=5)
    assert rows[0]["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert rows[1]["headers"] == [{"key": "a", "value": b"b"}] and rows[2]["headers"] is None


def test_arrow_rows_and_readers_are_the_same_records(lake: Lake) -> None:
    table = pa.table({"key": ["a", "b"], "value": [b"1", b"2"]})
    for data in (table, table.to_reader(), table.to_batches()[0], table.to_pylist(), iter(table.to_pylist())):
        lake.log.append("orders", data, partition=0)
    lake.log.append("orders", {"key": "a", "value": "1"}, partition=0)
    assert [value for _, value in values(lake)[0]] == [b"1", b"2"] * 5 + [b"1"]


def test_a_key_decides_the_partition_and_records_without_one_stay_together(lake: Lake) -> None:
    lake.log.append("orders", numbered(50))
    lake.log.append("orders", numbered(50))
    places: dict[bytes, set[int]] = {}
    for partition, found in values(lake).items():
        for _, value in found:
            places.setdefault(value, set()).add(partition)
    assert len(places) == 50 and all(len(each) == 1 for each in places.values())
    result = lake.log.append("orders", ["x"] * 20)
    assert len(result.segments) == 1
    (segment,) = lake.log.append("orders", ["x"], key="foobar").segments
    assert segment.partition_id == ((-790332482 & 0x7FFFFFFF) % 3)


def test_a_topic_may_declare_what_values_are(lake: Lake) -> None:
    store = MetadataStore(lake)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("tags", pa.list_(pa.string()))])
    store.create_topic(TopicConfig("typed", value_schema=schema))
    lake.log.append("typed", [{"key": "k", "value": {"id": 1, "tags": ["a"]}}, {"id": 2, "tags": None}])
    assert values(lake, "typed") == {0: [(0, {"id": 1, "tags": ["a"]}), (1, {"id": 2, "tags": None})]}
    for wrong in ({"id": "x", "tags": []}, {"other": 1}, {"id": None}):
        with pytest.raises(FileRefused):
            lake.log.append("typed", [{"value": wrong}])
    with pytest.raises(InvalidInput):
        store.create_topic(TopicConfig("wrong", value_schema={"a": "no type"}))


def test_offsets_go_on_where_they_ended_and_the_watermark_moves_with_them(lake: Lake) -> None:
    store = MetadataStore(lake)
    for start in (0, 3, 6):
        lake.log.append("orders", [str(start + i) for i in range(3)], partition=2)
        partition = store.get_partition("orders", 2)
        assert partition is not None and partition.high_watermark == start + 3
    assert values(lake) == {2: [(i, str(i).encode()) for i in range(9)]}
    assert [s.record_count for s in store.get_segments("orders", 2)] == [3, 3, 3]


def test_no_records_are_no_segment_and_no_error(lake: Lake) -> None:
    assert lake.log.append("orders", []).segments == []
    assert lake.log.append("orders", pa.table({"value": pa.array([], pa.binary())})).records == 0
    assert objects(lake) == set()
    assert rows_of(lake.registry, "pending_writes") == []


def test_an_append_under_a_key_happens_once(lake: Lake) -> None:
    first = lake.log.append("orders", numbered(10), producer=("p", 7))
    again = lake.log.append("orders", numbered(10), producer=("p", 7))
    assert (first.replayed, again.replayed, again.segments) == (False, True, first.segments)
    assert lake.log.append("orders", [], producer=("p", 8)).records == 0
    assert lake.log.append("orders", numbered(10), producer=("p", 8)).replayed
    assert sum(len(found) for found in values(lake).values()) == 10
    for wrong in (("p", -1), ("", 1), ("p", "1"), "p", ("p", 1 << 63)):
        with pytest.raises(InvalidInput, match="producer"):
            lake.log.append("orders", numbered(1), producer=wrong)  # type: ignore[arg-type]


def test_an_append_whose_commit_s_answer_is_lost_has_happened_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.log.append("orders", numbered(5))
    commits = lake.registry.group_commit
    commit = commits.commit

    def losing(*given: Any, **options: Any) -> Any:
        monkeypatch.setattr(commits, "commit", commit)
        commit(*given, **options)
        raise CommitUnknown("the connection broke in COMMIT")

    def written() -> Iterator[dict[str, Any]]:
        yield from numbered(10)
        monkeypatch.setattr(commits, "commit", losing)  # the next commit is the registration's

    monkeypatch.setattr(intents, "SETTLE_WAIT_SECONDS", 0)
    made = lake.log.append("orders", written())
    assert commits.commit == commit  # it was lost
    assert (made.records, made.replayed, sum(each.end_offset - each.base_offset + 1 for each in made.segments)) == (
        10,
        False,
        10,
    )
    assert sum(len(found) for found in values(lake).values()) == 15
    assert rows_of(lake.registry, "pending_writes") == []


def test_the_segments_of_a_topic_are_counted_and_their_bytes(lake: Lake) -> None:
    MetadataStore(lake).create_topic(TopicConfig("other", 1))
    topic, other = (topics.load(lake.registry, name) for name in ("orders", "other"))
    made = [lake.log.append("orders", numbered(count)) for count in (1, 20)]
    number = sum(len(each.segments) for each in made)
    assert segments_registry.count(lake.registry, topic) == (number, sum(each.bytes for each in made))
    assert segments_registry.count(lake.registry, other) == (0, 0)


def test_what_does_not_fit_is_refused_and_leaves_nothing(lake: Lake) -> None:
    for wrong in ([{"value": 1}], [{"valve": b"x"}], pa.table({"other": [1]}), 7):
        with pytest.raises(InvalidInput):
            lake.log.append("orders", wrong)
    with pytest.raises(PartitionNotFound):
        lake.log.append("orders", ["x"], partition=3)
    with pytest.raises(TopicNotFound):
        lake.log.append("none", ["x"])

    def failing() -> Iterator[dict[str, Any]]:
        yield from numbered(20_000)
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError):
        lake.log.append("orders", failing())
    assert (values(lake), objects(lake)) == ({}, set())
    assert rows_of(lake.registry, "pending_writes") == []


def test_an_append_whose_topic_is_deleted_meanwhile_leaves_nothing(lake: Lake) -> None:
    def deleting() -> Iterator[dict[str, Any]]:
        yield from numbered(5)
        MetadataStore(lake).delete_topic("orders")
        MetadataStore(lake).create_topic(TopicConfig("orders", 3))

    with pytest.raises((TopicNotFound, IntentLost)):
        lake.log.append("orders", deleting())
    assert values(lake) == {}
    lake.clean()
    lake.clean()
    assert len(rows_of(lake.registry, "topics")) == 1
    assert rows_of(lake.registry, "pending_writes") == []


def test_a_write_that_recovery_has_taken_registers_nothing_and_its_run_counts_nothing(lake: Lake) -> None:
    run = runs.start(lake.registry, "orders", SyncMode.BATCH)
    recorder = Recorder(lake.registry, "orders", SyncMode.BATCH, run=run)
    topic = topics.load(lake.registry, "orders")
    intent = intents.open_intent(lake.registry, topic)
    files = write_records(segment_target(topic, intent, lake.registry.engine(topic.location)), topic, numbered(5))
    with lake.registry.database.transaction() as connection:
        now = dialect.now(connection)
        intent_store.mark_recovered(connection, intent.intent_id, now, now)
    with pytest.raises(IntentLost):
        log.register(lake.registry, topic, intent, files, run=recorder)
    assert values(lake) == {}
    assert runs.get(lake.registry, run.id).records_inserted == 0
    intent = intents.open_intent(lake.registry, topic)
    files = write_records(segment_target(topic, intent, lake.registry.engine(topic.location)), topic, ["x"], 0)
    log.register(lake.registry, topic, intent, files, run=recorder)
    assert runs.get(lake.registry, run.id).records_inserted == 1
    assert values(lake) == {0: [(0, b"x")]}


def _append(url: str, folder: Path, name: str, count: int) -> None:
    with open_lake(url, folder, durable=False) as lake:
        for i in range(count):
            lake.log.append("orders", [f"{name}-{i}-{j}" for j in range(3)], partition=0, producer=(name, i))


def test_processes_that_append_to_one_partition_lose_and_double_nothing(
    lake: Lake, made_url: str, tmp_path: Path
) -> None:
    processes.expect_success(processes.start(_append, [(made_url, tmp_path, name, 40) for name in ("a", "b")]))
    found = values(lake)[0]
    assert [offset for offset, _ in found] == list(range(240))
    for name in ("a", "b"):
        mine = [value.decode() for _, value in found if value.startswith(name.encode())]
        assert mine == [f"{name}-{i}-{j}" for i in range(40) for j in range(3)]


def test_threads_that_send_one_key_at_once_append_it_once(lake: Lake) -> None:
    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda: results.append(lake.log.append("orders", numbered(9), producer=("p", 1))))
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.replayed for result in results) == [False, True, True, True, True]
    assert len({tuple(result.segments) for result in results}) == 1
    assert sum(len(found) for found in values(lake).values()) == 9


# Reading ------------------------------------------------------------------------------------------------------------------
@pytest.fixture
def filled(lake: Lake) -> Lake:
    """Partition 0: offsets 0 to 29 in segments of 10."""
    for start in (0, 10, 20):
        lake.log.append("orders", [str(i) for i in range(start, start + 10)], partition=0)
    return lake


def test_a_range_is_cut_to_its_very_offsets(filled: Lake) -> None:
    def offsets(**range_: Any) -> list[int]:
        return [offset for offset, _ in values(filled, **range_).get(0, [])]

    assert offsets(start=5, end=25) == list(range(5, 25))
    assert offsets(start=9, end=10) == [9]
    assert offsets(start={0: 28}) == [28, 29]
    assert offsets(end={0: 2}) == [0, 1]
    assert offsets(start=30) == offsets(start="latest") == offsets(start=5, end=5) == offsets(start=7, end=3) == []
    assert offsets(start=-2, end=-1) == list(range(30))
    for wrong in ("soon", {9: 0}, {0: "x"}, -3):
        with pytest.raises(InvalidOffset):
            offsets(start=wrong)


def test_a_segments_file_that_is_missing_or_cut_short_is_named_or_skipped(filled: Lake) -> None:
    segments = list(MetadataStore(filled).get_segments("orders", 0))
    missing, short = local_path(segments[0].location), local_path(segments[1].location)
    Path(missing).unlink()
    with pytest.raises(DataLoss, match=r"offsets 0 to 9 cannot be read: the file .* is missing") as lost:
        values(filled)
    assert segments[0].location in str(lost.value)
    assert [offset for offset, _ in values(filled, start=10)[0]] == list(range(10, 30))
    Path(short).write_bytes(Path(short).read_bytes()[:100])
    with pytest.raises(DataLoss, match="has 100 bytes"):
        values(filled, start=10)
    assert [offset for offset, _ in values(filled, fail_on_data_loss=False)[0]] == list(range(20, 30))
    consumer = filled.log.consumer("orders", fail_on_data_loss=False)
    assert [record.offset for record in consumer.poll()] == list(range(20, 30))


def test_what_is_before_the_log_is_lost_or_skipped_and_never_jumped_over_in_silence(filled: Lake) -> None:
    MetadataStore(filled).delete_segments_before("orders", 0, 10)
    with pytest.raises(DataLoss, match="offsets 5 to 9 cannot be read: the log starts at 10"):
        values(filled, start=5)
    assert [offset for offset, _ in values(filled, start=5, fail_on_data_loss=False)[0]] == list(range(10, 30))
    assert [offset for offset, _ in values(filled)[0]] == list(range(10, 30))


# Consuming ----------------------------------------------------------------------------------------------------------------
def test_a_consumer_reads_on_where_its_group_has_committed(filled: Lake) -> None:
    with filled.log.consumer("orders", "g") as consumer:
        assert [record.offset for record in consumer.poll(12)] == list(range(12))
        consumer.commit()
        assert len(consumer.poll(5)) == 5  # not committed
    with filled.log.consumer("orders", "g") as consumer:
        records = consumer.poll(100)
        assert [record.offset for record in records] == list(range(12, 30))
        assert (records[0].value, records[0].topic, records[0].partition, records[0].headers) == (
            b"12",
            "orders",
            0,
            [],
        )
        assert consumer.poll() == []
        consumer.commit()
    assert MetadataStore(filled).lag("g")[0].lag == 0
    filled.log.append("orders", ["new"], partition=0)
    with filled.log.consumer("orders", "g") as consumer:
        assert [record.value for record in consumer.poll(timeout=1)] == [b"new"]


def test_a_consumer_reads_all_partitions_and_topics_and_waits(lake: Lake) -> None:
    MetadataStore(lake).create_topic(TopicConfig("other"))
    consumer = lake.log.consumer(["orders", "other"], start="latest")

    def later() -> None:
        time.sleep(0.2)
        lake.log.append("other", ["late"])

    lake.log.append("orders", numbered(30))
    thread = threading.Thread(target=later)
    thread.start()
    found = [record.value for record in consumer.poll(100)]
    assert sorted(found) == sorted(str(i).encode() for i in range(30))
    assert [record.value for record in consumer.poll(timeout=30)] == [b"late"]
    thread.join()
    assert lake.log.consumer("orders", partitions=[1]).positions.keys() == {("orders", 1)}


def test_a_consumer_seeks_by_offset_and_by_time(lake: Lake) -> None:
    for minute in range(6):
        rows = [{"value": f"{minute}-{i}", "timestamp": TIME + timedelta(minutes=minute, seconds=i)} for i in range(3)]
        lake.log.append("orders", rows, partition=0)
    consumer = lake.log.consumer("orders")
    consumer.poll()
    consumer.seek("orders", 0, 4)
    assert [record.value for record in consumer.poll(2)] == [b"1-1", b"1-2"]
    consumer.seek_to_time(TIME + timedelta(minutes=3, seconds=1))
    assert consumer.poll(1)[0].value == b"3-1"
    consumer.seek_to_time(TIME + timedelta(days=1))
    assert consumer.poll() == []
    assert offset_at(lake.registry, "orders", 0, TIME - timedelta(days=1)) == 0
    for wrong in (("orders", 9, 0), ("none", 0, 0), ("orders", 0, -1)):
        with pytest.raises(InvalidOffset):
            consumer.seek(*wrong)
    with pytest.raises(InvalidInput, match="zone"):
        consumer.seek_to_time(datetime(2026, 1, 1))
    with pytest.raises(InvalidInput, match="group"):
        consumer.commit()


def test_a_consumer_below_the_start_of_the_log_says_so_or_goes_on(filled: Lake) -> None:
    strict, lax = filled.log.consumer("orders"), filled.log.consumer("orders", fail_on_data_loss=False)
    MetadataStore(filled).delete_segments_before("orders", 0, 20)
    with pytest.raises(DataLoss, match="offsets 0 to 19"):
        strict.poll()
    assert [record.offset for record in lax.poll()] == list(range(20, 30))


def test_a_poll_that_raises_moves_nothing_and_the_next_one_gives_the_same_records(filled: Lake) -> None:
    (_, second, _) = MetadataStore(filled).get_segments("orders", 0)
    path = Path(local_path(second.location))
    with filled.log.consumer("orders", "g") as consumer:
        consumer.poll(3)
        path.rename(path.with_suffix(".away"))
        for _ in range(2):
            with pytest.raises(DataLoss):
                consumer.poll()
        assert consumer.offsets["orders", 0] == 3
        consumer.commit()
        path.with_suffix(".away").rename(path)
        assert [record.offset for record in consumer.poll()] == list(range(3, 30))
    assert MetadataStore(filled).get_committed_offset("g", "orders", 0) == 3


def test_a_poll_that_is_interrupted_moves_nothing_either(filled: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(BaseException):
        pass

    def interrupted(_slices: object, _engine: object, **_: object) -> list[Any]:
        raise Interrupted

    consumer = filled.log.consumer("orders")
    consumer.poll(8)
    with monkeypatch.context() as patched:
        patched.setattr(consumer_module, "check_files", interrupted)
        with pytest.raises(Interrupted):
            consumer.poll()
    assert [record.offset for record in consumer.poll()] == list(range(8, 30))


def test_a_seek_to_a_time_that_cannot_be_read_moves_no_position(lake: Lake) -> None:
    for number in (0, 1):
        lake.log.append("orders", [{"value": "v", "timestamp": TIME}], partition=number)
    (segment,) = MetadataStore(lake).get_segments("orders", 1)
    consumer = lake.log.consumer("orders")
    consumer.poll()
    before = consumer.offsets
    Path(local_path(segment.location)).unlink()
    with pytest.raises(StorageError):
        consumer.seek_to_time(TIME)
    assert consumer.offsets == before


def test_a_consumer_goes_on_after_any_number_of_lost_segments(lake: Lake) -> None:
    lost = [
        SegmentInfo(
            topic="orders",
            partition_id=0,
            base_offset=offset,
            end_offset=offset,
            record_count=1,
            size_bytes=1,
            location=f"file:///nowhere/{offset}.parquet",
        )
        for offset in range(sys.getrecursionlimit() + 100)
    ]
    MetadataStore(lake).add_segments(lost)
    lake.log.append("orders", ["there"], partition=0)
    consumer = lake.log.consumer("orders", fail_on_data_loss=False)
    assert [record.value for record in consumer.poll()] == [b"there"]


def test_what_a_consumer_reads_between_two_looks_at_its_topic_is_never_another_topics(
    filled: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = filled.log.consumer("orders", "g")
    consumer.poll(5)
    store = MetadataStore(filled)
    load = topics.load

    def made_again_after(registry: Registry, topic: TopicRef) -> Topic:
        patched.undo()
        found = load(registry, topic)
        store.delete_topic("orders")
        store.create_topic(TopicConfig("orders", 3))
        filled.log.append("orders", numbered(40), partition=0)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(topics, "load", made_again_after)
        with pytest.raises(TopicNotFound):
            consumer.poll(100)


def test_a_commit_never_goes_to_a_group_made_again_under_the_name(filled: Lake) -> None:
    store = MetadataStore(filled)
    consumer = filled.log.consumer("orders", "g")
    consumer.poll(5)
    consumer.commit()
    store.delete_consumer_group("g")
    store.commit_offset("g", "orders", 0, 20)
    with pytest.raises(ConsumerGroupNotFound, match="deleted while it was in use"):
        consumer.commit()
    assert store.get_committed_offset("g", "orders", 0) == 20


def test_a_topic_given_by_its_record_is_that_very_one(filled: Lake) -> None:
    store, registry = MetadataStore(filled), filled.registry
    old = topics.load(registry, "orders")
    store.commit_offset("g", "orders", 0, 3)
    store.delete_topic("orders")
    store.create_topic(TopicConfig("orders", 3))
    filled.log.append("orders", numbered(5), partition=0)
    store.commit_offset("g", "orders", 0, 2)
    assert topics.get(registry, old) is None and topics.get_partition(registry, old, 0) is None
    assert segments_registry.find(registry, old, 0, 1) is None and groups.committed(registry, "g", old, 0) is None
    for refused in (
        lambda: topics.load(registry, old),
        lambda: topics.list_partitions(registry, old),
        lambda: topics.update(registry, old, config={"a": "b"}),
        lambda: topics.delete(registry, old),
        lambda: groups.offsets(registry, "g", old),
        lambda: groups.commit_read(registry, "g", [(old, {0: 1})]),
        lambda: list(segments_registry.iterate(registry, old, 0)),
        lambda: offset_at(registry, old, 0, TIME),
    ):
        with pytest.raises(TopicNotFound, match="made again"):
            refused()
    assert store.get_committed_offset("g", "orders", 0) == 2


def test_segments_of_a_topic_that_is_deleted_meanwhile_do_not_end_early_in_silence(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments_registry, "PAGE", 2)
    for _ in range(4):
        lake.log.append("orders", ["v"], partition=0)
    found = iter(MetadataStore(lake).get_segments("orders", 0))
    assert [next(found).base_offset, next(found).base_offset] == [0, 1]
    MetadataStore(lake).delete_topic("orders")
    with pytest.raises(TopicNotFound):
        next(found)


def source_of(lake: Lake, **options: str) -> log_source.LogSource:
    settings = lake.registry.settings
    where = {"registry": str(settings.registry), "warehouse": str(settings.warehouse)}
    return log_source.LogSource({"subscribe": "orders", **options, **where})


def test_a_stream_s_commit_never_goes_to_a_topic_made_again_under_the_name(filled: Lake) -> None:
    store = MetadataStore(filled)
    reader = source_of(filled, group="g", startingOffsets="earliest").streamReader(StructType())
    start, end = reader.initialOffset(), reader.latestOffset()
    reader.partitions(start, end)
    store.delete_topic("orders")
    store.create_topic(TopicConfig("orders", 3))
    with pytest.raises(TopicNotFound, match="made again"):
        reader.commit(end)
    reader.stop()
    assert store.get_committed_offset("g", "orders", 0) is None


def test_a_source_goes_on_reading_the_topic_that_it_found_as_it_was_loaded(filled: Lake) -> None:
    store = MetadataStore(filled)
    loaded = pickle.loads(pickle.dumps(source_of(filled)))  # as Spark hands it on from load to the action
    assert loaded.reader(loaded.schema()).partitions()
    store.delete_topic("orders")
    with pytest.raises(TopicNotFound, match="was deleted"):
        loaded.reader(StructType()).partitions()
    store.create_topic(TopicConfig("orders", 3))
    filled.log.append("orders", ["another"], partition=0)
    for call in (loaded.reader(StructType()).partitions, loaded.streamReader(StructType()).initialOffset):
        with pytest.raises(TopicNotFound, match="made again; to go on with the new one, open it anew"):
            call()
    assert source_of(filled).reader(StructType()).partitions()


def test_a_consumer_of_a_topic_that_was_made_again_reads_nothing_of_it(filled: Lake) -> None:
    consumer = filled.log.consumer("orders", "g")
    consumer.poll(5)
    MetadataStore(filled).delete_topic("orders")
    MetadataStore(filled).create_topic(TopicConfig("orders", 3))
    filled.log.append("orders", ["another"], partition=0)
    for call in (consumer.poll, consumer.commit):
        with pytest.raises(TopicNotFound, match="made again"):
            call()
    assert MetadataStore(filled).list_consumer_groups() == []


# Retention ----------------------------------------------------------------------------------------------------------------
def old_and_new(lake: Lake) -> None:
    """Three segments of an hour ago, and one of now, in partition 0."""
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    for i in range(3):
        lake.log.append("orders", [{"value": str(i), "timestamp": hour_ago}], partition=0)
    lake.log.append("orders", ["new"], partition=0)


def test_records_past_their_time_go_and_younger_ones_stay(lake: Lake) -> None:
    old_and_new(lake)
    store = MetadataStore(lake)
    assert lake.log.enforce_retention().segments == 0  # kept for ever
    store.update_topic_config("orders", retention_ms=60_000)
    before = objects(lake)
    assert lake.log.enforce_retention("orders").segments == 3
    assert lake.log.enforce_retention().segments == 0
    assert values(lake) == {0: [(3, b"new")]}
    assert objects(lake) == before, "retired files wait in quarantine"
    lake.clean()
    assert len(objects(lake)) == 1
    with pytest.raises(TopicNotFound):
        lake.log.enforce_retention("none")


def test_a_segment_that_a_group_has_not_read_is_kept_however_old_unless_strict(lake: Lake) -> None:
    old_and_new(lake)
    store = MetadataStore(lake)
    store.update_topic_config("orders", retention_ms=60_000)
    store.commit_offset("slow", "orders", 0, 1)
    store.commit_offset("quick", "orders", 0, 4)
    result = lake.log.enforce_retention()
    assert result.segments == 1
    assert [(kept.topic, kept.partition_id, kept.group_id) for kept in result.kept] == [("orders", 0, "slow")]
    assert [offset for offset, _ in values(lake)[0]] == [1, 2, 3]
    store.update_topic_config("orders", {"retention.strict": "true"})
    assert lake.log.enforce_retention().segments == 2
    assert [offset for offset, _ in values(lake)[0]] == [3]


def test_a_young_segment_keeps_older_ones_after_it_out_of_a_hole(lake: Lake) -> None:
    lake.log.append("orders", ["new"], partition=0)
    lake.log.append("orders", [{"value": "old", "timestamp": TIME}], partition=0)
    MetadataStore(lake).update_topic_config("orders", retention_ms=60_000)
    assert lake.log.enforce_retention().segments == 0


# Merging ------------------------------------------------------------------------------------------------------------------
def test_small_neighbouring_segments_become_one_with_the_same_offsets(lake: Lake) -> None:
    for i in range(8):
        lake.log.append(
            "orders", [{"key": str(i), "value": f"{i}-{j}", "headers": {"h": "x"}} for j in range(5)], partition=0
        )
    lake.log.append("orders", ["other"], partition=1)
    before = [row for batch in lake.log.scan("orders") for row in batch.to_pylist()]
    result = lake.log.compact_segments("orders")
    assert (result.before, result.after) == (8, 1)
    (segment,) = MetadataStore(lake).get_segments("orders", 0)
    assert (segment.base_offset, segment.end_offset, segment.record_count) == (0, 39, 40)
    assert [row for batch in lake.log.scan("orders") for row in batch.to_pylist()] == before
    assert lake.log.compact_segments("orders").before == 0
    lake.log.append("orders", ["after"], partition=0)
    assert values(lake)[0][-1] == (40, b"after")
    lake.clean()
    assert len(objects(lake)) == 3
    assert [row for batch in lake.log.scan("orders", end={0: 40}) for row in batch.to_pylist()] == before


def test_merged_segments_are_no_larger_than_wanted_and_large_ones_stay(lake: Lake) -> None:
    sizes = []
    for i in range(6):
        result = lake.log.append("orders", [f"{i}-{j}-{hash((i, j))}" for j in range(200)], partition=0)
        sizes.append(result.bytes)
    assert lake.log.compact_segments("orders", target_bytes=sizes[0]).before == 0
    result2 = lake.log.compact_segments("orders", target_bytes=3 * max(sizes))
    assert (result2.before, result2.after) == (6, 2)
    assert len(values(lake)[0]) == 1200


def test_a_reader_in_the_middle_of_merged_segments_is_not_disturbed(filled: Lake) -> None:
    consumer = filled.log.consumer("orders")
    batches = filled.log.scan("orders")
    first = [record.offset for record in consumer.poll(3)]
    next(batches)
    assert filled.log.compact_segments("orders").before == 3
    rest = [record.offset for record in consumer.poll(100)]
    assert first + rest == list(range(30))
    assert sum(batch.num_rows for batch in batches) == 20


def test_a_merge_gives_way_to_a_change_that_was_quicker(filled: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    check = log_compact._check

    def delete_first(*arguments: Any) -> None:
        check(*arguments)
        MetadataStore(filled).delete_segments_before("orders", 0, 10)

    monkeypatch.setattr(log_compact, "_check", delete_first)
    before = objects(filled)
    assert filled.log.compact_segments("orders").after == 0
    assert [offset for offset, _ in values(filled)[0]] == list(range(10, 30))
    assert objects(filled) == before
    assert rows_of(filled.registry, "pending_writes") == []


def test_a_merged_file_that_differs_never_takes_the_place(filled: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    records = log_compact._records
    calls: list[int] = []

    def wrong_at_first(*arguments: Any) -> Iterator[pa.RecordBatch]:
        calls.append(1)
        for batch in records(*arguments):
            yield batch if len(calls) > 1 else batch.set_column(1, "value", pa.array([b"wrong"] * batch.num_rows))

    monkeypatch.setattr(log_compact, "_records", wrong_at_first)
    with pytest.raises(DataLoss, match="not what it was made of"):
        filled.log.compact_segments("orders")
    assert [value for _, value in values(filled)[0]] == [str(i).encode() for i in range(30)]


# Runs ---------------------------------------------------------------------------------------------------------------------
def test_a_consumer_of_a_group_is_a_run_from_its_first_poll_until_it_is_closed(filled: Lake) -> None:
    registry = filled.registry
    with filled.log.consumer("orders", "g") as consumer:
        assert runs.list_runs(registry) == []
        consumer.poll(12)
        (run,) = runs.list_runs(registry)
        assert (run.status, run.sync_mode, run.schema_name) == (SyncStatus.RUNNING, SyncMode.STREAM, "orders")
        assert run.destination_info == {"group": "g"}
        consumer.poll(5)
        consumer.commit()
    ended = runs.get(registry, run.id)
    assert (ended.status, ended.records_processed) == (SyncStatus.COMPLETED, 17)
    assert ended.bytes_processed == sum(len(str(i)) for i in range(17))


def test_a_consumer_without_a_group_is_no_run(filled: Lake) -> None:
    with filled.log.consumer("orders") as consumer:
        consumer.poll(12)
    assert runs.list_runs(filled.registry) == []


def test_a_consumer_whose_poll_fails_is_a_failed_run_with_one_error(filled: Lake) -> None:
    segment = next(iter(MetadataStore(filled).get_segments("orders", 0)))
    Path(local_path(segment.location)).unlink()
    with pytest.raises(DataLoss), filled.log.consumer("orders", "g") as consumer:
        consumer.poll(12)
    (run,) = runs.list_runs(filled.registry)
    (error,) = error_log.list_errors(filled.registry)
    assert (run.status, error.sync_run_id, error.error_type) == (SyncStatus.FAILED, run.id, ErrorType.DATA)
    assert error.operation_type == OperationType.READ


def test_a_consumer_that_is_forgotten_is_a_cancelled_run(filled: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_recorder, "HEARTBEAT_SECONDS", 0.05)
    consumer = filled.log.consumer("orders", "g")
    consumer.poll(12)
    del consumer
    gc.collect()
    until(lambda: runs.list_runs(filled.registry)[0].status == SyncStatus.CANCELLED)
    assert runs.list_runs(filled.registry)[0].records_processed == 12
