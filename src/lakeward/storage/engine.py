"""What a storage engine can do, and what all of them share."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec

from lakeward.errors import InvalidInput, InvalidSetting

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_SIZE = 4 << 20  # bytes read at a time where an object is read whole


class ObjectInfo(msgspec.Struct, frozen=True):
    """One object as a listing shows it. `modified` has a time zone; sizes in bytes."""

    location: str
    size: int
    modified: datetime


class DeleteFailure(msgspec.Struct, frozen=True):
    """An object that could not be deleted, and why."""

    location: str
    reason: str


class OutputFile(Protocol):
    """A file being written. It exists under its location once `close` has returned, and is durable then.

    As a context manager it is closed at the end, or aborted when an error passes through: then nothing is left.
    """

    @property
    def closed(self) -> bool: ...

    def write(self, data: Any) -> int:
        """Append bytes (anything with the buffer protocol, pyarrow's Buffer too); gives their number."""

    def flush(self) -> None: ...

    def tell(self) -> int: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


class StorageEngine(Protocol):
    """One kind of storage, with its settings. Safe to share between threads.

    Every method raises StorageError or one of its kinds (ObjectNotFound, StorageFull, WarehouseNotWritable), with the
    location and the way out in the message; secrets are in no message.
    """

    @property
    def name(self) -> str:
        """'local' or 's3'."""

    def read(self, location: str) -> bytes: ...

    def write(self, location: str, data: Any) -> None:
        """Write a whole object, replacing one that is there; readers see the old one, none, or the new one whole."""

    def open_output(self, location: str) -> OutputFile: ...

    def open_input(self, location: str) -> pa.NativeFile:
        """Random access; ranges are read as they are asked for."""

    def size(self, location: str) -> int:
        """Bytes of an object."""

    def modified(self, location: str) -> datetime: ...

    def exists(self, location: str) -> bool: ...

    def checksum(self, location: str) -> str | None:
        """'algorithm:hex' that the store keeps itself over the whole object, or none; the object is not read."""

    def sync(self, locations: Iterable[str]) -> None:
        """Make objects durable that another program has written."""

    def delete(self, locations: Iterable[str], *, below: str | None = None) -> list[DeleteFailure]:
        """Delete objects; one that is missing is no failure.

        A local folder that a deleted file leaves empty goes too, and its parents as long as they stand below `below`
        (a table's location); without `below` the file's own folder alone.
        """

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Every object below a prefix that ends in '/', in no order; nothing where the prefix does not exist."""

    def delete_prefix(self, prefix: str) -> int:
        """Delete everything below a prefix that ends in '/'; gives the number of objects that were deleted.

        Raises:
            InvalidInput: the prefix does not end in '/', or is the root of the storage.
        """

    def end_uploads(self, prefix: str, before: datetime | None = None) -> int:
        """End uploads below a prefix that were begun (before a time) and never completed; how many there were.

        A store keeps, and bills, their parts until then, and no listing shows them. `delete_prefix` ends those below it too.
        """

    def check_writable(self, location: str) -> None:
        """Write and delete a small object below a location.

        Raises:
            WarehouseNotWritable, StorageFull or StorageError: it did not work.
        """


def compute_checksum(engine: StorageEngine, location: str, algorithm: str = "sha256") -> str:
    """'algorithm:hex' over an object, which is read whole.

    Raises:
        ObjectNotFound, StorageError: it cannot be read.
        InvalidInput: an algorithm that hashlib does not know.
    """
    try:
        digest = hashlib.new(algorithm, usedforsecurity=False)
    except ValueError:
        raise InvalidInput(f"checksum algorithm {algorithm!r} is not known; use sha256") from None
    with engine.open_input(location) as source:
        while chunk := source.read(CHUNK_SIZE):
            digest.update(chunk)
    return f"{algorithm}:{digest.hexdigest()}"


def check_prefix(prefix: str, root: str) -> None:
    """Refuse to list or delete by a prefix that could reach further than one folder.

    Raises:
        InvalidInput: no slash at its end, or the storage's root itself.
    """
    if not prefix.endswith("/"):
        raise InvalidInput(f"prefix {prefix!r} must end in '/', or it would reach neighbours whose names begin alike")
    if prefix.rstrip("/") == root.rstrip("/"):
        raise InvalidInput(f"prefix {prefix!r} is the root of the storage; name a folder in it")


def check_settings(name: str, config: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raises: InvalidSetting: a key that the engine does not know; its value is not shown."""
    unknown = sorted(set(config) - set(known))
    if unknown:
        raise InvalidSetting(
            f"storage engine {name!r} has no setting {unknown[0]!r}; it knows {', '.join(sorted(known))}"
        )
