"""The one place where connections and transactions are opened."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from lakeward.config import without_password
from lakeward.db import pipeline, sqlite_file, waits
from lakeward.db.drivers import cut, unstorable
from lakeward.db.engines import postgresql_engine, set_foreign_keys, sqlite_engine
from lakeward.db.lookups import Lookups
from lakeward.db.sqlite_file import SQLiteFile
from lakeward.db.waits import Waits
from lakeward.db.writer_lock import WriterLock, writer_lock_for
from lakeward.errors import (
    CommitUnknown,
    DatabaseError,
    ForkedProcess,
    InvalidSetting,
    LakewardError,
    NestedTransaction,
    RegistryBusy,
    RegistryFull,
    RegistryLost,
    RegistryUnavailable,
    TransactionConflict,
    says,
)
from lakeward.logs import log

CLOSE_TIMEOUT_S = 5  # SQLite: how long closing waits for a thread that writes
FORK_WAIT_S = 1.0  # SQLite: how long a fork waits for what is in use
METADATA_SCHEMA = "lakeward"
POOL_SIZE, POOL_OVERFLOW = 10, 20

_UNLOCKED = nullcontext()
_BEGIN = "BEGIN IMMEDIATE"
_BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_sync = getattr(os, "fdatasync", os.fsync)
_IDLE, _IN_TRANSACTION, _IN_ERROR = 0, 2, 3  # libpq's PGTransactionStatusType


class Database:
    """A registry's database, of the process that opened it. Threads may share it; a forked child opens its own.

    `transaction()` writes, `read()` reads one consistent view; both yield a connection that is closed at the end. `lookups`
    finds single rows in microseconds.
    """

    def __init__(
        self,
        url: str,
        *,
        durable: bool = True,
        create: bool = True,
        metadata_schema: str = METADATA_SCHEMA,
        pool_size: int = POOL_SIZE,
        pool_overflow: int = POOL_OVERFLOW,
    ) -> None:
        """Open `url`: 'sqlite:///file', 'postgresql://...'. Nothing is created but the SQLite file's folder, and not that
        either without `create`.

        `durable=False` lets SQLite lose the last commits when the machine stops; for throw-away registries only.
        `metadata_schema`: where PostgreSQL has the operations tables; it is put on the search path.
        `pool_size`: connections that are kept; `pool_overflow`: more, while they are used. On PostgreSQL there are never more
        than both together: threads' own connections for look-ups are half of the latter, at most.

        Raises:
            InvalidSetting: the URL is of another database.
        """
        self.url = _sqlalchemy_url(url)
        self.shown_url = without_password(url)  # for messages
        self.metadata_schema = metadata_schema
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.file: SQLiteFile | None = None
        self._writer_lock: WriterLock | None = None
        self._waits: Waits | None = None
        self._durable = durable
        if self.is_sqlite:
            if self.url.database and self.url.database != ":memory:":
                path = os.path.abspath(self.url.database)
                if create:
                    _make_folder(Path(path).parent)
                self.file, self._writer_lock = SQLiteFile(path), writer_lock_for(path)
                self._writer_lock.users.add(self)
            self.engine = sqlite_engine(self.url, self.file, pool_size, pool_overflow)
        else:
            self.engine = postgresql_engine(self.url, metadata_schema, pool_size, pool_overflow - pool_overflow // 2)
            sa.event.listen(self.engine, "connect", lambda connection, _: self._sockets.add(connection))
            self._waits = Waits(self.url, self.engine.dialect, self.shown_url)
        self._only: set[int] = set()  # threads in a transaction beside which they begin no other
        self._sockets: weakref.WeakSet[Any] = weakref.WeakSet()  # connections of psycopg
        self._listeners: frozenset[Callable[[], object]] = frozenset()
        self._writer: sa.Connection | None = None  # used behind the writer lock alone, by one thread at a time
        self._refusal: LakewardError | None = None  # why nothing may be done with this object any more
        self._may_repair = True  # until its first commit
        self.lookups = Lookups(self, None if self.is_sqlite else pool_overflow // 2)
        _databases.add(self)

    def __repr__(self) -> str:
        return f"Database({self.shown_url!r})"

    # Transactions -----------------------------------------------------------------------------------------------------
    def transaction(
        self, *, foreign_keys: bool = True, durable: bool = True, only: bool = False
    ) -> AbstractContextManager[sa.Connection]:
        """A writing transaction, which ends in one of three ways: it is committed, and the block's end is reached; it is not,
        and something else than CommitUnknown is raised; or CommitUnknown says that it is not known. An interrupt
        (KeyboardInterrupt, SystemExit) that comes while it is committed says by a note that it is not known.

        `durable=False` is for what may be lost if the machine stops before another transaction has committed: SQLite then
        does not wait for the disk.

        `only`: the thread may begin no other one meanwhile on PostgreSQL either, where a second would not wait for the first,
        but be committed apart from it.

        `foreign_keys=False` is for migrations: SQLite then lets a table be made anew without deleting what refers to it.

        On SQLite writers queue at a lock file before BEGIN IMMEDIATE: SQLite's own busy wait is not fair, and some
        processes would wait long.

        Raises:
            CommitUnknown: whether it was committed is not known.
            RegistryUnavailable: the database does not answer. RegistryBusy: other writers had it for too long.
            TransactionConflict: it has ended the transaction so that others could go on; run the block again (db/retry.py).
            InvalidInput: it can neither hold nor look for a value.
            DatabaseError: it refused a statement.
            NestedTransaction: this thread is in one already.
            RegistryLost, ForkedProcess: this object is of no use any more.
        """
        return self._in_file(foreign_keys, durable) if self._writer_lock is not None else self._in_pool(only)

    # The two ways are written out, and not put together of smaller blocks, whose calls a small commit would feel.
    @contextmanager
    def _in_file(self, foreign_keys: bool, durable: bool) -> Iterator[sa.Connection]:
        """A transaction of SQLite's file, whose connection is kept: the way through the pool costs as much as two statements."""
        writer_lock, file = self._writer_lock, self.file
        assert writer_lock is not None and file is not None
        self.check_free()
        written = None
        try:
            with writer_lock:
                try:
                    connection = self._writer
                    if connection is None:
                        connection = self._writer = self.engine.connect().execution_options(lakeward_begin=_BEGIN)
                    if not foreign_keys:  # it cannot be changed inside a transaction
                        set_foreign_keys(connection, False)
                    transaction = connection.begin()
                    written = self._looked_at(writer_lock, file, connection, durable)
                    yield connection
                    self._check_whole(connection, transaction)
                    self._commit(connection, transaction)
                except BaseException:  # whatever state the connection is in, the next transaction begins anew
                    self._drop_writer(is_changed=not foreign_keys)
                    if written is not None:
                        os.close(written)
                    raise
                if not foreign_keys:
                    self._drop_writer(is_changed=True)
        except TransactionConflict as error:
            error.is_rolled_back = True
            raise
        except _OF_DRIVER as error:
            raise self._translated(error) from error
        # The writer lock is free: the next writer works while the disk does, and the disk takes at once what several have
        # written. (With synchronous=FULL SQLite does the same sync itself, behind the lock.) Others may see the commit before
        # it is durable. Nobody is told of it before, and what depends on it is lost only with it: SQLite reads its log up to
        # the first commit that is not whole.
        if written is not None:
            self._make_durable(writer_lock, written)
        self._tell()

    @contextmanager
    def _in_pool(self, only: bool) -> Iterator[sa.Connection]:
        """A transaction of PostgreSQL's, or of SQLite's in memory."""
        self.check_free()
        if only:
            self._only.add(threading.get_ident())
        try:
            with self._pooled() as connection:
                begin = _BEGIN if self.is_sqlite else "BEGIN"
                transaction = connection.execution_options(lakeward_begin=begin).begin()
                yield connection
                self._check_whole(connection, transaction)
                self._commit(connection, transaction)
        except TransactionConflict as error:
            error.is_rolled_back = True
            raise
        except _OF_DRIVER as error:
            translated = self._translated(error)
            if isinstance(translated, TransactionConflict):
                translated.is_rolled_back = True
            raise translated from error
        finally:
            if only:
                self._only.discard(threading.get_ident())
        self._tell()

    def _tell(self) -> None:
        for tell in self._listeners:
            try:
                tell()
            except Exception as error:  # it is committed, whatever a listener makes of it
                log.error("commit_listener_failed", exc_info=error)

    def check_free(self) -> None:
        """Whether this thread can begin a transaction; for those who wait for a turn elsewhere before they do.

        Raises NestedTransaction, RegistryLost, ForkedProcess.
        """
        self.check_usable()
        if threading.get_ident() in self._only if self._writer_lock is None else self._writer_lock.is_mine:
            raise NestedTransaction(
                f"this thread is in a transaction of the registry {self.shown_url}, and another one would wait for it or be "
                "committed apart from it: pass its connection on (`connection=`) where that is taken, and do the rest before the "
                "block or after it. Rows and where they came from are committed together by append(..., batch=(stream, id, "
                "from, to))"
            )

    def check_usable(self) -> None:
        """Raises RegistryLost, ForkedProcess."""
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)

    @property
    def is_forked(self) -> bool:
        """Whether this is a parent process' object in its forked child, which leaves alone what it stands for."""
        return isinstance(self._refusal, ForkedProcess)

    def _drop_writer(self, *, is_changed: bool) -> None:
        writer, self._writer = self._writer, None
        if writer is not None and is_changed and not self.is_forked:
            writer.invalidate()  # no other transaction gets it as it is
        self._let_go_of(writer)

    @contextmanager
    def _pooled(self) -> Iterator[sa.Connection]:
        connection = self.engine.connect()
        try:
            with _UNLOCKED if self._waits is None else self._waits.watched(connection):
                yield connection
        finally:
            self._let_go_of(connection)

    def _let_go_of(self, connection: sa.Connection | None) -> None:
        if connection is None:
            return
        if self.is_forked:  # nothing is sent over what the parent uses, and nothing closed
            _inherited.append(connection)
            return
        try:
            connection.close()
        except Exception:
            # It is broken. What was raised before says more, and of a commit it says nothing.
            if not connection.closed:
                connection.invalidate()
                connection.close()

    def _looked_at(
        self, writer_lock: WriterLock, file: SQLiteFile, connection: sa.Connection, durable: bool
    ) -> int | None:
        """Look at SQLite's files once a transaction has begun; a descriptor of the log if it is to be synced by it."""
        if writer_lock.has_lost_a_sync:
            file.check_written(connection.info)
            self._repair(writer_lock, file)
        self._may_repair = False
        written = None
        if durable and self._durable:
            written = file.open_log(connection.info)
        else:  # its log is looked at once it is committed
            file.check()
        file.grow_older(connection)
        return written

    def _repair(self, writer_lock: WriterLock, file: SQLiteFile) -> None:
        """After somebody's sync failed: this object, if it was opened since, makes durable what it found."""
        if not self._may_repair:
            raise self._refuse(_lost_sync(self.shown_url))
        try:
            file.write_log_again()
            writer_lock.synced_again()
        except OSError as error:
            raise RegistryUnavailable(
                f"the disk did not take what the registry {self.shown_url} holds: {error.strerror}; check the disk, then "
                "open the registry again"
            ) from error

    def _check_whole(self, connection: sa.Connection, transaction: sa.RootTransaction) -> None:
        """Before COMMIT: a database that has ended the transaction, since an error was passed over, commits nothing or less."""
        self.check_usable()
        if not transaction.is_active or connection.invalidated:
            raise CommitUnknown(
                f"a block of a transaction of the registry {self.shown_url} has ended it by itself; leave commit and rollback "
                "to the block's end"
            )
        driver: Any = connection.connection.dbapi_connection
        is_whole = (
            driver.in_transaction if self.is_sqlite else driver.info.transaction_status in (_IDLE, _IN_TRANSACTION)
        )
        if not is_whole:
            raise DatabaseError(
                f"the registry {self.shown_url} has ended a transaction after an error that its block passed over; nothing "
                "was committed"
            )

    def _commit(self, connection: sa.Connection, transaction: sa.RootTransaction) -> None:
        """COMMIT. From here on all that goes wrong leaves it unknown whether it did, but for a database that lives and said no.

        The transaction then stands, or is no more, and there is nothing to ask for: the intents settle it (registry/intents.py).
        """
        try:
            pipeline.flush(connection, commit=True)
            transaction.commit()
            if self.file is not None:
                self.file.check_written(connection.info)
        except RegistryLost as lost:
            raise CommitUnknown(f"{lost}. What was written last went to the former file") from lost
        except LakewardError:  # what a statement was refused for that went to the server with COMMIT
            connection.connection.rollback()
            raise
        except sa.exc.DBAPIError as error:
            if not error.connection_invalidated and _said_no(connection, error):
                connection.connection.rollback()  # SQLAlchemy takes it for ended, and would leave it open
                raise
            raise CommitUnknown(
                f"the answer to a commit of the registry {self.shown_url} is lost: {_reason(error)}"
            ) from error
        except Exception as error:
            raise CommitUnknown(
                f"a commit of the registry {self.shown_url} broke off ({type(error).__name__})"
            ) from error
        except BaseException as interrupt:
            interrupt.add_note("lakeward: whether the transaction was committed is not known")
            raise

    def _make_durable(self, writer_lock: WriterLock, written: int) -> None:
        """Sync SQLite's log, which holds the commit."""
        try:
            try:
                _sync(written)
            finally:
                os.close(written)
        except OSError as error:
            writer_lock.lost_a_sync()
            self._refuse(_lost_sync(self.shown_url))
            raise CommitUnknown(
                f"what was written to the registry {self.shown_url} could not be made durable: {error.strerror}; check the "
                "disk, then open the registry anew"
            ) from error
        except BaseException as interrupt:
            interrupt.add_note("lakeward: the transaction was committed, but may be lost if the machine stops now")
            raise
        if writer_lock.has_lost_a_sync:  # somebody else's, of what stands before this in the log
            self._refuse(_lost_sync(self.shown_url))
            raise CommitUnknown(str(self._refusal))

    def _refuse(self, refusal: LakewardError) -> LakewardError:
        self._refusal = refusal
        return refusal

    def on_commit(self, tell: Callable[[], object], *, remove: bool = False) -> None:
        """From now on (or no longer) call `tell` after each commit of this object, in the thread that committed: quickly."""
        self._listeners = self._listeners - {tell} if remove else self._listeners | {tell}

    def _translated(self, error: sa.exc.TimeoutError | sa.exc.DBAPIError) -> LakewardError:
        """Ours for a driver's error, here alone. Raises RegistryLost, RegistryUnavailable: the file tells why."""
        if isinstance(error, sa.exc.TimeoutError):
            return RegistryUnavailable(
                f"no connection to the registry {self.shown_url} became free: too many threads use it at once; "
                "use fewer, or give each its own lake"
            )
        if self.file is not None:  # another file in its place may be no database, or hold other tables
            self.file.check()
        if isinstance(error, sa.exc.DataError) or getattr(error.orig, "sqlite_errorcode", None) == _OTHER_TYPE:
            return unstorable()
        if getattr(error.orig, "sqlstate", None) == _NO_LOCK:
            return RegistryBusy(
                f"a lock of the registry {self.shown_url} did not come in {waits.WAIT_SECONDS:.0f} s: {self.holder} has "
                "it; let that go on, or end it (SELECT pg_terminate_backend(...)), then try again; nothing was written"
            )
        if _refuses_us(error):
            return RegistryUnavailable(
                f"the registry {self.shown_url} lets nobody in this way: {_reason(error)}; check the user, the password "
                "and the database's name"
            )
        if _is_full(error):
            return RegistryFull(
                f"the disk of the registry {self.shown_url} is full: {_reason(error)}; free space there, then try again"
            )
        if self.file is not None:
            sqlite_file.check_kind(self.file.path, error.orig)
        if _does_not_answer(error):
            return RegistryUnavailable(
                f"the registry {self.shown_url} does not answer: {_reason(error)}; "
                "check that it runs and that the address is right"
            )
        if _is_conflict(error):
            return TransactionConflict(
                f"the registry {self.shown_url} has ended the transaction so that others could go on: {_reason(error)}; "
                "nothing of it was committed: run it again"
            )
        return DatabaseError(f"the registry {self.shown_url} refused a statement: {_refusal(error)}")

    # Other ways to the database ---------------------------------------------------------------------------------------
    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A reading transaction: every statement sees the same state."""
        self.check_usable()
        if self.file is not None:
            self.file.check()
        with self.translated(), self._pooled() as connection:
            if not self.is_sqlite:
                connection.execution_options(lakeward_begin=_BEGIN_READING)
            connection.begin()
            yield connection
            self.check_usable()

    @contextmanager
    def translated(self) -> Iterator[None]:
        """For a connection that somebody else has opened: what its driver raises in the block is raised as `transaction`
        raises it."""
        try:
            yield
        except _OF_DRIVER as error:
            raise self._translated(error) from error

    @contextmanager
    def outside_transactions(self, *, in_turn: bool = False) -> Iterator[sa.Connection]:
        """A connection whose statements stand by themselves, for those that a transaction refuses: VACUUM, checkpoints.

        With `in_turn` the block waits for its turn among SQLite's writers, and is one of them.

        Raises what `transaction` raises.
        """
        self.check_usable()
        if self.file is not None:
            self.file.check()
        writer_lock = self._writer_lock if in_turn else None
        if writer_lock is not None:
            self.check_free()
        with self.translated(), writer_lock or _UNLOCKED, self._pooled() as connection:
            connection.execution_options(lakeward_begin=None)
            yield connection

    @contextmanager
    def idle_turn(self) -> Iterator[bool]:
        """SQLite: whether no writer has the turn, so that none waits for it either; then the block has it."""
        if self._writer_lock is None:
            yield self.is_sqlite
            return
        if self._writer_lock.is_mine or not self._writer_lock.enter_if_free():
            yield False
            return
        try:
            yield True
        finally:
            self._writer_lock.__exit__()

    def close(self) -> None:
        if self.is_forked:
            return
        self.lookups.close()
        # One that a thread writes with until then is left to it, as one of the pool's would be.
        self._close_writer(CLOSE_TIMEOUT_S)
        self.engine.dispose()
        if self._writer_lock is not None:
            self._writer_lock.leave(self)
        if self._waits is not None:
            self._waits.stop()

    @property
    def holder(self) -> str:
        """PostgreSQL: for whom this thread's last transaction waited, if it did for long."""
        return "another transaction" if self._waits is None else self._waits.holder()

    def _close_writer(self, wait: float) -> None:
        writer_lock = self._writer_lock
        if writer_lock is None or writer_lock.is_mine or not writer_lock.threads.acquire(timeout=wait):
            return
        try:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
        finally:
            writer_lock.threads.release()

    # Forks ------------------------------------------------------------------------------------------------------------
    def close_idle(self) -> None:
        """SQLite: close what is not in use now; it is opened again when it is needed. A child must not find it open."""
        self._close_writer(0)
        self.lookups.close_idle()
        pool = self.engine.pool
        if isinstance(pool, sa.pool.QueuePool) and not pool.checkedout():
            pool.dispose()

    def forked(self, parent: int) -> None:
        """In a forked child: what stands behind this object is the parent's, and is neither used nor closed."""
        _inherited.extend([self.engine.pool, self._writer, *self._sockets])
        for connection in list(self._sockets):
            cut(connection)
        self._writer = None
        self._only = set()
        self.engine.dispose(close=False)
        self.lookups.forget()
        self._refuse(
            ForkedProcess(
                f"the registry {self.shown_url} was opened by process {parent}, and this is process {os.getpid()}, forked from "
                "it: open it here, too (lakeward.connect)"
            )
        )


def _sqlalchemy_url(url: str) -> sa.URL:
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):  # the latter for a port that is no number
        shown = without_password(url)
        raise InvalidSetting(f"registry {shown!r} is no database URL; use a file path or postgresql://...") from None
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return parsed
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise InvalidSetting(f"registry database {backend!r} is not supported; use SQLite or PostgreSQL")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RegistryUnavailable(
            f"the registry's folder {folder} cannot be made: {error.strerror}; choose another with registry=..."
        ) from error


def _lost_sync(shown_url: str) -> RegistryLost:
    return RegistryLost(
        f"a sync of the registry {shown_url} has failed: what was committed last may not be on the disk, and nothing that "
        "comes after it either; check the disk, then open the registry anew, which writes it again"
    )


# Forking --------------------------------------------------------------------------------------------------------------
_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_inherited: list[object] = []  # kept, so that a child never closes what its parent uses
_parent = os.getpid()  # of a child that is forked


def _before_fork() -> None:
    global _parent
    _parent = os.getpid()
    files = {database.file.path for database in _databases if database.file is not None}
    deadline = time.monotonic() + FORK_WAIT_S
    while True:
        for database in list(_databases):
            if database.file is not None:
                database.close_idle()
        sqlite_file.opening.acquire()  # until the child is there
        if not sqlite_file.open_of(files) or time.monotonic() > deadline:
            return
        sqlite_file.opening.release()
        time.sleep(0.001)


def _after_fork_in_parent() -> None:
    sqlite_file.opening.release()


def _after_fork_in_child() -> None:
    sqlite_file.refuse_from_now_on({database.file.path for database in _databases if database.file is not None})
    for database in list(_databases):
        database.forked(_parent)


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


# Errors ---------------------------------------------------------------------------------------------------------------
# What SQLite's COMMIT fails with where a write to the log was refused: no space, or a limit of files or of the user. The last
# page of a commit is what makes it one, and comes last: the log ends before it or in it, and nobody takes that for a commit.
# (With synchronous=FULL more is written after it. An error of another kind may come when that page is there.)
_LOG_ENDS_BEFORE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)


def _said_no(connection: sa.Connection, error: sa.exc.DBAPIError) -> bool:
    """Whether a database whose COMMIT failed is alive and has undone the transaction, or lets it be undone.

    PostgreSQL answers an error of COMMIT (of a constraint that is checked then) by ending the transaction. SQLite keeps it
    open, or undoes it where its log could not be written; after other errors of the disk, the log may hold a commit that only
    the next one writes over.
    """
    driver: Any = connection.connection.dbapi_connection
    if isinstance(driver, sqlite3.Connection):
        return driver.in_transaction or getattr(error.orig, "sqlite_errorcode", None) in _LOG_ENDS_BEFORE
    return driver.info.transaction_status in (_IDLE, _IN_TRANSACTION, _IN_ERROR)


def _refuses_us(error: sa.exc.DBAPIError) -> bool:
    """PostgreSQL answers a connection with no: class 28 is a wrong user or password, 3D000 an unknown database. Before
    there is a connection the driver gives the text alone.
    """
    state = getattr(error.orig, "sqlstate", None) or ""
    told = ("password authentication failed", "no password supplied", "does not exist", "no pg_hba.conf entry")
    is_connecting = isinstance(error, sa.exc.OperationalError) and not state
    return state.startswith(("28", "3D")) or (is_connecting and says(error, *told))


_OF_DRIVER = (sa.exc.TimeoutError, sa.exc.DBAPIError)
_NO_LOCK = "55P03"  # PostgreSQL: lock_not_available
_OTHER_TYPE = (
    3091  # SQLITE_CONSTRAINT_DATATYPE: a strict table refuses a value. Older sqlite3 modules have no name for it.
)


def _is_full(error: sa.exc.DBAPIError) -> bool:
    """PostgreSQL: class 53's disk_full."""
    full = getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return full or getattr(error.orig, "sqlstate", None) == "53100"


def _does_not_answer(error: sa.exc.DBAPIError) -> bool:
    """Both drivers call more than lost connections operational: wrong SQL (SQLite), deadlocks (PostgreSQL)."""
    if not isinstance(error, (sa.exc.OperationalError, sa.exc.InterfaceError)):
        return error.connection_invalidated
    if isinstance(error.orig, sqlite3.Error):
        return getattr(error.orig, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR
    # Class 40 is a rollback (serialization failure, deadlock), 54 a limit of the program (a row too long for an index).
    return not (getattr(error.orig, "sqlstate", None) or "").startswith(("40", "54"))


def _is_conflict(error: sa.exc.DBAPIError) -> bool:
    """PostgreSQL: a serialization failure or a deadlock."""
    return getattr(error.orig, "sqlstate", None) in ("40001", "40P01")


# What a database means that ends what was asked of it, by its codes: SQLSTATE or its class, and SQLite's.
_CAUSES: dict[str | int, str] = {
    "08": "the connection broke",
    "25006": "it takes no writes",
    "28": "the user or the password is not right, or pg_hba.conf has no entry for them",
    "3D": "there is no database of that name",
    "40001": "a serialization failure",
    "40P01": "a deadlock",
    "53100": "no space is left",
    "53200": "it is out of memory",
    "53300": "it has no connection left (max_connections)",
    "57P01": "it was shut down",
    "57P02": "it was shut down",
    "57P03": "it starts up or shuts down",
    "57P05": "the connection was idle for too long",
    sqlite3.SQLITE_BUSY: "another program holds the file",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_FULL: "no space is left",
    sqlite3.SQLITE_IOERR: "the disk failed",
    sqlite3.SQLITE_NOTADB: "the file is no database",
    sqlite3.SQLITE_READONLY: "the file may not be written",
}
# And by what PostgreSQL's driver says where it has no code: before there is a connection, and when one broke.
_TOLD = (
    ("password authentication failed", "the password is not right"),
    ("no password supplied", "no password was given"),
    ("no pg_hba.conf entry", "its pg_hba.conf has no entry for this user and host"),
    ("does not exist", "there is no such user or database"),
    ("refused", "nothing listens there"),
    ("host name", "the name of its host is not known"),
    ("resolve", "the name of its host is not known"),
    ("timeout", "no answer came in time"),
    ("starting up", "it starts up"),
    ("shutting down", "it was shut down"),
    ("too many clients", "it has no connection left (max_connections)"),
    ("No such file", "there is no such socket"),
    ("clos", "the connection broke"),
    ("lost", "the connection broke"),
    ("SSL", "TLS did not come about"),
)


def _reason(error: sa.exc.DBAPIError) -> str:
    """What happened, of known causes; else the code that the database gives it."""
    state = getattr(error.orig, "sqlstate", None) or ""
    number = getattr(error.orig, "sqlite_errorcode", None)
    known = _CAUSES.get(state) or _CAUSES.get(state[:2]) or (_CAUSES.get(number & 0xFF) if number is not None else None)
    if known is None and not state and number is None:
        known = next((meaning for text, meaning in _TOLD if says(error, text)), None)
    code = f"SQLSTATE {state}" if state else getattr(error.orig, "sqlite_errorname", None)
    return known or code or type(error.orig).__name__


def _refusal(error: sa.exc.DBAPIError) -> str:
    if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT:
        return f"{_reason(error)}; bring it back from a backup"
    said = str(error.orig).strip()
    return said.splitlines()[0] if said else _reason(error)
