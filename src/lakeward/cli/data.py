"""Putting data in: append."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from lakeward.cli.command import Context
from lakeward.cli.names import parse_name
from lakeward.cli.render import show_record
from lakeward.cli.tables import TableArgument
from lakeward.errors import FileRefused, InvalidInput, StorageError
from lakeward.tables.records.files import AppendResult, NamedCopy

FORMATS = ("json", "csv", "tsv", "parquet")
STANDARD_INPUT = "-"


def append(
    context: Context,
    table: TableArgument,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Parquet, JSON (lines or an array), CSV (.csv, .tsv); - for standard input; pipes too.",
        ),
    ],
    batch: Annotated[
        tuple[str, str] | None,
        typer.Option("--batch", metavar="STREAM ID", help="Append once, however often it is repeated."),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format", help="Of standard input and pipes: csv or tsv; json and parquet are told from the content."
        ),
    ] = None,
    sync: Annotated[bool, typer.Option("--sync", help="Return when the snapshot exists.")] = False,
    repairs: Annotated[
        int | None, typer.Option("--repairs", metavar="LETTER", help="The dead letter that this record is of.")
    ] = None,
    max_dead_letters: Annotated[
        int | None, typer.Option("--max-dead-letters", min=0, help="Exit with 1 if more rows became dead letters.")
    ] = None,
) -> None:
    """Append files to a table.

    All are registered together, or none; the originals are not touched.
    """
    attended = batch is None  # what has a key is a job's, and is to be repeated until it is done
    sync_or_not = "sync" if sync else None
    with _with_pipes(files, format) as paths, context.lake(attended=attended, metadata_updates=sync_or_not) as lake:
        result = lake.append(parse_name(table), paths, batch, repairs=repairs)
    _show(context, result)
    if max_dead_letters is not None and result.dead_letters > max_dead_letters:
        raise typer.Exit(1)


def _show(context: Context, result: AppendResult) -> None:
    if context.json:
        show_record(result, to=context)
        return
    record = {
        "rows": result.rows,
        "dead_letters": result.dead_letters,
        "files": len(result.files),
        "bytes": result.bytes,
        "replayed": result.replayed,
        "snapshot_id": result.snapshot_id,
        "seconds": result.seconds,
    }
    show_record(record, to=context)


@contextmanager
def _with_pipes(files: list[str], format: str | None) -> Iterator[list[os.PathLike[str] | str]]:
    """The files, with copies of what can be read once: standard input, for -, and pipes. Raises InvalidInput, StorageError."""
    if format not in (None, *FORMATS):
        raise InvalidInput(f"--format {format!r} is none of {', '.join(FORMATS)}")
    if files.count(STANDARD_INPUT) > 1:
        raise InvalidInput("- is given twice, and standard input can be read once")
    if "" in files:
        raise InvalidInput("an empty text is given for a file; name a file, or - for standard input")
    pipes = [file for file in files if file == STANDARD_INPUT or _is_pipe(file)]
    if format is not None and not pipes:
        raise InvalidInput(
            f"--format {format} is for standard input (-) and pipes; files are told by their content and their name (.csv, .tsv)"
        )
    if not pipes:
        yield list(files)
        return
    with TemporaryDirectory(prefix="lakeward-") as folder:
        copies = {file: _copied(file, Path(folder) / str(number), format) for number, file in enumerate(pipes)}
        yield [copies.get(file, file) for file in files]


def _is_pipe(file: str) -> bool:
    try:
        mode = os.stat(file).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _copied(file: str, copy: Path, format: str | None) -> NamedCopy:
    name = "standard input" if file == STANDARD_INPUT else file
    try:
        with copy.open("wb") as target:
            if file == STANDARD_INPUT:
                shutil.copyfileobj(sys.stdin.buffer, target)
            else:
                with open(file, "rb") as source:
                    shutil.copyfileobj(source, target)
            is_empty = target.tell() == 0
    except IsADirectoryError as error:
        raise FileRefused("wrong_format", f"{name} is a folder; name the files in it") from error
    except OSError as error:
        raise StorageError(
            f"{name} could not be copied to {copy.parent}: {error.strerror}; free space there, or name another folder by TMPDIR"
        ) from error
    if format is None and not is_empty:
        return NamedCopy(str(copy), name)
    ending = format or "jsonl"  # of nothing come no rows
    return NamedCopy(str(copy.rename(copy.with_suffix(f".{ending}"))), name)
