"""Upkeep of the registry's own database, while its readers and writers go on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from lakeward.db import schema, upkeep_postgresql, upkeep_sqlite
from lakeward.db import sizes as size_store
from lakeward.db.database import Database
from lakeward.db.sizes import Sizes
from lakeward.errors import InvalidInput
from lakeward.logs import log
from lakeward.registry import Registry
from lakeward.registry.repeated import repeated
from lakeward.retry import Deadline

CHECKPOINT_SECONDS = 60.0
UPKEEP_SECONDS = 3_600.0
BITE_PAGES = 64  # of SQLite's file, given back at once: so short that a writer may wait for it
CHECKPOINT_BITES = 8  # after so many the log is copied into the file
BITES_SECONDS = 30.0  # of an hour, at most
FREE_PART = 0.1  # of SQLite's file that stays free for what is written next
FREE_BYTES = 16 << 20  # that always may
LOG_BYTES = 16 << 20  # of SQLite's write-ahead log: a larger file is cut
ANALYZED_FROM = 1_000  # rows. Statistics of a small table would mislead once it has grown


class UpkeepResult(msgspec.Struct, frozen=True):
    analyzed: int = 0  # tables whose statistics for the query planner were made
    vacuumed: int = 0  # tables of PostgreSQL
    freed_bytes: int = 0  # of SQLite's file


class VacuumResult(msgspec.Struct, frozen=True, kw_only=True):
    """`before_bytes` and `after_bytes`: SQLite's file; PostgreSQL's tables with their indexes."""

    full: bool
    seconds: float
    before_bytes: int
    after_bytes: int
    freed_bytes: int


@contextmanager
def running(registry: Registry, deadline: Deadline | None = None) -> Iterator[None]:
    """While the block runs, keep the database in shape in the background."""
    with repeated(registry, "upkeep", UPKEEP_SECONDS, look_after, deadline=deadline):
        if not registry.database.is_sqlite:
            yield
            return
        with repeated(registry, "checkpoint", CHECKPOINT_SECONDS, checkpoint, deadline=deadline):
            yield


def look_after(registry: Registry) -> UpkeepResult:
    """Make the planner's statistics; give back what is free of SQLite's file, or vacuum where PostgreSQL is behind."""
    database = registry.database
    result = _look_after_sqlite(database) if database.is_sqlite else _look_after_postgresql(database)
    if result != UpkeepResult():
        log.info("registry_looked_after", **msgspec.structs.asdict(result))
    return result


def checkpoint(registry: Registry) -> bool:
    """Copy SQLite's write-ahead log into its file; whether that was all of it. Nobody waits for it, nor it for anybody.

    The log's file is cut only if it is large and no writer has the turn.
    """
    database = registry.database
    with database.outside_transactions() as connection:
        done = upkeep_sqlite.checkpoint(connection)
        if done and upkeep_sqlite.wal_bytes(connection) > LOG_BYTES:
            with database.idle_turn() as ours:
                if ours:
                    upkeep_sqlite.truncate_log(connection)
    return done


def vacuum(registry: Registry, *, full: bool = False) -> VacuumResult:
    """Give all that is free of the database back to the disk.

    Readers and writers go on, unless `full`: then SQLite's file is written anew, while writers wait, and PostgreSQL's
    tables, each while nobody can use it.

    Raises:
        InvalidInput: not `full`, and SQLite's file is of an earlier version's making, which gives nothing back.
    """
    database = registry.database
    started = time.perf_counter()
    before, after = (_vacuum_sqlite if database.is_sqlite else _vacuum_postgresql)(database, full)
    return VacuumResult(
        full=full,
        seconds=time.perf_counter() - started,
        before_bytes=before,
        after_bytes=after,
        freed_bytes=max(before - after, 0),
    )


def sizes(registry: Registry) -> Sizes:
    """Rows and bytes of the registry's tables."""
    with registry.database.read() as connection:
        return size_store.sizes(connection)


# SQLite ---------------------------------------------------------------------------------------------------------------
def _look_after_sqlite(database: Database) -> UpkeepResult:
    with database.outside_transactions() as connection:
        pages = upkeep_sqlite.pages(connection)
    keep = max(int(pages.total * FREE_PART), FREE_BYTES // pages.page_size)
    freed = _free_in_bites(database, keep, BITES_SECONDS) if pages.gives_back else 0
    return UpkeepResult(analyzed=analyze_sqlite(database), freed_bytes=freed * pages.page_size)


def analyze_sqlite(database: Database) -> int:
    """Make the planner's statistics of tables that are large enough for them to hold; how many."""
    with database.outside_transactions() as connection:
        large = [name for name in schema.metadata.tables if upkeep_sqlite.has_rows(connection, name, ANALYZED_FROM)]
    for name in large:  # each a turn of its own
        with database.outside_transactions(in_turn=True) as connection:
            upkeep_sqlite.analyze(connection, name)
    return len(large)


def _free_in_bites(database: Database, keep: int, seconds: float | None = None) -> int:
    """Free pages until `keep` are left or the time is over, other writers having their turns in between; how many."""
    started = time.monotonic()
    freed = bites = 0
    while seconds is None or time.monotonic() - started < seconds:
        with database.outside_transactions(in_turn=True) as connection:
            began = time.monotonic()
            before = upkeep_sqlite.pages(connection)
            if before.free <= keep:
                return freed
            upkeep_sqlite.free_pages(connection, min(before.free - keep, BITE_PAGES))
            gone = before.total - upkeep_sqlite.pages(connection).total
            took = time.monotonic() - began
        if gone <= 0:
            return freed
        freed += gone
        bites += 1
        if bites % CHECKPOINT_BITES == 0:
            with database.outside_transactions() as connection:
                upkeep_sqlite.checkpoint(connection)
        else:
            time.sleep(took)  # half of the time is the others'
    return freed


def _vacuum_sqlite(database: Database, full: bool) -> tuple[int, int]:
    """(bytes before, bytes after)."""
    with database.outside_transactions() as connection:
        before = upkeep_sqlite.pages(connection)
    if full:
        with database.outside_transactions(in_turn=True) as connection:
            upkeep_sqlite.rewrite(connection)
    elif before.gives_back:
        _free_in_bites(database, 0)
    else:
        raise InvalidInput(
            f"the file of {database.shown_url} was made by an earlier version and gives nothing back: "
            "`lakeward db vacuum --full` writes it anew, once; writers wait meanwhile"
        )
    analyze_sqlite(database)
    with database.outside_transactions() as connection:
        upkeep_sqlite.checkpoint(connection)  # nobody waits for this, and it leaves little for what comes
    with database.outside_transactions(in_turn=True) as connection:
        upkeep_sqlite.truncate_log(connection)  # the file is shortened only now
        return before.bytes, upkeep_sqlite.pages(connection).bytes


# PostgreSQL -----------------------------------------------------------------------------------------------------------
def _look_after_postgresql(database: Database) -> UpkeepResult:
    with database.outside_transactions() as connection:
        behind = upkeep_postgresql.behind(connection)
        for each in behind:
            if each.dead:
                upkeep_postgresql.vacuum(connection, each.table, shorten=False)
            else:
                upkeep_postgresql.analyze(connection, each.table)
    return UpkeepResult(analyzed=len(behind), vacuumed=sum(each.dead for each in behind))


def _vacuum_postgresql(database: Database, full: bool) -> tuple[int, int]:
    """(bytes before, bytes after)."""
    with database.outside_transactions() as connection:
        before = size_store.sizes(connection).bytes
        for name in schema.metadata.tables:
            upkeep_postgresql.vacuum(connection, name, full=full)
        return before, size_store.sizes(connection).bytes
