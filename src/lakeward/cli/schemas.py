"""Versions of source tables' schemas."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lakeward.cli.command import Context
from lakeward.cli.render import as_row, show_record, show_rows
from lakeward.cli.shared import SchemaArgument, SchemaOption, manager, people, row

TableArgument = Annotated[str, typer.Argument(metavar="TABLE")]


def list_(context: Context, schema: SchemaOption = None) -> None:
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


def show(
    context: Context,
    schema: SchemaArgument,
    table: TableArgument,
    version: Annotated[int | None, typer.Option("--version", help="Without it, the latest.")] = None,
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
    old: Annotated[int, typer.Argument(metavar="OLD")],
    new: Annotated[int, typer.Argument(metavar="NEW")],
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
