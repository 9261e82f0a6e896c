"""Changes of a table's metadata file that add no snapshot: names of snapshots, expiry, rollback."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from lakeward.db.types import epoch_ms
from lakeward.registry import Registry, intents
from lakeward.registry.turns import Turn
from lakeward.snapshots import snapshot_commit
from lakeward.snapshots.conflicts import committed
from lakeward.snapshots.snapshot_commit import Hold
from lakeward.tables import snapshots
from lakeward.tables.records.tables import Document, Table
from lakeward.tables.snapshots import Also, Conflict, Held, Pending


class Change(NamedTuple):
    """What the metadata becomes, and what else belongs to that commit."""

    document: Document
    also: Also | None = None
    left: tuple[Document, ...] = ()  # snapshots that are no longer in it
    superseded: tuple[tuple[str, str], ...] = ()  # (kind, location)


# Gets the table, its metadata at its newest version and the registry's time; None if there is nothing to change.
Edit = Callable[[Table, Document, datetime], Change | None]


def change(
    registry: Registry,
    table_id: int,
    edit: Edit,
    before_retry: Callable[[Turn | None], object] = lambda _: None,
    hold: Hold | None = None,
) -> bool:
    """Write a table's metadata file as `edit` has it and make it the current one; whether there was something to change.

    Where the table moves on meanwhile, `edit` is asked again, after `before_retry`, with what the metadata is then. That one
    gets the turn, once it has come to that.

    Raises:
        TableNotFound: the table has been dropped.
        MetadataConflict: others were quicker in all tries.
        LeaseLost: `hold` ran out.
        StorageError: an object cannot be read or written; and what `edit` raises.
    """

    def attempt(number: int, turn: Turn | None) -> bool:
        if number:
            before_retry(turn)
        with snapshot_commit.metadata_lock(registry, table_id):
            state = snapshots.pending(registry, table_id, with_files=False)
            try:
                return _try(registry, state, edit, hold, turn)
            except Held as held:  # with what is known of the hold then, it may go on
                raise Conflict(str(held)) from held

    table = snapshots.goal(registry, table_id, with_files=False).table
    return committed(registry, table, "change it", attempt)


def preview(registry: Registry, table_id: int, edit: Edit) -> None:
    """Ask `edit` what it would do, and do nothing. Raises as `change`."""
    state = snapshots.pending(registry, table_id, with_files=False)
    document, _ = snapshot_commit.next_document(registry, state)
    edit(state.table, document, state.now)


def _try(registry: Registry, state: Pending, edit: Edit, hold: Hold | None, turn: Turn | None) -> bool:
    document, superseded = snapshot_commit.next_document(registry, state)
    wanted = edit(state.table, document, state.now)
    if wanted is None:
        return False
    with intents.declared(registry, state.table, "flush") as intent:
        now_ms = epoch_ms(state.now)
        document = {**wanted.document, "last-updated-ms": max(now_ms, wanted.document["last-updated-ms"])}
        made = snapshot_commit.write_metadata(
            registry, state, intent, document, [*superseded, *wanted.superseded], left=wanted.left, hold=hold
        )
        lease = None if hold is None else hold.lease
        snapshots.commit(registry, state.table, intent, made, "manual", also=wanted.also, hold=lease, turn=turn)
    return True
