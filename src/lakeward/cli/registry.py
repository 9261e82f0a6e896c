"""The registry's schema (db status, db upgrade), and what the machine has (doctor)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from lakeward.cli.command import Context, command
from lakeward.cli.render import as_row, print_json, print_table, show_record

if TYPE_CHECKING:
    from lakeward.store.database import Database


def add_to(app: typer.Typer) -> None:
    command(app, "doctor", lakehouse=False)(doctor)
    db = typer.Typer(name="db", help="The registry's schema.", no_args_is_help=True)
    command(db, "status")(status)
    command(db, "upgrade")(upgrade)
    app.add_typer(db)


def doctor(context: Context) -> None:
    """Say what is installed, and what is missing."""
    from lakeward.toolchain import checks

    found = checks()
    missing = sum(not check.found for check in found)
    if context.json:
        print_json({"checks": [asdict(check) for check in found], "missing": missing})
        return
    print_table(
        ("", "what", "found", "to get it"),
        [("ok" if check.found else "--", check.name, check.detail, check.remedy) for check in found],
    )
    print(
        "nothing is missing" if missing == 0 else f"{missing} of {len(found)} missing; not everybody needs all of them"
    )


def status(context: Context) -> None:
    """Say which version the schema has."""
    from lakeward.store import migrate

    with _database(context) as database:
        record = as_row(migrate.status(database))
        shown = {"registry": database.url.render_as_string(hide_password=True), **record}
    show_record(shown, json=context.json)


def upgrade(context: Context) -> None:
    """Bring the schema up to date.

    A registry that does not exist is created; what is in one is kept.
    """
    from lakeward.store import migrate

    with _database(context) as database:
        before = migrate.status(database)
        after = migrate.create_or_upgrade(database)
    record = {"from_version": before.schema_version, "to_version": after.schema_version, "created": not before.exists}
    show_record(record, json=context.json)


@contextmanager
def _database(context: Context) -> Iterator[Database]:
    from lakeward.registry.handle import registry_url
    from lakeward.store.database import Database

    settings = context.settings()
    database = Database(registry_url(settings.registry), durable=settings.durable)
    try:
        yield database
    finally:
        database.close()
