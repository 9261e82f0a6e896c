"""The queue of a SQLite file's writers: a lock file, across threads and processes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import sys
import threading
import time
import weakref
from pathlib import Path

from lakeward.db import waits
from lakeward.errors import RegistryBusy, RegistryUnavailable
from lakeward.logs import log

_FLOCK = "hhqqi"  # Linux' struct flock: type, whence, start, length, process


class WriterLock:
    """Lets one writer of one SQLite file through at a time, across threads and processes; nobody waits for long.

    An interrupt while a thread waits leaves nothing held. The lock file's size says whether a sync of the registry has
    failed since the machine started: other processes look there, too.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._path = path + ".lock"
        self.users: weakref.WeakSet[object] = weakref.WeakSet()  # who may enter, and has not left for good
        self.threads = threading.RLock()  # of one thread; which of them it is can be asked by releasing it
        self._file: int | None = None
        self._holder = 0  # the thread that has the turn, or waits for it at the lock file
        self._inside = False
        self._said = 0.0
        self._queue = _Queue()

    def __enter__(self) -> None:
        deadline = time.monotonic() + waits.WAIT_SECONDS
        try:
            if not self.threads.acquire(blocking=False):
                self._wait_for_thread(deadline)
            self._holder = threading.get_ident()
            file = self._open()
            if self._queue.is_waiting or not _lock_now(file):
                self._wait_for_process(file, deadline)
            self._inside = True
        except BaseException as error:
            self._let_go()
            if isinstance(error, OSError):
                raise self._unusable(error) from error
            raise

    def __exit__(self, *_: object) -> None:
        self._let_go()

    def enter_if_free(self) -> bool:
        """Enter without waiting; whether that was possible."""
        if not self.threads.acquire(blocking=False):
            return False
        self._holder = threading.get_ident()
        try:
            self._inside = not self._queue.is_waiting and _lock_now(self._open())
        except OSError as error:
            self._let_go()
            raise self._unusable(error) from error
        if not self._inside:
            self.threads.release()
            return False
        return True

    @property
    def is_mine(self) -> bool:
        """Whether this thread has the turn."""
        return self._inside and self._holder == threading.get_ident()

    def leave(self, user: object) -> None:
        """After the last user the lock file is closed, unless somebody is inside or waits; who enters later opens it again."""
        self.users.discard(user)
        if self.users or not self.threads.acquire(blocking=False):
            return
        try:
            if self._file is not None and not self._inside and not self._queue.is_waiting:
                file, self._file = self._file, None
                os.close(file)
        finally:
            self.threads.release()

    # What the lock file says ------------------------------------------------------------------------------------------
    @property
    def has_lost_a_sync(self) -> bool:
        """For a user that is or was inside: whether what was committed last may be missing on the disk, whatever can be read."""
        try:
            return os.stat(self._path if self._file is None else self._file).st_size != 0
        except FileNotFoundError:
            return False

    def lost_a_sync(self) -> None:
        with contextlib.suppress(OSError):  # on this disk nobody commits any more
            os.ftruncate(self._open(), 1)

    def synced_again(self) -> None:
        os.ftruncate(self._open(), 0)

    # Waiting ----------------------------------------------------------------------------------------------------------
    def _wait_for_thread(self, deadline: float) -> None:
        while not self.threads.acquire(timeout=max(0.0, min(waits.SAY_SECONDS, deadline - time.monotonic()))):
            self._waited(deadline)

    def _wait_for_process(self, file: int, deadline: float) -> None:
        self._queue.ask(file)
        try:
            while not self._queue.wait(max(0.0, min(waits.SAY_SECONDS, deadline - time.monotonic()))):
                self._waited(deadline)
        except BaseException:
            self._queue.ask_no_more()
            raise

    def _waited(self, deadline: float) -> None:
        now = time.monotonic()
        holder = self._described_holder()
        if now >= deadline:
            raise RegistryBusy(
                f"the turn to write to the registry {self.path} did not come in {waits.WAIT_SECONDS:.0f} s: {holder} has it; let "
                "that go on, or end it, then try again; nothing was written"
            )
        if now - self._said >= waits.SAY_SECONDS:  # once for all that wait
            self._said = now
            log.warning("writers_of_the_registry_wait", registry=self.path, holder=holder)

    def _described_holder(self) -> str:
        if self._inside:
            names = [thread.name for thread in threading.enumerate() if thread.ident == self._holder]
            return f"thread {names[0]!r} of this process" if names else "a thread of this process that has ended"
        return _described_process(self._file)

    def _open(self) -> int:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        return self._file

    def _let_go(self) -> None:
        """Give back what this thread has: the lock file's lock and the threads', or one of them, or none."""
        # An interrupt may have come just before the threads' lock was had, or just after.
        if not self.threads._is_owned():  # type: ignore[attr-defined]
            return
        self._inside = False
        if self._file is not None:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_UN)
            except OSError:  # to close the file unlocks it, too
                os.close(self._file)
                self._file = None
        self.threads.release()

    def _unusable(self, error: OSError) -> RegistryUnavailable:
        return RegistryUnavailable(
            f"the lock file {self._path} cannot be used: {error.strerror}; check the folder's rights"
        )


class _Queue:
    """Waits for the lock file in a thread of its own: a wait in the kernel's queue is fair, and cannot be given up.

    Used by one thread at a time. What it gets when nobody wants it any more goes back at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the next two
        self._is_wanted = False
        self.is_waiting = False  # nobody else may then try: what one gives back of a process's lock, all give back
        self._asked = threading.Semaphore(0)
        self._answered = threading.Semaphore(0)
        self._error: OSError | None = None
        self._file = -1
        self._thread: threading.Thread | None = None

    def ask(self, file: int) -> None:
        with self._lock:
            self._is_wanted, self._error = True, None
            if self.is_waiting:  # for one that has given up
                return
            self.is_waiting, self._file = True, file
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="lakeward-queue", daemon=True)
            self._thread.start()
        self._asked.release()

    def wait(self, seconds: float) -> bool:
        """Whether the lock is ours. Raises OSError."""
        if not self._answered.acquire(timeout=seconds):
            return False
        if self._error is not None:
            raise self._error
        return True

    def ask_no_more(self) -> None:
        """The lock is not wanted any more; one that came meanwhile is the caller's to unlock."""
        with self._lock:
            self._is_wanted = False
            self._answered.acquire(blocking=False)

    def _run(self) -> None:
        while True:
            self._asked.acquire()
            error = None
            try:
                _lock(self._file)
            except OSError as raised:
                error = raised
            with self._lock:
                if self._is_wanted:
                    self._is_wanted, self._error = False, error
                    self._answered.release()
                elif error is None:
                    fcntl.lockf(self._file, fcntl.LOCK_UN)
                self.is_waiting = False


def _lock_now(file: int) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True


def _lock(file: int) -> None:
    # Record locks: the kernel wakes waiters about in order, and frees a dead process's lock.
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX)
            return
        except OSError as error:
            # The kernel takes two processes for deadlocked when threads of theirs wait at two registries' gates.
            if error.errno != errno.EDEADLK:
                raise
            time.sleep(0.005)


def _described_process(file: int | None) -> str:
    """Which process has the lock file: its number, its program's name, and whether it is stopped."""
    if file is None or not sys.platform.startswith("linux"):
        return "another process"
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, process = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    if kind == fcntl.F_UNLCK:
        return "nobody now, but others were quicker"
    if process <= 0:
        return "a process of another container or machine"
    try:
        name, _, rest = Path(f"/proc/{process}/stat").read_text().partition("(")[2].rpartition(")")
    except OSError:
        return f"process {process}"
    return f"process {process} ({name}){', which is stopped,' if rest.split()[:1] in (['T'], ['t']) else ''}"


# One lock a file and process: record locks belong to the process, and closing any descriptor of a file frees them all.
_locks: dict[str, WriterLock] = {}
_locks_lock = threading.Lock()


def writer_lock_for(path: str) -> WriterLock:
    """The lock of a SQLite file, by whatever path."""
    real = os.path.realpath(path)
    with _locks_lock:
        return _locks.setdefault(real, WriterLock(real))


def _forget_locks() -> None:
    """In a forked child: the parent's locks are not its own."""
    global _locks_lock
    _locks_lock = threading.Lock()  # the parent's may be held by a thread that the child does not have
    _inherited.extend(_locks.values())
    _locks.clear()


_inherited: list[WriterLock] = []
os.register_at_fork(after_in_child=_forget_locks)
