"""Branches and tags of table metadata (specification, 'Snapshot Retention Policy' and 'Snapshot References')."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lakeward.iceberg.metadata import MAIN, current_snapshot
from lakeward.tables.records.tables import Document, SnapshotRef

_OPTIONS = {
    "min_snapshots_to_keep": "min-snapshots-to-keep",
    "max_snapshot_age_ms": "max-snapshot-age-ms",
    "max_ref_age_ms": "max-ref-age-ms",
}


def refs_of(document: Document) -> list[SnapshotRef]:
    """By name; `main` is there too once the table has a snapshot."""
    refs = dict(document.get("refs") or {})
    current = current_snapshot(document)
    if current is not None:
        refs.setdefault(MAIN, {"snapshot-id": current["snapshot-id"], "type": "branch"})
    return [_ref(name, refs[name]) for name in sorted(refs)]


def _ref(name: str, ref: Mapping[str, object]) -> SnapshotRef:
    options = {field: ref.get(key) for field, key in _OPTIONS.items()}
    return SnapshotRef(name=name, type=ref["type"], snapshot_id=ref["snapshot-id"], **options)  # type: ignore[arg-type]


def with_ref(document: Document, ref: SnapshotRef) -> Document:
    """The metadata with a branch or tag under its name, whatever had that name before."""
    options = {key: getattr(ref, field) for field, key in _OPTIONS.items() if getattr(ref, field) is not None}
    made = {"snapshot-id": ref.snapshot_id, "type": ref.type, **options}
    return {**document, "refs": {**(document.get("refs") or {}), ref.name: made}}


def without_ref(document: Document, name: str) -> Document:
    return {**document, "refs": {k: v for k, v in (document.get("refs") or {}).items() if k != name}}


def snapshots_by_id(document: Document) -> dict[int, Document]:
    return {snapshot["snapshot-id"]: snapshot for snapshot in document.get("snapshots") or ()}


def ancestors(by_id: Mapping[int, Document], snapshot_id: int) -> Iterator[Document]:
    """A snapshot and its parents, newest first, as far as they are still there."""
    found = by_id.get(snapshot_id)
    while found is not None:
        yield found
        found = by_id.get(found.get("parent-snapshot-id", -1))
