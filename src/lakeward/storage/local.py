"""Storage in a local folder. A write is durable when it returns: written aside, synced, renamed, and its folder synced."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from lakeward.errors import (
    InvalidSetting,
    ObjectNotFound,
    StorageError,
    StorageFull,
    StorageUnavailable,
    WarehouseNotWritable,
)
from lakeward.storage.engine import DeleteFailure, ObjectInfo, OutputFile, check_prefix, check_settings
from lakeward.storage.locations import LOCAL_SCHEME, local_path

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the last one: the process's limit on the size of a file
# A file system that lies on another machine, which does not answer.
_UNREACHED = (
    errno.EIO,
    errno.ESTALE,
    errno.ENOTCONN,
    errno.ETIMEDOUT,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.EREMOTEIO,
)
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)
_ATTEMPTS = 1_000  # to write into a folder that somebody who cleans up removes in the same moment


class LocalEngine:
    """Setting: `fsync` (true): whether a write waits until it would outlive a loss of power."""

    name = "local"

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        config = config or {}
        check_settings(self.name, config, ["fsync"])
        self._fsync = config.get("fsync", True)
        if not isinstance(self._fsync, bool):
            raise InvalidSetting(f"setting 'fsync' of storage engine 'local' is {self._fsync!r}; it is true or false")

    def __repr__(self) -> str:
        return f"LocalEngine(fsync={self._fsync})"

    def read(self, location: str) -> bytes:
        with _mapped("read", location), open(local_path(location), "rb") as source:
            return source.read()

    def write(self, location: str, data: Any) -> None:
        with self.open_output(location) as output:
            output.write(data)

    def open_output(self, location: str) -> LocalOutput:
        return LocalOutput(location, fsync=self._fsync)

    def open_input(self, location: str) -> pa.NativeFile:
        with _mapped("read", location):
            return pa.OSFile(local_path(location), "rb")

    def size(self, location: str) -> int:
        with _mapped("look up", location):
            return os.stat(local_path(location)).st_size

    def modified(self, location: str) -> datetime:
        with _mapped("look up", location):
            return datetime.fromtimestamp(os.stat(local_path(location)).st_mtime, UTC)

    def exists(self, location: str) -> bool:
        with _mapped("look up", location):
            try:
                os.stat(local_path(location))
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def checksum(self, location: str) -> str | None:
        """None: a file system keeps no checksum of its own."""
        self.size(location)
        return None

    def sync(self, locations: Iterable[str]) -> None:
        if not self._fsync:
            return
        folders: dict[str, str] = {}
        for location in locations:
            path = local_path(location)
            with _mapped("make durable", location):
                _fsync(path, os.O_RDONLY)
            folders[os.path.dirname(path)] = location
        for folder, location in folders.items():
            with _mapped("make durable", location):
                _keep(folder)

    def delete(self, locations: Iterable[str], *, below: str | None = None) -> list[DeleteFailure]:
        failures: list[DeleteFailure] = []
        folders: set[str] = set()
        for location in locations:
            try:
                with _mapped("delete", location):
                    path = _inside(location)
                    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                        os.unlink(path)
                    folders.add(os.path.dirname(path))
            except StorageError as error:
                failures.append(DeleteFailure(location, str(error)))
        for folder in folders:
            _remove_empty(folder, None if below is None else local_path(below))
        return failures

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        check_prefix(prefix, LOCAL_SCHEME)
        with _mapped("list", prefix):
            for folder, _, names in os.walk(local_path(prefix), onerror=_raise_unless_missing):
                for name in names:
                    path = os.path.join(folder, name)
                    with contextlib.suppress(FileNotFoundError):
                        stat = os.stat(path, follow_symlinks=False)
                        yield ObjectInfo(LOCAL_SCHEME + path, stat.st_size, datetime.fromtimestamp(stat.st_mtime, UTC))

    def delete_prefix(self, prefix: str) -> int:
        check_prefix(prefix, LOCAL_SCHEME)
        root, count = local_path(prefix).rstrip("/"), 0
        with _mapped("delete", prefix):
            for folder, folders, names in os.walk(root, topdown=False, onerror=_raise_unless_missing):
                for name in names:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(os.path.join(folder, name))
                        count += 1
                for name in folders:  # a link to a folder is one of these; what it points at is not ours
                    if os.path.islink(os.path.join(folder, name)):
                        os.unlink(os.path.join(folder, name))
                        count += 1
                _remove_empty(folder, None)
        return count

    def end_uploads(self, prefix: str, before: datetime | None = None) -> int:
        """None: a file that is being written is a file, and goes with its prefix."""
        return 0

    def check_writable(self, location: str) -> None:
        probe = f"{location.rstrip('/')}/.lakeward-{secrets.token_hex(8)}"
        with _mapped("write below", location):
            os.makedirs(local_path(location), exist_ok=True)
        self.write(probe, b"lakeward")
        with _mapped("delete below", location):
            os.unlink(local_path(probe))


class LocalOutput(OutputFile):
    """A file written under a temporary name beside its own, and renamed at `close`."""

    def __init__(self, location: str, *, fsync: bool) -> None:
        self._location, self._path, self._fsync = location, local_path(location), fsync
        folder, name = os.path.split(self._path)
        self._temporary = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.tmp")
        self._size = 0
        with _mapped("write", location):
            self._file = self._open(folder)

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def write(self, data: Any) -> int:
        view = memoryview(data)
        with _mapped("write", self._location):
            self._file.write(view)
        self._size += view.nbytes
        return view.nbytes

    def flush(self) -> None:
        with _mapped("write", self._location):
            self._file.flush()

    def tell(self) -> int:
        return self._size

    def close(self) -> None:
        if self._file.closed:
            return
        try:
            with _mapped("write", self._location):
                self._file.flush()
                if self._fsync:
                    os.fsync(self._file.fileno())
                self._file.close()
                os.replace(self._temporary, self._path)
                if self._fsync:
                    _keep(os.path.dirname(self._path))
        except BaseException:
            self._discard()
            raise

    def abort(self) -> None:
        """Leave nothing behind; no effect once the file is closed."""
        if not self._file.closed:
            self._discard()

    def _open(self, folder: str) -> Any:
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(FileNotFoundError):
                return open(self._temporary, "xb")
            with contextlib.suppress(FileNotFoundError):
                os.makedirs(folder, exist_ok=True)
        return open(self._temporary, "xb")

    def _discard(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)


def _inside(location: str) -> str:
    """The path of a location that names what it is in: one with '..' is below whatever folder one likes.

    Raises StorageError.
    """
    path = local_path(location)
    if ".." in path.split("/"):
        raise StorageError(f"cannot delete {location}: its '..' leads out of the folder that it begins with")
    return path


# Folders that are known to be on disk, as entries of their own folders: (path, device, inode).
_durable: set[tuple[str, int, int]] = set()
_MOST_DURABLE = 10_000


def _keep(folder: str) -> None:
    """Make what was just put into a folder durable, and the folder itself: whoever else has made it, or one above it, may
    not have synced that yet."""
    _sync_folder(folder)
    new: list[tuple[str, int, int]] = []
    with contextlib.suppress(FileNotFoundError):  # one that is gone by now held nothing that had to be kept
        found, parent = os.stat(folder), os.path.dirname(folder)
        while (known := (folder, found.st_dev, found.st_ino)) not in _durable and parent != folder:
            above = os.stat(parent)
            if above.st_dev != found.st_dev:  # what is mounted is there without its folder's entry
                break
            with contextlib.suppress(PermissionError):  # not ours, and so not made by us
                _sync_folder(parent)
            new.append(known)
            folder, found, parent = parent, above, os.path.dirname(parent)
    if len(_durable) > _MOST_DURABLE:
        _durable.clear()
    _durable.update(new)


def _sync_folder(folder: str) -> None:
    # A folder that is gone by now held nothing that had to be kept.
    with contextlib.suppress(FileNotFoundError):
        _fsync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _fsync(path: str, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_empty(folder: str, below: str | None) -> None:
    """Remove a folder if it is empty, and its parents as long as they are empty and stand below `below`."""
    while True:
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            pass
        except OSError:  # not empty, or not ours to remove: an empty folder does no harm
            return
        folder = os.path.dirname(folder)
        if below is None or not folder.startswith(below.rstrip("/") + "/"):
            return


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


@contextlib.contextmanager
def _mapped(action: str, location: str) -> Iterator[None]:
    """Raise the operating system's errors as Lakeward's."""
    try:
        yield
    except OSError as error:
        raise storage_error(action, location, error) from error


def storage_error(action: str, location: str, error: OSError) -> StorageError:
    """The kind of StorageError that an error of the operating system is, with the location and the way out."""
    reason = error.strerror or "the system does not say why"
    if action.startswith("write") and isinstance(error, NotADirectoryError | FileExistsError):
        return WarehouseNotWritable(
            f"cannot {action} {location}: {reason}; a file stands where a folder of the warehouse should: move it away"
        )
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return ObjectNotFound(f"cannot {action} {location}: there is no such file; check the path")
    if error.errno in _FULL:
        return StorageFull(f"cannot {action} {location}: {reason}; free space or raise the quota, then try again")
    if error.errno in _UNREACHED:
        return StorageUnavailable(
            f"cannot {action} {location}: {reason}; check that the file system is there, then try again"
        )
    if error.errno in _NOT_WRITABLE:
        return WarehouseNotWritable(
            f"cannot {action} {location}: {reason}; check owner, permissions and mount of the folder"
        )
    return StorageError(f"cannot {action} {location}: {reason}; check the disk and the folder")
