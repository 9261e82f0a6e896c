"""Errors of pipelines: what failed, and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from lakeward.cli.command import Context
from lakeward.cli.render import as_row, show_record, show_rows
from lakeward.cli.shared import (
    AllOption,
    HoursOption,
    NoteOption,
    RunOption,
    SchemaOption,
    SinceOption,
    StatusOption,
    TableOption,
    act,
    ids_or_filter,
    manager,
    row,
    show_one,
)
from lakeward.cli.tables import LimitOption
from lakeward.cli.times import point_in_time

if TYPE_CHECKING:
    from lakeward.metadata import ErrorFilter, ErrorRecord

ErrorArgument = Annotated[int, typer.Argument(metavar="ERROR")]
ErrorsArgument = Annotated[list[int] | None, typer.Argument(metavar="[ERROR]...")]
TypeOption = Annotated[str | None, typer.Option("--type", help="Such as validation.")]
CodeOption = Annotated[str | None, typer.Option("--code", help="Such as file_refused.")]
BeforeOption = Annotated[
    str | None, typer.Option("--before", help="Occurred before a time, or so long ago: 90m, 12h, 7d.")
]
# By weight: the last ones leave where a terminal is narrow.
_COLUMNS = ("id", "occurred_at", "table_name", "error_code", "error_message", "status", "error_type", "schema_name",
            "occurrences", "retry_count", "next_retry_at")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Which:
    """The options that say which open errors."""

    errors: ErrorsArgument = None
    schema: SchemaOption = None
    table: TableOption = None
    run: RunOption = None
    kind: TypeOption = None
    code: CodeOption = None
    before: BeforeOption = None
    every: AllOption = False

    def chosen(self) -> ErrorFilter | None:
        """None where ids are given. Raises InvalidInput: it is not said which."""
        from lakeward.metadata import ErrorFilter

        chosen = ErrorFilter(
            schema_name=self.schema,
            table_name=self.table,
            sync_run_id=self.run,
            error_type=self.kind,  # type: ignore[arg-type]
            error_code=self.code,
            before=point_in_time(self.before),
        )
        which = "errors: their ids, or --schema, --table, --run, --type, --code, --before, or --all for all open ones"
        return ids_or_filter(self.errors, chosen, self.every, which)


def list_(
    context: Context,
    schema: SchemaOption = None,
    table: TableOption = None,
    kind: TypeOption = None,
    status: StatusOption = None,
    run: RunOption = None,
    since: SinceOption = None,
    limit: LimitOption = 100,
) -> None:
    """List errors, the newest first."""
    with manager(context) as operations:
        found = operations.list_errors(schema, table, kind, status, run, point_in_time(since), limit or None)  # type: ignore[arg-type]
    show_rows("errors", [row(each) for each in found], _COLUMNS, to=context)


def show(context: Context, error: ErrorArgument) -> None:
    """Show an error with its details, stack trace and record."""
    with manager(context) as operations:
        show_one(context, operations.get_error(error))


def resolve(context: Context, which: Which, note: NoteOption = None) -> None:
    """Say that errors are dealt with.

    These, or all open ones of a source, table, run, type, code, or from before a time.
    """
    chosen = which.chosen()
    with manager(context) as operations:
        done = act(which.errors, chosen, operations.resolve_error, operations.resolve_errors, resolution=note)
    _show(context, "resolved", *done)


def ignore(context: Context, which: Which, note: NoteOption = None) -> None:
    """Say that errors need nothing.

    These, or all open ones of a source, table, run, type, code, or from before a time.
    """
    chosen = which.chosen()
    with manager(context) as operations:
        done = act(which.errors, chosen, operations.ignore_error, operations.ignore_errors, resolution=note)
    _show(context, "ignored", *done)


def _show(context: Context, what: str, count: int, ended: list[ErrorRecord]) -> None:
    if len(ended) == 1:
        show_one(context, ended[0])
    else:
        show_record({what: count}, to=context)


def trends(context: Context, schema: SchemaOption = None, hours: HoursOption = 24) -> None:
    """Count errors by hour and type, and how retries went."""
    with manager(context) as operations:
        found = operations.get_error_trends(schema, hours)
    rows = [{**as_row(each), "retry_success_rate": each.retry_success_rate} for each in found]
    columns = ("hour", "error_type", "errors", "retried", "resolved_by_retry", "retry_success_rate")
    show_rows("trends", rows, columns, to=context)
