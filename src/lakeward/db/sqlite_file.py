"""SQLite's file and its write-ahead log: which they are, whether they still are the registry's, and when they are durable.

SQLite goes on with a file that was deleted, replaced or written over meanwhile, and says nothing. A file is known by its inode,
and its content by two numbers in its head: one that was drawn for the registry, and one that grows while it is written.

SQLite syncs no commit here: that is done once the writer lock is let go, by a descriptor that was opened before the commit's
first byte, so that the system tells it of every failure since then, whoever it told of one before.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import sqlite3
import threading
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import sqlalchemy as sa

from lakeward.db.drivers import SQLITE_ARGUMENTS
from lakeward.errors import DatabaseError, ForkedProcess, InvalidSetting, RegistryLost, RegistryUnavailable

_CHUNK = 1 << 20
_LOG = "lakeward_log"  # the key of a connection's own log
AGE_SECONDS = 60.0  # a registry that is written grows older at least as often: by so much a copy is told from it
_TICK_NS = 12_000_000  # two changes of a file that are less apart may have the same time
# Of the head: SQLite's name for it, user_version and application_id.
_MAGIC, _AGE, _NUMBER, _HEAD = b"SQLite format 3\0", slice(60, 64), slice(68, 72), 100


class Identity(NamedTuple):
    """Which file it is, by whatever name."""

    device: int
    inode: int


class Content(NamedTuple):
    """What is in the file, by its head, whatever the log holds."""

    number: int  # of the registry; 0 in one that no writer has marked
    age: int  # of the last checkpoint


def identity(path: str) -> Identity | None:
    """Of the file at a path; None where there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return Identity(found.st_dev, found.st_ino)


_KINDS = {
    b"SQLite format 3\0": "",
    b"PAR1": "a Parquet file",
    b"PK": "a ZIP archive",
    b"\x1f\x8b": "compressed by gzip",
}
_NAME_IT = "name the registry's file (--registry, LAKEWARD_REGISTRY or lakeward.toml)"


def check_kind(path: str, error: object) -> None:
    """Say of a path that SQLite cannot open what stands there; a file that SQLite can open is left alone.

    Raises:
        InvalidSetting: a folder.
        DatabaseError: a file of another kind.
    """
    if os.path.isdir(path):
        raise InvalidSetting(
            f"the registry {path} is a folder; {_NAME_IT}, such as {os.path.join(path, 'registry.db')}"
        )
    if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_NOTADB:
        return
    # Closing a file lets go of the locks that SQLite has on it in this process: on one that is no database it has none.
    with open(path, "rb") as file:
        head = file.read(512)
    kind = next((kind for start, kind in _KINDS.items() if head.startswith(start)), None)
    if kind is None:
        kind = "of another kind" if b"\0" in head else "a text file"
    if kind:
        raise DatabaseError(f"{path} is no registry but a file, {kind}; {_NAME_IT}")


class SQLiteFile:
    """The file of one Database: every connection to it is opened here, and all are of one file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._log_path = f"{os.path.realpath(path)}-wal"  # SQLite, too, puts it beside the file that a link is to
        self._lock = threading.Lock()
        self._opened: Identity | None = None  # once there is a first connection
        self._changed = 0  # the file's time of change when its content was looked at last
        self._content: Content | None = None  # and what it was
        self._is_overwritten = False
        self._descriptor = -1  # of SQLite's own, which are never closed here: that would free SQLite's locks
        self._grew_older = -math.inf

    def connect(self) -> sqlite3.Connection:
        """A new connection of the registry's file. Raises RegistryLost, ForkedProcess, sqlite3.Error."""
        _refuse_inherited(self.path)
        while True:
            self.check()
            before = self._opened or identity(self.path)
            # Makes the file where there is none.
            with opening:
                connection: sqlite3.Connection = sqlite3.connect(self.path, **SQLITE_ARGUMENTS)
            after = identity(self.path)
            if after is not None and before in (None, after):
                break
            connection.close()  # replaced just then: which one it has is not known
        with self._lock:
            if self._opened is None:
                self._opened = after
        if self._opened != after:
            connection.close()
            raise self._lost()
        return connection

    def check(self) -> None:
        """Check that the file at the path is the one that was opened, with its content. Raises RegistryLost."""
        if self._opened is None:
            return
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            raise self._lost() from None
        if (found.st_dev, found.st_ino) != self._opened:
            raise self._lost()
        if found.st_mtime_ns != self._changed:  # by a checkpoint, or by somebody else
            self._check_content(found.st_mtime_ns)

    def _check_content(self, changed: int) -> None:
        head = self._head()
        if head is not None and self._differs(head):
            head = self._head(anew=True)  # its descriptor may have become another file's just before it was read
            self._is_overwritten = self._is_overwritten or (head is not None and self._differs(head))
        if self._is_overwritten:
            raise RegistryLost(
                f"the registry {self.path} was written over while it was open: it holds what another file or an older copy "
                "held; end everything that has it open, delete its -wal and -shm, put the right file there, then open it anew"
            )
        if head is None:
            return
        self._content = Content(int.from_bytes(head[_NUMBER]), int.from_bytes(head[_AGE]))
        if time.time_ns() - changed > _TICK_NS:
            self._changed = changed

    def _differs(self, head: bytes) -> bool:
        known = self._content
        if known is None or not known.number:
            return False
        number, age = int.from_bytes(head[_NUMBER]), int.from_bytes(head[_AGE])
        return number != known.number or age < known.age or not head.startswith(_MAGIC)

    def _head(self, *, anew: bool = False) -> bytes | None:
        """The file's first bytes, by a descriptor of SQLite's; None if there is none just now."""
        for again in (False, True):
            if again or anew:
                self._descriptor = _descriptor_of(self._opened)
            if self._descriptor < 0:
                continue
            with contextlib.suppress(OSError):
                if _identity_of(self._descriptor) == self._opened:
                    return os.pread(self._descriptor, _HEAD, 0)
        return None

    def grow_older(self, connection: sa.Connection) -> None:
        """In a writing transaction: now and then, write into the head what tells the registry from others and from its copies."""
        now = time.monotonic()
        if now - self._grew_older < AGE_SECONDS:
            return
        self._grew_older = now
        driver: Any = connection.connection.dbapi_connection
        ((number,),) = driver.execute("PRAGMA application_id").fetchall()
        ((age,),) = driver.execute("PRAGMA user_version").fetchall()
        if not number:
            driver.execute(f"PRAGMA application_id = {random.SystemRandom().randrange(1, 1 << 31)}")
        driver.execute(f"PRAGMA user_version = {age + 1}")

    # The write-ahead log ----------------------------------------------------------------------------------------------
    def check_written(self, info: dict[Any, Any]) -> None:
        """In a writing transaction, and once it is committed: whether file and log are those that its connection has open.
        Nobody deletes the log while there is a connection. `info` is the connection's own, and keeps which log it has.

        Raises RegistryLost: file or log were deleted or replaced.
        """
        self.check()
        try:
            found = os.stat(self._log_path)
        except FileNotFoundError:
            raise self._lost("its write-ahead log ") from None
        if info.setdefault(_LOG, number := (found.st_dev, found.st_ino)) != number:
            raise self._lost("its write-ahead log ")

    def open_log(self, info: dict[Any, Any]) -> int:
        """In a writing transaction, as `check_written`: a descriptor to sync what the connection writes from now on.

        Raises RegistryUnavailable: there is none left, say. RegistryLost.
        """
        self.check()
        try:
            file = os.open(self._log_path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            raise self._lost("its write-ahead log ") from None
        except OSError as error:
            raise RegistryUnavailable(
                f"the write-ahead log of the registry {self.path} cannot be opened: {error.strerror}; nothing was written; "
                "check the limit of open files (ulimit -n) and the file's rights, then try again"
            ) from error
        status = os.fstat(file)  # cheaper than to look the path up once more
        if info.setdefault(_LOG, number := (status.st_dev, status.st_ino)) != number:
            os.close(file)
            raise self._lost("its write-ahead log ")
        return file

    def write_log_again(self) -> None:
        """After a failed sync, by the one that has SQLite's turn to write: the log as it can be read, written to the disk.

        The system may have forgotten that pages are not there, so a second sync alone would prove nothing.

        Raises OSError.
        """
        file = os.open(self._log_path, os.O_RDWR | os.O_CLOEXEC)
        try:
            place = 0
            while data := os.pread(file, _CHUNK, place):
                os.pwrite(file, data, place)
                place += len(data)
            os.fsync(file)
        finally:
            os.close(file)

    def _lost(self, what: str = "") -> RegistryLost:
        return RegistryLost(
            f"the registry {self.path} is not the file any more that was opened: {what or 'it '}was deleted or replaced "
            "meanwhile; put the right file in its place (`lakeward db status` says which registry a file is), then open it anew"
        )


def _identity_of(file: int) -> Identity:
    """What tells a file from another at its path. Raises OSError."""
    status = os.fstat(file)
    return Identity(status.st_dev, status.st_ino)


def _descriptor_of(wanted: Identity | None) -> int:
    """One that the process has of this file; -1 if there is none, or it cannot be told."""
    with contextlib.suppress(OSError):
        for name in os.listdir("/dev/fd"):
            with contextlib.suppress(OSError):
                if _identity_of(int(name)) == wanted:
                    return int(name)
    return -1


# Forks ----------------------------------------------------------------------------------------------------------------
# Files that this process's parent had open with SQLite when it was forked: SQLite keeps its locks in the memory of the
# process, and would take the parent's for ours.
_inherited: frozenset[Identity] = frozenset()


# Is held while a file is opened, and while a process forks: SQLite's own lock would be held in the child for ever.
opening = threading.Lock()


def open_of(paths: Iterable[str]) -> frozenset[Identity]:
    """Which of these files the process has open, by whatever descriptor."""
    wanted = frozenset(found for path in paths if (found := identity(path)) is not None)
    open_: set[tuple[int, int]] = set()
    try:
        names = os.listdir("/dev/fd")
    except OSError:  # it cannot be told: no descriptor is left, say
        return wanted
    for name in names:
        with contextlib.suppress(OSError):  # that of the listing itself is closed
            status = os.fstat(int(name))
            open_.add((status.st_dev, status.st_ino))
    return wanted & open_


def refuse_from_now_on(paths: Iterable[str]) -> None:
    """In a forked child: those of these files that are open cannot be used by it."""
    global _inherited, opening
    opening = threading.Lock()
    _inherited |= open_of(paths)


def _refuse_inherited(path: str) -> None:
    if _inherited and identity(path) in _inherited:
        raise ForkedProcess(
            f"this process was forked by one that had a transaction or a cursor of the registry {path} open at that moment, "
            "and cannot use the file safely; fork while nothing of the registry is in use, or start processes by 'spawn' or "
            "'forkserver' (multiprocessing.get_context)"
        )
