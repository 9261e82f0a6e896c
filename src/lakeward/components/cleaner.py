"""The clean-up: quarantine that is over, temporary files, and tables that were dropped long enough ago."""

from __future__ import annotations

import msgspec
import structlog

from lakeward.components import recovery
from lakeward.errors import LakewardError, StorageError
from lakeward.model.tables import Table
from lakeward.registry import Registry, retirement
from lakeward.store import dialect, footers, intents, retired, tables

log = structlog.get_logger()


class CleanResult(msgspec.Struct, frozen=True):
    """Sizes in bytes."""

    files: int = 0  # deleted out of quarantine
    footers: int = 0
    bytes: int = 0
    temporary: int = 0  # objects of writes that were given up
    tables: int = 0  # dropped ones that are gone for good
    failed: list[str] = []  # locations that could not be deleted; the next clean-up tries again


def clean(registry: Registry) -> CleanResult:
    """Delete what nobody can need any more in this handle's warehouse.

    A death at any point leaves nothing that the next clean-up does not take up.
    """
    swept = recovery.recover(registry)
    ended = retirement.end_quarantine(registry)
    gone, failed = 0, [*swept.failed, *ended.failed]
    for table in _dropped(registry):
        try:
            gone += _forget(registry, table)
        except LakewardError as error:
            log.warning("table_not_deleted", location=table.location, error=str(error), code=error.code)
            failed.append(table.location)
    return CleanResult(
        files=ended.files,
        footers=ended.footers,
        bytes=ended.bytes,
        temporary=swept.objects,
        tables=gone,
        failed=failed,
    )


def purge(registry: Registry, table: Table) -> None:
    """Delete the files of a table that was dropped with `purge`, now. What cannot be deleted is left to `clean`."""
    retirement.end_quarantine(registry, table.table_id)
    try:
        _forget(registry, table)
    except StorageError as error:
        log.warning("purge_left_to_clean", location=table.location, error=str(error), code=error.code)


def _dropped(registry: Registry) -> list[Table]:
    with registry.database.read() as connection:
        return tables.dropped_before(connection, registry.below, dialect.now(connection))


def _forget(registry: Registry, table: Table) -> bool:
    """End a dropped table whose files are gone: its folder first, then its rows.

    While a write of it may still be under way somewhere, its rows stay, so that recovery finds the write's prefix.
    """
    with registry.database.read() as connection:
        if retired.any_of_table(connection, table.table_id):
            return False
    prefix = table.location + "/"
    registry.engine(prefix).delete_prefix(prefix)  # metadata and manifests, in the folder that is this table's alone
    with registry.database.transaction() as connection:
        if intents.any_of_table(connection, table.table_id):
            return False
        footers.delete_of_table(connection, table.table_id)
        tables.delete(connection, table.table_id)
    return True
