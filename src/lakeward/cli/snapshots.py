"""Snapshots of tables: make them, name them, let go of them, go back to them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakeward.cli.command import Context, limited
from lakeward.cli.names import format_name, parse_name
from lakeward.cli.render import as_row, show_record, show_rows
from lakeward.cli.tables import LimitOption, TableArgument
from lakeward.cli.times import parse_age, parse_time
from lakeward.errors import LakewardError, TableNotFound

if TYPE_CHECKING:
    from lakeward.lake import Lake

RefArgument = Annotated[str, typer.Argument(metavar="NAME")]
SnapshotOption = Annotated[int | None, typer.Option("--snapshot", help="Its id; without it, the table as it is now.")]
MaxAgeOption = Annotated[
    str | None, typer.Option("--max-age", help="An expiry drops the name once its snapshot is older: 30d.")
]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="Take the name from what has it.")]


def list_(
    context: Context,
    table: TableArgument,
    expired: Annotated[bool, typer.Option("--expired", help="Those too that can be read no more.")] = False,
    limit: LimitOption = 50,
) -> None:
    """List a table's snapshots, newest first."""
    with context.lake() as lake:
        found = lake.snapshots(parse_name(table), expired=expired)[::-1]
    rows: list[dict[str, Any]] = []
    for snapshot in limited(found, limit):
        added = {"added_files": "added-data-files", "added_rows": "added-records"}
        counts = {name: int(snapshot.summary.get(key, 0)) for name, key in added.items()}
        rows.append({**as_row(snapshot), **counts})
    columns = ["snapshot_id", "sequence_number", "created_at", "operation", "trigger", "added_files", "added_rows"]
    show_rows("snapshots", rows, [*columns, *(["expired_at"] if expired else [])], len(found), to=context)


def create(context: Context, table: TableArgument) -> None:
    """Make a snapshot of all that is pending."""
    with context.lake() as lake:
        result = lake.flush(parse_name(table))
    show_record(result, to=context)


def expire(
    context: Context,
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="This one alone; all without.")] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", help="An age (7d, 12h, 30m) or a time with a zone.")
    ] = None,
    keep: Annotated[int | None, typer.Option("--keep", min=1, help="The newest of each branch stay.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would expire.")] = False,
) -> None:
    """Let go of old snapshots.

    Without options, the table's history.expire.* properties say which are old. What has a tag or is in a branch's count stays.
    Files that nothing reaches any more are deleted by `lakeward clean`.
    """
    when = None if older_than is None else parse_time(older_than)
    with context.lake() as lake:
        if table is None:
            _expire_all(context, lake, when, keep, dry_run)
            return
        result = lake.expire_snapshots(parse_name(table), when, keep, dry_run=dry_run)
    record = {"expired": len(result.snapshots), **as_row(result), "dry_run": dry_run}
    if not context.json:
        record.pop("snapshots")
    show_record(record, to=context)


def _expire_all(
    context: Context, lake: Lake, when: datetime | timedelta | None, keep: int | None, dry_run: bool
) -> None:
    """One table that cannot be done now does not keep the others from it; the exit code is 1 then."""
    from lakeward.snapshots import expiry

    rows = []
    for table in lake.tables():
        row: dict[str, Any] = {"table": format_name((*table.namespace, table.name)), "expired": 0, "error": None}
        try:
            result = expiry.expire(lake.registry, table, older_than=when, keep=keep, dry_run=dry_run)
            rows.append({**row, **as_row(result), "expired": len(result.snapshots), "dry_run": dry_run})
        except TableNotFound:  # dropped meanwhile
            continue
        except LakewardError as error:
            rows.append({**row, "error": f"{error} [{error.code}]"})
    show_rows("tables", rows, ("table", "expired", "retained", "refs", "error"), to=context)
    if any(row["error"] for row in rows):
        raise typer.Exit(1)


def rollback(
    context: Context,
    table: TableArgument,
    to: Annotated[str, typer.Argument(metavar="SNAPSHOT", help="An id, a branch or a tag.")],
) -> None:
    """Go back to a snapshot: the table's rows become those of it.

    What is pending becomes a snapshot first, so that the way back (or forward) stays open until that one expires.
    """
    with context.lake() as lake:
        result = lake.rollback(parse_name(table), int(to) if to.isdecimal() else to)
    show_record(result, to=context)


def refs(context: Context, table: TableArgument) -> None:
    """List a table's branches and tags."""
    with context.lake() as lake:
        found = lake.refs(parse_name(table))
    columns = ("name", "type", "snapshot_id", "min_snapshots_to_keep", "max_snapshot_age_ms", "max_ref_age_ms")
    show_rows("refs", found, columns, to=context)


def tag(
    context: Context,
    table: TableArgument,
    name: RefArgument,
    snapshot: SnapshotOption = None,
    max_age: MaxAgeOption = None,
    replace: ReplaceOption = False,
) -> None:
    """Name a snapshot, which then stays."""
    age = None if max_age is None else parse_age(max_age)
    with context.lake() as lake:
        show_record(lake.create_tag(parse_name(table), name, snapshot, max_age=age, replace=replace), to=context)


def branch(
    context: Context,
    table: TableArgument,
    name: RefArgument,
    snapshot: SnapshotOption = None,
    max_age: MaxAgeOption = None,
    keep: Annotated[int | None, typer.Option("--keep", min=1, help="Of its snapshots, the newest that stay.")] = None,
    max_snapshot_age: Annotated[
        str | None, typer.Option("--max-snapshot-age", help="And those up to this age: 7d.")
    ] = None,
    replace: ReplaceOption = False,
) -> None:
    """Start a branch at a snapshot, or move it there."""
    ages = [None if text is None else parse_age(text) for text in (max_age, max_snapshot_age)]
    with context.lake() as lake:
        made = lake.create_branch(
            parse_name(table), name, snapshot, max_age=ages[0], keep=keep, max_snapshot_age=ages[1], replace=replace
        )
        show_record(made, to=context)


def drop(context: Context, table: TableArgument, name: RefArgument) -> None:
    """Drop a branch or tag; its snapshot stays until it expires."""
    with context.lake() as lake:
        found = lake.table(parse_name(table))
        kinds = {ref.name: ref.type for ref in lake.refs(found)}
        drop_it = lake.drop_branch if kinds.get(name) == "branch" else lake.drop_tag
        show_record(drop_it(found, name), to=context)
