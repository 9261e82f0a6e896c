"""Changing a table: how it is partitioned and sorted, and its properties."""

from __future__ import annotations

from typing import Annotated

import typer

from lakeward.cli.command import Context, group
from lakeward.cli.names import parse_name
from lakeward.cli.render import show_record
from lakeward.cli.tables import TableArgument
from lakeward.errors import InvalidInput
from lakeward.model.tables import TableMetadata


def add_to(app: typer.Typer) -> None:
    group(
        app,
        "alter",
        "Change a table.",
        partition_by=partition_by,
        sort_by=sort_by,
        set=set_,
        unset=unset,
        rollback=rollback,
    )


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
    context: Context,
    table: TableArgument,
    version: Annotated[int, typer.Argument(metavar="VERSION", show_default=False)],
) -> None:
    """Bring earlier columns, partitioning and properties back.

    Its rows stay: `lakeward snapshots rollback` goes back to those of a snapshot.
    """
    with context.lake() as lake:
        _show(context, table, lake.rollback_metadata(parse_name(table), version))


def set_(
    context: Context,
    table: TableArgument,
    properties: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...", show_default=False)],
) -> None:
    """Set properties of a table."""
    pairs = dict(_pair(text) for text in properties)
    with context.lake() as lake:
        _show(context, table, lake.set_properties(parse_name(table), pairs))


def unset(
    context: Context,
    table: TableArgument,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", show_default=False)],
) -> None:
    """Remove properties of a table, so that their defaults hold."""
    with context.lake() as lake:
        _show(context, table, lake.set_properties(parse_name(table), dict.fromkeys(names)))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidInput(f"property {text!r} has no value; write it as name=value")
    return name, value


def _show(context: Context, table: str, version: TableMetadata) -> None:
    from lakeward.iceberg import schemas

    columns = {column.field_id: column.full_name for column in schemas.columns(version.schema)}
    record = {
        "table": table,
        "version": version.metadata_version,
        "partition_by": [field["name"] for field in version.partition_by["fields"]],
        "sort_by": [
            f"{f['transform']}({columns[f['source-id']]}) {f['direction']} {f['null-order'].replace('-', ' ')}"
            for f in version.sort_by["fields"]
        ],
        "properties": version.properties,
    }
    show_record(record, to=context)
