"""Reading rows without Spark: scan and head."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import typer

from lakeward.cli.command import Context
from lakeward.cli.names import parse_name
from lakeward.cli.render import print_json, show_rows
from lakeward.cli.tables import TableArgument

ColumnsOption = Annotated[
    list[str] | None, typer.Option("--columns", metavar="NAME", help="Only this column; again for more.")
]
FilterOption = Annotated[str | None, typer.Option("--filter", help="Such as \"id > 5 and name in ('a', 'b')\".")]
SnapshotOption = Annotated[str | None, typer.Option("--snapshot", help="As of a snapshot's id, a branch or a tag.")]


def head(
    context: Context,
    table: TableArgument,
    rows: Annotated[int, typer.Option("-n", "--rows", min=1, help="How many.")] = 10,
    columns: ColumnsOption = None,
    filter: FilterOption = None,
    snapshot: SnapshotOption = None,
) -> None:
    """Show some rows of a table, without Spark.

    Rows have no order: these are the first that are found.
    """
    names, found = _read(context, table, columns, filter, snapshot, rows)
    show_rows("rows", list(found), names, to=context)


def scan(
    context: Context,
    table: TableArgument,
    columns: ColumnsOption = None,
    filter: FilterOption = None,
    snapshot: SnapshotOption = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="At most so many rows; 0 for all.")] = 0,
) -> None:
    """Write a table's rows as JSON lines, without Spark.

    Pending rows are there too. With --json they are one document, whose total counts the rows in it. `lakeward append TABLE -` takes the lines again.
    """
    import msgspec

    _, found = _read(context, table, columns, filter, snapshot, limit or None)
    if context.json:
        rows = list(found)
        print_json({"rows": rows, "total": len(rows)})
        return
    for row in found:
        sys.stdout.write(msgspec.json.encode(row).decode() + "\n")


def _read(
    context: Context, table: str, columns: list[str] | None, filter: str | None, snapshot: str | None, most: int | None
) -> tuple[list[str], Iterator[dict[str, Any]]]:
    """The columns' names, and the rows as they are read, their values as in JSON lines."""
    from lakeward.arrow.json_lines import rows_of
    from lakeward.iceberg.schemas import schema_from

    lake = context.lake()
    try:
        at = int(snapshot) if snapshot is not None and snapshot.isdecimal() else snapshot
        reader = lake.scan(parse_name(table), columns, filter, snapshot=at)
        schema, _ = schema_from(reader.schema, format_version=3)
    except BaseException:
        lake.close()
        raise

    def rows() -> Iterator[dict[str, Any]]:
        with lake:
            yield from islice((row for batch in reader for row in rows_of(batch, schema)), most)

    return list(reader.schema.names), rows()
