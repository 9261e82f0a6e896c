"""Runs of writers that are killed: given up once their heartbeats stop, with what was committed; living ones go on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from lakeward import Lake
from lakeward.db import schema
from lakeward.lake.rolling import RollingWriter
from lakeward.ops import runs
from lakeward.ops.records.operations import SyncRun, SyncRunStatistics, SyncStatus
from tests.contract.db import processes
from tests.support.lakes import ROWS, make_table, open_lake
from tests.support.waiting import until

NAME = "sales.orders"
CONTEXT = processes.CONTEXT


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path) as opened:
        make_table(opened, NAME)
        yield opened


def _write(url: str, folder: Path) -> None:
    """Registers a file every few rows, until somebody kills it."""
    with open_lake(url, folder) as lake, lake.writer(NAME, rotate_rows=len(ROWS)) as writer:
        while True:
            writer.write(ROWS)


def _counted(lake: Lake) -> bool:
    return any(run.records_inserted for run in runs.list_runs(lake.registry))


def silence(lake: Lake, run: SyncRun) -> None:
    """Let an hour have passed since a run's last sign of life."""
    with lake.registry.database.transaction() as connection:
        change = schema.sync_runs.update().where(schema.sync_runs.c.id == run.id)
        connection.execute(change.values(last_seen_at=run.last_seen_at - timedelta(hours=1)))


def test_the_run_of_a_killed_writer_is_given_up_with_the_rows_it_registered_and_a_living_one_is_left_alone(
    lake: Lake, made_url: str, tmp_path: Path
) -> None:
    process = CONTEXT.Process(target=_write, args=[made_url, tmp_path], daemon=True)
    process.start()
    until(lambda: _counted(lake), lambda: runs.list_runs(lake.registry), 90)
    process.kill()
    process.join()
    (dead,) = runs.list_runs(lake.registry)
    until(lambda: runs.get(lake.registry, dead.id).records_inserted == lake.table(NAME).row_count)
    dead = runs.get(lake.registry, dead.id)
    size = lake.table(NAME).total_size
    assert dead.statistics == SyncRunStatistics(lake.table(NAME).row_count, lake.table(NAME).row_count, 0, 0, size)
    assert runs.recover(lake.registry, heartbeat_seconds=600) == [], "its heartbeats may still come"

    with RollingWriter(lake.registry, NAME) as writer:
        living = runs.list_runs(lake.registry)[0]
        for run in (dead, living):
            silence(lake, run)
        writer._run.flush()
        given_up = runs.recover(lake.registry, heartbeat_seconds=600)
        assert [(run.id, run.status) for run in given_up] == [(dead.id, SyncStatus.FAILED)]
        assert given_up[0].statistics == dead.statistics
        writer.write(ROWS)
    assert runs.get(lake.registry, living.id).status == SyncStatus.COMPLETED
    assert runs.get(lake.registry, living.id).records_inserted == len(ROWS)
