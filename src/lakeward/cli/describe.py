"""One table: what it is, what it was, and its end: describe, versions, rename, drop."""

from __future__ import annotations

from typing import Annotated

import typer

from lakeward.cli.command import Context, confirm, limited
from lakeward.cli.metadata import columns_of, written_as
from lakeward.cli.names import format_name, parse_name
from lakeward.cli.render import show_record, show_rows
from lakeward.cli.tables import LimitOption, TableArgument


def describe(context: Context, table: TableArgument) -> None:
    """Show a table, its columns and properties."""
    from lakeward.tables import snapshots, tables

    with context.lake() as lake:
        found, metadata = tables.load_with_metadata(lake.registry, parse_name(table))
        pending = snapshots.count_pending(lake.registry, found)
        set_aside = len(snapshots.list_files(lake.registry, found, set_aside=True))
    record = {
        "table": format_name((*found.namespace, found.name)),
        "uuid": found.table_uuid,
        "location": found.location,
        "format": found.format,
        "format_version": found.format_version,
        "compression": metadata.compression,
        "version": metadata.metadata_version,
        **written_as(metadata),
        "rows": found.row_count + found.landing_row_count,
        "files": found.file_count + found.landing_file_count,
        "bytes": found.total_size + found.landing_size,
        "pending_files": pending,
        "set_aside_files": set_aside,
        "snapshot_id": found.current_snapshot_id,
        "created_at": found.created_at,
        "last_modified": found.last_modified,
        "properties": metadata.properties,
    }
    columns = columns_of(metadata)
    if context.json:
        show_record({**record, "columns": columns, "schema": metadata.schema}, to=context)
        return
    show_record(record, to=context)
    print()
    show_rows("columns", columns, ("column", "type", "required", "doc", "id"), to=context)


def versions(context: Context, table: TableArgument, limit: LimitOption = 50) -> None:
    """List the versions of a table's metadata, newest first.

    `lakeward alter rollback TABLE VERSION` brings one back.
    """
    with context.lake() as lake:
        found = lake.metadata_versions(parse_name(table))[::-1]
    rows = [
        {
            "version": each.metadata_version,
            "change": each.change,
            "created_at": each.created_at,
            "columns": [field["name"] for field in each.schema["fields"]],
            **written_as(each),
            "properties": each.properties,
            "schema_id": each.schema_version,
            "spec_id": each.spec_id,
        }
        for each in limited(found, limit)
    ]
    columns = ("version", "change", "created_at", "columns", "partition_by", "sort_by", "properties", "schema_id",
               "spec_id")  # fmt: skip
    show_rows("versions", rows, columns, len(found), to=context)


def rename(
    context: Context,
    table: TableArgument,
    new_name: Annotated[str, typer.Argument(metavar="NEW_NAME", help="namespace.table.")],
) -> None:
    """Rename a table, or move it to another namespace.

    Its files stay where they are.
    """
    with context.lake() as lake:
        renamed = lake.rename_table(parse_name(table), parse_name(new_name))
    show_record({"table": format_name((*renamed.namespace, renamed.name)), "uuid": renamed.table_uuid}, to=context)


def drop(
    context: Context,
    table: TableArgument,
    purge: Annotated[bool, typer.Option("--purge", help="Delete its files now.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Drop a table.

    Its files wait in quarantine and `lakeward clean` deletes them; with --purge they are gone at once.
    """
    from lakeward.maintenance import cleaner

    with context.lake() as lake:
        found = lake.table(parse_name(table))
        rows = found.row_count + found.landing_row_count
        confirm(f"drop {table} with its {rows:,} rows?", f"{table} was not dropped", yes=yes)
        cleaner.drop(lake.registry, found, purge=purge)
    show_record({"dropped": format_name((*found.namespace, found.name)), "rows": rows, "purged": purge}, to=context)
