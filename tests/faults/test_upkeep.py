"""Upkeep that is killed at any moment, while other processes write: no write fails, and the registry is whole."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

from lakeward.db import schema
from lakeward.maintenance import database_upkeep
from lakeward.registry import Registry
from lakeward.tables import tables
from tests.contract.db import processes
from tests.support.registries import NAME, assert_exact, make_table, open_at, register, rows_of

KILLS = 5
BETWEEN = 60  # so many files are registered between two kills


def write(url: str, folder: Path, enough: Path) -> None:
    """Register files, and make free space in the middle of the database by trimming the feed. At the end say how many."""
    with open_at(url, folder) as registry:
        table = tables.load(registry, NAME)
        for number in itertools.count():
            if enough.exists():
                (folder / f"registered-{os.getpid()}").write_text(str(10 * number))
                break
            register(registry, table, *[(1, 2)] * 10)
            if number % 5 == 4:
                with registry.database.transaction() as connection:
                    connection.execute(schema.registry_changes.delete())


def look_after_for_ever(url: str, folder: Path) -> None:
    with open_at(url, folder) as registry:
        while True:
            database_upkeep.vacuum(registry)
            database_upkeep.look_after(registry)
            if registry.database.is_sqlite:
                database_upkeep.checkpoint(registry)
            database_upkeep.vacuum(registry, full=True)


def files(registry: Registry) -> int:
    return tables.load(registry, NAME).file_count


def test_upkeep_that_is_killed_costs_no_writer_a_write(made_url: str, tmp_path: Path) -> None:
    with open_at(made_url, tmp_path) as registry:
        table = make_table(registry)
        enough = tmp_path / "enough"
        writers = processes.start(write, [(made_url, tmp_path, enough)] * 2)
        for _ in range(KILLS):
            [looking_after] = processes.start(look_after_for_ever, [(made_url, tmp_path)])
            until = files(registry) + BETWEEN
            while files(registry) < until:
                assert all(writer.is_alive() for writer in writers)
                time.sleep(0.01)
            looking_after.kill()
            looking_after.join()
        enough.touch()
        processes.expect_success(writers)
        registered = sum(int(said.read_text()) for said in tmp_path.glob("registered-*"))
        assert registered == files(registry) >= KILLS * BETWEEN
        assert_exact(registry, table)
        database_upkeep.vacuum(registry, full=True)
        assert len(rows_of(registry, "table_files")) == registered
        if registry.database.is_sqlite:
            with registry.database.read() as connection:
                assert connection.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
