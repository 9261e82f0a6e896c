"""Forked children: what a parent has open is refused there by name, and what they open themselves is their own."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lakeward
from lakeward import Lake
from lakeward.errors import ForkedProcess
from lakeward.lake.rolling import RollingWriter
from lakeward.metadata import MetadataManager
from lakeward.ops.records.operations import SyncMode
from lakeward.registry import leases
from lakeward.registry.sql import leases as lease_store
from lakeward.storage.engines import engine_for
from tests.contract.db import processes, rows
from tests.support.lakes import make_table, open_lake
from tests.support.s3 import S3

FORK = multiprocessing.get_context("fork")
LOCK = type(threading.Lock())
NAME = "sales.orders"
ROW = [{"id": 1, "name": "n"}]


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path) as opened:
        make_table(opened, NAME)
        opened.append(NAME, ROW)
        opened.scan(NAME).read_all()
        yield opened


def in_children(work: Callable[..., None], *arguments: Any, count: int = 3) -> None:
    children = [FORK.Process(target=work, args=(*arguments, number)) for number in range(count)]
    for child in children:
        child.start()
    for child in children:
        child.join(120)
        if child.exitcode is None:
            child.kill()
    assert [child.exitcode for child in children] == [0] * count


def test_all_that_a_parents_lake_does_is_refused_in_a_child_and_nothing_of_it_is_touched(lake: Lake) -> None:
    lake.serve()
    with (
        lake.writer(NAME) as writer,
        MetadataManager(lake) as manager,
        leases.held(lake.registry, "lease", seconds=30) as lease,
    ):
        run = manager.start_sync_run("sales", SyncMode.BATCH)
        writer.write(ROW)
        in_children(_use, lake, writer, manager)
        assert manager.get_sync_run(run.id).status.value == "running"
        leases.renew(lake.registry, lease)
    assert lake.table(NAME).row_count == 2
    assert lake.audit(NAME).findings == []


def _use(lake: Lake, writer: RollingWriter, manager: MetadataManager, number: int) -> None:
    uses: list[Callable[[], object]] = [
        lambda: lake.append(NAME, ROW),
        lambda: lake.append(NAME, iter(ROW), batch=("s", str(number))),
        lambda: lake.scan(NAME),
        lambda: lake.table(NAME),
        lambda: lake.tables(),
        lambda: lake.flush(NAME),
        lambda: lake.recover(),
        lambda: lake.clean(),
        lambda: lake.serve(),
        lambda: lake.writer(NAME),
        lambda: lake.log.append("t", ["x"]),
        lambda: writer.write(ROW),
        lambda: writer.rotate(),
        lambda: writer.close(),
        lambda: manager.start_sync_run("sales", SyncMode.BATCH),
        lambda: manager.update_stream_position("sales", {"lsn": 1}),
        lambda: manager.get_stream_position("sales"),
        lambda: manager.transaction().__enter__(),
    ]
    for use in uses:
        with pytest.raises(ForkedProcess, match=rf"opened by process {os.getppid()}.*lakeward\.connect") as caught:
            use()
        assert caught.value.code == "forked_process"
    manager.close()
    lake.close()


def test_children_open_lakes_of_their_own_while_their_parent_goes_on(lake: Lake, made_url: str, tmp_path: Path) -> None:
    children = [FORK.Process(target=_append, args=(lake, made_url, tmp_path, 5)) for _ in range(3)]
    for child in children:
        child.start()
    for _ in range(10):
        lake.append(NAME, ROW)
    for child in children:
        child.join(120)
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert lake.table(NAME).row_count == lake.scan(NAME).read_all().num_rows == 1 + 10 + 3 * 5
    assert lake.audit(NAME).findings == []


def _append(inherited: Lake, url: str, folder: Path, count: int) -> None:
    inherited.close()  # is the parent's, and stays open
    with open_lake(url, folder) as lake:
        for _ in range(count):
            lake.append(NAME, ROW)
        lake.flush(NAME)


def test_workers_that_a_server_forks_after_it_has_loaded_the_program_serve_each_by_its_own(
    lake: Lake, made_url: str, tmp_path: Path
) -> None:
    """As gunicorn does with preload_app: the program is imported once, then workers are forked, and ended by a signal."""

    @functools.cache
    def lake_of(_process: int) -> Lake:
        return open_lake(made_url, tmp_path)

    ended = []
    for _ in range(2):
        worker = os.fork()
        if worker == 0:
            signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
            try:
                with pytest.raises(ForkedProcess):
                    lake.append(NAME, ROW)
                for _ in range(3):
                    lake_of(os.getpid()).append(NAME, ROW)
                while True:
                    time.sleep(1)
            finally:
                os._exit(1)
        ended.append(worker)
    deadline = time.monotonic() + 60
    while lake.table(NAME).row_count < 1 + 2 * 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    for worker in ended:
        os.kill(worker, signal.SIGTERM)
        assert os.waitpid(worker, 0)[1] == 0
    lake.append(NAME, ROW)
    assert lake.scan(NAME).read_all().num_rows == 1 + 2 * 3 + 1


def test_a_child_that_is_forked_in_the_midst_of_threads_that_write_hangs_nowhere(
    lake: Lake, made_url: str, tmp_path: Path
) -> None:
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            lake.append(NAME, ROW)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        in_children(_append_or_be_refused, lake, made_url, tmp_path, count=4)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert lake.audit(NAME).findings == []


def _append_or_be_refused(inherited: Lake, url: str, folder: Path, _: int) -> None:
    with pytest.raises(ForkedProcess):
        inherited.append(NAME, ROW)
    # SQLite may be in use just then, for longer than a fork waits.
    with contextlib.suppress(ForkedProcess) if url.startswith("sqlite") else contextlib.nullcontext():
        _append(inherited, url, folder, 1)


@pytest.mark.on("sqlite")
def test_what_a_fork_closes_is_in_use_by_no_thread(made_url: str, tmp_path: Path) -> None:
    """Before a fork the connections of look-ups are closed; one that a thread uses at that moment would end the process."""
    processes.expect_success(processes.start(_look_up_and_close, [(made_url, tmp_path)]))


def _look_up_and_close(url: str, folder: Path) -> None:
    with open_lake(url, folder) as lake:
        make_table(lake, NAME)
        stop = threading.Event()

        def look() -> None:
            while not stop.is_set():
                lake.table(NAME)

        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(200_000):
            lake.registry.database.lookups.close_idle()
        stop.set()
        for thread in threads:
            thread.join()


def test_a_child_that_is_forked_in_a_transaction_neither_commits_it_nor_ends_it(lake: Lake) -> None:
    database = lake.registry.database
    with database.transaction() as connection:
        rows.insert(connection, "leases", name="a")
        forked = os.fork()
        if forked == 0:
            status = 1
            try:
                with pytest.raises(ForkedProcess):
                    database.check_usable()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(forked, 0)[1] == 0
    child = FORK.Process(target=_end_a_block_in_a_child, args=(lake,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    with database.read() as connection:
        assert lease_store.look(connection, "a") is not None
    lake.append(NAME, ROW)


def _end_a_block_in_a_child(lake: Lake) -> None:
    """A process that opens a database itself, and forks in a transaction of it: in the child the block's end is refused."""
    with open_lake(lake.registry.database.url.render_as_string(hide_password=False), _folder(lake)) as own:
        database = own.registry.database
        status = 1
        child = -1
        try:
            with database.transaction() as connection:
                rows.insert(connection, "leases", name="c")
                child = os.fork()
        except ForkedProcess:
            status = 0
        finally:
            if child == 0:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        with database.read() as connection:
            assert lease_store.look(connection, "c") is not None


def test_a_child_that_is_forked_in_a_transaction_waits_for_no_lock_that_a_thread_of_its_parent_held(lake: Lake) -> None:
    child = FORK.Process(target=_end_a_block_while_all_is_locked, args=(lake,))
    child.start()
    child.join(60)
    if child.exitcode is None:
        child.kill()
    assert child.exitcode == 0


def _end_a_block_while_all_is_locked(lake: Lake) -> None:
    """As above, and another thread has every lock at that moment that the fork does not wait for itself."""
    with open_lake(lake.registry.database.url.render_as_string(hide_password=False), _folder(lake)) as own:
        database, front = own.registry.database, own.registry.group_commit
        parts = (database, database.file, database._waits, front, own.registry.schemas)
        locks = [lock for part in parts if part is not None for lock in vars(part).values() if isinstance(lock, LOCK)]
        assert len(locks) >= 2
        child = -1
        try:
            with database.transaction() as connection:
                rows.insert(connection, "leases", name="d")
                held, forked = threading.Event(), threading.Event()
                holder = threading.Thread(target=_hold, args=(locks, held, forked))
                holder.start()
                held.wait()
                child = os.fork()
                if child == 0:
                    signal.alarm(20)  # ends the child if it waits
                forked.set()
        except ForkedProcess:
            own.close()
            os._exit(0 if child == 0 else 1)
        finally:
            if child == 0:
                os._exit(1)
            holder.join()
        assert os.waitpid(child, 0)[1] == 0


def _hold(locks: list[Any], held: threading.Event, until: threading.Event) -> None:
    with contextlib.ExitStack() as stack:
        for lock in locks:
            stack.enter_context(lock)
        held.set()
        until.wait()


def _folder(lake: Lake) -> Path:
    return Path(lake.registry.warehouse.location.removeprefix("file://")).parent


# S3 -------------------------------------------------------------------------------------------------------------------
def test_a_childs_clients_of_s3_are_its_own(s3: S3) -> None:
    config = {"endpoint": s3.endpoint, "access_key": s3.access_key, "secret_key": s3.secret_key, "region": s3.region}
    engine = engine_for("s3", config)
    for number in range(4):
        engine.write(f"s3://{s3.bucket}/w/{number}", b"%d" % number * 20_000)
    engine.read(f"s3://{s3.bucket}/w/0")  # a connection is in the client's pool now
    with engine.open_input(f"s3://{s3.bucket}/w/0") as source:
        source.read()
    in_children(_read, engine, config, s3.bucket, count=4)
    assert engine.read(f"s3://{s3.bucket}/w/3") == b"3" * 20_000


def _read(inherited: Any, config: dict[str, Any], bucket: str, number: int) -> None:
    location = f"s3://{bucket}/w/{number}"
    for use in (inherited.read, inherited.open_input, inherited.size, inherited.check_writable):
        with pytest.raises(ForkedProcess, match="forked from it"):
            use(location)
    with pytest.raises(ForkedProcess):
        inherited.write(location, b"")
    mine = engine_for("s3", config)
    for _ in range(20):
        assert mine.read(location) == b"%d" % number * 20_000
        with mine.open_input(location) as source:
            assert source.read() == b"%d" % number * 20_000


def test_a_child_has_a_lake_on_s3_of_its_own(s3: S3, tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "s3_endpoint": s3.endpoint,
        "s3_access_key": s3.access_key,
        "s3_secret_key": s3.secret_key,
        "s3_region": s3.region,
    }
    connect = functools.partial(lakeward.connect, tmp_path / "registry.db", f"s3://{s3.bucket}/lake", **keys)
    with connect() as lake:
        make_table(lake, NAME)
        lake.append(NAME, ROW)
        assert lake.scan(NAME).read_all().num_rows == 1
        in_children(_append_on_s3, connect)
        assert lake.scan(NAME).read_all().num_rows == 1 + 3


def _append_on_s3(connect: Callable[[], Lake], _: int) -> None:
    with connect() as lake:
        lake.append(NAME, ROW)
        assert lake.scan(NAME).read_all().num_rows >= 2
