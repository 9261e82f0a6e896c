"""Look-ups of one row, outside of transactions: most of what a small read costs otherwise is the way to it. Which of them need it
is said in docs/decisions/0018-ways-to-read.md; others are reads like all.

Each thread has a connection of its own here, on which no transaction is ever opened. A query of one statement sees one state by
itself. Where anything is unusual, the way of all other reads is taken, which also tells what is wrong.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import sqlalchemy as sa

from lakeward.db import dialect, waits
from lakeward.db.drivers import POSTGRESQL_ARGUMENTS, UNSTORABLE, cut, prepare_session, unstorable
from lakeward.db.prepared import Prepared, Row
from lakeward.db.sqlite_file import SQLiteFile

_SNAPSHOT = b"SELECT pg_current_snapshot()"
# Every look-up has its index. Statistics of tables that fill and empty all the time, such as the feed, say otherwise.
_BY_INDEX = "SET enable_seqscan = off; SET max_parallel_workers_per_gather = 0; SET jit = off"

CLOSE_WAIT_S = 1.0  # for a look-up under way, when all is closed


class _NoneLeft(Exception):
    """This thread gets no connection of its own."""


class _Own:
    """What one thread has: its connection, and what it remembers. It goes with the thread."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.versions = connection.cursor()  # asks for the version, again and again
        self.version = -1
        self.lock = threading.Lock()  # is held while the connection is used or closed: SQLite bears no two at once
        self.is_closed = False
        self.memory: dict[Any, Any] = {}
        self._pid = os.getpid()

    def close(self, wait: float) -> None:
        """Close the connection, unless it is used for longer than so many seconds. Who asks it after that takes the way of all
        other reads."""
        if self.lock.acquire(timeout=wait):
            try:
                self.is_closed = True
                self.connection.close()
            finally:
                self.lock.release()

    def __del__(self) -> None:
        if self._pid == os.getpid():
            self.connection.close()


class Source(Protocol):
    """What look-ups need of a Database, which has them."""

    engine: sa.Engine
    url: sa.URL
    metadata_schema: str
    is_sqlite: bool
    file: SQLiteFile | None

    def check_usable(self) -> None: ...
    def read(self) -> AbstractContextManager[sa.Connection]: ...


class Lookups:
    """One for each Database."""

    def __init__(self, database: Source, limit: int | None = None) -> None:
        """`limit`: threads that have a connection of their own; the others take the way of all reads."""
        self._limit, self._opening = limit, 0
        self._database = database
        self._driver: Any = database.engine.dialect.dbapi  # sqlite3, or psycopg where it is used
        self._threads = threading.local()
        self._all: weakref.WeakSet[_Own] = weakref.WeakSet()
        self._inherited: list[object] = []
        self._lock = threading.Lock()
        self._is_file = database.is_sqlite and database.url.database not in (None, "", ":memory:")

    def one(self, prepared: Prepared, parameters: Row) -> Row | None:
        """The only row of a query, or none, as it is now. Raises what `Database.read` raises."""
        found = self._fetched(prepared, parameters, lambda cursor: [cursor.fetchone()])
        if found is not None:
            return found[0]
        with self._database.read() as opened:
            return prepared.one(opened, parameters)

    def all(self, prepared: Prepared, parameters: Row) -> list[Row]:
        """The rows of a query, as they are now. Raises what `Database.read` raises."""
        found = self._fetched(prepared, parameters, lambda cursor: cursor.fetchall())
        if found is not None:
            return [row for row in found if row is not None]
        with self._database.read() as opened:
            return prepared.all(opened, parameters)

    @property
    def is_apart(self) -> bool:
        """Whether only what is committed is found here, whatever a transaction of the caller's has written."""
        return self._is_file or not self._database.is_sqlite

    def write(self, prepared: Prepared, parameters: Row) -> Row | None:
        """PostgreSQL: what one writing statement gives back, that commits by itself: one way to the server in place of five.

        None where it could not be run, or it is not known whether it was; the usual transaction then does it or tells what
        is wrong, so the statement must be one that may be done twice.
        """
        if self._database.is_sqlite:
            return None
        found = self._fetched(prepared, parameters, lambda cursor: [cursor.fetchone()])
        return None if found is None else found[0]

    def _fetched(
        self, prepared: Prepared, parameters: Row, fetch: Callable[[Any], Sequence[Any]]
    ) -> list[Row | None] | None:
        """None where the thread's own connection cannot serve."""
        if not self.is_apart:
            return None
        database = self._database
        try:
            own = self._own()
            if database.file is not None:
                database.file.check()
            ready = prepared.ready(database.engine.dialect, parameters)
            with own.lock:
                if database.is_sqlite:
                    cursor = own.connection.execute(ready.text, ready.values(parameters))
                else:
                    cursor = own.connection.execute(ready.text, ready.named(parameters), prepare=True)
                found = [None if row is None else ready.record(row) for row in fetch(cursor)]
        except (*UNSTORABLE, self._driver.DataError) as error:
            self._drop()
            raise unstorable() from error
        except (self._driver.Error, _NoneLeft):
            self._drop()
            return None
        return found

    def memory(self) -> dict[Any, Any] | None:
        """What this thread remembers of the database, emptied if anything has been committed since it was last asked for.

        SQLite tells that by a number (PRAGMA data_version) that every commit of any other connection changes, in this
        process too. None where the database does not tell.
        """
        if not self._is_file:
            return None
        try:  # as `version` does, and written out: this is the way of the quickest look-ups, which would feel the call
            own = self._own()
            with own.lock:
                (version,) = own.versions.execute("PRAGMA data_version").fetchone()
        except (self._driver.Error, _NoneLeft):
            self._drop()
            return None
        if version != own.version:
            own.memory.clear()
            own.version = version
        return own.memory

    def version(self) -> int | str | None:
        """Something that differs from what this thread was told last if anything has been committed between; None where the
        database does not tell.

        PostgreSQL tells it by its current snapshot: a transaction that commits leaves those that it names as running. The
        question goes to the server as it is, without what a driver does around a query: it is asked forty times a second.
        """
        if not self.is_apart:
            return None
        if self._database.file is not None:
            self._database.file.check()
        try:
            own = self._own()
            with own.lock:
                if self._is_file:
                    (version,) = own.versions.execute("PRAGMA data_version").fetchone()
                    return int(version)
                result = own.connection.pgconn.exec_(_SNAPSHOT)
        except (self._driver.Error, _NoneLeft):
            self._drop()
            return None
        if result.status != self._driver.pq.ExecStatus.TUPLES_OK:
            self._drop()
            return None
        return str(result.get_value(0, 0), "ascii")

    def close(self) -> None:
        with self._lock:
            held = list(self._all)
            self._all.clear()
        self._threads = threading.local()
        for own in held:
            own.close(wait=CLOSE_WAIT_S)

    def close_idle(self) -> None:
        """Close what no thread uses at this moment; each opens another when it needs one."""
        with self._lock:
            held = list(self._all)
        for own in held:
            own.close(wait=0)

    def forget(self) -> None:
        """In a forked child: the parent's connections are neither used nor closed."""
        for own in list(self._all):
            if not self._database.is_sqlite:
                cut(own.connection)
        self._inherited.append((self._threads, list(self._all)))
        self._threads, self._all, self._lock = threading.local(), weakref.WeakSet(), threading.Lock()

    def _own(self) -> _Own:
        """This thread's own connection and memory.

        Raises _NoneLeft: as many threads as may have a connection of their own.
        """
        self._database.check_usable()
        own: _Own | None = getattr(self._threads, "own", None)
        if own is not None and not own.is_closed:
            return own
        with self._lock:
            if self._limit is not None and len(self._all) + self._opening >= self._limit:
                raise _NoneLeft
            self._opening += 1
        try:
            own = self._threads.own = _Own(self._open())
            with self._lock:
                self._all.add(own)
        finally:
            with self._lock:
                self._opening -= 1
        return own

    @property
    def connections(self) -> int:
        """How many threads have one of their own."""
        return len(self._all)

    def _open(self) -> Any:
        url = self._database.url
        if self._database.file is not None:
            connection = self._database.file.connect()
            connection.isolation_level = None
            connection.execute("PRAGMA query_only = ON")
            return connection
        arguments = {**self._database.engine.dialect.create_connect_args(url)[1], **POSTGRESQL_ARGUMENTS}
        opened = self._driver.connect(**arguments, autocommit=True)
        prepare_session(opened)
        opened.execute(dialect.EXTEND_PATH, [self._database.metadata_schema, False])
        opened.execute(_BY_INDEX)
        opened.execute(
            f"SET lock_timeout = '{waits.SAY_SECONDS * 1000:.0f}ms'"
        )  # a transaction then waits, and says for whom
        return opened

    def _drop(self) -> None:
        own: _Own | None = getattr(self._threads, "own", None)
        if own is not None:
            self._threads.own = None
            own.close(wait=CLOSE_WAIT_S)
