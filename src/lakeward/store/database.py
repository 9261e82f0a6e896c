"""The one place where connections and transactions are opened."""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import sqlalchemy as sa

from lakeward.config import without_password
from lakeward.errors import DatabaseError, InvalidSetting, RegistryUnavailable
from lakeward.store.engines import postgresql_engine, set_foreign_keys, sqlite_engine
from lakeward.store.gate import Gate, forget_gates, gate_for
from lakeward.store.lookups import Lookups

CLOSE_TIMEOUT_S = 5  # SQLite: how long closing waits for a thread that writes
METADATA_SCHEMA = "lakeward"

_NO_GATE = nullcontext()
_sync = getattr(os, "fdatasync", os.fsync)


class Database:
    """A registry's database. Threads may share it, and so may a child that is forked while no thread is in a transaction.

    (SQLite keeps its locks in the memory of the process too: a child forked inside a transaction waits for it for ever.
    Where that may happen, start processes by 'spawn' or 'forkserver'.)

    `transaction()` writes, `read()` reads one consistent view; both yield a connection that is closed at the end. `lookups`
    finds single rows in microseconds.
    """

    def __init__(
        self, url: str, *, durable: bool = True, create: bool = True, metadata_schema: str = METADATA_SCHEMA
    ) -> None:
        """Open `url`: 'sqlite:///file', 'postgresql://...'. Nothing is created but the SQLite file's folder, and not that
        either without `create`.

        `durable=False` lets SQLite lose the last commits when the machine stops; for throw-away registries only.
        `metadata_schema`: where PostgreSQL has the operations tables; it is put on the search path.

        Raises:
            InvalidSetting: the URL is of another database.
        """
        self.url = _sqlalchemy_url(url)
        self.shown_url = without_password(url)  # for messages
        self.metadata_schema = metadata_schema
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self._gate: Gate | None = None
        self._durable = durable
        if self.is_sqlite:
            if create and self.url.database and self.url.database != ":memory:":
                _make_folder(Path(self.url.database).parent)
            self.engine = sqlite_engine(self.url)
            if self.url.database and self.url.database != ":memory:":
                self._gate = gate_for(self.url.database)
        else:
            self.engine = postgresql_engine(self.url, metadata_schema)
        self._listeners: frozenset[Callable[[], object]] = frozenset()
        self._writer: sa.Connection | None = None  # used behind the gate alone, by one thread at a time
        self.lookups = Lookups(self)
        _databases.add(self)

    def __repr__(self) -> str:
        return f"Database({self.shown_url!r})"

    @contextmanager
    def transaction(self, *, foreign_keys: bool = True, durable: bool = True) -> Iterator[sa.Connection]:
        """A writing transaction: committed when the block ends, rolled back when it raises.

        `durable=False` is for what may be lost if the machine stops before another transaction has committed: SQLite then
        does not wait for the disk.

        `foreign_keys=False` is for migrations: SQLite then lets a table be made anew without deleting what refers to it.

        On SQLite writers queue at a lock file before BEGIN IMMEDIATE: SQLite's own busy wait is not fair, and waits of
        more than a second were measured with eight processes.

        Raises:
            RegistryUnavailable: the database does not answer.
            DatabaseError: it refused a statement.
        """
        gate = self._gate
        with _wrapped(self), gate if gate is not None else _NO_GATE, self._writing() as connection:
            if self.is_sqlite and not foreign_keys:
                set_foreign_keys(connection, False)  # it cannot be changed inside a transaction
            try:
                with connection.begin():
                    yield connection
            finally:
                if self.is_sqlite and not foreign_keys:
                    set_foreign_keys(connection, True)
        if durable:
            self._make_durable()
        for tell in self._listeners:
            tell()

    def _make_durable(self) -> None:
        """SQLite: sync the log, once the gate is free: the next writer works while the disk does, and the disk takes at once
        what several have written. (With synchronous=FULL SQLite does the same sync itself, behind the gate.)

        Others may see a commit before it is durable. Nobody is told of it before, and what depends on it is lost only with
        it: the log is read up to the first commit that is not whole.
        """
        if self._gate is None or not self._durable:
            return
        try:
            log = os.open(f"{self._gate.path}-wal", os.O_RDWR)
        except FileNotFoundError:  # the last connection was closed meanwhile: all is in the file itself, and synced
            return
        try:
            _sync(log)
        except OSError as error:
            raise RegistryUnavailable(
                f"what was written to the registry {self.shown_url} could not be made durable: {error.strerror}; "
                "check the disk"
            ) from error
        finally:
            os.close(log)

    def on_commit(self, tell: Callable[[], object], *, remove: bool = False) -> None:
        """From now on (or no longer) call `tell` after each commit of this object, in the thread that committed: quickly."""
        self._listeners = self._listeners - {tell} if remove else self._listeners | {tell}

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """A connection for a writing transaction. Behind a gate it is kept: the way through the pool costs 50 µs."""
        if self._gate is None:
            with self.engine.connect() as connection:
                yield connection.execution_options(lakeward_begin="BEGIN IMMEDIATE")
            return
        if self._writer is None:
            self._writer = self.engine.connect().execution_options(lakeward_begin="BEGIN IMMEDIATE")
        try:
            yield self._writer
        except BaseException:  # whatever state it is in, the next one begins anew
            writer, self._writer = self._writer, None
            writer.close()
            raise

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A reading transaction: every statement sees the same state."""
        with _wrapped(self), self.engine.connect() as connection:
            if not self.is_sqlite:
                connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection.begin():
                yield connection

    def translated(self) -> AbstractContextManager[None]:
        """For a connection that somebody else has opened: what its driver raises in the block is raised as `transaction`
        raises it."""
        return _wrapped(self)

    @contextmanager
    def outside_transactions(self, *, in_turn: bool = False) -> Iterator[sa.Connection]:
        """A connection whose statements stand by themselves, for those that a transaction refuses: VACUUM, checkpoints.

        With `in_turn` the block waits for its turn among SQLite's writers, and is one of them.

        Raises what `transaction` raises.
        """
        gate = self._gate if in_turn else None
        with _wrapped(self), gate if gate is not None else _NO_GATE, self.engine.connect() as connection:
            if self.is_sqlite:
                connection.execution_options(lakeward_begin=None)
            else:
                connection.execution_options(isolation_level="AUTOCOMMIT")
            yield connection

    @contextmanager
    def idle_turn(self) -> Iterator[bool]:
        """SQLite: whether no writer has the turn, so that none waits for it either; then the block has it."""
        if self._gate is None:
            yield self.is_sqlite
            return
        if not self._gate.enter_if_free():
            yield False
            return
        try:
            yield True
        finally:
            self._gate.__exit__()

    def close(self) -> None:
        self.lookups.close()
        # One that a thread writes with until then is left to it, as one of the pool's would be.
        if self._gate is not None and self._gate.threads.acquire(timeout=CLOSE_TIMEOUT_S):
            try:
                if self._writer is not None:
                    self._writer.close()
                    self._writer = None
            finally:
                self._gate.threads.release()
        self.engine.dispose()


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


# Forking --------------------------------------------------------------------------------------------------------------
_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_inherited: list[object] = []  # kept, so that a child never closes what its parent uses


def _after_fork_in_child() -> None:
    forget_gates()
    for database in _databases:
        _inherited.extend([database.engine.pool, database._writer])
        database._writer = None
        database.engine.dispose(close=False)
        database.lookups.forget()
        if database._gate is not None:
            database._gate = gate_for(str(database.url.database))


os.register_at_fork(after_in_child=_after_fork_in_child)


# Errors ---------------------------------------------------------------------------------------------------------------
@contextmanager
def _wrapped(database: Database) -> Iterator[None]:
    """Driver errors become ours, once, here."""
    try:
        yield
    except sa.exc.TimeoutError as error:
        raise RegistryUnavailable(
            f"no connection to the registry {database.shown_url} became free: too many threads use it at once; "
            "use fewer, or give each its own lake"
        ) from error
    except sa.exc.DBAPIError as error:
        if _refuses_us(error):
            raise RegistryUnavailable(
                f"the registry {database.shown_url} lets nobody in this way: {_reason(error)}; check the user, the password "
                "and the database's name"
            ) from error
        if _does_not_answer(error):
            raise RegistryUnavailable(
                f"the registry {database.shown_url} does not answer: {_reason(error)}; "
                "check that it runs and that the address is right"
            ) from error
        raise DatabaseError(f"the registry {database.shown_url} refused a statement: {_reason(error)}") from error


def _refuses_us(error: sa.exc.DBAPIError) -> bool:
    """PostgreSQL answers a connection with no: class 28 is a wrong user or password, 3D000 an unknown database. Before
    there is a connection the driver gives the text alone.
    """
    state = getattr(error.orig, "sqlstate", None) or ""
    told = ("password authentication failed", "no password supplied", "does not exist", "no pg_hba.conf entry")
    is_connecting = isinstance(error, sa.exc.OperationalError) and not state
    return state.startswith(("28", "3D")) or (is_connecting and any(text in str(error.orig) for text in told))


def _does_not_answer(error: sa.exc.DBAPIError) -> bool:
    """Both drivers call more than lost connections operational: wrong SQL (SQLite), deadlocks (PostgreSQL)."""
    if not isinstance(error, (sa.exc.OperationalError, sa.exc.InterfaceError)):
        return error.connection_invalidated
    if isinstance(error.orig, sqlite3.Error):
        return getattr(error.orig, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR
    # Class 40 is a rollback (serialization failure, deadlock), 54 a limit of the program (a row too long for an index).
    return not (getattr(error.orig, "sqlstate", None) or "").startswith(("40", "54"))


def _reason(error: sa.exc.DBAPIError) -> str:
    return str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else type(error.orig).__name__
