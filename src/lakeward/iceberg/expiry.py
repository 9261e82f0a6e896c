"""Which snapshots may leave a table's metadata (specification, 'Snapshot Retention Policy').

A branch keeps its newest snapshots by count and by age, a tag its one; a branch or tag other than main goes by its own age.
Snapshots that no branch reaches, such as those that a rollback left, go by age alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lakeward.errors import InvalidInput
from lakeward.iceberg import metadata, refs
from lakeward.tables.records.properties import MAX_REF_AGE, MAX_SNAPSHOT_AGE, MIN_SNAPSHOTS
from lakeward.tables.records.tables import Document, SnapshotRef

DEFAULT_MAX_SNAPSHOT_AGE_MS = 432_000_000  # Iceberg's: 5 days
DEFAULT_MIN_SNAPSHOTS = 1


class Expired(msgspec.Struct, frozen=True):
    """What an expiry takes out: snapshots (oldest first) and names."""

    snapshots: list[Document]
    refs: list[str]

    @property
    def is_empty(self) -> bool:
        return not (self.snapshots or self.refs)


def find_expired(
    document: Document, now_ms: int, *, older_than_ms: int | None = None, keep: int | None = None
) -> Expired:
    """What expires now.

    Args:
        older_than_ms: a time; without it, now less the table's history.expire.max-snapshot-age-ms (5 days).
        keep: of each branch at least so many; without it, history.expire.min-snapshots-to-keep (1). A branch's own settings
            come before both.

    Raises:
        InvalidInput: a property is no number.
    """
    properties, by_id = document["properties"], refs.snapshots_by_id(document)
    age = MAX_SNAPSHOT_AGE.of(properties)
    before = (
        older_than_ms if older_than_ms is not None else now_ms - (DEFAULT_MAX_SNAPSHOT_AGE_MS if age is None else age)
    )
    least = keep if keep is not None else MIN_SNAPSHOTS.of(properties) or DEFAULT_MIN_SNAPSHOTS
    ref_age = MAX_REF_AGE.of(properties)
    named = refs.refs_of(document)
    gone = [ref.name for ref in named if _is_old(ref, by_id, now_ms, ref_age)]
    staying = [ref for ref in named if ref.name not in gone]
    kept: set[int] = set()
    reached: set[int] = set()
    for ref in staying:
        kept |= _kept_by(ref, by_id, now_ms, before, least)
        reached |= {s["snapshot-id"] for s in refs.ancestors(by_id, ref.snapshot_id)}
    kept |= {i for i, s in by_id.items() if i not in reached and s["timestamp-ms"] >= before}
    return Expired([s for i, s in by_id.items() if i not in kept], gone)


def _is_old(ref: SnapshotRef, by_id: Mapping[int, Document], now_ms: int, table_age_ms: int | None) -> bool:
    if ref.name == metadata.MAIN:
        return False
    age = table_age_ms if ref.max_ref_age_ms is None else ref.max_ref_age_ms
    return ref.snapshot_id not in by_id or (age is not None and now_ms - by_id[ref.snapshot_id]["timestamp-ms"] > age)


def _kept_by(ref: SnapshotRef, by_id: Mapping[int, Document], now_ms: int, before: int, least: int) -> set[int]:
    if ref.type == "tag":
        return {ref.snapshot_id}
    if ref.max_snapshot_age_ms is not None:
        before = now_ms - ref.max_snapshot_age_ms
    if ref.min_snapshots_to_keep is not None:
        least = ref.min_snapshots_to_keep
    kept: set[int] = set()
    for snapshot in refs.ancestors(by_id, ref.snapshot_id):
        if len(kept) >= max(least, 1) and snapshot["timestamp-ms"] < before:
            break
        kept.add(snapshot["snapshot-id"])
    return kept


def without(document: Document, expired: Expired) -> Document:
    """The metadata after an expiry."""
    for name in expired.refs:
        document = refs.without_ref(document, name)
    return metadata.without_snapshots(document, {s["snapshot-id"] for s in expired.snapshots})


def protected(document: Document, now_ms: int) -> set[int]:
    """Ids of snapshots that the table's properties, or a branch's own settings, ask to keep in so many words.

    The limit on how many the metadata file holds does not touch them. A property that is no number protects nothing.
    """
    properties, by_id = document.get("properties") or {}, refs.snapshots_by_id(document)
    try:
        age, least = MAX_SNAPSHOT_AGE.of(properties), MIN_SNAPSHOTS.of(properties)
    except InvalidInput:
        age = least = None
    result: set[int] = set()
    for ref in refs.refs_of(document):
        asks = (age, least, ref.max_snapshot_age_ms, ref.min_snapshots_to_keep)
        if ref.type == "branch" and any(each is not None for each in asks):
            result |= _kept_by(ref, by_id, now_ms, now_ms + 1 if age is None else now_ms - age, least or 1)
    return result
