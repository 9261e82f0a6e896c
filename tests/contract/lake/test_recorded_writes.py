"""Which writes are runs, what their runs say, and what a failed one leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from lakeward import Lake, MetadataStore, TopicConfig
from lakeward.components.compactor import Compactor
from lakeward.errors import (
    FileRefused,
    RegistryUnavailable,
    StatusConflict,
    StorageError,
    SyncRunNotFound,
    TopicNotFound,
)
from lakeward.lake import ingest
from lakeward.lake.storage_manager import StorageManager
from lakeward.maintenance import compaction, compaction_plan
from lakeward.ops import dead_letters, error_log, runs
from lakeward.ops.records.operations import ErrorType, OperationType, SyncMode, SyncRun, SyncRunStatistics, SyncStatus
from lakeward.tables import compaction as swaps
from lakeward.tables import registration
from lakeward.tables.records import properties
from tests.support.lakes import ROWS, make_table, open_lake

NAME = "sales.orders"
COMPACTOR = {"component": "compactor"}


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


def only_run(lake: Lake, source: dict[str, Any] | None = None) -> SyncRun:
    """The only one, or the only one of this source."""
    (run,) = [run for run in runs.list_runs(lake.registry) if source in (None, run.source_info)]
    return run


def counted(rows: int, size: int) -> SyncRunStatistics:
    return SyncRunStatistics(records_processed=rows, records_inserted=rows, bytes_processed=size)


@contextmanager
def statements(lake: Lake) -> Iterator[list[str]]:
    """What the registry is told in a block, commits too."""
    seen: list[str] = []
    engine = lake.registry.database.engine

    def executed(_: Any, __: Any, statement: str, *___: Any) -> None:
        seen.append(statement)

    def committed(_: Any) -> None:
        seen.append("COMMIT")

    sa.event.listen(engine, "before_cursor_execute", executed)
    sa.event.listen(engine, "commit", committed)
    try:
        yield seen
    finally:
        sa.event.remove(engine, "before_cursor_execute", executed)
        sa.event.remove(engine, "commit", committed)


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


@pytest.mark.parametrize(("made", "kind"), [(list, "rows"), (pa.Table.from_pylist, "arrow"), (iter, "rows")])
def test_an_append_of_rows_is_a_run_too(lake: Lake, made: Callable[[Any], Any], kind: str) -> None:
    result = lake.append(NAME, made(ROWS))
    run = only_run(lake)
    assert (run.status, run.sync_mode, run.schema_name) == (SyncStatus.COMPLETED, SyncMode.BATCH, "sales")
    assert run.statistics == counted(6, result.bytes)
    assert (run.source_info, run.destination_info) == ({"kind": kind}, {"table": NAME})
    assert run.instance_id == lake.registry.owner


@pytest.mark.parametrize(
    "data",
    [
        [{"id": 1, "name": "n"}] * 3,
        pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}),
        {"id": [1, 2, 3], "name": ["a", "b", "c"]},
    ],
)
def test_the_run_of_many_rows_is_seen_under_way(lake: Lake, monkeypatch: pytest.MonkeyPatch, data: Any) -> None:
    lake.append(NAME, data)
    monkeypatch.setattr(ingest, "SHORT_ROWS", 2)
    lake.append(NAME, data)
    long, short = runs.list_runs(lake.registry)
    assert (short.heartbeat_at, long.heartbeat_at) == (None, long.started_at)
    assert (long.status, long.statistics) == (short.status, short.statistics)


def test_the_run_of_an_append_of_rows_is_written_by_the_transaction_that_registers_them(lake: Lake) -> None:
    with statements(lake) as seen:
        lake.append(NAME, ROWS)
    commits = " ".join("|" if text == "COMMIT" else text.split("(")[0] for text in seen).split("|")
    (registering,) = [each for each in commits if "INSERT INTO table_files" in each]
    assert registering.count("INSERT INTO sync_runs") == 1
    assert sum("sync_runs" in text for text in seen) == 1, "and by one statement"
    run, file = only_run(lake), lake.files(NAME)[0]
    assert run.completed_at is not None and run.duration_ms is not None
    assert run.started_at < run.completed_at == run.last_seen_at == file.registered_at


def test_appends_of_rows_that_share_a_transaction_have_a_run_each(lake: Lake) -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda i: lake.append(NAME, [{"id": i, "name": "n"}] * (i + 1)), range(24)))
    found = {run.bytes_processed: run for run in runs.list_runs(lake.registry)}
    assert len(runs.list_runs(lake.registry)) == 24
    assert sorted(run.records_inserted for run in runs.list_runs(lake.registry)) == list(range(1, 25))
    assert all(result.bytes in found for result in results)


def test_an_append_of_rows_that_changes_nothing_is_a_run_of_no_rows(lake: Lake) -> None:
    lake.append(NAME, ROWS, batch=("s", "1"))
    assert lake.append(NAME, ROWS, batch=("s", "1")).replayed
    assert lake.append(NAME, iter(ROWS), batch=("s", "1")).replayed
    lake.append(NAME, [])
    *others, first = runs.list_runs(lake.registry)
    assert [run.statistics for run in others] == [SyncRunStatistics()] * 3
    assert {run.status for run in others} == {SyncStatus.COMPLETED}
    assert first.records_inserted == 6


def test_a_failed_append_of_rows_leaves_one_failed_run_and_its_error(lake: Lake) -> None:
    with pytest.raises(FileRefused, match="id") as caught:
        lake.append(NAME, [*ROWS, {"id": "text"}])
    run = only_run(lake)
    (error,) = error_log.list_errors(lake.registry)
    assert (run.status, run.statistics, run.source_info) == (SyncStatus.FAILED, SyncRunStatistics(), {"kind": "rows"})
    assert run.error_message == error.error_message == str(caught.value)
    assert (error.sync_run_id, error.schema_name, error.table_name) == (run.id, "sales", "orders")
    assert (error.error_code, error.operation_type, error.max_retries) == ("file_refused", OperationType.INSERT, 0)
    assert "write_arrow" in (error.stack_trace or "")
    assert lake.table(NAME).row_count == 0


def test_an_interrupted_append_of_rows_is_a_cancelled_run_and_no_error(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(registration, "register", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lake.append(NAME, ROWS)
    assert only_run(lake).status == SyncStatus.CANCELLED
    assert error_log.list_errors(lake.registry) == []


def test_where_a_failed_append_of_rows_cannot_be_written_down_its_own_error_goes_on_and_the_log_has_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object, **__: object) -> None:
        raise RegistryUnavailable("no answer")

    monkeypatch.setattr(error_log, "log", gone)
    with capture_logs() as logs, pytest.raises(FileRefused, match="id"):
        lake.append(NAME, [{"id": "text"}])
    assert [(each["event"], each["code"]) for each in logs] == [("error_not_recorded", "registry_unavailable")]
    assert runs.list_runs(lake.registry) == [], "the run and its error are one transaction"


def test_dead_letters_of_an_append_of_rows_name_its_run(lake: Lake) -> None:
    lake.set_properties(NAME, {"lakeward.invalid-rows": "dead-letter"})
    result = lake.append(NAME, [*ROWS, {"id": "text"}])
    run = only_run(lake)
    (letter,) = dead_letters.list_dead_letters(lake.registry)
    assert letter.sync_run_id == run.id
    assert run.statistics == SyncRunStatistics(records_processed=7, records_inserted=6, bytes_processed=result.bytes)


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
    assert found.records_deleted == 7, "rows of the replaced partition"
    assert msgspec.structs.replace(found.statistics, records_deleted=0) == counted(6 + 6 + 6 + 1 + 6, sum(sizes))
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
    storage.insert_partition("sales", "orders", {"name": "n0"}, [])
    found = [run.statistics for run in runs.list_runs(lake.registry)[::-1]]
    assert [each.records_inserted for each in found] == [3, 1, 0]
    assert [each.records_deleted for each in found] == [0, 3, 1], "what the rows replaced"
    assert [each.records_processed for each in found] == [3, 1, 0]


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
    run = only_run(lake, COMPACTOR)
    assert (run.status, run.schema_name) == (SyncStatus.COMPLETED, "sales")
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
    run = only_run(lake, COMPACTOR)
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


# Whatever ends the program ------------------------------------------------------------------------------------------------
def ended_after(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, before: Callable[[], object] | None = None
) -> None:
    """Have a function of the registry end the program once it is done."""
    real = getattr(module, name)

    def called(*given: Any, **named: Any) -> Any:
        if before is not None:
            before()
        real(*given, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, name, called)


def test_files_that_were_appended_are_a_completed_run_though_the_program_ended_then(
    lake: Lake, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_after(monkeypatch, registration, "register")
    with pytest.raises(KeyboardInterrupt):
        lake.append(NAME, files)
    run = only_run(lake)
    assert (run.status, run.records_inserted, lake.scan(NAME).read_all().num_rows) == (SyncStatus.COMPLETED, 6, 6)


@pytest.mark.parametrize("is_left_open", [False, True])
def test_a_compaction_that_was_committed_is_a_completed_run_with_its_rows_whatever_ended_the_program(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, is_left_open: bool
) -> None:
    make_table(lake, "sales.landed", format="json")
    for _ in range(3):
        lake.append("sales.landed", ROWS)

    def cancelled() -> None:
        """As when a lake is closed under its compaction."""
        runs.complete(lake.registry, only_run(lake, COMPACTOR).id, SyncStatus.CANCELLED, error_message="left open")

    ended_after(monkeypatch, swaps, "swap", cancelled if is_left_open else None)
    with pytest.raises(KeyboardInterrupt):
        compaction.compact_table(lake.registry, lake.table("sales.landed"), no_session)
    run = only_run(lake, COMPACTOR)
    assert (run.status, run.records_processed, run.error_message) == (SyncStatus.COMPLETED, 18, None)
    assert run.bytes_processed > 0
    assert len(lake.files("sales.landed")) == 1 and lake.scan("sales.landed").read_all().num_rows == 18


def no_session() -> Any:
    raise AssertionError("JSON lines need no Spark")


def test_a_compaction_that_is_stopped_is_cancelled_and_counts_the_jobs_that_were_committed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(lake, "sales.landed", format="json", partition_by=["name"])
    lake.append("sales.landed", ROWS)
    lake.set_properties("sales.landed", {properties.COMPACTION_SIZE.name: "1"})  # a job for each file
    jobs: list[object] = []
    real = swaps.swap

    def second_fails(*given: Any, **named: Any) -> Any:
        if jobs:
            raise StorageError("as a job does that Spark was told to end")
        return real(*given, **named)

    monkeypatch.setattr(swaps, "swap", second_fails)
    planned = compaction_plan.plan(lake.registry, lake.table("sales.landed"))
    assert len(planned.jobs) > 1
    with pytest.raises(compaction.Stopped):
        compaction.compact_table(
            lake.registry,
            lake.table("sales.landed"),
            no_session,
            on_job=lambda job, _: jobs.append(job),
            is_stopped=lambda: True,
        )
    run = only_run(lake, COMPACTOR)
    assert (run.status, run.records_processed) == (
        SyncStatus.CANCELLED,
        sum(file.row_count for file in planned.jobs[0].files),
    )
    assert error_log.list_errors(lake.registry) == []
