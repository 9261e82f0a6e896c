"""Sync runs: which there were, how they ended, and what is known of them all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakeward.cli.command import Context
from lakeward.cli.render import show_record, show_rows
from lakeward.cli.shared import (
    HoursOption,
    SchemaOption,
    SinceOption,
    TableOption,
    as_stored,
    manager,
    people,
    row,
    show_one,
)
from lakeward.cli.tables import LimitOption
from lakeward.cli.times import point_in_time

if TYPE_CHECKING:
    from lakeward.metadata import SyncRun

RunArgument = Annotated[int, typer.Argument(metavar="RUN")]
# By weight: the last ones leave where a terminal is narrow.
_COLUMNS = ("id", "status", "table", "kind", "started_at", "records_processed", "error_message", "duration_ms",
            "sync_mode", "schema_name", "last_seen_at")  # fmt: skip


def list_(
    context: Context,
    schema: SchemaOption = None,
    table: TableOption = None,
    status: Annotated[str | None, typer.Option("--status", help="running, completed, failed or cancelled.")] = None,
    mode: Annotated[str | None, typer.Option("--mode", help="stream, batch or initial.")] = None,
    since: SinceOption = None,
    limit: LimitOption = 100,
) -> None:
    """List runs, the newest first."""
    with manager(context) as operations:
        found = operations.list_sync_runs(schema, status, mode, point_in_time(since), limit or None, table_name=table)  # type: ignore[arg-type]
    _show_list(context, found)


def _show_list(context: Context, found: list[SyncRun]) -> None:
    show_rows("runs", [{**row(each), **_about(each)} for each in found], _COLUMNS, to=context)


def _about(run: SyncRun) -> dict[str, Any]:
    return {
        "table": _named(run.destination_info, "table", "topic"),
        "kind": _named(run.source_info, "kind", "component"),
    }


def _named(info: Any, *names: str) -> str | None:
    """The first of some names that a run's source or destination has: people write down others than the pipeline does."""
    found = (info.get(name) for name in names) if isinstance(info, Mapping) else ()
    return next((each for each in found if isinstance(each, str)), None)


def show(context: Context, run: RunArgument) -> None:
    """Show a run."""
    with manager(context) as operations:
        found = operations.get_sync_run(run)
    show_one(context, found, _about(found))


def end(
    context: Context,
    run: RunArgument,
    status: Annotated[str, typer.Option("--status", help="failed, cancelled or completed.")] = "failed",
    message: Annotated[str | None, typer.Option("--message", help="Why.")] = None,
) -> None:
    """End a run whose process is gone."""
    with manager(context) as operations:
        ended = operations.complete_sync_run(run, status, error_message=message)  # type: ignore[arg-type]
    show_one(context, ended, _about(ended))


def recover(
    context: Context, hours: Annotated[float, typer.Option("--hours", help="How long nothing was heard of a run.")] = 24
) -> None:
    """Mark runs as failed of which nothing was heard for long."""
    with manager(context) as operations:
        found = operations.recover_failed_runs(hours)
    _show_list(context, found)


def stats(context: Context, schema: SchemaOption = None, hours: HoursOption = 24) -> None:
    """Show how runs went, what failed, what waits, old positions."""
    with manager(context) as operations:
        found = operations.get_sync_statistics(schema, hours)
    positions = [as_stored(each, "position") for each in found["positions"]]
    if context.json:
        show_record({**found, "positions": positions}, to=context)
        return
    for name in ("sync_runs", "errors", "dead_letters"):
        print(f"{name.replace('_', ' ')}\n")
        show_record(found[name], to=context)
        print()
    columns = ("schema_name", "table_name", "marker_type", "position", "age_seconds")
    show_rows("positions", [people(each) for each in positions], columns, to=context)


def clean(
    context: Context, days: Annotated[float, typer.Option("--days", help="How long ago it ended at least.")] = 30
) -> None:
    """Delete old operations metadata.

    Runs that have ended, errors and dead letters that are dealt with, versions of schemas but the last 10 of each table.
    """
    with manager(context) as operations:
        counts = operations.cleanup_old_metadata(days)
    show_record(counts, to=context)
