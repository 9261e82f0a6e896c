"""Connections and transactions: durable, isolated, shared by threads, and writers that wait for each other in turn."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from lakeward.db import database as database_module
from lakeward.db import migrate, schema
from lakeward.db.database import Database
from lakeward.errors import DatabaseError, ForkedProcess, InvalidSetting, RegistryUnavailable
from tests.contract.db import processes, rows

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'registry.db'}")
    migrate.create_or_upgrade(database)
    yield database
    database.close()


def _url(database: Database) -> str:
    return database.url.render_as_string(hide_password=False)


def _leases(database: Database) -> list[str]:
    with database.read() as connection:
        return sorted(connection.execute(sa.select(schema.leases.c.name)).scalars())


def _take(url: str, name: str, count: int = 1) -> None:
    database = Database(url)
    for number in range(count):
        with database.transaction() as connection:
            rows.insert(connection, "leases", name=f"{name}-{number}")
    database.close()


# Both databases -------------------------------------------------------------------------------------------------------
def test_a_block_that_raises_leaves_nothing(database: Database) -> None:
    with pytest.raises(ZeroDivisionError), database.transaction() as connection:
        rows.insert(connection, "leases")
        1 / 0
    assert _leases(database) == []


def test_blocks_that_raise_use_no_connection_up(database: Database) -> None:
    for number in range(100):  # more than the pool has
        with pytest.raises(DatabaseError), database.transaction() as connection:
            rows.insert(connection, "leases", name=f"lost-{number}")
            connection.exec_driver_sql("SELECT nothing FROM nowhere")
        with database.transaction() as connection:
            rows.insert(connection, "leases", name=f"kept-{number}")
    assert _leases(database) == sorted(f"kept-{number}" for number in range(100))


def test_a_database_that_is_closed_while_a_thread_writes_keeps_what_it_writes(database: Database) -> None:
    began, go_on = threading.Event(), threading.Event()

    def write() -> None:
        with database.transaction() as connection:
            rows.insert(connection, "leases", name="a")
            began.set()
            go_on.wait(30)
            rows.insert(connection, "leases", name="b")

    writer, closer = threading.Thread(target=write), threading.Thread(target=database.close)
    writer.start()
    began.wait(30)
    closer.start()
    go_on.set()
    for thread in (writer, closer):
        thread.join(30)
    assert _leases(database) == ["a", "b"]


def test_every_statement_of_a_reader_sees_the_same_state(database: Database) -> None:
    with database.read() as connection:
        count = sa.select(sa.func.count()).select_from(schema.leases)
        before = connection.execute(count).scalar_one()
        with database.transaction() as other:
            rows.insert(other, "leases")
        assert connection.execute(count).scalar_one() == before
    assert len(_leases(database)) == 1


def test_a_writer_sees_what_was_committed_before_it_began(database: Database) -> None:
    """On SQLite a transaction that read first and wrote later would fail where another wrote between."""

    def add(_: int) -> None:
        for _ in range(25):
            with database.transaction() as connection:
                lease = connection.execute(sa.select(schema.leases).with_for_update()).one()
                connection.execute(schema.leases.update().values(fence=lease.fence + 1))

    with database.transaction() as connection:
        rows.insert(connection, "leases", fence=1)
    _in_threads(add, 6)
    with database.read() as connection:
        assert connection.execute(sa.select(schema.leases.c.fence)).scalar_one() == 1 + 6 * 25


def test_threads_may_share_a_database(database: Database) -> None:
    def work(number: int) -> None:
        for count in range(10):
            with database.transaction() as connection:
                rows.insert(connection, "leases", name=f"{number}-{count}")
            assert f"{number}-{count}" in _leases(database)

    _in_threads(work, 12)
    assert len(_leases(database)) == 120


def test_a_forked_child_opens_the_registry_anew_and_its_parent_goes_on(database: Database) -> None:
    with database.transaction() as connection, database.read():  # leaves two idle connections behind
        rows.insert(connection, "leases", name="parent-0")
    assert database.lookups.version() is not None  # and another
    children = [FORK.Process(target=_take_with, args=(database, f"child{number}")) for number in range(3)]
    for child in children:
        child.start()
    for number in range(1, 20):
        with database.transaction() as connection:
            rows.insert(connection, "leases", name=f"parent-{number}")
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert len(_leases(database)) == 20 + 3 * 20
    if database.is_sqlite:
        with database.read() as connection:
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"


def _take_with(inherited: Database, name: str) -> None:
    for use in (inherited.transaction, inherited.read, inherited.outside_transactions):
        with pytest.raises(ForkedProcess, match=r"forked from it: open it here, too \(lakeward\.connect\)"), use():
            raise AssertionError("a parent's connection is used")
    with pytest.raises(ForkedProcess):
        inherited.lookups.version()
    inherited.close()
    _take(_url(inherited), name, 20)


def test_wrong_sql_is_not_taken_for_a_registry_that_is_down(database: Database) -> None:
    for statement in ("SELECT nothing FROM nowhere", "SELEKT 1"):
        with pytest.raises(DatabaseError), database.transaction() as connection:
            connection.exec_driver_sql(statement)


def test_the_password_is_never_shown() -> None:
    database = Database("postgresql://ann:secret@127.0.0.1:1/none")
    with pytest.raises(RegistryUnavailable) as caught, database.read():
        pass
    assert "secret" not in f"{caught.value}{database!r}"


@pytest.mark.parametrize("url", ["mysql://host/name", "registry.db", "sqlite+other:///a"])
def test_a_url_of_no_registry_is_refused(url: str) -> None:
    with pytest.raises((InvalidSetting, sa.exc.NoSuchModuleError)):
        Database(url)


# PostgreSQL -----------------------------------------------------------------------------------------------------------
def test_a_deadlock_is_the_databases_refusal_and_not_its_absence(pg_url: str) -> None:
    database = Database(pg_url)
    migrate.create_or_upgrade(database)
    with database.transaction() as connection:
        rows.insert(connection, "leases", name="a")
        rows.insert(connection, "leases", name="b")
    met = threading.Barrier(2)
    failed: list[BaseException] = []

    def lock(number: int) -> None:
        try:
            with database.transaction() as connection:
                for name in ("ab", "ba")[number]:
                    connection.execute(schema.leases.update().where(schema.leases.c.name == name).values(fence=2))
                    met.wait(30) if name == "ab"[number] else None
        except DatabaseError as error:
            failed.append(error)

    _in_threads(lock, 2)
    assert ["deadlock" in str(error) for error in failed] == [True]
    database.close()


# SQLite ---------------------------------------------------------------------------------------------------------------
def test_sqlite_keeps_what_was_committed_and_checks_what_refers(sqlite: Database) -> None:
    for block in (sqlite.read, sqlite.transaction, sqlite.read):
        with block() as connection:
            found = {
                name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                for name in ("journal_mode", "synchronous", "foreign_keys")
            }
            assert found == {"journal_mode": "wal", "synchronous": 1, "foreign_keys": 1}  # 1 is NORMAL


def test_sqlite_syncs_a_commit_before_it_is_told_and_lets_the_next_writer_in_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, other = (Database(f"sqlite:///{tmp_path / 'registry.db'}", durable=durable) for durable in (True, False))
    migrate.create_or_upgrade(other)
    sync, synced = database_module._sync, []

    def while_syncing(file: int) -> None:
        assert os.path.samestat(os.fstat(file), os.stat(tmp_path / "registry.db-wal"))
        assert _leases(other) == ["a"]
        with other.transaction() as connection:  # not durable: it syncs nothing itself
            rows.insert(connection, "leases", name="b")
        sync(file)
        synced.append(file)

    monkeypatch.setattr(database_module, "_sync", while_syncing)
    with database.transaction() as connection:
        rows.insert(connection, "leases", name="a")
        assert synced == []
    assert len(synced) == 1
    assert _leases(other) == ["a", "b"]
    database.close()
    other.close()


def test_sqlite_tells_of_no_commit_that_the_disk_did_not_take(
    sqlite: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(database_module, "_sync", fail)
    refused = pytest.raises(RegistryUnavailable, match="could not be made durable: Input/output error")
    with refused, sqlite.transaction() as connection:
        rows.insert(connection, "leases", name="a")


def test_sqlite_checks_what_refers_again_after_a_migration(sqlite: Database) -> None:
    with sqlite.transaction(foreign_keys=False) as connection:
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar_one() == 0
    with pytest.raises(ZeroDivisionError), sqlite.transaction(foreign_keys=False):
        1 / 0
    with sqlite.transaction() as connection:
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar_one() == 1


def test_processes_that_write_to_one_file_all_finish(sqlite: Database) -> None:
    """No 'database is locked', whoever comes when; and no writer waits until the others have done all their work."""
    url = _url(sqlite)
    writers = processes.start(_take, [(url, f"w{number}", 100) for number in range(4)])
    processes.expect_success(writers)
    assert len(_leases(sqlite)) == 400


def test_no_writer_starves(sqlite: Database) -> None:
    """Greedy processes write without a pause; one that comes now and then gets its turn long before they end."""
    greedy = processes.start(_take_until_told, [(_url(sqlite), f"greedy{number}") for number in range(3)])
    try:
        while not all(any(name.startswith(f"greedy{n}-") for name in _leases(sqlite)) for n in range(3)):
            time.sleep(0.01)
        for number in range(10):
            with sqlite.transaction() as connection:
                rows.insert(connection, "leases", name=f"modest-{number}")
        assert processes.running(greedy)
    finally:
        with sqlite.transaction() as connection:
            rows.insert(connection, "leases", name="stop")
    processes.expect_success(greedy)


def _take_until_told(url: str, name: str) -> None:
    database = Database(url)
    number = 0
    while "stop" not in _leases(database):
        for _ in range(20):
            with database.transaction() as connection:
                rows.insert(connection, "leases", name=f"{name}-{number}")
            number += 1


def test_a_killed_process_frees_the_gate_and_leaves_nothing(sqlite: Database) -> None:
    ours, theirs = processes.CONTEXT.Pipe()
    (holder,) = processes.start(_hold, [(_url(sqlite), theirs)])
    assert ours.recv() == "inside"
    assert holder.pid
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    with sqlite.transaction() as connection:
        rows.insert(connection, "leases", name="next")
    assert _leases(sqlite) == ["next"]


def _hold(url: str, pipe: Any) -> None:
    with Database(url).transaction() as connection:
        rows.insert(connection, "leases", name="held")
        pipe.send("inside")
        time.sleep(120)


def test_two_paths_to_one_file_have_one_gate(sqlite: Database, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(str(sqlite.url.database))
    other = Database(f"sqlite:///{link}")
    order: list[str] = []
    with sqlite.transaction() as connection:
        rows.insert(connection, "leases", name="first")
        waiting = threading.Thread(target=lambda: _take_and_note(other, order))
        waiting.start()
        time.sleep(0.1)
        order.append("first")
    waiting.join()
    other.close()
    assert order == ["first", "second"]


def _take_and_note(database: Database, order: list[str]) -> None:
    with database.transaction() as connection:
        order.append("second")
        rows.insert(connection, "leases", name="second")


def test_the_folder_of_a_new_registry_is_made(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'a' / 'b' / 'registry.db'}")
    assert migrate.open_checked(database).exists


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RegistryUnavailable, match=r"file.*cannot be made"):
        Database(f"sqlite:///{tmp_path / 'file' / 'registry.db'}")


def _in_threads(work: Any, count: int) -> None:
    failed: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
