"""Many writers at once and a fault among them: nothing that was acknowledged is lost, nobody fails, counters are exact."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import psycopg

from lakeward import Lake
from lakeward.db import waits
from lakeward.tables import tables
from tests.contract.db import processes
from tests.faults.test_kills import recovered
from tests.support.lakes import assert_nothing_left_over, make_table, open_lake
from tests.support.registries import assert_exact, register, rows_of

NAME = "sales.orders"
LOCKED_SECONDS = waits.SAY_SECONDS + 2  # until they have said for whom they wait, and have waited on
THREADS = 4


@contextmanager
def locked_by_another_program(lake: Lake) -> Iterator[None]:
    """The registry's database is locked for writing by a connection that knows nothing of Lakeward's writer lock."""
    url = lake.registry.database.url
    if lake.registry.database.is_sqlite:
        connection = sqlite3.connect(str(url.database), isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")
            connection.close()
        return
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain) as opened:
        opened.execute("LOCK TABLE tables, pending_writes IN EXCLUSIVE MODE")
        yield
        opened.rollback()


def write_a_few(url: str, folder: str, started: str) -> None:
    """In a process of its own: four threads that register, after they have said that they are there."""
    with open_lake(url, Path(folder), durable=False) as lake:
        table = tables.load(lake.registry, NAME)
        Path(started).touch()
        with ThreadPoolExecutor(THREADS) as pool:
            for future in [pool.submit(register, lake.registry, table, [1]) for _ in range(2 * THREADS)]:
                future.result()


def test_writers_wait_for_a_registry_that_is_locked_for_long_and_all_succeed(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, durable=False) as lake:
        table = make_table(lake, NAME)
        marks = [tmp_path / f"started-{number}" for number in range(3)]
        with locked_by_another_program(lake):
            started = processes.start(write_a_few, [(made_url, str(tmp_path), str(mark)) for mark in marks])
            deadline = time.monotonic() + LOCKED_SECONDS
            while not all(mark.exists() for mark in marks):
                assert processes.running(started)
                time.sleep(0.05)
            while (left := deadline - time.monotonic()) > 0:
                assert all(process.is_alive() for process in started)
                time.sleep(min(left, 0.1))
            assert rows_of(lake.registry, "table_files") == []
        processes.expect_success(started)
        assert lake.table(NAME).file_count == 3 * 2 * THREADS
        assert_exact(lake.registry, table)


def test_a_process_that_is_killed_in_the_midst_of_its_groups_loses_nothing_that_it_acknowledged(
    made_url: str, tmp_path: Path
) -> None:
    with open_lake(made_url, tmp_path) as lake:
        table = make_table(lake, NAME)
        acknowledged: list[str] = []
        for kill_after in (3, 17, 40):
            acknowledged += killed_after(made_url, tmp_path, kill_after)
        recovered(lake)
        files = {file.file_path for file in lake.files(NAME)}
        assert set(acknowledged) <= files
        # What was committed and could not be said any more: at most one registration of each thread, each time.
        assert len(files) <= len(acknowledged) + 3 * 8
        assert lake.scan(NAME).read_all().num_rows == lake.table(NAME).row_count == len(files)
        assert_exact(lake.registry, table)
        assert_nothing_left_over(lake, NAME)


def killed_after(made_url: str, folder: Path, count: int) -> list[str]:
    """Paths that a process with eight writing threads has acknowledged, the last of them after it was to be killed."""
    ours, theirs = processes.CONTEXT.Pipe(duplex=False)
    [writer] = processes.start(write_for_ever, [(made_url, folder, theirs)])
    theirs.close()
    said: list[str] = []
    with contextlib.suppress(EOFError, OSError):
        while True:
            said.append(ours.recv())
            if len(said) == count:
                writer.kill()
    writer.join()
    assert writer.exitcode == -signal.SIGKILL
    assert len(said) >= count
    return said


def write_for_ever(made_url: str, folder: Path, parent: Connection) -> None:
    """Eight threads that append a row again and again, and say each file once it is acknowledged."""
    saying = threading.Lock()
    with open_lake(made_url, folder) as lake:

        def work(number: int) -> None:
            while True:
                (path,) = lake.append(NAME, [{"id": number, "name": "n"}]).files
                with saying:
                    parent.send(path)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
