"""What the components do, and the events that they failed to handle."""

from __future__ import annotations

from typing import Annotated

import typer

from lakeward.cli.command import Context
from lakeward.cli.render import show_record, show_rows

COLUMNS = ("name", "status", "seen_at", "lag_events", "parked", "reason", "lag_seconds", "queue_length", "delivered",
            "retried", "breaker", "version", "astha")  # fmt: skip


def status(context: Context) -> None:
    """Show what each component does, as its process stored it last.

    A component is dead where no process runs it now.
    """
    from lakeward.astha import load_status

    with context.opened_registry() as registry:
        found = load_status(registry)
    show_rows("components", found, COLUMNS, to=context)


def parked(context: Context) -> None:
    """List the events that a component failed to handle in all tries.

    It has taken its state from the registry since: nothing depends on them. They are kept for you to look at.
    """
    from lakeward.astha import feed

    with context.opened_registry() as registry:
        found = feed.list_parked(registry)
    columns = ("parked_id", "subscriber", "parked_at", "error", "table_name", "operation", "table_id", "attempts",
               "sequence")  # fmt: skip
    show_rows("events", found, columns, to=context)


def discard(
    context: Context,
    ids: Annotated[list[int] | None, typer.Argument(help="As `lakeward astha parked` lists them.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
) -> None:
    """Let parked events go."""
    from lakeward.astha import feed
    from lakeward.errors import InvalidInput

    if bool(ids) == every:
        raise InvalidInput("name the events to discard by their ids, or say --all")
    with context.opened_registry() as registry:
        chosen = [event.parked_id for event in feed.list_parked(registry)] if every else ids or []
        for parked_id in chosen:
            feed.discard(registry, parked_id)
    show_record({"discarded": len(chosen)}, to=context)
