"""Files that a caller describes before they are taken into a table: nothing that is said of them is believed unseen."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from lakeward import validation
from lakeward.arrow.imports import import_files, located
from lakeward.arrow.target import TableTarget
from lakeward.errors import FileRefused, InvalidInput, ObjectNotFound
from lakeward.storage.engine import StorageEngine, compute_checksum
from lakeward.storage.locations import LOCAL_SCHEME, local_path
from lakeward.tables.records.files import DataFile, FileInfo


class Given(NamedTuple):
    """A file that is what its FileInfo says, as far as that can be told without a table's schema."""

    info: FileInfo
    checksum: str | None  # sha256 of its bytes, where it was asked for


def checked(
    infos: Sequence[FileInfo],
    engine: StorageEngine,
    registered: Callable[[Sequence[str]], Collection[str]],
    *,
    whole: bool,
) -> list[Given]:
    """Check files against what is said of them.

    Args:
        engine: the table's.
        registered: which of some locations are files of tables.
        whole: work out each file's checksum even where none is said.

    Raises:
        InvalidInput: a FileInfo contradicts itself, or names a file that another one names.
        FileRefused: not_found, wrong_size, wrong_checksum or already_registered.
    """
    places = [located(engine, _path(info)) for info in infos]
    seen: dict[str, int] = {}
    for number, (info, (location, _)) in enumerate(zip(infos, places, strict=True)):
        _check_words(info)
        first = seen.setdefault(_real(location), number)
        if first != number:
            raise InvalidInput(
                f"{info.path} is given twice in one call (as {infos[first].path}); each file enters a table once"
            )
    known = registered([form for location, _ in places for form in _forms(location)])
    for info, (location, _) in zip(infos, places, strict=True):
        if any(form in known for form in _forms(location)):
            raise FileRefused(
                "already_registered",
                f"{info.path} is a file of a table already; its rows would be there twice: to have them in another table too, "
                "append what a scan of it gives",
            )
    return [Given(info, _checked(info, *place, whole=whole)) for info, place in zip(infos, places, strict=True)]


def _path(info: FileInfo) -> str:
    if not isinstance(info, FileInfo) or not isinstance(info.path, str | os.PathLike):
        raise InvalidInput(f"{str(info)[:100]!r} is no FileInfo with a path; give FileInfo(...)")
    return os.fspath(info.path)


def _check_words(info: FileInfo) -> None:
    """Raises InvalidInput."""
    last = os.fspath(info.path).rpartition("/")[2]
    if info.name != last:
        raise InvalidInput(
            f"FileInfo of {info.path} has the name {info.name!r}; it is {last!r}, the last part of the path"
        )
    for what in ("size", "row_count"):
        validation.whole(getattr(info, what), f"{what} in the FileInfo of {info.path}:", 0)
    for what in ("created", "modified"):
        if validation.moment(getattr(info, what), f"{what} in the FileInfo of {info.path}:") is None:
            raise InvalidInput(f"the FileInfo of {info.path} has no time {what!r}")
    if info.created > info.modified:
        raise InvalidInput(
            f"FileInfo of {info.path} says that it was modified at {info.modified}, before it was created"
        )
    if info.checksum is not None and (not isinstance(info.checksum, str) or ":" not in info.checksum):
        raise InvalidInput(
            f"FileInfo of {info.path} has checksum={info.checksum!r}; write 'sha256:' and the hex digits, or None"
        )


def _checked(info: FileInfo, location: str, engine: StorageEngine, *, whole: bool) -> str | None:
    try:
        size = engine.size(location)
        if size != info.size:
            raise FileRefused("wrong_size", f"{info.path} has {size} bytes, not the {info.size} that FileInfo says")
        algorithm = "sha256" if info.checksum is None else info.checksum.partition(":")[0].lower()
        if info.checksum is not None:
            found = compute_checksum(engine, location, algorithm)
            if found != f"{algorithm}:{info.checksum.partition(':')[2].lower()}":
                raise FileRefused(
                    "wrong_checksum",
                    f"{info.path} has the checksum {found}, not the {info.checksum} that FileInfo says",
                )
            if algorithm == "sha256":
                return found
        return compute_checksum(engine, location) if whole else None
    except ObjectNotFound as error:
        raise FileRefused("not_found", f"{info.path}: there is no such file; check the path") from error


def _real(location: str) -> str:
    """One text for one file: links are followed."""
    return LOCAL_SCHEME + os.path.realpath(local_path(location)) if location.startswith(LOCAL_SCHEME) else location


def _forms(location: str) -> tuple[str, ...]:
    """The locations under which a file may be registered."""
    return (location, _real(location))


def content_of(given: Sequence[Given]) -> str:
    """One checksum over the contents of files, whatever their order."""
    lines = sorted(f"{each.checksum} {each.info.row_count}" for each in given)
    return "sha256:" + hashlib.sha256("\n".join(lines).encode()).hexdigest()


def take(target: TableTarget, files: Sequence[Given]) -> list[DataFile]:
    """Copy the files into the intent's prefix, and check what the table's schema and partitions say of each.

    Raises:
        FileRefused: wrong_row_count or wrong_partition, and what `import_files` raises.
    """
    made: list[DataFile] = []
    for info, _ in files:
        before = 0 if target.broken is None else len(target.broken.rows)
        new = import_files(target, [info.path])
        dead = 0 if target.broken is None else len(target.broken.rows) - before
        rows = sum(file.row_count for file in new) + dead
        if rows != info.row_count:
            raise FileRefused(
                "wrong_row_count", f"{info.path} has {rows} rows, not the {info.row_count} that FileInfo says"
            )
        paths = {file.partition_path for file in new}
        if info.partition_path and paths - {info.partition_path}:
            raise FileRefused(
                "wrong_partition",
                f"{info.path} has rows of {', '.join(sorted(paths)) or 'no partition'}, not of {info.partition_path} alone as "
                "FileInfo says",
            )
        made += new
    return made
