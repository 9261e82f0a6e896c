"""What every command shares: the options that say which lakehouse, --json, and how errors end."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from lakeward.cli.names import format_name, parse_pairs
from lakeward.cli.render import Output, print_json
from lakeward.errors import InvalidInput, InvalidSetting, LakewardError, TableNotFound

if TYPE_CHECKING:
    from lakeward.config import Settings
    from lakeward.lake import Lake
    from lakeward.registry import Registry

T = TypeVar("T")
MOST_NAMES = 1_000  # that are looked through for one like another

_REGISTRY = Annotated[str | None, typer.Option("--registry", help="SQLite file, or postgresql://user@host/database.")]
_WAREHOUSE = Annotated[str | None, typer.Option("--warehouse", help="Folder, or s3://bucket/prefix.")]
_CONFIG = Annotated[
    str | None, typer.Option("--config", help="Settings file; without it lakeward.toml of this folder.")
]
_JSON = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
_WIDE = Annotated[bool, typer.Option("--wide", help="Tables whole, however narrow the terminal is.")]


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Where Spark runs, and how."""

    master: Annotated[
        str | None, typer.Option("--master", help="Where Spark runs: spark://host:7077; without, as configured.")
    ] = None
    spark_conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; again for more.")
    ] = None

    def settings(self) -> dict[str, Any]:
        """As settings of a Lake. Raises InvalidInput: a setting has no value."""
        conf = parse_pairs(self.spark_conf, "--conf", "--conf spark.executor.memory=2g")
        return {"spark_master": self.master, "spark_conf": conf or None}


@dataclass(frozen=True, slots=True)
class Context(Output):
    """What a command was told before its own arguments."""

    registry: str | None = None
    warehouse: str | None = None
    config: str | None = None

    def settings(self, **others: Any) -> Settings:
        """What the options, the environment and the settings file say. Raises InvalidSetting."""
        from lakeward.config import load_settings

        return load_settings(self.config, registry=self.registry, warehouse=self.warehouse, **others)

    def lake(self, *, make: bool = False, attended: bool = True, **others: Any) -> Lake:
        """The lakehouse, open; the caller closes it. Only with `make` is one made where there is none.

        `attended`: what is refused needs nobody but whoever ran the command.

        Raises:
            RegistryOutdated: there is none.
            What `lakeward.connect` raises.
        """
        from lakeward.lake import connect

        log_to_stderr()
        lake = connect(self.registry, self.warehouse, config=self.config, create=make, **others)
        lake.registry.is_attended = attended
        return lake

    @contextmanager
    def opened_registry(self) -> Iterator[Registry]:
        """The registry alone, for commands that touch no storage. Raises as `lake`."""
        from lakeward.registry import open_registry

        log_to_stderr()
        with open_registry(self.settings(), create=False, touch_warehouse=False) as registry:
            registry.is_attended = True
            yield registry


def add(app: typer.Typer, name: str, function: Callable[..., None], *, lakehouse: bool = True) -> None:
    """Add a function to the commands as `name`. It gets a Context first, then its own arguments and options.

    Of an argument whose type is a dataclass, each field is an argument or option: several commands can have it. With
    `lakehouse`, --registry, --warehouse and --config are added; --json and --wide always. A LakewardError ends the command with
    exit code 1 and one line on standard error; with --json, also as {"error": {"code", "message"}} on standard output.
    """
    shared = {"registry": _REGISTRY, "warehouse": _WAREHOUSE, "config": _CONFIG} if lakehouse else {}
    given = _parameters(function)[1:]
    sets: dict[str, Any] = {each.name: each.annotation for each in given if is_dataclass(each.annotation)}
    own = [one for each in given for one in (_parameters(each.annotation) if each.name in sets else [each])]
    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [inspect.Parameter(each, keyword, default=None, annotation=kind) for each, kind in shared.items()]
    options.append(inspect.Parameter("as_json", keyword, default=False, annotation=_JSON))
    options.append(inspect.Parameter("wide", keyword, default=False, annotation=_WIDE))
    parameters = [each.replace(kind=keyword) for each in own] + options

    def run(**arguments: Any) -> None:
        told = {each: arguments.pop(each) for each in (*shared, "wide")}
        context = Context(**told, json=arguments.pop("as_json"))
        made = {
            name: kind(**{field.name: arguments.pop(field.name) for field in fields(kind)})
            for name, kind in sets.items()
        }
        try:
            function(context, **made, **arguments)
        except LakewardError as error:
            raise typer.Exit(fail(error, json=context.json, hint=_near(context, error))) from None

    # Typer reads a command's arguments off its signature.
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__doc__ = function.__doc__
    app.command(name)(run)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function, eval_str=True).parameters.values())


def _near(context: Context, error: LakewardError) -> str:
    """Of a name that nothing has: those like it, and where all are listed."""
    sought = getattr(error, "sought", None)
    if sought is None:
        return ""
    import difflib

    from lakeward.tables import namespaces, tables

    try:
        with context.opened_registry() as registry:
            if isinstance(error, TableNotFound):
                some = islice(tables.every(registry), MOST_NAMES)
                known = [format_name((*each.namespace, each.name)) for each in some]
            else:
                known = [format_name(each.levels) for each in namespaces.list_namespaces(registry, limit=MOST_NAMES)]
    except LakewardError:  # the error itself is what is to be said
        known = []
    near = difflib.get_close_matches(format_name(sought), known, 3)
    return (
        f"; did you mean {' or '.join(near)}? `lakeward tables` lists all"
        if near
        else "; `lakeward tables` lists what there is"
    )


def fail(error: LakewardError, *, json: bool, hint: str = "") -> int:
    """Say what was wrong; the exit code."""
    if json:
        print_json({"error": {"code": error.code, "message": f"{error}{hint}"}})
    print(f"lakeward: {error}{hint} [{error.code}]", file=sys.stderr)
    return 1


def confirm(question: str, refusal: str, *, yes: bool) -> None:
    """Ask where a person can answer. Raises InvalidInput: it was not agreed to, neither there nor by --yes."""
    if not yes and not (sys.stdin.isatty() and typer.confirm(question)):
        raise InvalidInput(f"{refusal}; say --yes")


def log_to_stderr(least: str = "INFO") -> None:
    """Standard output is the command's answer; what the library logs is not. LAKEWARD_LOG is the least level, or `least`.

    Raises:
        InvalidSetting: LAKEWARD_LOG is no level.
    """
    import logging

    from lakeward import logs

    wanted = os.environ.get("LAKEWARD_LOG", least).upper()
    level = logging.getLevelNamesMapping().get(wanted)
    if level is None:
        raise InvalidSetting(f"LAKEWARD_LOG={wanted!r} is none of DEBUG, INFO, WARNING, ERROR")
    logs.to_stderr(level)


def limited(items: list[T], limit: int) -> list[T]:
    """The first `limit` items; all with 0."""
    return items[:limit] if limit > 0 else items
