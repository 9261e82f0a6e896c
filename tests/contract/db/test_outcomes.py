"""How transactions end: committed, not committed or unknown, and no fourth."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from lakeward.db import database as database_module
from lakeward.db import migrate, schema, sqlite_file, waits
from lakeward.db.database import Database
from lakeward.errors import (
    CommitUnknown,
    DatabaseError,
    NestedTransaction,
    RegistryBusy,
    RegistryLost,
    RegistryUnavailable,
)
from tests.contract.db import processes, rows
from tests.support.descriptors import open_below

ROOT = Path(__file__).parents[3]


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'registry.db'}")
    migrate.create_or_upgrade(database)
    yield database
    database.close()


def leases(database: Database) -> list[str]:
    with database.read() as connection:
        return sorted(connection.execute(sa.select(schema.leases.c.name)).scalars())


def take(database: Database, name: str) -> None:
    with database.transaction() as connection:
        rows.insert(connection, "leases", name=name)


def anew(database: Database) -> Database:
    return Database(database.url.render_as_string(hide_password=False))


# Both databases -------------------------------------------------------------------------------------------------------
def test_an_error_that_a_block_passes_over_is_not_answered_as_success(database: Database) -> None:
    """PostgreSQL answers COMMIT by a rollback then, without an error."""
    if database.is_sqlite:  # which goes on after an error of a statement
        with database.transaction() as connection:
            rows.insert(connection, "leases", name="a")
            with pytest.raises(sa.exc.OperationalError):
                connection.exec_driver_sql("SELECT nothing FROM nowhere")
        assert leases(database) == ["a"]
        return
    with pytest.raises(DatabaseError, match="passed over; nothing was committed"), database.transaction() as connection:
        rows.insert(connection, "leases", name="a")
        with pytest.raises(sa.exc.ProgrammingError):
            connection.exec_driver_sql("SELECT nothing FROM nowhere")
    assert leases(database) == []


def test_a_block_that_ends_its_transaction_itself_is_told_that_nothing_is_known(database: Database) -> None:
    for end in (sa.Connection.commit, sa.Connection.rollback):
        with pytest.raises(CommitUnknown, match="leave commit and rollback"), database.transaction() as connection:
            rows.insert(connection, "leases", name=end.__name__)
            end(connection)
    take(database, "next")
    assert leases(database) == ["commit", "next"]


def test_what_the_commit_itself_is_refused_for_is_not_committed(database: Database) -> None:
    with pytest.raises(DatabaseError), database.transaction() as connection:
        _make_refused(connection, database)
        rows.insert(connection, "leases", name="a")
    assert leases(database) == []
    take(database, "b")
    assert leases(database) == ["b"]


def _make_refused(connection: sa.Connection, database: Database) -> None:
    """A reference to nothing, which is looked at when the transaction is committed."""
    if database.is_sqlite:
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
    connection.exec_driver_sql("CREATE TABLE other (id INTEGER PRIMARY KEY)")
    connection.exec_driver_sql("CREATE TABLE one (id INTEGER REFERENCES other (id) DEFERRABLE INITIALLY DEFERRED)")
    connection.exec_driver_sql("INSERT INTO one VALUES (1)")


def test_an_interrupt_between_commit_and_answer_says_that_it_is_not_known(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sa.engine.RootTransaction.commit

    def interrupted(transaction: sa.engine.RootTransaction) -> None:
        real(transaction)
        raise KeyboardInterrupt

    monkeypatch.setattr(sa.engine.RootTransaction, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught, database.transaction() as connection:
        rows.insert(connection, "leases", name="a")
    assert caught.value.__notes__ == ["lakeward: whether the transaction was committed is not known"]
    monkeypatch.undo()
    take(database, "b")
    assert leases(database) == ["a", "b"]


def test_a_listener_that_fails_changes_nothing_of_a_commit(database: Database) -> None:
    def fail() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    database.on_commit(fail)
    take(database, "a")
    assert leases(database) == ["a"]


def test_a_transaction_in_one_that_is_to_be_the_only_one_is_refused(database: Database) -> None:
    with database.transaction(only=True) as connection:
        with pytest.raises(NestedTransaction, match="pass its connection on"), database.transaction():
            raise AssertionError("it began")
        rows.insert(connection, "leases", name="a")
        assert leases(database) == []  # reading is allowed, and sees what is committed
    take(database, "b")
    assert leases(database) == ["a", "b"]


# PostgreSQL -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("way", ["read", "outside_transactions"])
def test_a_server_that_ends_the_connection_after_the_last_answer_takes_nothing_of_it_back(
    pg_url: str, way: str
) -> None:
    database = Database(pg_url)
    with getattr(database, way)() as connection:
        number = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        with psycopg.connect(pg_url.replace("+psycopg", ""), autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 10000)", [number])
    with database.read() as connection:
        assert connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one() != number
    database.close()


def test_a_server_that_ends_the_connection_in_commit_leaves_it_unknown(pg_url: str) -> None:
    database = Database(pg_url)
    migrate.create_or_upgrade(database)
    plain = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with pytest.raises(CommitUnknown), database.transaction() as connection:
        rows.insert(connection, "leases", name="a")
        number = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        with psycopg.connect(plain, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 10000)", [number])
    take(database, "b")
    assert leases(database) == ["b"]
    database.close()


# SQLite: descriptors and the disk -----------------------------------------------------------------------------------
@contextmanager
def no_descriptor_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, hard))
    try:
        try:
            while True:
                spare.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for file in spare:
            os.close(file)


def test_without_a_descriptor_left_nothing_is_committed(sqlite: Database) -> None:
    take(sqlite, "a")
    assert leases(sqlite) == ["a"]
    with no_descriptor_left(), pytest.raises(RegistryUnavailable, match="Too many open files") as caught:
        take(sqlite, "b")
    assert not isinstance(caught.value, CommitUnknown)
    assert leases(sqlite) == ["a"]
    take(sqlite, "c")
    assert leases(sqlite) == ["a", "c"]


def test_descriptors_that_run_out_in_the_block_change_nothing_of_its_commit(sqlite: Database) -> None:
    take(sqlite, "a")
    with contextlib.ExitStack() as stack, sqlite.transaction() as connection:
        rows.insert(connection, "leases", name="b")
        stack.enter_context(no_descriptor_left())
    assert leases(sqlite) == ["a", "b"]


def test_a_write_to_the_log_that_is_refused_in_commit_is_known_to_have_committed_nothing(sqlite: Database) -> None:
    take(sqlite, "a")
    assert sqlite.file is not None
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        for room in (0, 24, 1_000, 4_120, 5_000, 8_240):  # the log grows by pages of 4,096 bytes with heads of 24
            size = os.path.getsize(sqlite.file._log_path) + room
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
            with pytest.raises(RegistryUnavailable) as caught:
                take(sqlite, "b" * 20_000)
            assert not isinstance(caught.value, CommitUnknown)
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            assert leases(sqlite) == ["a"]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    copy = Path(sqlite.file.path).with_name("copy.db")
    for end in ("", "-wal"):  # what a machine that stops now would leave
        shutil.copy(f"{sqlite.file.path}{end}", f"{copy}{end}")
    found = sqlite3.connect(copy)
    assert found.execute("SELECT name FROM leases").fetchall() == [("a",)]
    found.close()
    take(sqlite, "c")
    assert leases(sqlite) == ["a", "c"]


def test_a_closed_registry_leaves_no_file_open_and_one_that_others_have_open_stays_in_turn(sqlite: Database) -> None:
    other = anew(sqlite)
    take(sqlite, "a")
    take(other, "b")
    other.close()
    assert sqlite._writer_lock is not None and sqlite._writer_lock._file is not None
    take(sqlite, "c")
    sqlite.close()
    assert sqlite._writer_lock._file is None
    folder = Path(sqlite._writer_lock.path).parent
    assert open_below(folder) == []
    after = anew(sqlite)
    take(after, "d")
    assert leases(after) == ["a", "b", "c", "d"]
    after.close()


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets the next sync of the log fail, and those after it succeed."""
    real = database_module._sync
    fails: list[int] = []

    def sync(file: int) -> None:
        if fails:
            fails.pop()
            raise OSError(errno.EIO, "Input/output error")
        real(file)

    monkeypatch.setattr(database_module, "_sync", sync)
    return lambda: fails.append(1)


def test_after_a_failed_sync_nothing_is_called_durable_until_the_registry_is_opened_anew(
    sqlite: Database, failing: Callable[[], None]
) -> None:
    other = anew(sqlite)
    take(other, "a")
    take(sqlite, "b")
    failing()
    with pytest.raises(CommitUnknown, match="could not be made durable: Input/output error"):
        take(sqlite, "c")
    for database in (sqlite, other, sqlite):
        with pytest.raises(RegistryLost, match="open the registry anew"):
            take(database, "d")
    assert sqlite._writer_lock is not None
    with sqlite._writer_lock:
        assert sqlite._writer_lock.has_lost_a_sync
    after = anew(sqlite)
    take(after, "e")
    with sqlite._writer_lock:
        assert not sqlite._writer_lock.has_lost_a_sync
    assert leases(after) == ["a", "b", "c", "e"]
    with pytest.raises(RegistryLost):
        take(sqlite, "f")
    after.close()
    other.close()


def test_another_processs_failed_sync_is_known_too(sqlite: Database, failing: Callable[[], None]) -> None:
    failing()
    with pytest.raises(CommitUnknown):
        take(sqlite, "a")
    code = "import sys; from tests.contract.db.test_outcomes import repaired; repaired(sys.argv[1])"
    url = sqlite.url.render_as_string(hide_password=False)
    subprocess.run([sys.executable, "-c", code, url], cwd=ROOT, check=True, timeout=120)
    assert leases(anew(sqlite)) == ["a", "b"]


def repaired(url: str) -> None:
    database = Database(url)
    assert database._writer_lock is not None
    with database._writer_lock:
        database._writer_lock._open()
        assert database._writer_lock.has_lost_a_sync
    take(database, "b")
    with database._writer_lock:
        assert not database._writer_lock.has_lost_a_sync


# SQLite: the file -----------------------------------------------------------------------------------------------------
def _deleted(file: Path) -> None:
    file.unlink()


def _replaced(file: Path) -> None:
    shutil.copy(file, file.with_suffix(".copy"))
    file.with_suffix(".copy").rename(file)


def _written_over(file: Path) -> None:
    """As people bring a backup back: the file keeps its inode."""
    with sqlite3.connect(file) as opened:
        copy = opened.serialize()
    file.with_name("registry.db-wal").unlink()
    file.with_name("registry.db-shm").unlink()
    file.write_bytes(copy)


@pytest.mark.parametrize("change", [_deleted, _replaced, _written_over])
def test_nothing_is_committed_to_a_file_that_is_not_the_registry_any_more(
    sqlite: Database, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    file = tmp_path / "registry.db"
    take(sqlite, "a")
    sqlite.lookups.version()
    change(file)
    exists = file.exists()
    with pytest.raises(RegistryLost, match="deleted or replaced"):
        take(sqlite, "b")
    if change is not _written_over:
        with pytest.raises(RegistryLost):
            leases(sqlite)
        with pytest.raises(RegistryLost):
            sqlite.lookups.version()
    assert file.exists() is exists, "no new one was made"
    if change is _replaced:
        with sqlite3.connect(file) as opened:
            assert "b" not in [name for (name,) in opened.execute("SELECT name FROM leases")]


@pytest.mark.parametrize("what", ["another registry", "an older copy", "no database", "nothing"])
@pytest.mark.parametrize("moment", ["before", "within"])
def test_a_file_that_is_copied_over_in_place_is_noticed_before_anything_is_called_durable(
    sqlite: Database, tmp_path: Path, what: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inode stays, the log too."""
    monkeypatch.setattr(sqlite_file, "AGE_SECONDS", 0.0)
    file, source = tmp_path / "registry.db", tmp_path / "other.db"
    take(sqlite, "a")
    checkpoint(sqlite)
    copy(file, source)  # the older copy
    for name in "bcd":
        take(sqlite, name)
    checkpoint(sqlite)
    take(sqlite, "e")  # it stands in the log alone
    if what == "another registry":
        source.unlink()
        other = Database(f"sqlite:///{source}")
        migrate.create_or_upgrade(other)
        other.close()
    elif not what.startswith("an older"):
        source.write_bytes(os.urandom(50_000) if what == "no database" else b"")
    before = file.stat().st_ino
    if moment == "before":
        copy(source, file)
    expected = RegistryLost if moment == "before" else CommitUnknown
    with pytest.raises(expected, match="was written over"), sqlite.transaction() as connection:
        rows.insert(connection, "leases", name="f")
        if moment == "within":
            copy(source, file)
    assert file.stat().st_ino == before
    for refused in (
        lambda: take(sqlite, "g"),
        lambda: leases(sqlite),
        sqlite.lookups.version,
        lambda: checkpoint(sqlite),
    ):
        with pytest.raises(RegistryLost, match="delete its -wal and -shm"):
            refused()
    # What the message advises.
    sqlite.close()
    for end in ("-wal", "-shm"):
        Path(f"{file}{end}").unlink(missing_ok=True)
    if what in ("another registry", "an older copy"):
        copy(source, file)
        with contextlib.closing(anew(sqlite)) as opened:
            take(opened, "h")
            assert leases(opened) == (["a", "h"] if what == "an older copy" else ["h"])


def test_checkpoints_vacuums_and_other_writers_are_no_writing_over(
    sqlite: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "AGE_SECONDS", 0.0)
    other = anew(sqlite)
    for number in range(30):
        take(sqlite if number % 2 else other, f"{number:02}" + "x" * 20_000)
        if number % 3 == 0:
            checkpoint(sqlite if number % 4 else other)
        if number % 10 == 5:
            with other.outside_transactions(in_turn=True) as connection:
                connection.exec_driver_sql("VACUUM")
    assert len(leases(sqlite)) == len(leases(other)) == 30
    other.close()


def copy(source: Path, target: Path) -> None:
    """By another process: one that closes a file frees its own locks on it, SQLite's too."""
    subprocess.run(["cp", str(source), str(target)], check=True)


def checkpoint(database: Database) -> None:
    with database.outside_transactions(in_turn=True) as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)").all()


@pytest.mark.parametrize("change", [_deleted, _replaced])
def test_a_file_that_goes_while_it_is_written_leaves_the_outcome_unknown(
    sqlite: Database, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    take(sqlite, "a")
    with pytest.raises(CommitUnknown, match="went to the former file"), sqlite.transaction() as connection:
        rows.insert(connection, "leases", name="b")
        change(tmp_path / "registry.db")
    with pytest.raises(RegistryLost):
        take(sqlite, "c")


def test_a_file_that_was_only_moved_away_for_a_while_is_the_same(sqlite: Database, tmp_path: Path) -> None:
    file = tmp_path / "registry.db"
    take(sqlite, "a")
    file.rename(tmp_path / "away.db")
    with pytest.raises(RegistryLost):
        take(sqlite, "b")
    (tmp_path / "away.db").rename(file)
    take(sqlite, "c")
    assert leases(sqlite) == ["a", "c"]


# SQLite: the queue of writers ---------------------------------------------------------------------------------------
def _hold(url: str, pipe: Any) -> None:
    database = Database(url)
    with database.transaction() as connection:
        rows.insert(connection, "leases", name="held")
        pipe.send(os.getpid())
        pipe.recv()
    database.close()


@contextmanager
def held_by_another_process(database: Database) -> Iterator[int]:
    """The number of a process that is in a transaction until the block ends."""
    ours, theirs = processes.CONTEXT.Pipe()
    (holder,) = processes.start(_hold, [(database.url.render_as_string(hide_password=False), theirs)])
    number = ours.recv()
    try:
        yield number
    finally:
        os.kill(number, signal.SIGCONT)
        ours.send("end")
        processes.expect_success([holder])


def test_an_interrupt_in_the_queue_leaves_it_to_others(sqlite: Database) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with held_by_another_process(sqlite):
            for _ in range(3):
                signal.setitimer(signal.ITIMER_REAL, 0.2)
                with pytest.raises(KeyboardInterrupt):
                    take(sqlite, "interrupted")
        thread = threading.Thread(target=take, args=(sqlite, "thread"), daemon=True)
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
        take(sqlite, "main")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert leases(sqlite) == ["held", "main", "thread"]


def test_who_waits_for_a_stopped_process_says_so_and_gives_up_at_last(
    sqlite: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waits, "SAY_SECONDS", 0.1)
    monkeypatch.setattr(waits, "WAIT_SECONDS", 1.0)
    with held_by_another_process(sqlite) as number:
        os.kill(number, signal.SIGSTOP)
        with pytest.raises(RegistryBusy, match=rf"process {number} \(python.*\), which is stopped, has it"):
            take(sqlite, "a")
        assert "writers_of_the_registry_wait" in capsys.readouterr().out
        assert leases(sqlite) == []
    take(sqlite, "b")  # what was waited for came too late, and was given back
    take(anew(sqlite), "c")
    assert leases(sqlite) == ["b", "c", "held"]


def test_who_waits_for_a_thread_of_its_process_names_it(sqlite: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "SAY_SECONDS", 0.1)
    monkeypatch.setattr(waits, "WAIT_SECONDS", 0.5)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            take(sqlite, "a")
        except RegistryBusy as error:
            failed.append(error)

    with sqlite.transaction():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(30)
    assert "thread 'MainThread' of this process has it" in str(failed[0])


def test_turns_that_are_waited_for_by_many_processes_all_come_and_are_of_one_at_a_time(
    sqlite: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some give up meanwhile: what they waited for is nobody else's to give back."""
    url = sqlite.url.render_as_string(hide_password=False)
    writers = processes.start(_add, [(url, 60) for _ in range(3)])
    mine = given_up = 0
    while processes.running(writers):
        monkeypatch.setattr(waits, "WAIT_SECONDS", 0.0 if (mine + given_up) % 2 else 60.0)
        try:
            _add_one(sqlite)
            mine += 1
        except RegistryBusy:
            given_up += 1
    processes.expect_success(writers)
    assert mine and given_up
    with sqlite.read() as connection:
        assert connection.execute(sa.select(schema.leases.c.fence)).scalar_one() == 3 * 60 + mine


def _add(url: str, count: int) -> None:
    database = Database(url)
    for _ in range(count):
        _add_one(database)
    database.close()


def _add_one(database: Database) -> None:
    """Read, then write: two at once would lose one."""
    with database.transaction() as connection:
        found = connection.execute(sa.select(schema.leases.c.fence)).scalar_one_or_none()
        if found is None:
            rows.insert(connection, "leases", name="count", fence=1)
        else:
            connection.execute(schema.leases.update().values(fence=found + 1))
