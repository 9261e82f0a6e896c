"""The `lakeward` command: the groups of commands put together."""

from __future__ import annotations

from typing import Annotated

import typer

from lakeward import __version__
from lakeward.cli import (
    alter,
    astha,
    compact,
    data,
    dead_letters,
    demo,
    errors,
    groups,
    manifests,
    migrate_metadata,
    operations,
    positions,
    query,
    registry,
    runs,
    server,
    snapshots,
    tables,
    topics,
)
from lakeward.cli.root import Root

app = typer.Typer(
    name="lakeward",
    cls=Root,
    help="A streaming lakehouse kept by one SQL registry.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # drawing the help with rich would take longer than all the rest of it
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"lakeward {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """A streaming lakehouse kept by one SQL registry.

    Tables are named namespace.table; a part that holds a dot goes between quotes: '"a.b"."c"'.
    """


# In the order in which --help lists them.
_GROUPS = (
    demo,
    server,
    tables,
    alter,
    data,
    snapshots,
    manifests,
    query,
    topics,
    groups,
    astha,
    compact,
    runs,
    errors,
    dead_letters,
    positions,
    migrate_metadata,
    operations,
    registry,
)
for _group in _GROUPS:
    _group.add_to(app)

if __name__ == "__main__":
    app()
