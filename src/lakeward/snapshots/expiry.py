"""Expiry: old snapshots leave a table's metadata; what they alone reached goes with the next clean-up."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from lakeward.db.types import epoch_ms
from lakeward.errors import InvalidInput, LeaseHeld
from lakeward.iceberg import expiry
from lakeward.logs import log
from lakeward.registry import Registry
from lakeward.snapshots.metadata_change import Change, change, preview
from lakeward.tables import compaction
from lakeward.tables.records.tables import Document, Table
from lakeward.tables.tables import Which, table_of


class ExpireResult(msgspec.Struct, frozen=True):
    snapshots: list[int] = []  # ids of those that expired, oldest first
    refs: list[str] = []  # branches and tags that were too old themselves
    retained: int = 0  # snapshots that stay


def expire(
    registry: Registry,
    name: Which,
    older_than: datetime | timedelta | None = None,
    keep: int | None = None,
    *,
    dry_run: bool = False,
) -> ExpireResult:
    """Take snapshots out of the metadata that are older than `older_than` and not among the newest `keep` of a branch.

    Without arguments, the table's history.expire.* properties say what is old (Iceberg's defaults: 5 days, the newest one is
    kept). Branches and tags are respected, with ages and counts of their own. No file is deleted: `clean` does that, once a
    file's quarantine is over and no retained snapshot reaches it.

    Args:
        older_than: a time, or an age by the registry's clock.
        dry_run: only say what would expire.

    Raises:
        InvalidInput: a naive time, `keep` below 1, or a property that is no number.
        LeaseHeld: somebody holds the table, such as a rollback, which may go to a snapshot that is old.
        MetadataConflict, StorageError, TableNotFound.
    """
    table = table_of(registry, name)
    if isinstance(older_than, datetime) and older_than.tzinfo is None:
        raise InvalidInput(f"older_than={older_than.isoformat()} has no zone; give an aware time")
    if keep is not None and keep < 1:
        raise InvalidInput(f"keep={keep}: the newest snapshot always stays; give 1 or more")
    result = ExpireResult()

    def edit(table: Table, document: Document, now: datetime) -> Change | None:
        nonlocal result
        before = now - older_than if isinstance(older_than, timedelta) else older_than
        found = expiry.find_expired(
            document, epoch_ms(now), older_than_ms=None if before is None else epoch_ms(before), keep=keep
        )
        gone = [snapshot["snapshot-id"] for snapshot in found.snapshots]
        result = ExpireResult(gone, found.refs, len(document.get("snapshots") or ()) - len(gone))
        if found.is_empty:
            return None
        if not dry_run and compaction.is_held(registry, table):
            raise LeaseHeld(
                f"{table.identifier} is held, by a rollback perhaps: expire its snapshots when that is over"
            )
        return Change(expiry.without(document, found), left=tuple(found.snapshots))

    if dry_run:
        preview(registry, table.table_id, edit)
    elif change(registry, table.table_id, edit):
        log.info("snapshots_expired", table=str(table.identifier), snapshots=len(result.snapshots), refs=result.refs)
    return result
