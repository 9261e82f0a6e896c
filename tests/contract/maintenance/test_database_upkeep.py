"""Upkeep of the registry's database: it gives space back, and nobody who reads or writes notices."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from lakeward.db import schema, sizes, upkeep_postgresql
from lakeward.errors import InvalidInput
from lakeward.maintenance import database_upkeep
from lakeward.registry import Registry
from tests.support.made import MadeRegistries
from tests.support.registries import assert_exact, make_table, open_at, register, rows_of
from tests.support.waiting import until

MANY = 1_500  # files: more than upkeep's least for statistics


@pytest.fixture
def file(tmp_path: Path, made_registries: MadeRegistries) -> Iterator[Registry]:
    """A registry in SQLite."""
    with open_at(made_registries.sqlite(tmp_path), tmp_path) as opened:
        yield opened


def fill(registry: Registry) -> None:
    """A table with many files, and as many changes in the feed."""
    register(registry, make_table(registry), *[(1, 2)] * MANY)


def trim(registry: Registry) -> None:
    """Delete the feed's changes: what is free afterwards lies in the middle of SQLite's file."""
    with registry.database.transaction() as connection:
        connection.execute(schema.registry_changes.delete())


def log_size(registry: Registry) -> int:
    return Path(f"{registry.database.url.database}-wal").stat().st_size


# Sizes ----------------------------------------------------------------------------------------------------------------
def test_sizes_name_every_table_the_largest_first(registry: Registry) -> None:
    fill(registry)
    database_upkeep.vacuum(registry)  # PostgreSQL's numbers of rows are those that it counted last
    found = database_upkeep.sizes(registry)
    assert {each.table for each in found.tables} == set(schema.metadata.tables)
    rows = {each.table: each.rows for each in found.tables}
    assert (rows["table_files"], rows["registry_changes"], rows["topics"]) == (MANY, len(feed(registry)), 0)
    bytes_ = [each.bytes for each in found.tables]
    assert all(size is not None for size in bytes_) and bytes_ == sorted(bytes_, reverse=True, key=lambda b: b or 0)
    assert 0 < sum(size or 0 for size in bytes_) <= found.bytes
    assert (found.rows_are, found.bytes_are) == ("exact" if registry.database.is_sqlite else "estimated", "exact")


def feed(registry: Registry) -> list[sa.RowMapping]:
    return rows_of(registry, "registry_changes")


def test_the_size_of_a_sqlite_registry_is_that_of_its_file(file: Registry) -> None:
    fill(file)
    assert database_upkeep.sizes(file).wal_bytes == log_size(file) > 0
    database_upkeep.vacuum(file)
    path = Path(str(file.database.url.database))
    assert database_upkeep.sizes(file).bytes == path.stat().st_size


def test_a_sqlite_that_cannot_tell_tables_apart_says_so(file: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "_dbstat", lambda _: None)
    found = database_upkeep.sizes(file)
    assert found.bytes_are == "unknown" and found.bytes > 0 and {each.bytes for each in found.tables} == {None}


# Vacuum ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("full", [False, True])
def test_a_vacuum_gives_back_what_deleted_rows_left(registry: Registry, full: bool) -> None:
    fill(registry)
    trim(registry)
    result = database_upkeep.vacuum(registry, full=full)
    assert result.freed_bytes == result.before_bytes - result.after_bytes > 100_000
    after = database_upkeep.sizes(registry)
    assert after.bytes == result.after_bytes and not after.free_bytes
    assert database_upkeep.vacuum(registry).freed_bytes == 0
    assert len(rows_of(registry, "table_files")) == MANY


def test_a_new_sqlite_file_can_give_pages_back(tmp_path: Path) -> None:
    with open_at(f"sqlite:///{tmp_path / 'new.db'}", tmp_path):
        assert sqlite3.connect(tmp_path / "new.db").execute("PRAGMA auto_vacuum").fetchone() == (2,)


def test_a_file_of_an_earlier_version_gives_nothing_back_until_it_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    sqlite3.connect(path).executescript(
        "PRAGMA auto_vacuum = NONE; PRAGMA journal_mode = WAL; CREATE TABLE t (a); DROP TABLE t"
    )
    with open_at(f"sqlite:///{path}", tmp_path) as registry:
        fill(registry)
        trim(registry)
        assert database_upkeep.look_after(registry).freed_bytes == 0
        with pytest.raises(InvalidInput, match="lakeward db vacuum --full"):
            database_upkeep.vacuum(registry)
        assert database_upkeep.vacuum(registry, full=True).freed_bytes > 100_000
        fill_again = make_table(registry, "sales.more")
        register(registry, fill_again, *[(1, 2)] * MANY)
        trim(registry)
        assert database_upkeep.vacuum(registry).freed_bytes > 100_000


def test_upkeep_leaves_some_pages_free_for_what_is_written_next(
    file: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(file)
    trim(file)
    free = database_upkeep.sizes(file).free_bytes or 0
    assert free > 0 and database_upkeep.look_after(file).freed_bytes == 0
    monkeypatch.setattr(database_upkeep, "FREE_BYTES", free // 2)
    monkeypatch.setattr(database_upkeep, "FREE_PART", 0.0)
    monkeypatch.setattr(database_upkeep, "BITE_PAGES", 7)  # many bites
    freed = database_upkeep.look_after(file).freed_bytes
    assert freed > 0 and database_upkeep.sizes(file).free_bytes == free // 2 // 4096 * 4096


# Statistics -----------------------------------------------------------------------------------------------------------
def test_statistics_are_made_of_large_tables_alone(file: Registry) -> None:
    fill(file)
    assert database_upkeep.look_after(file).analyzed > 0
    path = str(file.database.url.database)
    analyzed = {row[0] for row in sqlite3.connect(path).execute("SELECT tbl FROM sqlite_stat1")}
    assert {"table_files", "registry_changes"} <= analyzed
    assert analyzed.isdisjoint({"tables", "leases", "pending_writes"})


def test_what_autovacuum_has_left_alone_is_vacuumed(made_pg_url: str, tmp_path: Path) -> None:
    with open_at(made_pg_url, tmp_path) as registry:
        with registry.database.transaction() as connection:  # or it may come first
            connection.execute(sa.text("ALTER TABLE registry_changes SET (autovacuum_enabled = off)"))
        fill(registry)
        trim(registry)
        until(lambda: "registry_changes" in {each.table for each in behind(registry) if each.dead})
        assert database_upkeep.look_after(registry).vacuumed >= 1
        until(lambda: "registry_changes" not in {each.table for each in behind(registry)})


def behind(registry: Registry) -> list[upkeep_postgresql.Behind]:
    with registry.database.outside_transactions() as connection:
        return upkeep_postgresql.behind(connection)


# Checkpoints ----------------------------------------------------------------------------------------------------------
def test_a_checkpoint_cuts_a_large_log(file: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(file)
    assert database_upkeep.checkpoint(file) and log_size(file) > 0
    monkeypatch.setattr(database_upkeep, "LOG_BYTES", 0)
    assert database_upkeep.checkpoint(file) and log_size(file) == 0


def test_a_checkpoint_waits_for_no_writer(file: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_upkeep, "LOG_BYTES", 0)
    fill(file)
    with ThreadOf(lambda: database_upkeep.checkpoint(file)) as checkpoint, file.database.transaction() as connection:
        checkpoint.start_and_join()  # while this transaction is open
        connection.execute(schema.registry_changes.delete())
    assert log_size(file) > 0


def test_a_checkpoint_neither_waits_for_a_reader_nor_disturbs_it(
    file: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_upkeep, "LOG_BYTES", 0)
    table = make_table(file)
    count = sa.select(sa.func.count()).select_from(schema.table_files)
    with file.database.read() as connection:
        assert connection.execute(count).scalar_one() == 0
        register(file, table, (1,))
        assert not database_upkeep.checkpoint(file)  # the reader's view is before the newest commit
        assert connection.execute(count).scalar_one() == 0
    assert database_upkeep.checkpoint(file)
    assert len(rows_of(file, "table_files")) == 1


class ThreadOf:
    """A call in another thread; what it raises fails the test."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._failed: list[BaseException] = []

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._failed.append(error)

    def start_and_join(self) -> None:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        thread.join(30)
        assert not thread.is_alive(), "it waits"

    def __enter__(self) -> ThreadOf:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._failed == []


# While others write ---------------------------------------------------------------------------------------------------
@contextmanager
def writing(registry: Registry) -> Iterator[list[int]]:
    """Threads that register files all the time; yields a list that grows with each. No write may fail."""
    table = make_table(registry, "sales.written")
    done, written, failed = threading.Event(), list[int](), list[BaseException]()

    def write() -> None:
        try:
            while not done.is_set():
                register(registry, table, (1, 2))
                written.append(1)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield written
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert failed == []
    assert_exact(registry, table)
    assert len(written) == sum(row["table_id"] == table.table_id for row in rows_of(registry, "table_files"))


def test_writers_go_on_during_upkeep_and_none_of_their_writes_fails(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_upkeep, "LOG_BYTES", 0)
    monkeypatch.setattr(database_upkeep, "FREE_BYTES", 0)
    monkeypatch.setattr(database_upkeep, "FREE_PART", 0.0)
    monkeypatch.setattr(database_upkeep, "BITE_PAGES", 5)
    fill(registry)
    trim(registry)
    with writing(registry) as written:
        until(lambda: len(written) > 10)
        before = len(written)
        database_upkeep.look_after(registry)
        if registry.database.is_sqlite:
            assert len(written) > before, "nobody had a turn between the bites"
        for _ in range(5):
            database_upkeep.checkpoint(registry) if registry.database.is_sqlite else database_upkeep.vacuum(registry)
        database_upkeep.vacuum(registry)
        database_upkeep.vacuum(registry, full=True)
        before = len(written)
        until(lambda: len(written) > before + 10)


def test_a_server_looks_after_its_registry_from_the_start(registry: Registry) -> None:
    expected = {"background:upkeep"} | ({"background:checkpoint"} if registry.database.is_sqlite else set())
    with database_upkeep.running(registry):
        until(lambda: {row["name"] for row in rows_of(registry, "leases")} == expected)
