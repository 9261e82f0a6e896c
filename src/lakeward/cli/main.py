"""The `lakeward` command: the groups of commands put together."""

from __future__ import annotations

import builtins
import importlib
import os
import sys
from collections.abc import Iterable
from typing import Annotated, NamedTuple

import typer

from lakeward import __version__
from lakeward.cli.command import add
from lakeward.cli.root import Root


class Commands(NamedTuple):
    """Functions of a module as commands, below a group if it has a name."""

    module: str
    listed: str  # the commands, with blanks between
    group: str = ""
    about: str = ""  # the group
    lakehouse: bool = True  # whether they are told which

    @property
    def names(self) -> list[str]:
        return self.listed.split()

    @property
    def words(self) -> list[str]:
        """What `lakeward` is called with for them."""
        return [self.group] if self.group else self.names


# In the order in which --help lists them.
COMMANDS = (
    Commands("demo", "demo", lakehouse=False),
    Commands("server", "serve"),
    Commands("tables", "tables files create"),
    Commands("describe", "describe versions rename drop"),
    Commands(
        "alter",
        "add-column drop-column rename-column widen-column move-column partition-by sort-by set unset rollback",
        "alter",
        "Change a table.",
    ),
    Commands("data", "append"),
    Commands("scan", "head scan"),
    Commands(
        "snapshots",
        "list create expire rollback refs tag branch drop",
        "snapshots",
        "Snapshots of tables, branches and tags.",
    ),
    Commands("manifests", "list merge", "manifests", "The manifests of a table."),
    Commands("query", "sql"),
    Commands(
        "topics", "list create show configure delete append read retain compact", "topics", "The topics of the log."
    ),
    Commands("groups", "list show reset delete", "groups", "Consumer groups of the log."),
    Commands("status", "status"),
    Commands("astha", "status parked discard", "astha", "The components that follow the registry's changes."),
    Commands("compact", "compact"),
    Commands("runs", "list show end recover stats clean", "runs", "Runs of pipelines."),
    Commands("errors", "list show resolve ignore trends", "errors", "Errors of pipelines."),
    Commands(
        "dead_letters",
        "list counts show resolve discard requeue release",
        "dlq",
        "Dead letters: records that could not be applied.",
    ),
    Commands("positions", "list show set delete", "positions", "Where syncs go on."),
    Commands("schemas", "list versions show diff", "schemas", "Versions of source tables' schemas."),
    Commands("migrate_metadata", "migrate-metadata"),
    Commands("operations", "audit repair set-aside recover clean"),
    Commands("operations", "rebuild", "footers", "The stored footers of Parquet files."),
    Commands("registry", "doctor", lakehouse=False),
    Commands("registry", "status upgrade sizes vacuum adopt retention", "db", "The registry's database."),
)


def run() -> None:
    """The program: the command that its arguments name, without loading the others where it can be told."""
    words = {word for word in sys.argv[1:2] if "_LAKEWARD_COMPLETE" not in os.environ}
    make([each for each in COMMANDS if words & set(each.words)] or COMMANDS)()


def make(commands: Iterable[Commands] = COMMANDS) -> typer.Typer:
    """The command with these of its commands."""
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
    for each in commands:
        group = typer.Typer(name=each.group, help=each.about, no_args_is_help=True) if each.group else app
        module = importlib.import_module(f"lakeward.cli.{each.module}")
        for name in each.names:
            function = f"{name}_" if hasattr(builtins, name) else name.replace("-", "_")
            add(group, name, getattr(module, function), lakehouse=each.lakehouse)
        if each.group:
            app.add_typer(group)
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
