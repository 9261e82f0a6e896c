"""Positions of syncs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakeward import validation
from lakeward.cli.command import Context
from lakeward.cli.render import show_record, show_rows
from lakeward.cli.shared import SchemaArgument, SchemaOption, TableOption, manager, people, row, show_one
from lakeward.errors import InvalidInput

if TYPE_CHECKING:
    from lakeward.metadata import MarkerType

TypeOption = Annotated[str, typer.Option("--type", help="stream, batch or initial.")]


def list_(context: Context, schema: SchemaOption = None) -> None:
    """List the positions."""
    with manager(context) as operations:
        rows = [row(each) for each in operations.get_active_markers(schema)]
    columns = ("schema_name", "table_name", "marker_type", "position_data", "last_updated", "sync_run_id")
    show_rows("positions", rows if context.json else [people(each) for each in rows], columns, to=context)


def _marker_type(text: str) -> MarkerType:
    from lakeward.metadata import MarkerType

    return validation.one_of(MarkerType, text, "--type")


def show(context: Context, schema: SchemaArgument, table: TableOption = None, kind: TypeOption = "stream") -> None:
    """Show a position."""
    with manager(context) as operations:
        markers = operations.get_active_markers(schema, _marker_type(kind))
    found = [each for each in markers if each.table_name == table]
    if not found:
        raise InvalidInput(
            f"{schema} has no {kind} position{f' of {table}' if table else ''}; see `lakeward positions list`"
        )
    show_one(context, found[0])


def set_(
    context: Context,
    schema: SchemaArgument,
    position: Annotated[str, typer.Argument(metavar="JSON")],
    table: TableOption = None,
    kind: TypeOption = "stream",
    expected: Annotated[
        str | None, typer.Option("--expected", metavar="JSON", help="The position that must be there now.")
    ] = None,
) -> None:
    """Set a position: the sync reads on from there. Stop it first."""
    from lakeward.metadata import ANYTHING
    from lakeward.ops import positions

    wanted = ANYTHING if expected is None else _document(expected)
    with manager(context) as operations:
        marker = positions.update(
            operations.registry, _marker_type(kind), schema, _document(position), table, expected=wanted
        )
    show_one(context, marker)


def _document(text: str) -> dict[str, Any]:
    from lakeward import lossless_json

    try:
        found = lossless_json.loads(text)
    except lossless_json.NOT_OURS:
        raise InvalidInput(f'{text[:200]!r} is no JSON; write an object such as \'{{"lsn": "0/16B3748"}}\'') from None
    if not isinstance(found, dict):
        raise InvalidInput(f'{text[:200]!r} is no object; write one such as \'{{"lsn": "0/16B3748"}}\'')
    return found


def delete(
    context: Context,
    schema: SchemaArgument,
    table: TableOption = None,
    kind: TypeOption = "stream",
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
) -> None:
    """Forget a position: the sync starts anew."""
    if not yes:
        raise InvalidInput("a sync without its position starts anew, and may read everything again; --yes does it")
    with manager(context) as operations:
        done = operations.delete_marker(schema, _marker_type(kind), table)
    show_record({"deleted": done}, to=context)
