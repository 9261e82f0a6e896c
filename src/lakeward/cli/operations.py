"""Upkeep: recover, clean, audit, repair, and the footers that can be made again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from lakeward.cli.command import Context
from lakeward.cli.names import parse_name
from lakeward.cli.render import as_row, show_record, show_rows
from lakeward.cli.tables import TableArgument
from lakeward.errors import InvalidInput


def _show(result: Any, names: Mapping[str, str], context: Context) -> None:
    """For people under names that say what was done; for scripts under the fields' own."""
    found = as_row(result)
    show_record(found if context.json else {names.get(each, each): found[each] for each in found}, to=context)


def recover(context: Context) -> None:
    """Delete what dead writers left behind.

    Writers that live keep their leases, and are left alone. The exit code is 1 if something could not be deleted.
    """
    with context.lake() as lake:
        result = lake.recover()
    _show(result, {"intents": "writes_given_up", "swept": "swept_once_more", "objects": "objects_deleted"}, context)
    if result.failed:
        raise typer.Exit(1)


def clean(
    context: Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
) -> None:
    """Delete files whose quarantine is over.

    A file goes when its time has passed and no retained snapshot reaches it. What engines left in tables' folders when their
    commits failed goes into quarantine once it is a week old. The exit code is 1 if something could not be deleted.
    """
    with context.lake() as lake:
        result = lake.clean(dry_run=dry_run)
    if dry_run:
        found = as_row(result)
        names = {"files": "files", "bytes": "bytes", "temporary": "objects_of_given_up_writes", "strays": "strays",
                 "tables": "dropped_tables", "topics": "deleted_topics"}  # fmt: skip
        shown = {name if context.json else f"{title} to go": found[name] for name, title in names.items()}
        show_record({**shown, "dry_run": True}, to=context)
        return
    names = {"files": "files_deleted", "temporary": "objects_of_given_up_writes", "strays": "strays_in_quarantine",
             "tables": "dropped_tables_gone", "topics": "deleted_topics_gone",
             "changes": "changes_nobody_waits_for"}  # fmt: skip
    _show(result, names, context)
    if result.failed:
        raise typer.Exit(1)


def audit(
    context: Context,
    table: TableArgument,
    checksums: Annotated[
        bool, typer.Option("--checksums", help="Read every byte; missing checksums are filled in.")
    ] = False,
) -> None:
    """Compare the registry with the files.

    The exit code is 1 if they differ. Objects that nothing refers to are listed too, but do no harm.
    """
    with context.lake() as lake:
        report = lake.audit(parse_name(table), checksums=checksums)
    record = {"ok": report.ok, **as_row(report)}
    if context.json:
        show_record(record, to=context)
    else:
        findings = record.pop("findings")
        show_record(record, to=context)
        print()
        show_rows("findings", findings, ("kind", "what", "detail"), to=context)
    if not report.ok:
        raise typer.Exit(1)


def repair(context: Context, table: TableArgument) -> None:
    """Write a table's Iceberg metadata anew where it is lost.

    After a registry was restored from a copy, say. Nothing is done where nothing is lost: `lakeward audit` tells. Earlier
    snapshots and their names are gone with what held them; rows are not.
    """
    with context.lake() as lake:
        result = lake.repair(parse_name(table))
    show_record(result, to=context)


def set_aside(
    context: Context,
    table: TableArgument,
    retry: Annotated[bool, typer.Option("--retry", help="Make them pending again.")] = False,
    retire: Annotated[bool, typer.Option("--retire", help="Send them to quarantine.")] = False,
) -> None:
    """Retry or retire files that no snapshot could take.

    `lakeward files TABLE --set-aside` lists them, with their reasons.
    """
    if retry == retire:
        raise InvalidInput(
            "say what to do with the files: --retry or --retire; `lakeward files TABLE --set-aside` lists them"
        )
    with context.lake() as lake:
        count = (lake.retry_set_aside if retry else lake.retire_set_aside)(parse_name(table))
    show_record({"retried" if retry else "retired": count}, to=context)


def rebuild(context: Context, table: TableArgument) -> None:
    """Store the footers of a table's files again."""
    from lakeward.tables import footers

    name = parse_name(table)
    with context.lake() as lake:
        count = footers.rebuild(lake.registry, lake.table(name))
    show_record({"footers": count}, to=context)
