"""How a lakehouse is, on one page."""

from __future__ import annotations

import typer

from lakeward.cli.astha import COLUMNS
from lakeward.cli.command import Context
from lakeward.cli.render import as_row, show_record, show_rows


def status(context: Context) -> None:
    """Show on one page what runs, what waits and what failed.

    The exit code is 1 if something is wrong; each problem comes with what to do.
    """
    from lakeward.maintenance.status import status as look

    with context.opened_registry() as registry:
        found = look(registry)
    shown = {"ok": found.ok, **as_row(found)}
    if context.json:
        show_record(shown, to=context)
    else:
        lists = {name: shown.pop(name) for name in ("components", "groups", "problems")}
        show_record(shown, to=context)
        print()
        show_rows("components", lists["components"], COLUMNS, to=context)
        if lists["groups"]:
            print()
            show_rows("groups", lists["groups"], ("group", "lag"), to=context)
        print()
        print("\n".join(f"problem: {each}" for each in lists["problems"]) or "nothing is wrong")
    if not found.ok:
        raise typer.Exit(1)
