"""The `lakeward` command: the groups of commands put together."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Annotated, Any

import typer

from lakeward import __version__
from lakeward.cli.root import Root

# The modules of commands, in the order in which --help lists them, and what each one adds.
GROUPS = {
    "demo": ("demo",),
    "server": ("serve",),
    "tables": ("tables", "files", "create"),
    "describe": ("describe", "versions", "rename", "drop"),
    "alter": ("alter",),
    "data": ("append",),
    "scan": ("head", "scan"),
    "snapshots": ("snapshots",),
    "manifests": ("manifests",),
    "query": ("sql",),
    "topics": ("topics",),
    "groups": ("groups",),
    "astha": ("status", "astha"),
    "compact": ("compact",),
    "runs": ("runs",),
    "errors": ("errors",),
    "dead_letters": ("dlq",),
    "positions": ("positions", "schemas"),
    "migrate_metadata": ("migrate-metadata",),
    "operations": ("audit", "repair", "set-aside", "recover", "clean", "footers"),
    "registry": ("doctor", "db"),
}


def run() -> None:
    """The program: the command that its arguments name, without loading the others where it can be told."""
    words = [word for word in sys.argv[1:2] if "_LAKEWARD_COMPLETE" not in os.environ]
    make([module for module, names in GROUPS.items() if set(words) & set(names)] or GROUPS)()


def make(modules: Any = GROUPS) -> typer.Typer:
    """The command with the groups of these modules."""
    app = typer.Typer(
        name="lakeward",
        cls=Root,
        help="A streaming lakehouse kept by one SQL registry.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # drawing the help with rich would take longer than all the rest of it
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for module in modules:
        importlib.import_module(f"lakeward.cli.{module}").add_to(app)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        print(f"lakeward {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """A streaming lakehouse kept by one SQL registry.

    Tables are named namespace.table; a part that holds a dot goes between quotes: '"a.b"."c"'.
    """


def __getattr__(name: str) -> typer.Typer:
    """`app`: the whole command, made when it is asked for."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()["app"] = made = make()
    return made


if __name__ == "__main__":
    run()
