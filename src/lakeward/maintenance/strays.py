"""Strays: what query engines left below a table's folder when their commits failed. Nothing but a listing can find it.

What stands in the folder of a write or a flush of Lakeward's own is none of it: that is recovery's.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec

from lakeward.errors import LakewardError
from lakeward.iceberg import manifest_lists, manifests, metadata
from lakeward.logs import log
from lakeward.maintenance.repair import read_or_note
from lakeward.registry import Registry
from lakeward.storage.engine import ObjectInfo, StorageEngine
from lakeward.storage.locations import is_of_a_write
from lakeward.sums import Sum
from lakeward.tables import retirement, tables
from lakeward.tables.records.tables import Table

STRAY_SECONDS = 7 * 86_400.0  # no engine takes longer from a file to its commit
BATCH = 1_000  # objects that one transaction sends to quarantine


class Strays(Sum, frozen=True):
    """What was found. Sizes in bytes."""

    objects: int = 0
    bytes: int = 0
    failed: list[str] = msgspec.field(
        default_factory=list
    )  # folders of tables that could not be looked through; the next clean-up tries again


def quarantine(registry: Registry) -> Strays:
    """Send the strays of every table in this handle's warehouse to quarantine."""
    return _of_all(registry, dry_run=False)


def find(registry: Registry) -> Strays:
    """What `quarantine` would take now."""
    return _of_all(registry, dry_run=True)


def _of_all(registry: Registry, *, dry_run: bool) -> Strays:
    total = Strays()
    for table in tables.every(registry):
        try:
            found = of_table(registry, table)
            taken = found if dry_run else _quarantined(registry, table, found)
        except LakewardError as error:
            log.warning("strays_not_looked_for", location=table.location, error=str(error), code=error.code)
            total += Strays(failed=[table.location])
        else:
            total += Strays(len(taken), sum(each.size for each in taken))
    return total


def of_table(registry: Registry, table: Table) -> list[ObjectInfo]:
    """Objects below a table's folder that are older than a week, and that neither the registry nor metadata names.

    A table whose metadata cannot be read whole has none: what it would name is not known.

    Raises StorageError: the storage does not answer.
    """
    before = datetime.now(UTC) - timedelta(seconds=STRAY_SECONDS)
    engine = registry.engine(table.location)
    old = {
        info.location: info
        for info in engine.list(table.location + "/")
        if info.modified < before and not is_of_a_write(table.location, info.location)
    }
    if not old:
        return []
    # After the listing, so that what was registered meanwhile is among what is looked up.
    named, current = retirement.named(registry, table, old)
    if current is None:
        return []
    unreadable: list[str] = []
    if current.metadata_location is not None:
        named |= reached(engine, current.metadata_location, unreadable)
    if unreadable:
        log.warning("strays_not_looked_for", location=table.location, unreadable=unreadable[:3])
        return []
    return [info for location, info in old.items() if location not in named]


def reached(engine: StorageEngine, location: str, unreadable: list[str]) -> set[str]:
    """Every object that a metadata file names, and those that these name, data files too.

    What is gone, or none of its kind, goes into `unreadable`. Raises StorageError: the storage does not answer.
    """
    found = {location}
    document = read_or_note(engine, location, metadata.decode, unreadable) or {}
    found |= {entry["metadata-file"] for entry in document.get("metadata-log", ())}
    for name in ("statistics", "partition-statistics"):
        found |= {entry["statistics-path"] for entry in document.get(name, ())}
    for snapshot in document.get("snapshots", ()):
        listed = snapshot["manifest-list"]
        found.add(listed)
        for row in read_or_note(engine, listed, manifest_lists.read_manifest_list, unreadable) or ():
            if row["manifest_path"] not in found:
                found.add(row["manifest_path"])
                manifest = read_or_note(
                    engine, row["manifest_path"], partial(manifests.read_manifest, file=row), unreadable
                )
                found |= {entry["data_file"]["file_path"] for entry in manifest.entries} if manifest else set()
    return found


def _quarantined(registry: Registry, table: Table, found: list[ObjectInfo]) -> list[ObjectInfo]:
    taken: list[ObjectInfo] = []
    for start in range(0, len(found), BATCH):
        taken += retirement.retire_strays(registry, table, found[start : start + BATCH])
    if taken:
        log.info("strays_in_quarantine", table=str(table.identifier), objects=len(taken), first=taken[0].location)
    return taken
