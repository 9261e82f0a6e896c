"""Changing a table: its columns, how it is partitioned and sorted, and its properties."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from lakeward.cli.command import Context
from lakeward.cli.metadata import columns_of, written_as
from lakeward.cli.names import parse_name, parse_pairs
from lakeward.cli.render import show_record
from lakeward.cli.tables import TableArgument
from lakeward.errors import InvalidInput
from lakeward.tables.records.tables import TableMetadata

ColumnArgument = Annotated[
    str, typer.Argument(metavar="COLUMN", help="A field of a struct as address.zip; quote dots.")
]
TypeArgument = Annotated[str, typer.Argument(metavar="TYPE", help="Such as 'decimal(9, 2)'.")]


def add_column(
    context: Context,
    table: TableArgument,
    column: ColumnArgument,
    type: TypeArgument,
    doc: Annotated[str | None, typer.Option("--doc", help="What it holds.")] = None,
) -> None:
    """Add a column; rows that are there have null in it."""
    with context.lake() as lake:
        _show(context, table, lake.add_column(parse_name(table), parse_name(column), type, doc))


def drop_column(context: Context, table: TableArgument, column: ColumnArgument) -> None:
    """Drop a column.

    Its values stay in the files. A column of its name later is another one.
    """
    with context.lake() as lake:
        _show(context, table, lake.drop_column(parse_name(table), parse_name(column)))


def rename_column(
    context: Context,
    table: TableArgument,
    column: ColumnArgument,
    new_name: Annotated[str, typer.Argument(metavar="NEW_NAME")],
) -> None:
    """Rename a column; files need no change."""
    with context.lake() as lake:
        _show(context, table, lake.rename_column(parse_name(table), parse_name(column), new_name))


def widen_column(context: Context, table: TableArgument, column: ColumnArgument, type: TypeArgument) -> None:
    """Give a column a wider type.

    int to long, float to double, a decimal more digits.
    """
    with context.lake() as lake:
        _show(context, table, lake.widen_column(parse_name(table), parse_name(column), type))


def move_column(
    context: Context,
    table: TableArgument,
    column: ColumnArgument,
    first: Annotated[bool, typer.Option("--first", help="Before all others.")] = False,
    before: Annotated[str | None, typer.Option("--before", help="This column.")] = None,
    after: Annotated[str | None, typer.Option("--after", help="This column.")] = None,
) -> None:
    """Move a column to another place: --first, --before or --after."""
    if [first, bool(before), bool(after)].count(True) != 1:
        raise InvalidInput("say where the column goes: --first, --before COLUMN or --after COLUMN")
    with context.lake() as lake:
        moved = partial(lake.move_column, first=first, before=before or None, after=after or None)
        _show(context, table, moved(parse_name(table), parse_name(column)))


def partition_by(
    context: Context,
    table: TableArgument,
    fields: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FIELD]...", help="'month', 'day(at)', 'bucket(16, id)'; none for no partitions."),
    ] = None,
) -> None:
    """Partition what is written from now on otherwise.

    Files that are there stay as they are, and are read as before.
    """
    with context.lake() as lake:
        _show(context, table, lake.set_partition_spec(parse_name(table), fields or ()))


def sort_by(
    context: Context,
    table: TableArgument,
    columns: Annotated[
        list[str] | None, typer.Argument(metavar="[COLUMN]...", help="'id', 'at desc nulls last'; none for no order.")
    ] = None,
) -> None:
    """Sort what is written from now on otherwise."""
    with context.lake() as lake:
        _show(context, table, lake.set_sort_order(parse_name(table), columns or ()))


def rollback(
    context: Context, table: TableArgument, version: Annotated[int, typer.Argument(metavar="VERSION")]
) -> None:
    """Bring earlier columns, partitioning and properties back.

    Its rows stay: `lakeward snapshots rollback` goes back to those of a snapshot.
    """
    with context.lake() as lake:
        _show(context, table, lake.rollback_metadata(parse_name(table), version))


def set_(
    context: Context, table: TableArgument, properties: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...")]
) -> None:
    """Set properties of a table."""
    pairs = parse_pairs(properties, "property", "it as name=value")
    with context.lake() as lake:
        _show(context, table, lake.set_properties(parse_name(table), pairs))


def unset(
    context: Context, table: TableArgument, names: Annotated[list[str], typer.Argument(metavar="NAME...")]
) -> None:
    """Remove properties of a table, so that their defaults hold."""
    with context.lake() as lake:
        _show(context, table, lake.set_properties(parse_name(table), dict.fromkeys(names)))


def _show(context: Context, table: str, version: TableMetadata) -> None:
    record = {
        "table": table,
        "version": version.metadata_version,
        "columns": columns_of(version),
        **written_as(version),
        "properties": version.properties,
    }
    shown = {**record, "columns": [f"{each['column']} {each['type']}" for each in columns_of(version)]}
    show_record(record if context.json else shown, to=context)
