"""Sync runs: which there were, how they ended, and what is known of them all."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lakeward.cli.command import Context, group
from lakeward.cli.render import show_record, show_rows
from lakeward.cli.shared import HoursOption, SchemaOption, SinceOption, manager, moment, people, row, show_one
from lakeward.cli.tables import LimitOption

RunArgument = Annotated[int, typer.Argument(metavar="RUN", show_default=False)]
_COLUMNS = (
    "id",
    "schema_name",
    "sync_mode",
    "status",
    "started_at",
    "duration_ms",
    "records_processed",
    "last_seen_at",
    "error_message",
)


def add_to(app: typer.Typer) -> None:
    group(
        app, "runs", "Runs of pipelines.", list=list_runs, show=show, end=end, recover=recover, stats=stats, clean=clean
    )


def list_runs(
    context: Context,
    schema: SchemaOption = None,
    status: Annotated[
        str | None, typer.Option("--status", help="running, completed, failed or cancelled.", show_default=False)
    ] = None,
    mode: Annotated[str | None, typer.Option("--mode", help="stream, batch or initial.", show_default=False)] = None,
    since: SinceOption = None,
    limit: LimitOption = 100,
) -> None:
    """List runs, the newest first."""
    with manager(context) as metadata:
        found = metadata.list_sync_runs(schema, status, mode, moment(since), limit or None)  # type: ignore[arg-type]
    show_rows("runs", [row(each) for each in found], _COLUMNS, json=context.json)


def show(context: Context, run: RunArgument) -> None:
    """Show a run."""
    with manager(context) as metadata:
        show_one(context, metadata.get_sync_run(run))


def end(
    context: Context,
    run: RunArgument,
    status: Annotated[str, typer.Option("--status", help="failed, cancelled or completed.")] = "failed",
    message: Annotated[str | None, typer.Option("--message", help="Why.", show_default=False)] = None,
) -> None:
    """End a run whose process is gone."""
    with manager(context) as metadata:
        show_one(context, metadata.complete_sync_run(run, status, error_message=message))  # type: ignore[arg-type]


def recover(
    context: Context,
    hours: Annotated[float, typer.Option("--hours", help="How long nothing was heard of a run.")] = 24,
) -> None:
    """Mark runs as failed of which nothing was heard for long."""
    with manager(context) as metadata:
        found = metadata.recover_failed_runs(hours)
    show_rows("runs", [row(each) for each in found], _COLUMNS, json=context.json)


def stats(context: Context, schema: SchemaOption = None, hours: HoursOption = 24) -> None:
    """Show how runs went, what failed, what waits, old positions."""
    with manager(context) as metadata:
        found = metadata.get_sync_statistics(schema, hours)
    if context.json:
        show_record(_plain(found), json=True)
        return
    for name in ("sync_runs", "errors", "dead_letters"):
        print(f"{name.replace('_', ' ')}\n")
        show_record(found[name], json=False)
        print()
    positions = [people(each) for each in _plain(found["positions"])]
    columns = ("schema_name", "table_name", "marker_type", "position", "age_seconds")
    show_rows("positions", positions, columns, json=False)


def _plain(found: Any) -> Any:
    """Positions as they are stored; everything else as it is."""
    import json

    from lakeward.model import exact

    if isinstance(found, list):
        return [{**each, "position": json.loads(exact.dumps(each["position"]))} for each in found]
    return {**found, "positions": _plain(found["positions"])}


def clean(
    context: Context,
    days: Annotated[float, typer.Option("--days", help="How long ago it ended at least.")] = 30,
) -> None:
    """Delete old operations metadata.

    Runs that have ended, errors and dead letters that are dealt with, versions of schemas but the last 10 of each table.
    """
    with manager(context) as metadata:
        counts = metadata.cleanup_old_metadata(days)
    show_record(counts, json=context.json)
