"""SQLAlchemy's engines for the two databases, and what each new connection is told."""

from __future__ import annotations

import sqlite3
import time
from typing import Any

import sqlalchemy as sa

from lakeward.db import dialect, lock_order, pipeline, waits
from lakeward.db.drivers import (
    BUSY_TIMEOUT_MS,
    POSTGRESQL_ARGUMENTS,
    SQLITE_ARGUMENTS,
    UNSTORABLE,
    prepare_session,
    unstorable,
)
from lakeward.db.sqlite_file import SQLiteFile
from lakeward.errors import says
from lakeward.retry import RetryConfig, tried

IDLE_IN_TRANSACTION_S = 60
WAIT_FOR_CONNECTION_S = 30.0
_NONE_LEFT = ("too many clients", "remaining connection slots", "too many connections")
_AGAIN = RetryConfig(10_000, initial_delay=0.02, max_delay=0.2, jitter=1.0)
_IS_OURS = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'registry_info')"


# SQLite ---------------------------------------------------------------------------------------------------------------
def sqlite_engine(url: sa.URL, file: SQLiteFile | None, size: int, overflow: int) -> sa.Engine:
    """Without a file the database is in memory."""
    if file is None:
        engine = sa.create_engine(url, poolclass=sa.pool.StaticPool, connect_args=SQLITE_ARGUMENTS)
    else:
        engine = sa.create_engine(
            url,
            poolclass=sa.pool.QueuePool,
            pool_size=size,
            max_overflow=overflow,
        )
        sa.event.listen(engine, "do_connect", lambda *_: file.connect())

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver must not begin transactions of its own
        use_wal(connection, new_or_ours=True)  # before all that looks into a new file
        for pragma in (
            "synchronous = NORMAL",  # commits are synced by Database, behind no writer lock; checkpoints by SQLite
            "foreign_keys = ON",
            "recursive_triggers = ON",  # or REPLACE would delete without a trigger
            "cache_size = -16384",  # 16 MiB
            "temp_store = MEMORY",
            "secure_delete = OFF",  # some builds overwrite what is deleted: four times the cost for footers
        ):
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        # By the driver itself: SQLAlchemy's way costs more than SQLite's BEGIN.
        statement = connection.get_execution_options().get("lakeward_begin", "BEGIN")
        if statement is None:
            return
        driver_connection: Any = connection.connection.dbapi_connection
        try:
            driver_connection.execute(statement)
        except sqlite3.Error as error:
            raise sa.exc.DBAPIError.instance(statement, (), error, sqlite3.Error) from error

    _refuse_unstorable(engine)
    return engine


def _refuse_unstorable(engine: sa.Engine) -> None:
    @sa.event.listens_for(engine, "handle_error")
    def _refuse(context: sa.engine.ExceptionContext) -> None:
        if isinstance(context.original_exception, UNSTORABLE):
            raise unstorable() from context.original_exception


def use_wal(connection: Any, *, new_or_ours: bool = False) -> None:
    """Switch a file to the write-ahead log, and a new one to free pages that can be given back a few at a time.

    SQLite does not wait while another process does the same, so this does.

    Args:
        new_or_ours: leave a file as it is that another program has made.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            if connection.execute("PRAGMA page_count").fetchone()[0] == 0:  # later, only VACUUM changes it
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            elif connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal" or (
                new_or_ours and not connection.execute(_IS_OURS).fetchone()[0]
            ):
                return
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def set_foreign_keys(connection: sa.Connection, on: bool) -> None:
    driver_connection = connection.connection.dbapi_connection
    assert driver_connection is not None
    driver_connection.execute(f"PRAGMA foreign_keys = {'ON' if on else 'OFF'}")


# PostgreSQL -----------------------------------------------------------------------------------------------------------
def postgresql_engine(url: sa.URL, metadata_schema: str, size: int, overflow: int) -> sa.Engine:
    engine = sa.create_engine(
        url,
        isolation_level="AUTOCOMMIT",  # the driver must not begin transactions of its own
        pool_size=size,
        max_overflow=overflow,
        connect_args=POSTGRESQL_ARGUMENTS,
    )

    @sa.event.listens_for(engine, "do_connect")
    def _connect(used: sa.Dialect, _record: Any, arguments: Any, settings: Any) -> Any:
        """Where other processes have all connections of the server, one is waited for as one of the pool's is."""

        def failed(error: Exception) -> None:
            if not says(error, *_NONE_LEFT):
                raise error

        errors: Any = used.loaded_dbapi.OperationalError
        return tried(
            lambda: used.connect(*arguments, **settings), errors, _AGAIN, seconds=WAIT_FOR_CONNECTION_S, failed=failed
        )

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:
        prepare_session(connection)
        connection.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_IN_TRANSACTION_S}s'")
        connection.execute(f"SET lock_timeout = '{waits.WAIT_SECONDS * 1000:.0f}ms'")
        connection.execute(dialect.EXTEND_PATH, [metadata_schema, False])

    pipeline.install(engine)
    _refuse_unstorable(engine)
    lock_order.follow_savepoints(engine)
    lock_order.check_statements(engine)
    return engine
