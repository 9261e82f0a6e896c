"""Errors and dead letters: what failed, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakeward.cli.command import Context, command
from lakeward.cli.render import as_row, show_record, show_rows
from lakeward.cli.shared import (
    HoursOption,
    NoteOption,
    SchemaOption,
    SinceOption,
    TableOption,
    manager,
    moment,
    people,
    row,
)
from lakeward.cli.tables import LimitOption
from lakeward.errors import InvalidInput

if TYPE_CHECKING:
    from lakeward.metadata import DeadLetterFilter, ErrorFilter, ErrorRecord, MetadataManager

ErrorArgument = Annotated[int, typer.Argument(metavar="ERROR", show_default=False)]
ErrorsArgument = Annotated[list[int] | None, typer.Argument(metavar="[ERROR]...", show_default=False)]
TypeOption = Annotated[str | None, typer.Option("--type", help="Such as validation.", show_default=False)]
CodeOption = Annotated[str | None, typer.Option("--code", help="Such as file_refused.", show_default=False)]
BeforeOption = Annotated[
    str | None,
    typer.Option("--before", help="Occurred before a time, or so long ago: 90m, 12h, 7d.", show_default=False),
]
LetterArgument = Annotated[int, typer.Argument(metavar="ID", show_default=False)]
LettersArgument = Annotated[list[int] | None, typer.Argument(metavar="[ID]...", show_default=False)]
StatusOption = Annotated[str | None, typer.Option("--status", help="Only in this state.", show_default=False)]
RunOption = Annotated[int | None, typer.Option("--run", help="Only of this run.", show_default=False)]
AllOption = Annotated[bool, typer.Option("--all", help="All there are.")]
_ERRORS = ("id", "occurred_at", "schema_name", "table_name", "error_type", "error_code", "status", "retry_count",
           "next_retry_at", "error_message")  # fmt: skip
_LETTERS = ("id", "schema_name", "table_name", "operation_type", "status", "error_count", "source_record_id",
            "claimed_by", "last_failed_at", "error_message")  # fmt: skip


def add_to(app: typer.Typer) -> None:
    of_errors: dict[str, Callable[..., None]] = {
        "list": list_errors,
        "show": show_error,
        "resolve": resolve_errors,
        "ignore": ignore_errors,
        "trends": trends,
    }
    of_letters: dict[str, Callable[..., None]] = {
        "list": list_letters,
        "counts": counts,
        "show": show_letter,
        "resolve": resolve,
        "discard": discard,
        "requeue": requeue,
        "release": release,
    }
    errors = typer.Typer(name="errors", help="Errors of pipelines.", no_args_is_help=True)
    dlq = typer.Typer(name="dlq", help="Dead letters: records that could not be applied.", no_args_is_help=True)
    for group, functions in ((errors, of_errors), (dlq, of_letters)):
        for name, function in functions.items():
            command(group, name)(function)
        app.add_typer(group)


def list_errors(
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
    with manager(context) as metadata:
        found = metadata.list_errors(schema, table, kind, status, run, moment(since), limit or None)  # type: ignore[arg-type]
    show_rows("errors", [row(each) for each in found], _ERRORS, json=context.json)


def show_error(context: Context, error: ErrorArgument) -> None:
    """Show an error with its details, stack trace and record."""
    with manager(context) as metadata:
        _show(context, metadata.get_error(error))


def _show(context: Context, record: Any) -> None:
    shown = row(record)
    show_record(shown if context.json else people(shown), json=context.json)


def resolve_errors(
    context: Context,
    errors: ErrorsArgument = None,
    schema: SchemaOption = None,
    table: TableOption = None,
    run: RunOption = None,
    kind: TypeOption = None,
    code: CodeOption = None,
    before: BeforeOption = None,
    every: AllOption = False,
    note: NoteOption = None,
) -> None:
    """Say that errors are dealt with: these, or all open ones of a source, table, run, type, code, or from before a time."""
    chosen = _open_errors(errors, every, schema, table, run, kind, code, before)
    with manager(context) as metadata:
        _end(context, "resolved", errors, chosen, metadata.resolve_error, metadata.resolve_errors, note)


def ignore_errors(
    context: Context,
    errors: ErrorsArgument = None,
    schema: SchemaOption = None,
    table: TableOption = None,
    run: RunOption = None,
    kind: TypeOption = None,
    code: CodeOption = None,
    before: BeforeOption = None,
    every: AllOption = False,
    note: NoteOption = None,
) -> None:
    """Say that errors need nothing: these, or all open ones of a source, table, run, type, code, or from before a time."""
    chosen = _open_errors(errors, every, schema, table, run, kind, code, before)
    with manager(context) as metadata:
        _end(context, "ignored", errors, chosen, metadata.ignore_error, metadata.ignore_errors, note)


def _open_errors(
    errors: list[int] | None,
    every: bool,
    schema: str | None,
    table: str | None,
    run: int | None,
    kind: str | None,
    code: str | None,
    before: str | None,
) -> ErrorFilter | None:
    """None where ids are given. Raises InvalidInput: it is not said which."""
    from lakeward.metadata import ErrorFilter

    chosen = ErrorFilter(
        schema_name=schema,
        table_name=table,
        sync_run_id=run,
        error_type=kind,  # type: ignore[arg-type]
        error_code=code,
        before=moment(before),
    )
    if bool(errors) + (every or chosen != ErrorFilter()) != 1:
        raise InvalidInput(
            "say which errors: their ids, or --schema, --table, --run, --type, --code, --before, or --all for all open ones"
        )
    return None if errors else chosen


def _end(
    context: Context,
    what: str,
    errors: list[int] | None,
    chosen: ErrorFilter | None,
    one: Callable[[int, str | None], ErrorRecord],
    many: Callable[[ErrorFilter, str | None], int],
    note: str | None,
) -> None:
    if chosen is not None:
        show_record({what: many(chosen, note)}, json=context.json)
        return
    ended = [one(each, note) for each in errors or ()]
    if len(ended) == 1:
        _show(context, ended[0])
    else:
        show_record({what: len(ended)}, json=context.json)


def trends(context: Context, schema: SchemaOption = None, hours: HoursOption = 24) -> None:
    """Count errors by hour and type, and how retries went."""
    with manager(context) as metadata:
        found = metadata.get_error_trends(schema, hours)
    rows = [{**as_row(each), "retry_success_rate": each.retry_success_rate} for each in found]
    columns = ("hour", "error_type", "errors", "retried", "resolved_by_retry", "retry_success_rate")
    show_rows("trends", rows, columns, json=context.json)


# Dead letters -------------------------------------------------------------------------------------------------------------
def _chosen(**filters: Any) -> DeadLetterFilter:
    from lakeward.metadata import DeadLetterFilter

    return DeadLetterFilter(**filters)


def list_letters(
    context: Context,
    schema: SchemaOption = None,
    table: TableOption = None,
    status: StatusOption = None,
    run: RunOption = None,
    limit: LimitOption = 100,
) -> None:
    """List dead letters, the newest first."""
    chosen = _chosen(schema_name=schema, table_name=table, status=status, sync_run_id=run)
    with manager(context) as metadata:
        found = metadata.list_dead_letters(chosen, limit or None)
        total = sum(metadata.count_dead_letters(chosen).values())
    show_rows("dead_letters", [row(each) for each in found], _LETTERS, total, json=context.json)


def counts(context: Context, schema: SchemaOption = None, table: TableOption = None) -> None:
    """Count dead letters by state."""
    with manager(context) as metadata:
        found = metadata.count_dead_letters(_chosen(schema_name=schema, table_name=table))
    show_record(found, json=context.json)


def show_letter(context: Context, letter: LetterArgument) -> None:
    """Show a dead letter with its record and envelope."""
    with manager(context) as metadata:
        _show(context, metadata.get_dead_letter(letter))


def resolve(
    context: Context,
    letters: LettersArgument = None,
    schema: SchemaOption = None,
    table: TableOption = None,
    every: AllOption = False,
    note: NoteOption = None,
) -> None:
    """Say that records are where they belong: these, or all of a source or table that nobody works on."""
    _act(
        context,
        "resolved",
        letters,
        _filter(letters, schema, table, every),
        lambda metadata, each: metadata.resolve_dead_letter(each, note),
        lambda metadata, chosen: metadata.resolve_dead_letters(chosen, note),
    )


def discard(
    context: Context,
    letters: LettersArgument = None,
    schema: SchemaOption = None,
    table: TableOption = None,
    every: AllOption = False,
    note: NoteOption = None,
) -> None:
    """Give records up: these, or all of a source or table that nobody works on."""
    _act(
        context,
        "discarded",
        letters,
        _filter(letters, schema, table, every),
        lambda metadata, each: metadata.discard_dead_letter(each, note),
        lambda metadata, chosen: metadata.discard_dead_letters(chosen, note),
    )


def requeue(
    context: Context,
    letters: LettersArgument = None,
    schema: SchemaOption = None,
    table: TableOption = None,
    every: AllOption = False,
    status: Annotated[str | None, typer.Option("--status", help="resolved or discarded.", show_default=False)] = None,
) -> None:
    """Let resolved or discarded records wait again."""
    _act(
        context,
        "requeued",
        letters,
        _filter(letters, schema, table, every, status),
        lambda metadata, each: metadata.requeue_dead_letter(each),
        lambda metadata, chosen: metadata.requeue_dead_letters(chosen),
    )


def release(
    context: Context,
    schema: SchemaOption = None,
    table: TableOption = None,
    every: AllOption = False,
) -> None:
    """End the claims of workers that are gone, before their leases do.

    A worker that lives after all is refused when it reports.
    """
    _act(
        context,
        "released",
        None,
        _filter(None, schema, table, every),
        lambda metadata, each: metadata.release_dead_letter(each),
        lambda metadata, chosen: metadata.release_dead_letters(chosen),
    )


def _filter(
    letters: list[int] | None, schema: str | None, table: str | None, every: bool, status: str | None = None
) -> DeadLetterFilter | None:
    """None where ids are given. Raises InvalidInput: it is not said which."""
    narrowed = schema is not None or table is not None or status is not None
    if bool(letters) + (narrowed or every) != 1:
        raise InvalidInput("say which dead letters: their ids, or --schema, --table, or --all for all there are")
    return None if letters else _chosen(schema_name=schema, table_name=table, status=status)


def _act(
    context: Context,
    what: str,
    letters: list[int] | None,
    chosen: DeadLetterFilter | None,
    one: Callable[[MetadataManager, int], object],
    many: Callable[[MetadataManager, DeadLetterFilter], int],
) -> None:
    with manager(context) as metadata:
        if chosen is not None:
            count = many(metadata, chosen)
        else:
            for each in letters or ():
                one(metadata, each)
            count = len(letters or ())
    show_record({what: count}, json=context.json)
