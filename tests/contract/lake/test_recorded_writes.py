"""Which writes are runs, what their runs say, and what a failed one leaves. On both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward import Lake, MetadataStore, TopicConfig
from lakeward.components.compactor import Compactor
from lakeward.errors import FileRefused, StatusConflict, StorageError, SyncRunNotFound, TopicNotFound
from lakeward.lake.storage_manager import StorageManager
from lakeward.model.operations import (
    ErrorType,
    OperationType,
    SyncMode,
    SyncRun,
    SyncRunStatistics,
    SyncStatus,
)
from lakeward.pipeline import compaction
from lakeward.registry import error_log, runs
from tests.support.lakes import ROWS, make_table, open_lake
from tests.support.registries import rows_of

NAME = "sales.orders"


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path, durable=False) as opened:
        make_table(opened, NAME, partition_by=["name"])
        yield opened


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two files of three rows each."""
    made = [tmp_path / f"{number}.parquet" for number in range(2)]
    for number, path in enumerate(made):
        pq.write_table(pa.table({"id": [1, 2, 3], "name": [f"n{number}"] * 3}), path)
    return made


def only_run(lake: Lake) -> SyncRun:
    (run,) = runs.list_runs(lake.registry)
    return run


def counted(rows: int, size: int) -> SyncRunStatistics:
    return SyncRunStatistics(records_processed=rows, records_inserted=rows, bytes_processed=size)


def test_an_append_of_files_is_a_run_with_what_came_and_where_it_went(lake: Lake, files: list[Path]) -> None:
    result = lake.append(NAME, iter(files))
    run = only_run(lake)
    assert (run.status, run.sync_mode, run.schema_name) == (SyncStatus.COMPLETED, SyncMode.BATCH, "sales")
    assert run.statistics == counted(6, result.bytes)
    assert run.source_info == {"kind": "files", "count": 2, "first": [str(path) for path in files]}
    assert run.destination_info == {"table": NAME}


def test_a_replayed_batch_is_a_run_that_inserted_nothing(lake: Lake, files: list[Path]) -> None:
    lake.append(NAME, files, batch=("s", "1"))
    assert lake.append(NAME, files, batch=("s", "1")).replayed
    newest, first = runs.list_runs(lake.registry)
    assert (first.records_inserted, newest.records_inserted) == (6, 0)
    assert newest.status == SyncStatus.COMPLETED


def test_rows_and_arrow_data_are_no_runs(lake: Lake) -> None:
    lake.append(NAME, ROWS)
    lake.append(NAME, pa.Table.from_pylist(ROWS))
    lake.append(NAME, iter(ROWS))
    assert rows_of(lake.registry, "sync_runs") == []


def test_a_failed_append_leaves_a_failed_run_and_an_error_with_its_trace(
    lake: Lake, files: list[Path], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.parquet"
    pq.write_table(pa.table({"id": ["text"], "name": ["n"]}), bad)
    with pytest.raises(FileRefused, match="id") as caught:
        lake.append(NAME, [*files, bad])
    run = only_run(lake)
    (error,) = error_log.list_errors(lake.registry)
    assert (run.status, run.records_processed) == (SyncStatus.FAILED, 0)
    assert run.error_message == error.error_message == str(caught.value)
    assert (error.sync_run_id, error.table_name, error.error_type) == (run.id, "orders", ErrorType.SCHEMA)
    assert (error.error_code, error.operation_type) == ("file_refused", OperationType.INSERT)
    assert "import_files" in (error.stack_trace or "")
    assert lake.table(NAME).row_count == 0


def test_any_write_may_join_a_run_whose_counts_grow_with_the_rows(lake: Lake, files: list[Path]) -> None:
    run = runs.start(lake.registry, "sales", SyncMode.BATCH)
    storage = StorageManager(lake)
    sizes = [
        lake.append(NAME, ROWS, run=run).bytes,
        lake.append(NAME, files, run=run.id).bytes,
        storage.insert_data("sales", "orders", ROWS, run=run).bytes,
        storage.insert_partition("sales", "orders", {"name": "n1"}, [{"id": 7, "name": "n1"}], run=run).bytes,
    ]
    with lake.writer(NAME, run=run) as writer:
        writer.write(ROWS)
    sizes += [commit.bytes for commit in writer.commits]
    found = only_run(lake)
    assert found.status == SyncStatus.RUNNING, "it is the caller's to end"
    assert found.statistics == counted(6 + 6 + 6 + 1 + 6, sum(sizes))
    assert found.last_seen_at > run.last_seen_at
    ended = runs.complete(lake.registry, run.id)
    assert ended.statistics == found.statistics
    with pytest.raises(StatusConflict, match="it is completed since"):
        lake.append(NAME, ROWS, run=run)
    with pytest.raises(SyncRunNotFound):
        lake.writer(NAME, run=99)
    assert lake.table(NAME).row_count == 6 + 6 + 6 + 1 + 6 - 7, "and what was refused is not there"


def test_a_partition_replaced_by_files_and_files_that_are_registered_are_runs(lake: Lake, files: list[Path]) -> None:
    storage = StorageManager(lake)
    storage.insert_partition("sales", "orders", {"name": "n0"}, files[0])
    storage.insert_partition("sales", "orders", {"name": "n0"}, [{"id": 1, "name": "n0"}])
    assert only_run(lake).statistics.records_inserted == 3


def test_a_writer_is_one_run_for_its_life(lake: Lake) -> None:
    with lake.writer(NAME, rotate_rows=6) as writer:
        run = only_run(lake)
        assert (run.status, run.sync_mode) == (SyncStatus.RUNNING, SyncMode.STREAM)
        assert run.heartbeat_at is not None
        writer.write(ROWS)
        assert only_run(lake).records_inserted == 6
        writer.write(ROWS[:2])
    run = only_run(lake)
    assert run.status == SyncStatus.COMPLETED
    assert run.statistics == counted(8, sum(commit.bytes for commit in writer.commits))


def test_a_writer_whose_block_fails_is_a_failed_run_without_the_rows_that_were_not_registered(lake: Lake) -> None:
    with pytest.raises(ZeroDivisionError), lake.writer(NAME, rotate_rows=6) as writer:
        writer.write(ROWS)
        writer.write(ROWS[:2])
        raise ZeroDivisionError
    run = only_run(lake)
    assert (run.status, run.records_inserted) == (SyncStatus.FAILED, 6)


def test_a_writer_that_lost_rows_is_a_failed_run_even_if_the_caller_went_on(lake: Lake) -> None:
    lake.drop_table(NAME)
    make_table(lake, NAME)
    with lake.writer(NAME) as writer:
        writer.write(ROWS)
        lake.drop_table(NAME)
        with pytest.raises(Exception, match="dropped"):
            writer.rotate()
    run = only_run(lake)
    (error,) = error_log.list_errors(lake.registry)
    assert (run.status, run.records_inserted, error.sync_run_id) == (SyncStatus.FAILED, 0, run.id)


def test_a_compaction_is_a_run_where_it_has_a_job(lake: Lake) -> None:
    make_table(lake, "sales.landing", format="json")
    for _ in range(3):
        lake.append("sales.landing", ROWS)
    size = lake.table("sales.landing").landing_size
    working = Compactor(lake.registry)
    working.on_refresh()
    working.run_once()
    working.on_refresh()
    working.run_once()
    run = only_run(lake)
    assert (run.status, run.schema_name, run.source_info) == (SyncStatus.COMPLETED, "sales", {"component": "compactor"})
    assert run.destination_info == {"table": "sales.landing"}
    assert run.statistics == SyncRunStatistics(records_processed=18, bytes_processed=size)


def test_a_compaction_that_fails_leaves_a_failed_run_and_its_errors(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(lake, "sales.landing", format="json")
    for _ in range(3):
        lake.append("sales.landing", ROWS)

    def broken(*_: object, **__: object) -> None:
        raise StorageError("the disk is on fire")

    monkeypatch.setattr(compaction, "write_arrow", broken)
    working = Compactor(lake.registry)
    working.on_refresh()
    working.run_once()
    run = only_run(lake)
    (error,) = error_log.list_errors(lake.registry)
    assert (run.status, run.records_processed) == (SyncStatus.FAILED, 0)
    assert (error.sync_run_id, error.error_code, error.error_type) == (run.id, "storage_error", ErrorType.RESOURCE)
    assert "in broken" in (error.stack_trace or "")


def test_a_consumer_that_is_closed_after_a_failed_poll_has_failed(lake: Lake) -> None:
    MetadataStore(lake).create_topic(TopicConfig("orders", 1))
    lake.log.append("orders", ["a", "b"])
    consumer = lake.log.consumer("orders", "g")
    assert len(consumer.poll()) == 2
    MetadataStore(lake).delete_topic("orders")
    with pytest.raises(TopicNotFound):
        consumer.poll()
    consumer.close()
    run = only_run(lake)
    assert (run.status, run.records_processed) == (SyncStatus.FAILED, 2)
    assert [error.sync_run_id for error in error_log.list_errors(lake.registry)] == [run.id]
