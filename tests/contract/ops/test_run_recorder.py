"""The pipeline's own runs: what they leave behind when they end, fail, are interrupted or forgotten. On both databases."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from lakeward.db import dialect
from lakeward.errors import FileRefused, RegistryUnavailable, StatusConflict, SyncRunNotFound
from lakeward.ops import error_log, heartbeats, run_recorder, runs
from lakeward.ops.records.operations import (
    ErrorRecord,
    ErrorStatus,
    ErrorType,
    OperationType,
    SyncMode,
    SyncRun,
    SyncRunStatistics,
    SyncStatus,
)
from lakeward.ops.run_recorder import Recorder, recorded
from lakeward.registry import Registry, intents
from tests.support import registries
from tests.support.registries import rows_of
from tests.support.waiting import until

LOOKED_AT = SyncRunStatistics(records_processed=3, bytes_processed=9)


def only_run(registry: Registry) -> SyncRun:
    (run,) = runs.list_runs(registry)
    return run


def only_error(registry: Registry) -> ErrorRecord:
    (error,) = error_log.list_errors(registry)
    return error


def test_a_block_is_a_run_that_is_completed_with_its_totals(registry: Registry) -> None:
    source = {"kind": "files", "url": "https://u:pw@host/x"}
    with recorded(registry, "shop", SyncMode.BATCH, source_info=source, destination_info={"table": "shop.o"}) as run:
        started = runs.get(registry, run.run_id)
        assert (started.status, started.heartbeat_at) == (SyncStatus.RUNNING, started.started_at)
        run.add(records_processed=1)
        run.add(records_processed=2, bytes_processed=9)
        assert run.statistics == LOOKED_AT
    ended = only_run(registry)
    assert (ended.status, ended.statistics, ended.sync_mode) == (SyncStatus.COMPLETED, LOOKED_AT, SyncMode.BATCH)
    assert ended.instance_id == registry.owner
    assert "pw" not in str(ended.source_info)
    assert rows_of(registry, "error_log") == []


def test_an_exception_leaves_a_failed_run_and_an_error_with_its_trace_and_goes_on_unchanged(registry: Registry) -> None:
    raised = FileRefused("wrong_type", "column a is text; password=hunter2")
    with (
        pytest.raises(FileRefused) as caught,
        recorded(registry, "shop", SyncMode.BATCH, table_name="orders", operation=OperationType.INSERT) as run,
    ):
        run.add(records_processed=3, bytes_processed=9)
        raise raised
    assert caught.value is raised
    ended, error = only_run(registry), only_error(registry)
    assert (ended.status, ended.statistics) == (SyncStatus.FAILED, LOOKED_AT)
    assert "column a is text" in (ended.error_message or "")
    assert (error.error_type, error.error_code, error.status) == (ErrorType.SCHEMA, "file_refused", ErrorStatus.OPEN)
    assert (error.schema_name, error.table_name, error.sync_run_id) == ("shop", "orders", ended.id)
    assert (error.operation_type, error.max_retries, error.next_retry_at) == (OperationType.INSERT, 0, None)
    assert "raise raised" in (error.stack_trace or "")
    assert "hunter2" not in f"{error}{ended}"


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_cancels_the_run_and_is_no_error(registry: Registry, interrupt: type[BaseException]) -> None:
    with pytest.raises(interrupt), recorded(registry, "shop", SyncMode.STREAM):
        raise interrupt
    assert only_run(registry).status == SyncStatus.CANCELLED
    assert rows_of(registry, "error_log") == []


def test_heartbeats_carry_what_was_counted_while_the_block_runs(registry: Registry) -> None:
    with recorded(registry, "shop", SyncMode.STREAM, heartbeat_seconds=0.01) as run:
        run.add(records_processed=3, bytes_processed=9)
        until(lambda: only_run(registry).statistics == LOOKED_AT)
        beat = only_run(registry).heartbeat_at
        until(lambda: only_run(registry).heartbeat_at != beat)
        assert only_run(registry).status == SyncStatus.RUNNING


def test_counts_of_writes_that_joined_are_not_overwritten_by_heartbeats_and_the_end(registry: Registry) -> None:
    with recorded(registry, "shop", SyncMode.STREAM) as run:
        with registry.database.transaction() as connection:
            runs.add_in(connection, run.run_id, LOOKED_AT, dialect.now(connection))
        assert only_run(registry).last_seen_at > only_run(registry).started_at
        run.flush()
    assert only_run(registry).statistics == LOOKED_AT


def test_a_run_that_was_given_up_meanwhile_does_not_break_the_work_and_its_error_is_kept(registry: Registry) -> None:
    with capture_logs() as logs, recorded(registry, "shop", SyncMode.BATCH) as run:
        runs.complete(registry, run.run_id, SyncStatus.FAILED, error_message="given up")
        run.flush()
        with registry.database.transaction() as connection:
            runs.add_in(connection, run.run_id, LOOKED_AT, dialect.now(connection))
    assert [each["event"] for each in logs if each["log_level"] == "warning"] == [
        "sync_run_heartbeat_failed",
        "sync_run_end_not_recorded",
    ]
    ended = only_run(registry)
    assert (ended.status, ended.error_message) == (SyncStatus.FAILED, "given up")
    assert ended.statistics == LOOKED_AT, "what is committed was done"
    with pytest.raises(ZeroDivisionError), recorded(registry, "shop", SyncMode.BATCH) as run:
        runs.complete(registry, run.run_id, SyncStatus.CANCELLED)
        raise ZeroDivisionError
    assert only_error(registry).error_code == "ZeroDivisionError"


@pytest.mark.parametrize("before", [None, SyncStatus.FAILED, SyncStatus.CANCELLED])
def test_a_commit_that_is_all_of_a_run_completes_it_whatever_was_said_of_it_before_and_after(
    registry: Registry, before: SyncStatus | None
) -> None:
    with pytest.raises(SystemExit), recorded(registry, "shop", SyncMode.BATCH, is_last=True) as run:
        if before is not None:
            runs.complete(registry, run.run_id, before, error_message="given up")
        with registry.database.transaction() as connection:
            run.count(connection, LOOKED_AT, dialect.now(connection))
        raise SystemExit
    ended = only_run(registry)
    assert (ended.status, ended.statistics, ended.error_message) == (SyncStatus.COMPLETED, LOOKED_AT, None)


def test_where_the_registry_is_gone_that_is_logged_and_the_works_own_error_goes_on(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any, **__: Any) -> Any:
        raise RegistryUnavailable("no answer")

    with capture_logs() as logs, pytest.raises(ZeroDivisionError), recorded(registry, "shop", SyncMode.BATCH) as run:
        monkeypatch.setattr(registry.database, "transaction", gone)
        run.flush()
        raise ZeroDivisionError
    assert [each["event"] for each in logs] == [
        "sync_run_heartbeat_failed",
        "error_not_recorded",
        "sync_run_end_not_recorded",
    ]
    assert {each["code"] for each in logs} == {"registry_unavailable"}


def test_a_run_ends_once_and_an_error_is_written_down_once(registry: Registry) -> None:
    run = Recorder(registry, "shop", SyncMode.STREAM)
    error = ValueError("x" * 100_000)
    run.failed(error)
    run.end(error)
    run.end()
    run.flush()
    assert only_run(registry).status == SyncStatus.FAILED
    found = only_error(registry)
    assert len(found.error_message) < 5_000
    assert len(found.stack_trace or "") < 70_000
    assert (found.stack_trace or "").startswith("ValueError: xxx")


def test_runs_that_are_open_when_the_registry_is_closed_are_cancelled(made_url: str, tmp_path: Path) -> None:
    with registries.open_at(made_url, tmp_path) as closing:
        Recorder(closing, "shop", SyncMode.STREAM).add(records_processed=3, bytes_processed=9)
    with registries.open_at(made_url, tmp_path) as registry:
        ended = only_run(registry)
        assert (ended.status, ended.statistics) == (SyncStatus.CANCELLED, LOOKED_AT)
        assert ended.error_message == run_recorder.LEFT_OPEN


def test_a_run_whose_owner_is_forgotten_is_cancelled(registry: Registry) -> None:
    class Owner:
        run: Recorder

    owner = Owner()
    owner.run = Recorder(registry, "shop", SyncMode.STREAM, owner=owner, heartbeat_seconds=0.02)
    del owner
    gc.collect()
    until(lambda: only_run(registry).status == SyncStatus.CANCELLED)


def test_all_runs_of_a_handle_share_one_thread_which_ends_with_it(made_url: str, tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with registries.open_at(made_url, tmp_path) as registry:
        open_runs = [Recorder(registry, "shop", SyncMode.STREAM, heartbeat_seconds=s) for s in (100, 0.01, 50, 0.02)]
        begun = {run.id: run.heartbeat_at for run in runs.list_runs(registry)}
        until(lambda: sum(run.heartbeat_at != begun[run.id] for run in runs.list_runs(registry)) == 2)
        (thread,) = (each for each in set(threading.enumerate()) - before if each.name == "lakeward-runs")
        for run in open_runs:
            run.end()
        assert {run.status for run in runs.list_runs(registry)} == {SyncStatus.COMPLETED}
    until(lambda: not thread.is_alive())


def test_the_threads_of_a_handle_that_is_forgotten_without_being_closed_end(
    made_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeats, "IDLE_SECONDS", 0.05)
    before = set(threading.enumerate())
    registry = registries.open_at(made_url, tmp_path, lease_seconds=0.3)
    intents.open_intent(registry, registries.make_table(registry))
    with recorded(registry, "shop", SyncMode.BATCH, heartbeat_seconds=0.05):
        started = {each.name: each for each in set(threading.enumerate()) - before}
        assert {"lakeward-runs", "lakeward-leases"} <= started.keys()
    gone = weakref.ref(registry)
    del registry
    until(lambda: gc.collect() >= 0 and gone() is None)
    until(lambda: not any(started[name].is_alive() for name in ("lakeward-runs", "lakeward-leases")))


def test_a_run_after_a_pause_has_heartbeats_again(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "IDLE_SECONDS", 0.01)
    with recorded(registry, "shop", SyncMode.BATCH, heartbeat_seconds=0.01):
        pass
    until(lambda: not heartbeats.heartbeats_of(registry).is_alive)
    with recorded(registry, "shop", SyncMode.STREAM, heartbeat_seconds=0.01) as run:
        begun = runs.get(registry, run.run_id).heartbeat_at
        until(lambda: runs.get(registry, run.run_id).heartbeat_at != begun)


def test_work_goes_on_where_no_thread_can_send_its_heartbeats(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(threading.Thread, "start", refused)
        run = Recorder(registry, "shop", SyncMode.STREAM, heartbeat_seconds=0.01)
    assert [each["event"] for each in logs] == ["sync_run_without_heartbeats"]
    begun = runs.get(registry, run.run_id).heartbeat_at
    with recorded(registry, "shop", SyncMode.BATCH):  # starts the thread
        until(lambda: runs.get(registry, run.run_id).heartbeat_at != begun)
    run.end()
    assert {each.status for each in runs.list_runs(registry)} == {SyncStatus.COMPLETED}


def test_a_name_that_is_too_long_is_cut_and_stops_no_work(registry: Registry) -> None:
    with recorded(registry, "n" * 300, SyncMode.BATCH):
        pass
    assert only_run(registry).schema_name == "n" * 255


def test_only_a_run_that_is_under_way_may_be_joined(registry: Registry) -> None:
    with pytest.raises(SyncRunNotFound, match="no sync run 99"):
        runs.check_running(registry, 99)
    with recorded(registry, "shop", SyncMode.BATCH) as run:
        runs.check_running(registry, run.run_id)
    with pytest.raises(StatusConflict, match="can be joined by no write: it is completed since"):
        runs.check_running(registry, run.run_id)
