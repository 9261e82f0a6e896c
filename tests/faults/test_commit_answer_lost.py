"""The connection breaks in COMMIT, and nobody says whether it went through: the intent does. Never twice, never lost."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeward import Lake, MetadataStore, StorageManager, TopicConfig
from lakeward.db import lock_order
from lakeward.errors import RegistryUnavailable
from lakeward.ops import runs
from lakeward.ops.records.operations import SyncStatus
from lakeward.registry import intents
from lakeward.tables import registration
from tests.support.lakes import ROWS, assert_nothing_left_over, objects, open_lake
from tests.support.lakes import make_table as make_lake_table
from tests.support.proxy import Cut, Proxy
from tests.support.registries import assert_exact, data_file, open_at, rows_of

NAME = "sales.orders"
DECLARED = b"/data/"  # in the prefix of an intent, which nothing else sends before the registration
BOTH = pytest.mark.parametrize("cut", ["before", "after"])


@pytest.fixture
def proxy(made_pg_url: str) -> Iterator[Proxy]:
    with Proxy(made_pg_url) as opened:
        yield opened


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intents, "SETTLE_WAIT_SECONDS", 0.02)


@pytest.fixture
def lake(proxy: Proxy, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(proxy.url, tmp_path, durable=False) as opened:
        make_lake_table(opened, NAME, partition_by=["name"])
        yield opened


def when_read(proxy: Proxy, *cuts: Cut, rows: Iterable[dict[str, Any]] = ROWS, **how: Any) -> Iterator[dict[str, Any]]:
    """Rows that arm the proxy when the last of them is written: the next commit is the registration's."""
    yield from rows
    proxy.cut(*cuts, **how)


def assert_rows_once(lake: Lake, times: int = 1) -> None:
    assert lake.table(NAME).row_count == times * len(ROWS)
    assert lake.scan(NAME).read_all().num_rows == times * len(ROWS)
    assert_exact(lake.registry, lake.table(NAME))
    assert_nothing_left_over(lake, NAME)


@BOTH
def test_a_lost_answer_is_found_out_and_the_append_happened_once(lake: Lake, proxy: Proxy, cut: Cut) -> None:
    result = lake.append(NAME, when_read(proxy, cut))
    assert proxy.made == 1
    assert (result.rows, result.replayed) == (len(ROWS), False)
    assert {file.file_path for file in lake.files(NAME)} == set(result.files)
    assert rows_of(lake.registry, "pending_writes") == []
    assert_rows_once(lake)


@pytest.mark.parametrize("cuts", [("before", "before", "after"), ("before", "after"), ("after", "before")])
def test_answers_may_be_lost_again_and_again(lake: Lake, proxy: Proxy, cuts: tuple[Cut, ...]) -> None:
    assert lake.append(NAME, when_read(proxy, *cuts)).rows == len(ROWS)
    assert proxy.made == len(cuts)
    assert_rows_once(lake)


@BOTH
@pytest.mark.parametrize("batch", [("s", "1"), ("s", "1", 0, 6)])
def test_a_batch_s_lost_answer_is_its_first_answer(
    lake: Lake, proxy: Proxy, cut: Cut, batch: tuple[str, str] | tuple[str, str, Any, Any]
) -> None:
    result = lake.append(NAME, when_read(proxy, cut), batch=batch)
    assert (proxy.made, result.replayed) == (1, False)
    again = lake.append(NAME, ROWS, batch=batch)
    assert (again.replayed, again.files) == (True, result.files)
    assert_rows_once(lake)


@BOTH
def test_an_empty_batch_s_lost_answer_is_settled_too(lake: Lake, proxy: Proxy, cut: Cut) -> None:
    def nothing() -> Iterator[pa.RecordBatch]:
        proxy.cut(cut)
        yield from ()

    # A reader: of an iterator of rows the first is asked for before the write is declared, to see whether it is a path.
    empty = pa.RecordBatchReader.from_batches(pa.Table.from_pylist(ROWS).schema, nothing())
    result = lake.append(NAME, empty, batch=("s", "1", 0, 6))
    assert (proxy.made, result.rows, result.replayed) == (1, 0, False)
    assert lake.append(NAME, ROWS, batch=("s", "1", 0, 6)).replayed
    assert rows_of(lake.registry, "pending_writes") == []


@BOTH
def test_a_registry_that_stays_away_leaves_the_outcome_open_and_the_batch_key_settles_it(
    lake: Lake, proxy: Proxy, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intents, "SETTLE_SECONDS", 1.2)
    with pytest.raises(RegistryUnavailable, match=r"is not known: its files are kept\. Send it again with its key"):
        lake.append(NAME, when_read(proxy, cut, stay_down=True), batch=("s", "1", 0, 6))
    proxy.come_back()
    assert len(objects(lake, lake.table(NAME))) == 3
    assert lake.append(NAME, ROWS, batch=("s", "1", 0, 6)).replayed is (cut == "after")
    assert lake.table(NAME).row_count == len(ROWS)
    with lake.registry.database.transaction() as connection:  # time passes: whoever wrote that is gone
        connection.exec_driver_sql("UPDATE pending_writes SET owner = 'gone', lease_until = now() - interval '1 day'")
    lake.recover()
    lake.recover()
    assert_rows_once(lake)
    assert rows_of(lake.registry, "pending_writes") == []


def test_files_that_were_retired_before_the_answer_was_found_out_count_as_registered(
    lake: Lake, proxy: Proxy, made_pg_url: str, tmp_path: Path
) -> None:
    """Else the writer would be told to write again, and what was replaced on purpose would come back."""

    def replace() -> None:
        with open_lake(made_pg_url, tmp_path) as other:
            deadline = time.monotonic() + 30
            while not other.table(NAME).row_count and time.monotonic() < deadline:
                time.sleep(0.01)
            assert other.retire_partitions(NAME, [{"name": f"n{i}"} for i in range(3)]) == 3

    result = lake.append(NAME, when_read(proxy, "after", then=replace))
    assert (proxy.made, result.rows) == (1, len(ROWS))
    assert lake.table(NAME).row_count == 0
    assert_exact(lake.registry, lake.table(NAME))


@BOTH
def test_a_flush_s_lost_answer_makes_neither_two_snapshots_nor_none(lake: Lake, proxy: Proxy, cut: Cut) -> None:
    lake.append(NAME, ROWS)
    proxy.cut(cut, statement=b"INSERT INTO table_snapshots")
    with pytest.raises(RegistryUnavailable):
        lake.flush(NAME)
    assert proxy.made == 1
    lake.flush(NAME)
    assert [snapshot.summary["total-records"] for snapshot in lake.snapshots(NAME)] == [str(len(ROWS))]
    assert rows_of(lake.registry, "pending_writes") == []
    assert_rows_once(lake)


@BOTH
def test_a_replacement_s_lost_answer_is_settled(lake: Lake, proxy: Proxy, cut: Cut) -> None:
    lake.append(NAME, ROWS)
    proxy.cut(cut, statement=b"INSERT INTO retired_files")
    new = [{"id": 100, "name": "n0"}]
    result = StorageManager(lake).insert_partition("sales", "orders", {"name": "n0"}, new)
    assert (proxy.made, result.rows) == (1, 1)
    assert lake.table(NAME).row_count == lake.scan(NAME).read_all().num_rows == len(ROWS) - 1
    assert_exact(lake.registry, lake.table(NAME))
    assert_nothing_left_over(lake, NAME)


@BOTH
def test_a_partition_emptied_with_a_lost_answer_is_empty(lake: Lake, proxy: Proxy, cut: Cut) -> None:
    lake.append(NAME, ROWS)
    proxy.cut(cut, statement=b"INSERT INTO retired_files")
    assert StorageManager(lake).insert_partition("sales", "orders", {"name": "n0"}, []).rows == 0
    assert proxy.made == 1
    assert lake.table(NAME).row_count == lake.scan(NAME).read_all().num_rows == len(ROWS) - 2
    assert_exact(lake.registry, lake.table(NAME))
    assert_nothing_left_over(lake, NAME)


@BOTH
def test_a_lost_intent_writes_no_file(lake: Lake, proxy: Proxy, cut: Cut) -> None:
    table = lake.table(NAME)
    proxy.cut(cut, at=DECLARED, then=proxy.go_down)
    with pytest.raises(RegistryUnavailable):
        lake.append(NAME, ROWS)
    assert proxy.made == 1
    proxy.come_back()
    assert objects(lake, table) == set()
    lake.append(NAME, ROWS)
    assert_rows_once(lake)


@BOTH
def test_an_intent_whose_answer_is_lost_is_declared_again_and_is_one(lake: Lake, proxy: Proxy, cut: Cut) -> None:
    proxy.cut(cut, at=DECLARED)
    lake.append(NAME, ROWS)
    assert proxy.made == 1
    assert_rows_once(lake)
    assert rows_of(lake.registry, "pending_writes") == []


@BOTH
@pytest.mark.parametrize("producer", [None, ("p", 1)])
def test_an_append_to_the_log_with_a_lost_answer_is_there_once(
    lake: Lake, proxy: Proxy, cut: Cut, producer: tuple[str, int] | None
) -> None:
    MetadataStore(lake).create_topic(TopicConfig("log", 2))
    lake.log.append("log", ["first"], partition=1)
    result = lake.log.append(
        "log", when_read(proxy, cut, rows=[{"value": "x"}, {"value": "y"}]), partition=1, producer=producer
    )
    assert (proxy.made, result.records, result.replayed) == (1, 2, False)
    assert [(each.base_offset, each.end_offset) for each in result.segments] == [(1, 2)]
    rows = [row for batch in lake.log.scan("log") for row in batch.to_pylist()]
    assert [(row["offset"], row["value"]) for row in rows] == [(0, b"first"), (1, b"x"), (2, b"y")]
    assert rows_of(lake.registry, "pending_writes") == []
    if producer is not None:
        assert lake.log.append("log", ["x"], producer=producer).segments == result.segments


@BOTH
def test_a_merge_of_segments_with_a_lost_answer_is_made_once(lake: Lake, proxy: Proxy, cut: Cut) -> None:
    MetadataStore(lake).create_topic(TopicConfig("log", 1))
    for value in ("a", "b", "c"):
        lake.log.append("log", [value])
    proxy.cut(cut, statement=b"INSERT INTO segments")
    assert lake.log.compact_segments("log").before == 3
    assert proxy.made == 1
    rows = [row for batch in lake.log.scan("log") for row in batch.to_pylist()]
    assert [(row["offset"], row["value"]) for row in rows] == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert len(rows_of(lake.registry, "segments")) == 1
    assert rows_of(lake.registry, "pending_writes") == []


def test_a_batch_that_recovery_has_taken_and_another_has_applied_is_a_replay_with_a_run_of_no_rows(
    lake: Lake, proxy: Proxy, made_pg_url: str, tmp_path: Path
) -> None:
    """The run was counted by the commit that was lost, which wrote it: it is written by itself then."""

    def apply() -> None:
        with open_lake(made_pg_url, tmp_path) as other:
            with other.registry.database.transaction() as connection:
                connection.exec_driver_sql("UPDATE pending_writes SET recovered_at = now(), sweep_after = now()")
            other.append(NAME, ROWS, batch=("s", "1"))

    proxy.cut("before", statement=b"INSERT INTO table_files", then=apply)
    result = lake.append(NAME, ROWS, batch=("s", "1"))
    assert (proxy.made, result.replayed) == (1, True)
    mine, theirs = runs.list_runs(lake.registry)
    assert (mine.status, theirs.status) == (SyncStatus.COMPLETED, SyncStatus.COMPLETED)
    assert (mine.records_inserted, theirs.records_inserted) == (0, len(ROWS))
    assert rows_of(lake.registry, "pending_writes") == []
    assert_rows_once(lake)


def test_an_append_that_recovery_has_taken_and_another_has_made_under_its_key_is_a_replay(
    lake: Lake, proxy: Proxy, made_pg_url: str, tmp_path: Path
) -> None:
    def make() -> None:
        with open_lake(made_pg_url, tmp_path) as other:
            with other.registry.database.transaction() as connection:
                connection.exec_driver_sql("UPDATE pending_writes SET recovered_at = now(), sweep_after = now()")
            other.log.append("log", ["theirs"], producer=("p", 1))

    MetadataStore(lake).create_topic(TopicConfig("log", 1))
    mine = when_read(proxy, "before", rows=[{"value": "mine"}], then=make)
    result = lake.log.append("log", mine, producer=("p", 1))
    assert (proxy.made, result.replayed) == (1, True)
    assert [row["value"] for batch in lake.log.scan("log") for row in batch.to_pylist()] == [b"theirs"]
    assert rows_of(lake.registry, "pending_writes") == []


@BOTH
def test_the_lost_answer_of_a_group_s_commit_is_found_out_by_each_of_its_members(
    lake: Lake, proxy: Proxy, made_pg_url: str, tmp_path: Path, cut: Cut
) -> None:
    table = lake.table(NAME)
    made = [intents.open_intent(lake.registry, table) for _ in range(6)]
    files = [data_file(intent.prefix, [number], "n1") for number, intent in enumerate(made)]
    with open_at(made_pg_url, tmp_path) as other, ThreadPoolExecutor(6) as pool:
        with other.database.transaction() as connection:  # not by way of the proxy
            lock_order.tables(connection, [table.table_id])
            futures = [
                pool.submit(registration.register, lake.registry, table, intent, [file])
                for intent, file in zip(made, files, strict=True)
            ]
            while lake.registry.group_commit.status().waiting < len(made):
                assert not any(future.done() for future in futures)
                time.sleep(0.005)
            proxy.cut(cut)
        assert [future.result().files for future in futures] == [[file.path] for file in files]
    assert proxy.made == 1
    assert {file.file_path for file in lake.files(NAME)} == {file.path for file in files}
    assert rows_of(lake.registry, "pending_writes") == []
    assert_exact(lake.registry, table)
