"""Bring operations metadata over from a cartridge-warp database."""

from __future__ import annotations

from typing import Annotated

import typer

from lakeward.cli.command import Context
from lakeward.cli.render import as_row, show_rows


def migrate_metadata(
    context: Context,
    source: Annotated[str, typer.Option("--from", metavar="URL", help="postgresql://user@host/database.")],
    schema: Annotated[str, typer.Option("--schema", help="The schema that has the tables.")] = "cartridge_warp",
) -> None:
    """Bring operations metadata over from cartridge-warp.

    Positions, schemas, runs, errors and dead letters. May be run again: what came over before is left as it is, but ends here
    where it has ended there. Nothing is written to the source. The exit code is 1 if a row could not be kept.
    """
    from lakeward.ops.operations_import import import_operations

    with context.opened_registry() as registry:
        found = import_operations(registry, source, schema)
    rows = [{**as_row(each), "refused_count": len(each.refused)} for each in found]
    show_rows("tables", rows, ("table", "found", "imported", "ended", "present", "refused_count"), to=context)
    refused = [f"{each.table} {reason}" for each in found for reason in each.refused]
    if refused:
        if not context.json:
            print("\nrefused:\n" + "\n".join(refused))
        raise typer.Exit(1)
