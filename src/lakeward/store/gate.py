"""The queue of a SQLite file's writers: a lock file, across threads and processes."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time

from lakeward.errors import RegistryUnavailable


class Gate:
    """Lets one writer of one SQLite file through at a time, across threads and processes; nobody waits for long."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._path = path + ".lock"
        self.threads = threading.Lock()
        self._file: int | None = None
        self._pid = 0

    def __enter__(self) -> None:
        self.threads.acquire()
        try:
            self._lock(self._open())
        except OSError as error:
            self.threads.release()
            raise self._unusable(error) from error

    def enter_if_free(self) -> bool:
        """Enter without waiting; whether that was possible."""
        if not self.threads.acquire(blocking=False):
            return False
        try:
            fcntl.lockf(self._open(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.threads.release()
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise self._unusable(error) from error
        return True

    def _open(self) -> int:
        if self._file is None or self._pid != os.getpid():
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._pid = os.getpid()
        return self._file

    def _unusable(self, error: OSError) -> RegistryUnavailable:
        return RegistryUnavailable(
            f"the lock file {self._path} cannot be used: {error.strerror}; check the folder's rights"
        )

    @staticmethod
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

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            fcntl.lockf(self._file, fcntl.LOCK_UN)
        self.threads.release()


# One gate a file and process: record locks belong to the process, and closing any descriptor of a file frees them all.
_gates: dict[str, Gate] = {}
_gates_lock = threading.Lock()


def gate_for(path: str) -> Gate:
    """The gate of a SQLite file, by whatever path."""
    real = os.path.realpath(path)
    with _gates_lock:
        return _gates.setdefault(real, Gate(real))


def forget_gates() -> None:
    """In a forked child: the parent's locks are not its own."""
    global _gates_lock
    _gates_lock = threading.Lock()  # the parent's may be held by a thread that the child does not have
    _gates.clear()
