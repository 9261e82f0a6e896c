"""SQLite's file kept in shape: free pages, checkpoints of the write-ahead log, statistics. No row of ours is touched.

All take a connection of `Database.outside_transactions`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

INCREMENTAL = 2  # of PRAGMA auto_vacuum
ANALYZED_ROWS = 400  # of each index: https://www.sqlite.org/pragma.html#pragma_analysis_limit


class Pages(msgspec.Struct, frozen=True):
    """What the file is made of. Free pages are used again for what is written next."""

    total: int
    free: int
    page_size: int
    gives_back: bool  # whether `free_pages` can shorten the file

    @property
    def bytes(self) -> int:
        return self.total * self.page_size


def pages(connection: sa.Connection) -> Pages:
    total, free, page_size, mode = (
        _value(connection, name) for name in ("page_count", "freelist_count", "page_size", "auto_vacuum")
    )
    return Pages(total, free, page_size, mode == INCREMENTAL)


def wal_bytes(connection: sa.Connection) -> int:
    """The size of the write-ahead log's file; 0 where there is none."""
    path = Path(f"{_file(connection)}-wal")
    return path.stat().st_size if path.exists() else 0


def free_pages(connection: sa.Connection, count: int) -> None:
    """Move what stands at the file's end into free pages, `count` of them, and end the file there: one write.

    The commit makes no checkpoint, for which others would wait: the caller makes one when it is nobody's turn.
    """
    driver = _driver(connection)
    every = _value(connection, "wal_autocheckpoint")
    driver.execute("PRAGMA wal_autocheckpoint = 0")
    try:
        # As a script: of a statement without columns the driver makes only the first step, which is one page.
        driver.executescript(f"PRAGMA incremental_vacuum({int(count)})")
    finally:
        driver.execute(f"PRAGMA wal_autocheckpoint = {every}")


def rewrite(connection: sa.Connection) -> None:
    """Write the file anew without free pages, and make it one that can give pages back. Takes as much space again, twice."""
    driver = _driver(connection)
    # The copy that is made first would be in memory otherwise.
    driver.execute("PRAGMA temp_store = FILE")
    try:
        driver.execute("PRAGMA auto_vacuum = INCREMENTAL")
        driver.execute("VACUUM")
    finally:
        driver.execute("PRAGMA temp_store = MEMORY")


def checkpoint(connection: sa.Connection) -> bool:
    """Copy the log into the file as far as readers let it, without waiting for anybody; whether that was all of it."""
    return _checkpoint(connection, "PASSIVE")


def truncate_log(connection: sa.Connection) -> bool:
    """Copy the whole log, and end its file at 0 bytes; whether no reader stood in the way. Does not wait for any.

    Writers wait meanwhile: the caller has the turn.
    """
    driver = _driver(connection)
    waits = driver.execute("PRAGMA busy_timeout").fetchone()[0]
    driver.execute("PRAGMA busy_timeout = 0")
    try:
        return _checkpoint(connection, "TRUNCATE")
    finally:
        driver.execute(f"PRAGMA busy_timeout = {waits}")


def has_rows(connection: sa.Connection, table: str, least: int) -> bool:
    """Whether a table has at least so many rows; reads no more of them."""
    found = _driver(connection).execute(f"SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT ?)", (least,))
    return bool(found.fetchone()[0] == least)


def analyze(connection: sa.Connection, table: str) -> None:
    """Work out what the query planner knows of a table's indexes, from some hundred rows of each."""
    driver = _driver(connection)
    driver.execute(f"PRAGMA analysis_limit = {ANALYZED_ROWS}")
    driver.execute(f"ANALYZE {table}")


def _checkpoint(connection: sa.Connection, mode: str) -> bool:
    busy, in_log, copied = _driver(connection).execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    return not busy and in_log == copied


def _value(connection: sa.Connection, pragma: str) -> int:
    value: int = _driver(connection).execute(f"PRAGMA {pragma}").fetchone()[0]
    return value


def _file(connection: sa.Connection) -> str:
    name: str = _driver(connection).execute("PRAGMA database_list").fetchone()[2]
    return name


def _driver(connection: sa.Connection) -> Any:
    return connection.connection.driver_connection
