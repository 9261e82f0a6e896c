"""Putting data in: append."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakeward.cli.command import Context, command
from lakeward.cli.names import parse_name
from lakeward.cli.render import as_row, show_record
from lakeward.cli.tables import TableArgument


def add_to(app: typer.Typer) -> None:
    command(app, "append")(append)


def append(
    context: Context,
    table: TableArgument,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="Parquet, JSON (lines or an array), CSV (.csv, .tsv).", show_default=False
        ),
    ],
    batch: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--batch", metavar="STREAM ID", help="Append once, however often it is repeated.", show_default=False
        ),
    ] = None,
    sync: Annotated[bool, typer.Option("--sync", help="Return when the snapshot exists.")] = False,
) -> None:
    """Append files to a table.

    All are checked before the first is copied in; the originals are not touched.
    """
    with context.lake(metadata_updates="sync" if sync else None) as lake:
        result = lake.append(parse_name(table), files, batch)
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
