"""Dead letters: which records could not be applied, and what becomes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakeward.cli.command import Context
from lakeward.cli.render import show_record, show_rows
from lakeward.cli.shared import (
    AllOption,
    NoteOption,
    RunOption,
    SchemaOption,
    StatusOption,
    TableOption,
    act,
    ids_or_filter,
    manager,
    row,
    show_one,
)
from lakeward.cli.tables import LimitOption

if TYPE_CHECKING:
    from lakeward.metadata import DeadLetterFilter

LetterArgument = Annotated[int, typer.Argument(metavar="ID")]
LettersArgument = Annotated[list[int] | None, typer.Argument(metavar="[ID]...")]
EndedOption = Annotated[str | None, typer.Option("--status", help="resolved or discarded.")]
# By weight: the last ones leave where a terminal is narrow.
_COLUMNS = ("id", "table_name", "status", "last_failed_at", "error_message", "source_record_id", "error_count",
            "schema_name", "operation_type", "claimed_by")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Which:
    """The options that say which dead letters."""

    letters: LettersArgument = None
    schema: SchemaOption = None
    table: TableOption = None
    every: AllOption = False

    def chosen(self, status: str | None = None) -> DeadLetterFilter | None:
        """None where ids are given. Raises InvalidInput: it is not said which."""
        chosen = _filter(schema_name=self.schema, table_name=self.table, status=status)
        which = "dead letters: their ids, or --schema, --table, or --all for all there are"
        return ids_or_filter(self.letters, chosen, self.every, which)


def _filter(**filters: Any) -> DeadLetterFilter:
    from lakeward.metadata import DeadLetterFilter

    return DeadLetterFilter(**filters)


def list_(
    context: Context,
    schema: SchemaOption = None,
    table: TableOption = None,
    status: StatusOption = None,
    run: RunOption = None,
    limit: LimitOption = 100,
) -> None:
    """List dead letters, the newest first."""
    chosen = _filter(schema_name=schema, table_name=table, status=status, sync_run_id=run)
    with manager(context) as operations:
        found = operations.list_dead_letters(chosen, limit or None)
        total = sum(operations.count_dead_letters(chosen).values())
    show_rows("dead_letters", [row(each) for each in found], _COLUMNS, total, to=context)


def counts(context: Context, schema: SchemaOption = None, table: TableOption = None) -> None:
    """Count dead letters by state."""
    with manager(context) as operations:
        found = operations.count_dead_letters(_filter(schema_name=schema, table_name=table))
    show_record(found, to=context)


def show(context: Context, letter: LetterArgument) -> None:
    """Show a dead letter with its record and envelope."""
    with manager(context) as operations:
        show_one(context, operations.get_dead_letter(letter))


def resolve(context: Context, which: Which, note: NoteOption = None) -> None:
    """Say that records are where they belong.

    These, or all of a source or table that nobody works on.
    """
    chosen = which.chosen()
    with manager(context) as operations:
        one, many = operations.resolve_dead_letter, operations.resolve_dead_letters
        done, _ = act(which.letters, chosen, one, many, resolution=note)
    show_record({"resolved": done}, to=context)


def discard(context: Context, which: Which, note: NoteOption = None) -> None:
    """Give records up.

    These, or all of a source or table that nobody works on.
    """
    chosen = which.chosen()
    with manager(context) as operations:
        one, many = operations.discard_dead_letter, operations.discard_dead_letters
        done, _ = act(which.letters, chosen, one, many, resolution=note)
    show_record({"discarded": done}, to=context)


def requeue(context: Context, which: Which, status: EndedOption = None) -> None:
    """Let resolved or discarded records wait again."""
    chosen = which.chosen(status)
    with manager(context) as operations:
        done, _ = act(which.letters, chosen, operations.requeue_dead_letter, operations.requeue_dead_letters)
    show_record({"requeued": done}, to=context)


def release(context: Context, schema: SchemaOption = None, table: TableOption = None, every: AllOption = False) -> None:
    """End the claims of workers that are gone, before their leases do.

    A worker that lives after all is refused when it reports.
    """
    chosen = Which(None, schema, table, every).chosen()
    with manager(context) as operations:
        done, _ = act(None, chosen, operations.release_dead_letter, operations.release_dead_letters)
    show_record({"released": done}, to=context)
