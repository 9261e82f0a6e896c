"""What lost tasks of a registered write leave, or still write, is deleted; what is somebody's stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

import lakeward
from lakeward import Lake, MetadataStore, TopicConfig
from lakeward.arrow import write as arrow_write
from lakeward.arrow.target import table_target
from lakeward.db import dialect
from lakeward.db.schema import orphan_sweeps
from lakeward.log import registration as log
from lakeward.log import topics
from lakeward.log import write as log_write
from lakeward.maintenance import recovery
from lakeward.registry import intents
from lakeward.tables import compaction, registration, tables
from lakeward.tables.records.files import DataFile, Intent
from tests.support.lakes import sweeps_later

pytestmark = pytest.mark.on("sqlite")

NAME = "shop.orders"
STRAY = "00000-9-lost-0-00001.parquet"


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with lakeward.connect(made_url, tmp_path / "lake") as opened:
        opened.create_table(NAME, {"id": "long"})
        yield opened


def written(lake: Lake, ids: Sequence[int] = (1, 2)) -> tuple[Intent, list[DataFile]]:
    """Files of a write that is not registered, and an object that a lost task has left beside them."""
    table, metadata = tables.load_with_metadata(lake.registry, NAME)
    intent = intents.open_intent(lake.registry, table)
    engine = lake.registry.engine(table.location)
    files = arrow_write.write_arrow(table_target(table, metadata, intent, engine), [{"id": each} for each in ids])
    engine.write(intent.prefix + STRAY, b"left by a lost task")
    return intent, files


def append(lake: Lake, *, outlived: bool = True) -> Intent:
    intent, files = written(lake)
    registration.register(lake.registry, lake.table(NAME), intent, files, outlived=outlived)
    return intent


def sweeps(lake: Lake) -> int:
    with lake.registry.database.read() as connection:
        return len(connection.execute(sa.select(orphan_sweeps)).all())


def objects(lake: Lake, prefix: str) -> set[str]:
    return {info.location.removeprefix(prefix) for info in lake.registry.engine(prefix).list(prefix)}


def ids(lake: Lake) -> list[int]:
    return sorted(lake.scan(NAME).read_all()["id"].to_pylist())


@pytest.mark.on("sqlite", "postgresql")
def test_what_a_lost_task_has_left_is_deleted_after_a_lease_and_once_more_a_day_sweeps_later(lake: Lake) -> None:
    intent = append(lake)
    assert lake.recover() == recovery.RecoveryResult()
    assert STRAY in objects(lake, intent.prefix)  # its task may still be at it
    sweeps_later(lake, seconds=lake.settings.lease_seconds + 1)
    assert recovery.expired(lake.registry).objects == 1
    assert lake.recover() == recovery.RecoveryResult(objects=1)
    assert STRAY not in objects(lake, intent.prefix)
    lake.registry.engine(intent.prefix).write(intent.prefix + STRAY, b"of a task that was only slow")
    assert lake.recover() == recovery.RecoveryResult()
    sweeps_later(lake, days=1)
    assert lake.recover() == recovery.RecoveryResult(swept=1, objects=1)
    assert STRAY not in objects(lake, intent.prefix)
    assert (sweeps(lake), ids(lake), lake.audit(NAME).findings) == (0, [1, 2], [])


def test_a_write_that_nobody_outlives_leaves_nothing_to_sweep(lake: Lake) -> None:
    append(lake, outlived=False)
    assert sweeps(lake) == 0


def test_files_in_quarantine_are_not_taken_for_what_was_left(lake: Lake) -> None:
    intent = append(lake)
    lake.flush(NAME)
    (file,) = lake.files(NAME)
    lake.drop_table(NAME)
    sweeps_later(lake, days=2)
    assert lake.recover() == recovery.RecoveryResult(swept=1, objects=1)
    assert objects(lake, intent.prefix) == {file.file_path.removeprefix(intent.prefix)}


def test_what_compaction_has_left_goes_and_both_old_and_new_files_stay(lake: Lake) -> None:
    first = append(lake)
    old = lake.files(NAME)
    intent, made = written(lake)
    compaction.swap(lake.registry, lake.table(NAME), intent, old, made, outlived=True)
    sweeps_later(lake, days=2)
    assert lake.recover() == recovery.RecoveryResult(swept=2, objects=2)
    assert objects(lake, first.prefix) == {each.file_path.removeprefix(first.prefix) for each in old}
    assert objects(lake, intent.prefix) == {each.path.removeprefix(intent.prefix) for each in made}
    assert ids(lake) == [1, 2]


def test_what_was_left_beside_segments_goes_and_they_stay(lake: Lake) -> None:
    MetadataStore(lake).create_topic(TopicConfig("orders", 1))
    topic = topics.load(lake.registry, "orders")
    intent = intents.open_intent(lake.registry, topic)
    engine = lake.registry.engine(topic.location)
    files = log_write.write_records(log_write.segment_target(topic, intent, engine), topic, [b"a", b"b"], None, None)
    engine.write(intent.prefix + "spark/_temporary/0/part-0.parquet", b"left by a lost task")
    log.register(lake.registry, topic, intent, files, outlived=True)
    sweeps_later(lake, days=2)
    assert lake.recover() == recovery.RecoveryResult(swept=1, objects=1)
    assert sum(batch.num_rows for batch in lake.log.scan("orders")) == 2


def test_where_none_of_the_write_s_files_is_listed_nothing_is_deleted(lake: Lake) -> None:
    intent = append(lake)
    (file,) = lake.files(NAME)
    lake.registry.engine(intent.prefix).delete([file.file_path])
    sweeps_later(lake, days=2)
    assert lake.recover() == recovery.RecoveryResult(swept=1)
    assert STRAY in objects(lake, intent.prefix)


def test_a_sweep_is_due_a_lease_after_its_write_was_registered(lake: Lake) -> None:
    with lake.registry.database.read() as connection:
        before = dialect.now(connection)
    intent = append(lake)
    with lake.registry.database.read() as connection:
        (row,) = connection.execute(sa.select(orphan_sweeps)).mappings()
    assert row["prefix"] == intent.prefix
    assert row["sweep_after"] - row["registered_at"] == timedelta(seconds=lake.settings.lease_seconds)
    assert row["registered_at"] >= before
