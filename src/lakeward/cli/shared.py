"""What commands share: options, the front that they call, and how records of operations metadata are shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from lakeward.cli.command import Context
from lakeward.cli.render import as_row, show_record
from lakeward.errors import InvalidInput

if TYPE_CHECKING:
    from lakeward.lake import MetadataStore
    from lakeward.metadata import MetadataManager

F = TypeVar("F")
R = TypeVar("R")

SchemaArgument = Annotated[str, typer.Argument(metavar="SCHEMA")]
SchemaOption = Annotated[str | None, typer.Option("--schema", help="Only of this source.")]
TableOption = Annotated[str | None, typer.Option("--table", help="Only of this table.")]
NoteOption = Annotated[str | None, typer.Option("--note", help="What was done, kept with it.")]
HoursOption = Annotated[float, typer.Option("--hours", help="How far back.")]
SinceOption = Annotated[
    str | None, typer.Option("--since", help="A time such as 2026-01-02T03:04:05Z, or so long ago: 90m, 12h, 7d.")
]
StatusOption = Annotated[str | None, typer.Option("--status", help="Only in this state.")]
RunOption = Annotated[int | None, typer.Option("--run", help="Only of this run.")]
AllOption = Annotated[bool, typer.Option("--all", help="All there are.")]
# Kept by lossless_json.py: shown as they are stored, so that a script loses nothing.
_EXACT = ("record_data", "envelope", "position_data", "error_details", "source_info", "destination_info",
          "source_position")  # fmt: skip


@contextmanager
def manager(context: Context) -> Iterator[MetadataManager]:
    """The metadata of a lakehouse that exists; nothing runs in the background."""
    from lakeward.metadata import MetadataManager

    with context.opened_registry() as registry:
        yield MetadataManager(registry)


@contextmanager
def log_store(context: Context, **options: Any) -> Iterator[MetadataStore]:
    """What a lakehouse's log knows of its topics and groups; `options` as Context.lake."""
    from lakeward.lake import MetadataStore

    with context.lake(**options) as lake:
        yield MetadataStore(lake)


def row(record: Any) -> dict[str, Any]:
    """A record to show. What JSON lacks is written as it is stored."""
    kept = {name: getattr(record, name) for name in _EXACT if name in record.__struct_fields__}
    return {**as_row(record), **as_stored(kept, *kept)}


def as_stored(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Values of which some are written as they are stored."""
    from lakeward import lossless_json

    return {**values, **{name: json.loads(lossless_json.dumps(values[name])) for name in names}}


def people(shown: dict[str, Any]) -> dict[str, Any]:
    """The same for people: documents as their JSON."""
    return {
        name: json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value
        for name, value in shown.items()
    }


def show_one(context: Context, record: Any, more: Mapping[str, Any] = MappingProxyType({})) -> None:
    """A record by itself, whole, and what else is known of it."""
    shown = {**row(record), **more}
    show_record(shown if context.json else people(shown), to=context)


def ids_or_filter(ids: list[int] | None, chosen: F, every: bool, what: str) -> F | None:
    """The filter; None where ids are given. `every` is what has to be said where the filter narrows nothing.

    Raises InvalidInput: not exactly one of them says which.
    """
    if bool(ids) + (every or chosen != type(chosen)()) != 1:
        raise InvalidInput(f"say which {what}")
    return None if ids else chosen


def act(
    ids: list[int] | None, chosen: F | None, one: Callable[..., R], many: Callable[..., int], **options: str | None
) -> tuple[int, list[R]]:
    """Do it with all that a filter chooses, or with each of the ids; with how many, and what became of each of the latter."""
    if chosen is not None:
        return many(chosen, **options), []
    done = [one(each, **options) for each in ids or ()]
    return len(done), done
