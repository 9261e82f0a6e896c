"""Merging small files by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakeward.cli.command import Context, SparkOptions, limited
from lakeward.cli.names import format_name, parse_name
from lakeward.cli.render import as_row, show_record, show_rows
from lakeward.cli.tables import LimitOption

if TYPE_CHECKING:
    from lakeward.maintenance.compaction import Compacted
    from lakeward.maintenance.compaction_plan import Plan


def compact(
    context: Context,
    spark: SparkOptions,
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="This one alone; all without.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done and why, and do nothing.")] = False,
    limit: LimitOption = 50,
) -> None:
    """Merge small files; make Parquet of JSON lines. Spark is started for large groups alone.

    Appends go on meanwhile; where one is quicker, the job gives way and is planned again next time.
    """
    from lakeward.maintenance.compaction import compact_table

    with context.lake(**spark.settings()) as lake:
        names = [parse_name(table)] if table else [(*each.namespace, each.name) for each in lake.tables()]
        if dry_run:
            planned = [row for name in names for row in _planned(lake.plan_compaction(name))]
            columns = ("table", "partition", "state", "files", "bytes", "into", "why")
            shown = limited(planned, limit)
            show_rows("compaction", shown, columns, len(planned), to=context)
            return
        done = [(name, compact_table(lake.registry, lake.table(name), lake.spark)) for name in names]
    rows = [_done(name, result) for name, result in done if result.jobs or result.conflicts]
    if table and not context.json:
        show_record(_done(done[0][0], done[0][1]), to=context)
        return
    columns = ("table", "files_before", "files_after", "bytes_before", "bytes_after", "conflicts", "seconds")
    show_rows("compacted", rows, columns, to=context)


def _planned(plan: Plan) -> list[dict[str, Any]]:
    name = format_name((*plan.table.namespace, plan.table.name))
    groups = [
        {
            "table": name,
            "partition": group.partition_path,
            "state": group.state,
            "files": len(group.files),
            "bytes": group.bytes,
            "into": group.expected,
            "why": group.why,
        }
        for job in plan.jobs
        for group in job.groups
    ]
    left = [{"table": name, "partition": each.partition_path, **as_row(each), "into": None} for each in plan.left]
    return groups + left


def _done(name: tuple[str, ...], result: Compacted) -> dict[str, Any]:
    return {"table": format_name(name), **as_row(result), "seconds": round(result.seconds, 3)}
