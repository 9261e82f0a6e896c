"""Positions of syncs, and versions of source tables' schemas."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lakeward.cli.command import Context, group
from lakeward.cli.render import as_row, show_record, show_rows
from lakeward.cli.shared import SchemaOption, TableOption, manager, people, row, show_one
from lakeward.errors import InvalidInput

SchemaArgument = Annotated[str, typer.Argument(metavar="SCHEMA", show_default=False)]
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", show_default=False)]
TypeOption = Annotated[str, typer.Option("--type", help="stream, batch or initial.")]


def add_to(app: typer.Typer) -> None:
    group(app, "positions", "Where syncs go on.", list=list_positions, show=show, set=set_position, delete=delete)
    group(
        app,
        "schemas",
        "Versions of source tables' schemas.",
        list=list_schemas,
        versions=versions,
        show=show_version,
        diff=diff,
    )


def list_positions(context: Context, schema: SchemaOption = None) -> None:
    """List the positions."""
    with manager(context) as operations:
        rows = [row(each) for each in operations.get_active_markers(schema)]
    columns = ("schema_name", "table_name", "marker_type", "position_data", "last_updated", "sync_run_id")
    show_rows("positions", rows if context.json else [people(each) for each in rows], columns, to=context)


def _marker_type(text: str) -> Any:
    from lakeward.metadata import MarkerType

    try:
        return MarkerType(text)
    except ValueError:
        raise InvalidInput(f"--type {text!r} is none of {', '.join(MarkerType)}") from None


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


def set_position(
    context: Context,
    schema: SchemaArgument,
    position: Annotated[str, typer.Argument(metavar="JSON", show_default=False)],
    table: TableOption = None,
    kind: TypeOption = "stream",
    expected: Annotated[
        str | None,
        typer.Option("--expected", metavar="JSON", help="The position that must be there now.", show_default=False),
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


# Schemas ------------------------------------------------------------------------------------------------------------------
def list_schemas(context: Context, schema: SchemaOption = None) -> None:
    """List the tables whose schemas are known."""
    with manager(context) as operations:
        found = operations.list_schema_tables(schema)
    rows = [{"schema_name": name, "table_name": table, "version": version} for name, table, version in found]
    show_rows("schemas", rows, ("schema_name", "table_name", "version"), to=context)


def versions(context: Context, schema: SchemaArgument, table: TableArgument) -> None:
    """List the versions of a table's schema."""
    with manager(context) as operations:
        rows = [_version_row(each) for each in operations.list_schema_versions(schema, table)]
    columns = ("version", "registered_at", "evolution_type", "changed", "iceberg_schema_id", "schema_hash")
    show_rows("versions", rows, columns, to=context)


def _version_row(version: Any) -> dict[str, Any]:
    changed = [f"{change.type.value} {change.name}".strip() for change in version.changes]
    return {**row(version), "changed": changed}


def show_version(
    context: Context,
    schema: SchemaArgument,
    table: TableArgument,
    version: Annotated[
        int | None, typer.Option("--version", help="Without it, the latest.", show_default=False)
    ] = None,
) -> None:
    """Show a version of a table's schema."""
    from lakeward.ops import schema_versions

    with manager(context) as operations:
        found = schema_versions.load(operations.registry, schema, table, version)
    if context.json:
        show_record(row(found), to=context)
        return
    shown = people(_version_row(found))
    definition = found.schema_definition
    show_record(
        {name: value for name, value in shown.items() if name not in ("schema_definition", "changes")}, to=context
    )
    print()
    show_rows(
        "columns", [dict(each) for each in definition.columns], ("name", "type", "nullable", "primary_key"), to=context
    )


def diff(
    context: Context,
    schema: SchemaArgument,
    table: TableArgument,
    old: Annotated[int, typer.Argument(metavar="OLD", show_default=False)],
    new: Annotated[int, typer.Argument(metavar="NEW", show_default=False)],
) -> None:
    """Show what differs between two versions.

    And whether each reads what the other wrote.
    """
    from lakeward.ops.schema_changes import compatibility

    with manager(context) as operations:
        changes = operations.diff_schema_versions(schema, table, old, new)
    rows = [as_row(change) for change in changes]
    judged = compatibility(changes)
    if context.json:
        show_record({"changes": rows, **as_row(judged), "full": judged.full}, to=context)
        return
    show_rows("changes", rows, ("type", "name", "before", "after"), to=context)
    print()
    show_record(
        {"backward": judged.backward, "forward": judged.forward, "reasons": "; ".join(judged.reasons)}, to=context
    )
