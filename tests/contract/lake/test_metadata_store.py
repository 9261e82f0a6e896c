"""The metadata of the topic log: what is there, where an offset is, who has read what. On both databases."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from lakeward import ConsumerOffset, Lake, MetadataStore, Partition, SegmentInfo, TopicConfig, aio
from lakeward.db import schema
from lakeward.errors import (
    ConsumerGroupNotFound,
    DatabaseError,
    InvalidInput,
    InvalidName,
    InvalidOffset,
    LakewardError,
    PartitionNotFound,
    TopicAlreadyExists,
    TopicNotFound,
)
from lakeward.log import segments as segments_registry
from lakeward.registry import intents
from tests.contract.db import processes
from tests.support.lakes import open_lake
from tests.support.registries import rows_of

WEEK_MS = 7 * 24 * 3600 * 1000


@pytest.fixture
def store(made_url: str) -> Iterator[MetadataStore]:
    with MetadataStore.open(made_url) as opened:
        opened.create_topic(TopicConfig("orders", 3, WEEK_MS, {"cleanup.policy": "delete"}))
        yield opened


def segment(base: int, end: int, partition: int = 0, topic: str = "orders", **changes: Any) -> SegmentInfo:
    values = {
        "topic": topic,
        "partition_id": partition,
        "base_offset": base,
        "end_offset": end,
        "record_count": end - base + 1,
        "size_bytes": 1 << 20,
        "s3_bucket": "lake",
        "s3_key": f"{topic}-{partition}-{base}",
    }
    return SegmentInfo(**{**values, **changes})


def bases(store: MetadataStore, partition: int = 0, **range_: Any) -> list[int]:
    return [each.base_offset for each in store.get_segments("orders", partition, **range_)]


def offsets_of(partition: Partition | None) -> tuple[str, int, int, int]:
    assert partition is not None
    return partition.topic, partition.partition_id, partition.high_watermark, partition.log_start_offset


# Topics -------------------------------------------------------------------------------------------------------------------
def test_a_topic_comes_back_as_it_was_made(store: MetadataStore) -> None:
    topic = store.get_topic("orders")
    assert topic is not None
    assert (topic.name, topic.partition_count, topic.retention_ms) == ("orders", 3, WEEK_MS)
    assert topic.config == {"cleanup.policy": "delete"}
    assert topic.created_at.tzinfo is not None
    assert [offsets_of(each) for each in store.list_partitions("orders")] == [("orders", i, 0, 0) for i in range(3)]
    assert store.get_topic("none") is None
    assert store.get_partition("none", 0) is None
    assert store.get_partition("orders", 3) is None


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250, "a\n", None, 7])
def test_a_name_that_kafka_would_refuse_is_refused(store: MetadataStore, name: Any) -> None:
    with pytest.raises(InvalidName, match="letters, digits"):
        store.create_topic(TopicConfig(name))
    assert [topic.name for topic in store.list_topics()] == ["orders"]


def test_names_that_kafka_takes_are_taken(store: MetadataStore) -> None:
    for name in ("a", "x" * 249, "A.b_c-9", "..."):
        store.create_topic(TopicConfig(name))
    assert [topic.name for topic in store.list_topics()] == sorted(["orders", "a", "x" * 249, "A.b_c-9", "..."])


@pytest.mark.parametrize(
    "config",
    [
        {"partition_count": 0},
        {"partition_count": -1},
        {"partition_count": 1.5},
        {"retention_ms": -1},
        {"retention_ms": 1 << 63},
        {"config": {"a": 1}},
        {"config": {"password": "x"}},
    ],
)
def test_settings_that_make_no_sense_are_refused(store: MetadataStore, config: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        store.create_topic(TopicConfig("other", **config))
    assert store.get_topic("other") is None


def test_whole_numbers_of_numpy_are_taken_as_numbers(store: MetadataStore) -> None:
    made = store.create_topic(TopicConfig("other", partition_count=np.int64(2), retention_ms=np.int64(5)))  # type: ignore[arg-type]
    assert (made.partition_count, made.retention_ms) == (2, 5)
    changed = store.update_topic_config("other", partition_count=np.int64(3), retention_ms=np.int64(7))  # type: ignore[arg-type]
    assert (changed.partition_count, changed.retention_ms) == (3, 7)


def test_a_topic_twice_is_refused(store: MetadataStore) -> None:
    with pytest.raises(TopicAlreadyExists, match="orders") as refused:
        store.create_topic(TopicConfig("orders", 9))
    assert refused.value.code == "topic_already_exists"
    assert len(store.list_partitions("orders")) == 3


def test_partitions_grow_and_never_shrink(store: MetadataStore) -> None:
    assert store.update_topic_config("orders", partition_count=5).partition_count == 5
    assert [each.partition_id for each in store.list_partitions("orders")] == [0, 1, 2, 3, 4]
    with pytest.raises(InvalidInput, match="less than the 5"):
        store.update_topic_config("orders", partition_count=4)
    with pytest.raises(InvalidInput):
        store.update_topic_config("orders", partition_count=0)
    assert len(store.list_partitions("orders")) == 5


def test_a_topic_s_settings_change_and_what_is_not_named_stays(store: MetadataStore) -> None:
    changed = store.update_topic_config("orders", {"a": "1", "cleanup.policy": None})
    assert (changed.config, changed.retention_ms) == ({"a": "1"}, WEEK_MS)
    assert store.update_topic_config("orders", retention_ms=None).retention_ms is None
    assert store.update_topic_config("orders", retention_ms=5).config == {"a": "1"}


def test_a_setting_with_a_secrets_name_is_refused_and_one_that_is_there_is_in_nobodys_way(store: MetadataStore) -> None:
    with pytest.raises(InvalidInput, match="looks like a secret"):
        store.update_topic_config("orders", {"sasl.password": "x"})
    with store.registry.database.transaction() as connection:  # as an earlier version has taken it
        connection.execute(sa.text('UPDATE topics SET config = \'{"sasl.password":"x"}\''))
    assert store.update_topic_config("orders", {"a": "1"}).config == {"sasl.password": "x", "a": "1"}
    assert store.update_topic_config("orders", retention_ms=5).retention_ms == 5
    with pytest.raises(InvalidInput, match="looks like a secret"):
        store.update_topic_config("orders", {"sasl.password": "y"})
    assert store.update_topic_config("orders", {"sasl.password": None}).config == {"a": "1"}


def test_a_topic_made_again_under_a_name_is_another_one(store: MetadataStore) -> None:
    first = store.get_topic("orders")
    store.add_segment(segment(0, 9))
    store.commit_offset("g", "orders", 0, 5)
    store.delete_topic("orders")
    assert store.get_topic("orders") is None
    assert store.get_committed_offset("g", "orders", 0) is None
    again = store.create_topic(TopicConfig("orders", 1))
    assert first is not None and again.topic_id != first.topic_id and again.topic_uuid != first.topic_uuid
    assert store.get_committed_offset("g", "orders", 0) is None
    assert store.get_consumer_offsets("g") == []
    assert [offsets_of(each) for each in store.list_partitions("orders")] == [("orders", 0, 0, 0)]
    assert bases(store) == []
    assert store.add_segment(segment(0, 4)).base_offset == 0


def test_unknown_topics_are_none_to_look_at_and_an_error_to_change(store: MetadataStore) -> None:
    for change in (
        lambda: store.delete_topic("none"),
        lambda: store.update_topic_config("none", {}),
        lambda: store.list_partitions("none"),
        lambda: store.update_high_watermark("none", 0, 5),
        lambda: store.add_segment(segment(0, 9, topic="none")),
        lambda: list(store.get_segments("none", 0)),
        lambda: store.delete_segments_before("none", 0, 5),
        lambda: store.commit_offset("g", "none", 0, 5),
        lambda: store.get_consumer_offsets("g", "none"),
    ):
        with pytest.raises(TopicNotFound, match="Topic does not exist: none") as refused:
            change()
        assert refused.value.code == "topic_not_found"
    assert store.find_segment_for_offset("none", 0, 0) is None
    assert store.get_committed_offset("g", "none", 0) is None
    assert store.list_consumer_groups() == []


def test_unknown_partitions_too(store: MetadataStore) -> None:
    for change in (
        lambda: store.update_high_watermark("orders", 3, 5),
        lambda: store.add_segment(segment(0, 9, partition=3)),
        lambda: list(store.get_segments("orders", 3)),
        lambda: store.delete_segments_before("orders", -1, 5),
        lambda: store.commit_offset("g", "orders", 7, 5),
    ):
        with pytest.raises(PartitionNotFound, match="it has 0 to 2") as refused:
            change()
        assert refused.value.code == "partition_not_found"
    assert store.find_segment_for_offset("orders", 3, 0) is None
    assert store.list_consumer_groups() == []


# Segments -----------------------------------------------------------------------------------------------------------------
def test_a_segment_raises_the_high_watermark_to_the_offset_after_its_end(store: MetadataStore) -> None:
    added = store.add_segment(segment(0, 99_999, s3_key="orders-0-0"))
    assert added.id is not None and added.created_at is not None
    assert (added.s3_bucket, added.s3_key, added.location) == ("lake", "orders-0-0", "s3://lake/orders-0-0")
    store.add_segment(segment(100_000, 199_999))
    assert offsets_of(store.get_partition("orders", 0)) == ("orders", 0, 200_000, 0)
    found = store.find_segment_for_offset("orders", 0, 50_000)
    assert found == added


def test_every_offset_is_found_in_its_segment_and_no_other_is(store: MetadataStore) -> None:
    ends = [0, 3, 4, 90, 91]
    starts = [0, *(end + 1 for end in ends[:-1])]
    store.add_segments([segment(*pair) for pair in zip(starts, ends, strict=True)])
    for offset in range(92):
        found = store.find_segment_for_offset("orders", 0, offset)
        assert found is not None and found.base_offset <= offset <= found.end_offset
    assert store.find_segment_for_offset("orders", 0, 92) is None
    assert store.find_segment_for_offset("orders", 0, -1) is None
    assert store.find_segment_for_offset("orders", 1, 5) is None


def test_a_look_up_sees_what_was_committed_before_it_wherever(store: MetadataStore, made_url: str) -> None:
    with MetadataStore.open(made_url) as other:
        for i in range(20):
            assert store.find_segment_for_offset("orders", 0, i) is None
            other.add_segment(segment(i, i))
            assert store.find_segment_for_offset("orders", 0, i) is not None
        other.delete_topic("orders")
    assert store.find_segment_for_offset("orders", 0, 5) is None


def test_a_segment_that_was_found_before_is_not_found_once_it_is_deleted(store: MetadataStore, made_url: str) -> None:
    """Look-ups may remember: whoever deletes, it is forgotten."""
    store.add_segments([segment(i * 10, i * 10 + 9) for i in range(30)])
    with MetadataStore.open(made_url) as other:
        for i, deleting in enumerate((store, other) * 10):
            for _ in range(2):
                found = store.find_segment_for_offset("orders", 0, i * 10 + 5)
                assert found is not None and found.base_offset == i * 10
            deleting.delete_segments_before("orders", 0, i * 10 + 10)
            assert store.find_segment_for_offset("orders", 0, i * 10 + 5) is None
        thread = threading.Thread(target=other.delete_segments_before, args=("orders", 0, 1_000))
        assert store.find_segment_for_offset("orders", 0, 255) is not None
        thread.start()
        thread.join()
    assert store.find_segment_for_offset("orders", 0, 255) is None


def test_what_is_remembered_of_segments_is_right_however_many_were_found(
    store: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakeward.log.segments.REMEMBERED", 7)
    ends = [(i + 1) ** 2 - 1 for i in range(40)]
    starts = [0, *(end + 1 for end in ends[:-1])]
    for partition in (0, 1):
        store.add_segments([segment(*pair, partition=partition) for pair in zip(starts, ends, strict=True)])
    for offset in [*range(0, 1_700, 7), *range(1_700, -20, -11)]:
        for partition in (0, 1, 2):
            found = store.find_segment_for_offset("orders", partition, offset)
            if partition == 2 or not 0 <= offset < 1_600:
                assert found is None
            else:
                assert found is not None and found.partition_id == partition
                assert found.base_offset <= offset <= found.end_offset


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (segment(5, 9), "overlaps"),
        (segment(9, 12), "overlaps"),
        (segment(0, 9), "overlaps"),
        (segment(11, 12), "leaves a hole"),
        (segment(12, 11, record_count=0), "ends before it begins"),
        (segment(10, 12, record_count=4), "record_count says 4"),
        (segment(10, 12, record_count=0), "record_count says 0"),
        (segment(-1, 3), "offsets are from 0"),
        (segment(10, (1 << 63) - 1), "offsets are from 0"),
        (segment(10, 1 << 64), "offsets are from 0"),
    ],
)
def test_a_segment_that_does_not_fit_is_refused_and_nothing_changes(
    store: MetadataStore, wrong: SegmentInfo, message: str
) -> None:
    store.add_segment(segment(0, 9))
    with pytest.raises(InvalidOffset, match=message) as refused:
        store.add_segments([segment(0, 4, partition=1), wrong])
    assert refused.value.code == "invalid_offset"
    assert (bases(store), bases(store, 1)) == ([0], [])
    assert offsets_of(store.get_partition("orders", 0)) == ("orders", 0, 10, 0)
    assert offsets_of(store.get_partition("orders", 1)) == ("orders", 1, 0, 0)


def test_the_first_segment_starts_where_the_log_does(store: MetadataStore) -> None:
    with pytest.raises(InvalidOffset, match="begins at 0"):
        store.add_segment(segment(5, 9))


def test_a_segment_has_a_place(store: MetadataStore) -> None:
    for changes in ({"s3_key": None}, {"s3_bucket": None, "s3_key": None}, {"size_bytes": -1}):
        with pytest.raises(InvalidInput):
            store.add_segment(segment(0, 9, **changes))
    local = segment(0, 9, s3_bucket=None, s3_key=None, location="file:///log/0.parquet")
    assert store.add_segment(local).location == "file:///log/0.parquet"


def test_the_database_keeps_the_rules_too(store: MetadataStore) -> None:
    store.add_segments([segment(0, 9), segment(10, 19)])
    database = store.registry.database
    for statement in (
        "UPDATE segments SET end_offset = 15, record_count = 16 WHERE base_offset = 0",
        "INSERT INTO segments (topic_id, partition_id, base_offset, end_offset, record_count, size_bytes, location, "
        "created_at) SELECT topic_id, partition_id, 25, 29, 5, 1, 'x', created_at FROM segments WHERE base_offset = 0",
        "INSERT INTO segments (topic_id, partition_id, base_offset, end_offset, record_count, size_bytes, location, "
        "created_at) SELECT topic_id, partition_id, 15, 24, 10, 1, 'x', created_at FROM segments WHERE base_offset = 0",
        "INSERT INTO segments (topic_id, partition_id, base_offset, end_offset, record_count, size_bytes, location, "
        "created_at) SELECT topic_id, 77, 0, 9, 10, 1, 'x', created_at FROM segments WHERE base_offset = 0",
        "UPDATE partitions SET high_watermark = 19 WHERE partition_id = 0",
        "UPDATE partitions SET log_start_offset = 21 WHERE partition_id = 0",
    ):
        with pytest.raises(DatabaseError), database.transaction() as connection:
            connection.exec_driver_sql(statement)
    assert bases(store) == [0, 10]


def test_segments_of_a_range_are_those_that_hold_its_offsets(store: MetadataStore) -> None:
    store.add_segments([segment(i * 10, i * 10 + 9) for i in range(10)])
    assert bases(store, start_offset=25, end_offset=50) == [20, 30, 40]
    assert bases(store, start_offset=30, end_offset=31) == [30]
    assert bases(store, start_offset=95) == [90]
    assert bases(store, start_offset=100) == []
    assert bases(store, end_offset=0) == []


def test_more_segments_than_a_page_come_each_once(store: MetadataStore) -> None:
    store.add_segments([segment(i, i) for i in range(2_500)])
    assert bases(store) == list(range(2_500))
    assert bases(store, start_offset=1_700, end_offset=2_400) == list(range(1_700, 2_400))


def test_segments_are_found_by_place_and_counted(store: MetadataStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments_registry, "PAGE", 2)
    store.add_segments([segment(i * 10, i * 10 + 9) for i in range(7)])
    found = store.get_segments("orders", 0, 15, 62)
    every = list(found)
    assert [each.base_offset for each in every] == [10, 20, 30, 40, 50, 60]
    assert len(found) == 6 and found[0] == every[0] and found[5] == found[-1] == every[5] and found[-6] == every[0]
    assert found[1:3] == every[1:3] and found[::-2] == every[::-2] and found[9:] == [] and found[-2:] == every[-2:]
    assert every[2] in found and found.index(every[3]) == 3
    for beyond in (6, -7):
        with pytest.raises(IndexError):
            found[beyond]
    assert len(store.get_segments("orders", 1)) == 0
    store.add_segment(segment(70, 79))
    assert len(store.get_segments("orders", 0)) == 8, "what is there when it is asked"
    for name, partition, error in (("none", 0, TopicNotFound), ("orders", 9, PartitionNotFound)):
        with pytest.raises(error):
            store.get_segments(name, partition)[0]
        with pytest.raises(error):
            len(store.get_segments(name, partition))


@pytest.mark.parametrize("given", ["orders-0-0", 7])
def test_the_id_and_the_time_that_a_segment_is_given_with_come_back_beside_the_registrys(
    store: MetadataStore, given: str | int
) -> None:
    at = datetime(2020, 1, 2, 3, 4, 5, 6, UTC)
    made = store.add_segment(segment(0, 9, id=given, created_at=at))
    assert (made.given_id, made.given_created_at) == (given, at)
    assert isinstance(made.id, int) and made.created_at is not None and made.created_at.year > 2020
    store.add_segments([segment(10, 19, id=given, created_at=at), segment(20, 29)])
    first, second, third = store.get_segments("orders", 0)
    assert first == made and store.find_segment_for_offset("orders", 0, 5) == made
    assert (second.given_id, second.given_created_at) == (given, at)
    assert (third.given_id, third.given_created_at) == (None, None)
    for wrong in ({"id": 1.5}, {"id": "a\0"}, {"created_at": datetime(2020, 1, 1)}):
        with pytest.raises(InvalidInput):
            store.add_segment(segment(30, 39, **wrong))


def test_arguments_go_by_the_documented_names_too(store: MetadataStore) -> None:
    for kind in (store, aio.MetadataStore(store)):
        for method in ("get_topic", "delete_topic", "update_topic_config", "update_high_watermark"):
            assert hasattr(getattr(kind, method), "__wrapped__"), method
    assert store.get_topic(name="orders") == store.get_topic("orders") == store.get_topic(topic="orders")  # type: ignore[call-arg]
    assert store.update_topic_config(name="orders", config={"a": "b"}).config["a"] == "b"  # type: ignore[call-arg]
    assert store.update_high_watermark("orders", 0, offset=0).high_watermark == 0  # type: ignore[call-arg]
    store.add_segment(segment(0, 4, partition=1))
    assert store.delete_segments_before("orders", 1, before_offset=5) == 1  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="one argument"):
        store.get_topic(topic="orders", name="orders")  # type: ignore[call-arg]
    found = asyncio.run(aio.MetadataStore(store).get_topic(name="orders"))  # type: ignore[call-arg]
    assert found is not None and found.name == "orders"
    store.delete_topic(name="orders")  # type: ignore[call-arg]
    assert store.get_topic("orders") is None


def test_topics_partitions_and_groups_say_when_they_were_made_and_changed_last(store: MetadataStore) -> None:
    topic, before = store.get_topic("orders"), store.get_partition("orders", 0)
    assert topic is not None and before is not None
    assert topic.updated_at == topic.created_at == before.created_at == before.updated_at
    changed = store.update_topic_config("orders", {"a": "b"}, partition_count=4)
    assert changed.updated_at > changed.created_at == topic.created_at
    younger = store.get_partition("orders", 3)
    assert younger is not None and younger.created_at == changed.updated_at
    store.add_segment(segment(0, 9))
    moved = store.get_partition("orders", 0)
    assert moved is not None and moved.updated_at is not None and moved.created_at == before.created_at
    assert moved.updated_at > changed.updated_at
    store.delete_segments_before("orders", 0, 10)
    again = store.get_partition("orders", 0)
    assert again is not None and again.updated_at is not None and again.updated_at > moved.updated_at
    assert store.get_consumer_group("g") is None
    store.ensure_consumer_group("g")
    group = store.get_consumer_group("g")
    assert group is not None and group.updated_at == group.created_at
    store.commit_offset("g", "orders", 0, 5)
    committed = store.get_consumer_group("g")
    assert committed is not None and committed.updated_at > committed.created_at == group.created_at


def test_the_high_watermark_stands_at_the_end_of_the_last_segment_and_is_moved_to_no_other_place(
    store: MetadataStore,
) -> None:
    assert store.update_high_watermark("orders", 0, 0).high_watermark == 0
    with pytest.raises(InvalidOffset, match="ends before 0; add segments"):
        store.update_high_watermark("orders", 0, 1)
    store.add_segment(segment(0, 9))
    assert store.update_high_watermark("orders", 0, 10).high_watermark == 10
    for other in (9, 11, 15, 0, -1, 1 << 63):
        with pytest.raises(InvalidOffset):
            store.update_high_watermark("orders", 0, other)
    store.add_segment(segment(10, 12))
    assert offsets_of(store.get_partition("orders", 0)) == ("orders", 0, 13, 0)
    store.delete_segments_before("orders", 0, 100)
    assert store.update_high_watermark("orders", 0, 13).high_watermark == 13
    with pytest.raises(InvalidOffset, match="ends before 13"):
        store.update_high_watermark("orders", 0, 14)


def test_where_the_high_watermark_was_put_too_far_once_no_offset_is_lost(store: MetadataStore) -> None:
    """As releases before did; what is appended then begins after the last segment, and consumers that waited see it."""
    store.add_segment(segment(0, 9))
    with store.registry.database.transaction() as connection:
        connection.exec_driver_sql("UPDATE partitions SET high_watermark = 15")
    assert store.update_high_watermark("orders", 0, 15).high_watermark == 15
    store.add_segment(segment(10, 30))
    assert offsets_of(store.get_partition("orders", 0)) == ("orders", 0, 31, 0)


def test_whole_segments_before_an_offset_are_deleted_and_the_log_starts_after_them(store: MetadataStore) -> None:
    store.add_segments([segment(i * 10, i * 10 + 9) for i in range(5)])
    assert store.delete_segments_before("orders", 0, 25) == 2
    assert bases(store) == [20, 30, 40]
    assert offsets_of(store.get_partition("orders", 0)) == ("orders", 0, 50, 20)
    assert store.delete_segments_before("orders", 0, 29) == 0
    assert store.delete_segments_before("orders", 0, 1000) == 3
    assert offsets_of(store.get_partition("orders", 0)) == ("orders", 0, 50, 50)
    assert store.find_segment_for_offset("orders", 0, 45) is None
    with pytest.raises(InvalidOffset):
        store.add_segment(segment(0, 9))
    store.add_segment(segment(50, 59))
    assert store.delete_segments_before("orders", 1, 5) == 0


def test_files_given_from_outside_are_never_sent_to_quarantine_and_own_ones_are(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path) as lake:
        store = MetadataStore(lake)
        topic = store.create_topic(TopicConfig("orders"))
        own = f"{topic.location}/data/x/0.parquet"
        store.add_segments([segment(0, 9), segment(10, 19, s3_bucket=None, s3_key=None, location=own), segment(20, 29)])
        assert store.delete_segments_before("orders", 0, 20) == 2
        assert [row["file_path"] for row in rows_of(lake.registry, "retired_files")] == [own]
        store.delete_topic("orders")
        assert len(rows_of(lake.registry, "retired_files")) == 1


def test_a_deleted_topic_is_gone_from_the_registry_once_its_files_are(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, lease_seconds=0.2) as lake:
        store = MetadataStore(lake)
        topic = store.create_topic(TopicConfig("orders"))
        intent = intents.open_intent(lake.registry, topic)
        location = intent.prefix + "0.parquet"
        lake.registry.engine(location).write(location, b"half")
        store.delete_topic("orders")
        with pytest.raises(TopicNotFound):
            intents.open_intent(lake.registry, topic)
        lake.clean()
        assert lake.clean().failed == []
        assert rows_of(lake.registry, "topics") == rows_of(lake.registry, "pending_writes") == []
        assert list(lake.registry.engine(location).list(topic.location + "/")) == []


# Consumer groups ----------------------------------------------------------------------------------------------------------
def test_a_group_resumes_where_it_committed(store: MetadataStore) -> None:
    store.add_segment(segment(0, 99_999))
    assert store.get_committed_offset("analytics-group", "orders", 0) is None
    store.commit_offset("analytics-group", "orders", 0, 50_000, "checkpoint 7")
    assert store.get_committed_offset("analytics-group", "orders", 0) == 50_000
    assert store.list_consumer_groups() == ["analytics-group"]
    (offset,) = store.get_consumer_offsets("analytics-group")
    assert (offset.topic, offset.partition_id, offset.committed_offset) == ("orders", 0, 50_000)
    assert offset.metadata == "checkpoint 7"
    assert [lag.lag for lag in store.lag("analytics-group")] == [50_000, 0, 0]


def test_any_offset_from_0_on_is_accepted_unless_strict(store: MetadataStore) -> None:
    store.add_segment(segment(0, 9))
    store.commit_offset("g", "orders", 0, 500)
    assert [lag.lag for lag in store.lag("g")] == [0, 0, 0]
    store.commit_offset("g", "orders", 0, 3)  # a rewind
    assert store.get_committed_offset("g", "orders", 0) == 3
    store.commit_offset("g", "orders", 0, 10, strict=True)
    for strict, wrong in ((True, 11), (False, -1), (False, 1 << 63)):
        with pytest.raises(InvalidOffset):
            store.commit_offset("g", "orders", 0, wrong, strict=strict)
    assert store.get_committed_offset("g", "orders", 0) == 10


def test_offsets_of_many_partitions_are_committed_together_or_not(store: MetadataStore) -> None:
    store.create_topic(TopicConfig("other"))
    good = [ConsumerOffset("g", "orders", i, 5 + i) for i in range(3)] + [ConsumerOffset("g", "other", 0, 9)]
    store.commit_offsets("g", good)
    assert {(o.topic, o.partition_id): o.committed_offset for o in store.get_consumer_offsets("g")} == {
        ("orders", 0): 5, ("orders", 1): 6, ("orders", 2): 7, ("other", 0): 9,
    }  # fmt: skip
    with pytest.raises(PartitionNotFound):
        store.commit_offsets("g", [ConsumerOffset("g", "orders", 0, 100), ConsumerOffset("g", "other", 1, 1)])
    assert store.get_committed_offset("g", "orders", 0) == 5
    assert len(store.get_consumer_offsets("g", "other")) == 1


def test_a_group_is_made_once_and_its_offsets_go_with_it(store: MetadataStore) -> None:
    store.ensure_consumer_group("g")
    store.ensure_consumer_group("g")
    store.commit_offset("g", "orders", 0, 5)
    store.delete_consumer_group("g")
    assert store.list_consumer_groups() == []
    assert store.get_consumer_offsets("g") == []
    for change in (lambda: store.delete_consumer_group("g"), lambda: store.lag("g")):
        with pytest.raises(ConsumerGroupNotFound):
            change()
    for name in ("", "x" * 256, "a\0b", "\ud800"):
        with pytest.raises(InvalidName):
            store.ensure_consumer_group(name)


# At once ------------------------------------------------------------------------------------------------------------------
def _add_one_after_another(url: str, count: int) -> None:
    """Add one-record segments wherever the partition ends now, though another may be quicker."""
    added = 0
    with MetadataStore.open(url) as store:
        while added < count:
            partition = store.get_partition("orders", 0)
            assert partition is not None
            try:
                store.add_segment(segment(partition.high_watermark, partition.high_watermark))
                added += 1
            except InvalidOffset:
                continue


def test_processes_that_add_to_one_partition_leave_no_hole_and_no_overlap(store: MetadataStore, made_url: str) -> None:
    processes.expect_success(processes.start(_add_one_after_another, [(made_url, 100)] * 2))
    assert bases(store) == list(range(200))
    assert offsets_of(store.get_partition("orders", 0)) == ("orders", 0, 200, 0)


def test_threads_share_a_store_in_memory() -> None:
    with MetadataStore.in_memory() as store, MetadataStore.in_memory() as other:
        store.create_topic(TopicConfig("orders", 4))
        failures: list[BaseException] = []

        def add(partition: int) -> None:
            try:
                for i in range(50):
                    store.add_segment(segment(i, i, partition=partition))
            except LakewardError as error:
                failures.append(error)

        threads = [threading.Thread(target=add, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert [each.high_watermark for each in store.list_partitions("orders")] == [50] * 4
        assert other.list_topics() == []


def test_a_store_makes_and_upgrades_a_registry_and_touches_no_warehouse(registry_url: str, tmp_path: Path) -> None:
    with MetadataStore.open(registry_url) as store:
        store.create_topic(TopicConfig("a"))
    with MetadataStore.open(registry_url) as store:
        assert [topic.name for topic in store.list_topics()] == ["a"]
        with store.registry.database.read() as connection:
            assert connection.execute(schema.warehouses.select()).all()


def test_a_lake_and_its_store_are_one_registry(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path) as lake:
        store = MetadataStore(lake)
        store.create_topic(TopicConfig("a"))
        store.close()
        assert isinstance(lake, Lake) and MetadataStore(lake).get_topic("a") is not None


# To await -----------------------------------------------------------------------------------------------------------------
def _methods(kind: type[Any]) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(value)
        for name, value in inspect.getmembers(kind)
        if inspect.isfunction(value) and not name.startswith("_")
    }


def test_the_async_store_has_the_same_methods() -> None:
    sync, front = _methods(MetadataStore), _methods(aio.MetadataStore)
    assert sync.keys() == front.keys()
    for name, signature in sync.items():
        assert list(signature.parameters.values()) == list(front[name].parameters.values()), name
        is_iterated = name == "get_segments"
        returns = AsyncIterator if is_iterated else signature.return_annotation
        assert front[name].return_annotation == returns, name
        assert inspect.iscoroutinefunction(getattr(aio.MetadataStore, name)) != is_iterated, name


def test_the_async_store_does_what_the_other_does(made_url: str) -> None:
    async def scenario() -> None:
        async with await aio.MetadataStore.open(made_url) as store:
            await store.create_topic(TopicConfig("orders", 3))
            await store.add_segments([segment(i * 10, i * 10 + 9) for i in range(1_500)])
            found, topic, _ = await asyncio.gather(
                store.find_segment_for_offset("orders", 0, 55),
                store.get_topic("orders"),
                store.commit_offset("g", "orders", 0, 7),
            )
            assert found is not None and found.base_offset == 50 and topic is not None
            assert [each.base_offset async for each in store.get_segments("orders", 0)] == [
                i * 10 for i in range(1_500)
            ]
            assert await store.get_committed_offset("g", "orders", 0) == 7
            with pytest.raises(InvalidOffset):
                await store.add_segment(segment(0, 9))

    asyncio.run(scenario())


def test_the_async_store_in_memory_goes_when_it_is_closed() -> None:
    async def scenario() -> None:
        async with await aio.MetadataStore.in_memory() as store:
            await store.create_topic(TopicConfig("a"))
            assert [topic.name for topic in await store.list_topics()] == ["a"]

    asyncio.run(scenario())
