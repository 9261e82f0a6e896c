"""Sync runs: started, alive, ended once, given up when silent. On both databases."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lakeward.db import schema
from lakeward.errors import InvalidInput, StatusConflict, SyncRunNotFound
from lakeward.ops import runs
from lakeward.ops.records.operations import SyncMode, SyncRun, SyncRunStatistics, SyncStatus
from lakeward.registry import Registry
from tests.support.registries import rows_of

DONE = SyncRunStatistics(10_000, 8_000, 1_500, 500, 1 << 40)


def start(registry: Registry, name: str = "shop", **values: Any) -> SyncRun:
    return runs.start(registry, name, SyncMode.STREAM, **values)


def silence(registry: Registry, run_id: int, **ago: float) -> None:
    """Let a run have given no sign of life for so long."""
    moment = runs.get(registry, run_id).last_seen_at - timedelta(**ago)
    with registry.database.transaction() as connection:
        change = schema.sync_runs.update().where(schema.sync_runs.c.id == run_id)
        connection.execute(change.values(last_seen_at=moment, started_at=moment))


def test_a_run_is_started_and_completed_with_what_it_did(registry: Registry) -> None:
    run = start(registry, config_hash="c-1", source_info={"host": "db"}, instance_id="i", node_id="n")
    assert (run.status, run.completed_at, run.duration_ms) == (SyncStatus.RUNNING, None, None)
    assert run.source_info == {"host": "db"}
    ended = runs.complete(registry, run.id, SyncStatus.COMPLETED, DONE)
    assert ended.statistics == DONE
    assert ended.completed_at is not None and ended.duration_ms is not None
    assert ended.duration_ms == (ended.completed_at - ended.started_at) // timedelta(milliseconds=1)
    assert runs.get(registry, run.id) == ended


def test_statistics_on_the_way_are_kept_when_the_end_gives_none(registry: Registry) -> None:
    run = start(registry)
    assert runs.update_statistics(registry, run.id, DONE).statistics == DONE
    assert runs.complete(registry, run.id, SyncStatus.FAILED, error_message="lost").statistics == DONE


def test_a_run_that_has_ended_is_ended_again_in_the_same_way_alone(registry: Registry) -> None:
    run = start(registry)
    ended = runs.complete(registry, run.id, SyncStatus.COMPLETED, DONE)
    assert runs.complete(registry, run.id, SyncStatus.COMPLETED, DONE) == ended
    assert runs.complete(registry, run.id, SyncStatus.COMPLETED) == ended
    for status, statistics in ((SyncStatus.FAILED, None), (SyncStatus.COMPLETED, SyncRunStatistics(1))):
        with pytest.raises(StatusConflict, match=f"run {run.id} is completed since"):
            runs.complete(registry, run.id, status, statistics)
    with pytest.raises(StatusConflict, match="is completed since"):
        runs.heartbeat(registry, run.id)
    with pytest.raises(StatusConflict, match="is completed since"):
        runs.update_statistics(registry, run.id, DONE)
    assert runs.get(registry, run.id) == ended


def test_only_runs_of_which_nothing_was_heard_are_given_up(registry: Registry) -> None:
    old_and_healthy, silent, young, ended = (start(registry) for _ in range(4))
    silence(registry, old_and_healthy.id, days=90)
    runs.heartbeat(registry, old_and_healthy.id)
    silence(registry, silent.id, hours=25)
    silence(registry, young.id, hours=23)
    runs.complete(registry, ended.id)
    silence(registry, ended.id, hours=25)

    given_up = runs.recover(registry, max_age_hours=24)

    assert [run.id for run in given_up] == [silent.id]
    assert given_up[0].status == SyncStatus.FAILED
    assert "no sign of life since" in (given_up[0].error_message or "")
    assert runs.get(registry, silent.id) == given_up[0]
    assert runs.get(registry, young.id).status == SyncStatus.RUNNING
    assert runs.get(registry, old_and_healthy.id).status == SyncStatus.RUNNING
    assert runs.recover(registry) == []
    with pytest.raises(StatusConflict, match="is failed since"):
        runs.complete(registry, silent.id, SyncStatus.COMPLETED)


def test_a_run_that_sends_heartbeats_is_given_up_sooner(registry: Registry) -> None:
    with_heartbeats, without = start(registry), start(registry)
    runs.heartbeat(registry, with_heartbeats.id)
    for run in (with_heartbeats, without):
        silence(registry, run.id, hours=1)
    assert [run.id for run in runs.recover(registry, heartbeat_seconds=600)] == [with_heartbeats.id]


def test_a_clock_that_goes_back_gives_no_negative_duration(registry: Registry) -> None:
    run = start(registry)
    silence(registry, run.id, hours=-2)  # it started two hours ahead of now
    assert runs.heartbeat(registry, run.id).last_seen_at >= run.last_seen_at
    ended = runs.complete(registry, run.id)
    assert ended.duration_ms == 0
    assert ended.completed_at is not None and ended.completed_at >= ended.started_at


def test_runs_are_listed_newest_first_and_by_filter(registry: Registry) -> None:
    made = [start(registry, name) for name in ("a", "b", "a", "b", "a")]
    runs.complete(registry, made[0].id, SyncStatus.CANCELLED)
    assert [run.id for run in runs.list_runs(registry)] == [run.id for run in reversed(made)]
    assert [run.id for run in runs.list_runs(registry, "a", SyncStatus.RUNNING)] == [made[4].id, made[2].id]
    first = runs.list_runs(registry, limit=2)
    assert [run.id for run in runs.list_runs(registry, limit=2, before=first[-1].id)] == [made[2].id, made[1].id]
    assert runs.list_runs(registry, sync_mode=SyncMode.BATCH) == []
    assert runs.list_runs(registry, since=made[4].started_at + timedelta(hours=1)) == []


def test_what_is_wrong_is_refused_and_changes_nothing(registry: Registry) -> None:
    run = start(registry)
    before = rows_of(registry, "sync_runs")
    with pytest.raises(SyncRunNotFound, match="no sync run 99"):
        runs.get(registry, 99)
    with pytest.raises(SyncRunNotFound, match="no sync run 99"):
        runs.heartbeat(registry, 99)
    with pytest.raises(SyncRunNotFound):
        runs.complete(registry, 99)
    with pytest.raises(InvalidInput, match="'slow' is none of stream, batch, initial"):
        runs.start(registry, "shop", "slow")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="ends no run"):
        runs.complete(registry, run.id, SyncStatus.RUNNING)
    with pytest.raises(InvalidInput, match="records_processed -1"):
        runs.complete(registry, run.id, statistics=SyncRunStatistics(-1))
    with pytest.raises(InvalidInput, match="above 0"):
        runs.recover(registry, 0)
    assert rows_of(registry, "sync_runs") == before


def test_runs_are_found_by_the_table_that_they_write(registry: Registry) -> None:
    orders = start(registry, destination_info={"table": "shop.orders"})
    start(registry, destination_info={"table": "shop.lines"})
    start(registry, destination_info={"topic": "orders"})
    start(registry)
    elsewhere = start(registry, "depot", destination_info={"table": "depot.orders"})
    assert runs.list_runs(registry, table_name="shop.orders") == [orders]
    assert runs.list_runs(registry, table_name="orders") == [elsewhere, orders]
    assert runs.list_runs(registry, "shop", table_name="orders") == [orders]
    assert runs.list_runs(registry, table_name="shop") == []
    with pytest.raises(InvalidInput, match="table_name"):
        runs.list_runs(registry, table_name=3)  # type: ignore[arg-type]
