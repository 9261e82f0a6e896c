"""The registry's database (db status, upgrade, sizes, vacuum, retention), and what the machine has (doctor)."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lakeward.cli.command import Context
from lakeward.cli.render import as_row, cell, print_json, show_record, show_rows
from lakeward.errors import InvalidInput

if TYPE_CHECKING:
    from lakeward.cli.doctor_checks import Check
    from lakeward.db.database import Database


def doctor(context: Context) -> None:
    """Say what is missing, and which times cannot be.

    What is missing is of the machine, the times are of the registry, if there is one.
    The exit code is 1 if something is missing that you cannot do without: what Spark and object storage need counts where
    pyspark and boto3 are installed, what developers need never does.
    """
    from lakeward.cli.doctor_checks import checks, missing_needs

    found = checks()
    missing = missing_needs(found)
    times = _impossible_times(context)
    if context.json:
        names = [check.name for check in missing]
        print_json({"checks": [asdict(check) for check in found], "missing": names, "impossible_times": times})
    else:
        _show_checks(found, missing, times)
    if missing:
        raise typer.Exit(1)


def _show_checks(found: list[Check], missing: list[Check], times: list[str]) -> None:
    from lakeward.cli.table import print_table

    print_table(
        ("", "what", "for", "found", "to get it"),
        [("ok" if check.found else "--", check.name, check.need, check.detail, check.remedy) for check in found],
    )
    for time in times:
        print(f"{time}: the clock was ahead; see to the clocks of the machines that write, and run `lakeward recover`")
    if missing:
        print(f"missing: {', '.join(check.name for check in missing)}")
    else:
        others = sum(not check.found for check in found)
        print("nothing is missing" + (f" that you need; {others} that others need" if others else ""))


def _impossible_times(context: Context) -> list[str]:
    from lakeward.db import migrate
    from lakeward.errors import LakewardError
    from lakeward.registry import abandoned

    try:
        with _database(context, create=False) as database:
            found = migrate.status(database)
            return abandoned.impossible(database) if found.exists and not found.outdated else []
    except LakewardError:  # a registry that does not answer is not what is asked for
        return []


def status(context: Context) -> None:
    """Say which version the schema has."""
    from lakeward.db import migrate
    from lakeward.registry.handle import registry_uuid

    with _database(context) as database:
        record = as_row(migrate.status(database))
        shown = {"registry": database.shown_url, **record}
        if record["exists"]:
            shown["registry_uuid"] = registry_uuid(database)
    show_record(shown, to=context)


def upgrade(context: Context) -> None:
    """Bring the schema up to date.

    A registry that does not exist is created; what is in one is kept.
    """
    from lakeward.db import migrate

    with _database(context) as database:
        before = migrate.status(database)
        after = migrate.create_or_upgrade(database)
    record = {"from_version": before.schema_version, "to_version": after.schema_version, "created": not before.exists}
    show_record(record, to=context)


def sizes(context: Context) -> None:
    """Show how large the registry's tables are.

    SQLite reads its whole file for it. PostgreSQL's numbers of rows are estimates.
    """
    from lakeward.maintenance import database_upkeep

    with context.opened_registry() as registry:
        record = as_row(database_upkeep.sizes(registry))
    if context.json:
        print_json(record)
        return
    tables = record.pop("tables")
    show_rows("tables", tables, ("table", "rows", "bytes"), to=context)
    known = {name: value for name, value in record.items() if value is not None}
    print("\n" + ", ".join(f"{name.replace('_', ' ')} {cell(value, name)}" for name, value in known.items()))


def vacuum(
    context: Context,
    full: Annotated[bool, typer.Option("--full", help="Write all anew; writers wait meanwhile.")] = False,
) -> None:
    """Give the space of deleted rows back to the disk.

    SQLite's file is shortened a few pages at a time, PostgreSQL's tables are vacuumed: readers and writers go on. With --full,
    SQLite's writers wait until the file is written anew, and each table of PostgreSQL cannot be used while it is.
    """
    from lakeward.maintenance import database_upkeep

    with context.opened_registry() as registry:
        result = database_upkeep.vacuum(registry, full=full)
    show_record(result, to=context)


def retention(
    context: Context,
    days: Annotated[float | None, typer.Option("--days", help="From now on, so many.")] = None,
    forever: Annotated[bool, typer.Option("--forever", help="From now on, nothing is deleted.")] = False,
) -> None:
    """Say, or set, for how many days old runs and errors are kept.

    The registry remembers the longest that any manager or server has asked for, and no process deletes before that: with --days
    it can be made shorter. Those that still ask for more days set it up again when they start.
    """
    from lakeward.ops import retention as housekeeping

    if days is not None and forever:
        raise InvalidInput("give --days or --forever, not both")
    with context.opened_registry() as registry:
        if days is not None or forever:
            housekeeping.set_retention(registry, days)
        show_record({"retention_days": housekeeping.retention(registry)}, to=context)


def adopt(context: Context) -> None:
    """Make the warehouse this registry's.

    For a registry that takes the place of another one that is gone for good. One that was restored from a backup or moved is
    the same registry, and needs no adoption. The former registry is refused from then on. Files of it that this registry does not
    know stay where they are.
    """
    from lakeward.registry.handle import adopt_warehouse, registry_uuid

    with context.opened_registry() as registry:
        before = adopt_warehouse(registry)
        record = {
            "warehouse": registry.warehouse.location,
            "registry_uuid": registry_uuid(registry.database),
            "former_registry_uuid": before,
        }
    show_record(record, to=context)


def _database(context: Context, *, create: bool = True) -> AbstractContextManager[Database]:
    from lakeward.registry.handle import open_database

    return closing(open_database(context.settings(), create=create))
