"""Looking at tables: tables, files; and making one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from lakeward.cli.command import Context, limited
from lakeward.cli.metadata import columns_of, written_as
from lakeward.cli.names import format_name, parse_name
from lakeward.cli.render import show_record, show_rows
from lakeward.errors import InvalidInput
from lakeward.names import parse_table

TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="namespace.table; quote parts with dots.")]
LimitOption = Annotated[int, typer.Option("--limit", min=0, help="At most so many lines; 0 for all.")]


def tables(
    context: Context,
    namespace: Annotated[str | None, typer.Argument(help="Only this namespace.")] = None,
    limit: LimitOption = 100,
) -> None:
    """List the tables."""
    with context.lake() as lake:
        found = lake.tables(parse_name(namespace) if namespace else None)
    rows = [
        {
            "table": format_name((*table.namespace, table.name)),
            "namespace": list(table.namespace),
            "name": table.name,
            "uuid": table.table_uuid,
            "format": table.format,
            "rows": table.row_count + table.landing_row_count,
            "files": table.file_count + table.landing_file_count,
            "bytes": table.total_size + table.landing_size,
            "last_modified": table.last_modified,
            "location": table.location,
            "snapshot_id": table.current_snapshot_id,
        }
        for table in limited(found, limit)
    ]
    columns = ("table", "format", "rows", "files", "bytes", "last_modified")
    show_rows("tables", rows, columns, len(found), to=context)


def files(
    context: Context,
    table: TableArgument,
    pending: Annotated[bool, typer.Option("--pending", help="Only those in no snapshot yet.")] = False,
    set_aside: Annotated[
        bool, typer.Option("--set-aside", help="Those that cannot become part of a snapshot.")
    ] = False,
    limit: LimitOption = 50,
) -> None:
    """List a table's files."""
    from lakeward.tables import snapshots

    with context.lake() as lake:
        which = lake.table(parse_name(table))
        found, location = snapshots.list_files(lake.registry, which, set_aside=set_aside), which.location
    if pending:
        found = [file for file in found if file.snapshot_id is None]
    rows = [
        {
            # Below the table's folder: every write has a folder of its own, and names its files alike.
            "file": file.file_path.removeprefix(location + "/"),
            "path": file.file_path,
            "partition": file.partition_path,
            "type": file.file_type,
            "rows": file.row_count,
            "bytes": file.file_size,
            "checksum": file.checksum,
            "registered_at": file.registered_at,
            "snapshot_id": file.snapshot_id,
            "set_aside_reason": file.set_aside_reason,
        }
        for file in limited(found, limit)
    ]
    reason = ["set_aside_reason"] if set_aside else []
    columns = ["file", *reason, "partition", "rows", "bytes", "snapshot_id", "registered_at"]
    show_rows("files", rows, columns, len(found), to=context, short=("file",))


def create(
    context: Context,
    table: TableArgument,
    schema: Annotated[str, typer.Option("--schema", help="Columns: 'id long, price decimal(9,2), at timestamptz'.")],
    partition_by: Annotated[
        list[str] | None, typer.Option("--partition-by", help="'month', 'day(at)', 'bucket(16, id)'; again for more.")
    ] = None,
    format: Annotated[str, typer.Option("--format", help="parquet or json.")] = "parquet",
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave a table that has the name as it is.")
    ] = False,
) -> None:
    """Create a table.

    Its namespace is created too if it is missing.
    """
    from lakeward.tables import tables as known

    columns = parse_columns(schema)
    name = parse_table(parse_name(table))
    _check_documents(columns, partition_by or ())
    with context.lake(make=True) as lake:
        made = lake.create_table(name, columns, partition_by or (), format=format, if_not_exists=if_not_exists)
        metadata = known.metadata(lake.registry, made)
    record = {
        "table": format_name((*made.namespace, made.name)),
        "uuid": made.table_uuid,
        "location": made.location,
        "columns": {
            each["column"]: each["type"] + (" not null" if each["required"] else "") for each in columns_of(metadata)
        },
        **written_as(metadata),
    }
    show_record(record, to=context)


def _check_documents(columns: dict[str, str], partition_by: Sequence[str]) -> None:
    """Before a lakehouse is made for a table: whether it can have these columns and partitions. Raises InvalidInput."""
    from lakeward.iceberg import partitions, schemas

    document, _ = schemas.schema_from(columns, 2)
    partitions.partition_spec(partition_by, document)


def parse_columns(text: str) -> dict[str, str]:
    """'id long, "unit price" decimal(9,2)' -> {'id': 'long', 'unit price': 'decimal(9,2)'}.

    Raises:
        InvalidInput: a column without a type, or one that is named twice.
    """
    columns: dict[str, str] = {}
    for part in _split(text):
        name, type = _name_and_type(part)
        if name in columns:
            raise InvalidInput(f"--schema names column {name!r} twice")
        columns[name] = type
    return columns


def _split(text: str) -> list[str]:
    """At commas that stand in no brackets and no quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in '"`':
            quote = letter
        elif letter in "(<":
            depth += 1
        elif letter in ")>":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append("")
            continue
        parts[-1] += letter
    return [part.strip() for part in parts]


def _name_and_type(part: str) -> tuple[str, str]:
    quote = part[:1]
    if quote in ('"', "`") and part.find(quote, 1) > 0:
        name, _, type = part[1:].partition(quote)
    else:
        name, _, type = part.partition(" ")
    if not name or not type.strip():
        raise InvalidInput(
            f"--schema has {part!r}, which is no column; write its name, a space and its type: 'id long'"
        )
    return name, type.strip()
