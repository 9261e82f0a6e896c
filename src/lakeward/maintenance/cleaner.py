"""The clean-up: quarantine that is over, temporary files, what engines left, and tables and topics that are gone long enough."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from lakeward.astha import feed
from lakeward.errors import LakewardError, StorageError
from lakeward.log import topics
from lakeward.log.records import Topic
from lakeward.logs import log
from lakeward.maintenance import recovery, strays
from lakeward.registry import Registry
from lakeward.tables import retirement, tables
from lakeward.tables.records.tables import Table
from lakeward.tables.tables import Which


class CleanResult(msgspec.Struct, frozen=True):
    """Sizes in bytes."""

    files: int = 0  # deleted out of quarantine
    footers: int = 0
    bytes: int = 0
    temporary: int = 0  # objects of writes that were given up
    strays: int = 0  # objects that engines left, and that are in quarantine now
    tables: int = 0  # dropped ones that are gone for good
    topics: int = 0  # the same of deleted topics
    changes: int = 0  # rows of the feed that nobody waits for
    failed: list[str] = []  # locations that could not be deleted or looked through; the next clean-up tries again


def clean(registry: Registry, *, dry_run: bool = False) -> CleanResult:
    """Delete what nobody can need any more in this handle's warehouse: what has been in quarantine for its time and no snapshot
    reaches, and what dead writers left.

    A death at any point leaves nothing that the next clean-up does not take up.

    Args:
        dry_run: only say what would go; footers and changes are then not counted. A table or topic goes in the clean-up after
            its files.
    """
    if dry_run:
        return _due(registry)
    swept = recovery.recover(registry)
    _end_uploads(registry)
    left = strays.quarantine(registry)
    superseded, others = retirement.end_metadata_quarantine(registry), retirement.end_quarantine(registry)
    going: list[Table | Topic] = [*tables.due(registry), *topics.due(registry)]
    gone: list[Table | Topic] = []
    failed = list(dict.fromkeys([*swept.failed, *left.failed, *superseded.failed, *others.failed]))
    for each in going:
        try:
            if _forget(registry, each):
                gone.append(each)
        except LakewardError as error:
            log.warning("folder_not_deleted", location=each.location, error=str(error), code=error.code)
            failed.append(each.location)
    return CleanResult(
        files=superseded.files + others.files,
        footers=others.footers,
        bytes=superseded.bytes + others.bytes,
        temporary=swept.objects,
        strays=left.objects,
        tables=sum(isinstance(each, Table) for each in gone),
        topics=sum(isinstance(each, Topic) for each in gone),
        changes=feed.trim(registry),
        failed=failed,
    )


def _due(registry: Registry) -> CleanResult:
    dead, over = recovery.expired(registry), retirement.quarantine_over(registry)
    return CleanResult(
        files=over.files,
        bytes=over.bytes,
        temporary=dead.objects,
        strays=strays.find(registry).objects,
        tables=len(tables.due(registry)),
        topics=len(topics.due(registry)),
    )


UPLOAD_SECONDS = 7 * 86_400.0  # no file takes longer to be written


def _end_uploads(registry: Registry) -> None:
    """Those that a lost executor has left in the folder of a write that was registered all the same, whose prefix nobody
    sweeps."""
    try:
        ended = registry.engine(registry.below).end_uploads(
            registry.below, datetime.now(UTC) - timedelta(seconds=UPLOAD_SECONDS)
        )
    except LakewardError as error:
        log.warning("uploads_not_ended", prefix=registry.below, error=str(error), code=error.code)
        return
    if ended:
        log.info("uploads_ended", prefix=registry.below, uploads=ended)


def drop(registry: Registry, name: Which, purge: bool = False) -> Table:
    """Drop a table; its files wait in quarantine. With `purge` they are deleted now; what cannot be is left to `clean`.

    Raises TableNotFound, InvalidName.
    """
    table = tables.drop(registry, name, purge=purge)
    if purge:
        retirement.end_quarantine(registry, table.table_id)
        try:
            _forget(registry, table)
        except StorageError as error:
            log.warning("purge_left_to_clean", location=table.location, error=str(error), code=error.code)
    return table


def _forget(registry: Registry, owner: Table | Topic) -> bool:
    """End a dropped table, or a deleted topic, whose files are gone: its folder first, then its rows."""
    if retirement.has_retired(registry, owner):
        return False
    prefix = owner.location + "/"
    registry.engine(prefix).delete_prefix(prefix)  # metadata and manifests, in the folder that is this owner's alone
    return topics.forget(registry, owner) if isinstance(owner, Topic) else tables.forget(registry, owner)
