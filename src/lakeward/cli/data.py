"""Putting data in: append."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from lakeward.cli.command import Context, command
from lakeward.cli.names import parse_name
from lakeward.cli.render import as_row, show_record
from lakeward.cli.tables import TableArgument
from lakeward.errors import InvalidInput
from lakeward.tables.records.files import AppendResult

FORMATS = ("json", "csv", "tsv", "parquet")


def add_to(app: typer.Typer) -> None:
    command(app, "append")(append)


def append(
    context: Context,
    table: TableArgument,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Parquet, JSON (lines or an array), CSV (.csv, .tsv); - for standard input.",
            show_default=False,
        ),
    ],
    batch: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--batch", metavar="STREAM ID", help="Append once, however often it is repeated.", show_default=False
        ),
    ] = None,
    format: Annotated[str, typer.Option("--format", help="Of standard input: json, csv, tsv or parquet.")] = "json",
    sync: Annotated[bool, typer.Option("--sync", help="Return when the snapshot exists.")] = False,
    repairs: Annotated[
        int | None,
        typer.Option("--repairs", metavar="LETTER", help="The dead letter that this record is of.", show_default=False),
    ] = None,
    max_dead_letters: Annotated[
        int | None,
        typer.Option(
            "--max-dead-letters", min=0, help="Exit with 1 if more rows became dead letters.", show_default=False
        ),
    ] = None,
) -> None:
    """Append files to a table.

    All are checked before the first is copied in; the originals are not touched.
    """
    with _with_standard_input(files, format) as paths, context.lake(metadata_updates="sync" if sync else None) as lake:
        result = lake.append(parse_name(table), paths, batch, repairs=repairs)
    _show(context, result)
    if max_dead_letters is not None and result.dead_letters > max_dead_letters:
        raise typer.Exit(1)


def _show(context: Context, result: AppendResult) -> None:
    if context.json:
        show_record(as_row(result), to=context)
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
def _with_standard_input(files: list[Path], format: str) -> Iterator[list[Path]]:
    """The files, with a copy of standard input in the place of -. Raises InvalidInput."""
    if Path("-") not in files:
        yield files
        return
    if files.count(Path("-")) > 1:
        raise InvalidInput("- is given twice, and standard input can be read once")
    if format not in FORMATS:
        raise InvalidInput(f"--format {format!r} is none of {', '.join(FORMATS)}")
    with TemporaryDirectory(prefix="lakeward-") as folder:
        copy = Path(folder) / f"stdin.{format}"
        with copy.open("wb") as target:
            shutil.copyfileobj(sys.stdin.buffer, target)
        yield [copy if file == Path("-") else file for file in files]
