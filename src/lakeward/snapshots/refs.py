"""Branches and tags: names for snapshots. What has a name does not expire before its name does."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from lakeward import validation
from lakeward.errors import InvalidInput, InvalidName, RefAlreadyExists, RefNotFound, SnapshotNotFound
from lakeward.iceberg import refs
from lakeward.iceberg.metadata import MAIN
from lakeward.names import check_level
from lakeward.registry import Registry
from lakeward.snapshots.metadata_change import Change, change
from lakeward.snapshots.metadata_objects import read_document
from lakeward.snapshots.snapshot_commit import flush
from lakeward.tables import tables
from lakeward.tables.records.properties import INT, LONG
from lakeward.tables.records.tables import Document, SnapshotRef, Table
from lakeward.tables.tables import Which, table_of

CURRENT = -1  # as a snapshot's id: the current one, with all that is pending


def list_refs(registry: Registry, name: Which) -> list[SnapshotRef]:
    """The branches and tags of a table by name, `main` among them once there is a snapshot. Raises TableNotFound, InvalidName."""
    table = table_of(registry, name)
    document = read_document(registry, table)
    return [] if document is None else refs.refs_of(document)


def create_tag(
    registry: Registry,
    name: Which,
    tag: str,
    snapshot_id: int | None = None,
    *,
    max_age: timedelta | None = None,
    replace: bool = False,
) -> SnapshotRef:
    """Give a snapshot a name, without `snapshot_id` the table as it is now (what is pending becomes a snapshot). Again with the
    same changes nothing.

    It does not expire while the tag is there. `max_age`: an expiry drops the tag once its snapshot is older.

    Raises:
        SnapshotNotFound: there is no such snapshot (any more).
        RefAlreadyExists: the name is another one's, and `replace` is false.
        InvalidName: an empty name, `main`, or digits alone, which look like a snapshot's id.
        InvalidInput: an age or a count below 1, or above what Iceberg holds.
        TableNotFound.
    """
    wanted = CURRENT if snapshot_id is None else snapshot_id
    ref = SnapshotRef(name=tag, type="tag", snapshot_id=wanted, max_ref_age_ms=_milliseconds(max_age))
    return _create(registry, table_of(registry, name), ref, replace)


def create_branch(
    registry: Registry,
    name: Which,
    branch: str,
    snapshot_id: int | None = None,
    *,
    max_age: timedelta | None = None,
    keep: int | None = None,
    max_snapshot_age: timedelta | None = None,
    replace: bool = False,
) -> SnapshotRef:
    """As `create_tag`, for a branch. Of its ancestors, an expiry leaves the newest `keep` and those up to an age.

    Raises as `create_tag`.
    """
    ref = SnapshotRef(
        name=branch,
        type="branch",
        snapshot_id=CURRENT if snapshot_id is None else snapshot_id,
        min_snapshots_to_keep=keep,
        max_snapshot_age_ms=_milliseconds(max_snapshot_age),
        max_ref_age_ms=_milliseconds(max_age),
    )
    return _create(registry, table_of(registry, name), ref, replace)


def _milliseconds(age: timedelta | None) -> int | None:
    return None if age is None else age // timedelta(milliseconds=1)


def _create(registry: Registry, table: Table, ref: SnapshotRef, replace: bool) -> SnapshotRef:
    ref = _checked(ref)
    is_current = ref.snapshot_id == CURRENT
    if is_current:
        flush(registry, table.table_id, "manual")
    made = ref

    def edit(found: Table, document: Document, _: datetime) -> Change | None:
        nonlocal made
        wanted = document.get("current-snapshot-id") if is_current else ref.snapshot_id
        if wanted not in refs.snapshots_by_id(document):
            raise SnapshotNotFound(_no_snapshot(found, ref.snapshot_id, is_current))
        made = msgspec.structs.replace(ref, snapshot_id=wanted)
        there = next((each for each in refs.refs_of(document) if each.name == ref.name), None)
        if there == made:
            return None
        if there is not None and not replace:
            raise RefAlreadyExists(
                f"{found.identifier} has a {there.type} {ref.name!r} of snapshot {there.snapshot_id}; choose another name, "
                "or replace it"
            )
        return Change(refs.with_ref(document, made))

    change(registry, table.table_id, edit)
    return made


def drop_tag(registry: Registry, name: Which, tag: str) -> SnapshotRef:
    """Take a tag away; its snapshot stays until it expires. Raises RefNotFound, TableNotFound."""
    return _drop(registry, table_of(registry, name), tag, "tag")


def drop_branch(registry: Registry, name: Which, branch: str) -> SnapshotRef:
    """Take a branch away; its snapshots stay until they expire. Raises RefNotFound, InvalidName (of main), TableNotFound."""
    return _drop(registry, table_of(registry, name), branch, "branch")


def _drop(registry: Registry, table: Table, name: str, type: str) -> SnapshotRef:
    _check_not_main(name)
    dropped: SnapshotRef | None = None

    def edit(found: Table, document: Document, _: datetime) -> Change | None:
        nonlocal dropped
        dropped = find(found, document, name)
        if dropped.type != type:
            raise RefNotFound(f"{name!r} of {found.identifier} is a {dropped.type}, not a {type}")
        return Change(refs.without_ref(document, name))

    change(registry, table.table_id, edit)
    assert dropped is not None
    return dropped


def find(table: Table, document: Document, name: str) -> SnapshotRef:
    """A branch or tag by its name. Raises RefNotFound."""
    named = refs.refs_of(document)
    found = next((ref for ref in named if ref.name == name), None)
    if found is None:
        there = ", ".join(ref.name for ref in named) or "no names at all"
        raise RefNotFound(f"{table.identifier} has no branch or tag {name!r}; it has {there}")
    return found


def snapshot_of(registry: Registry, table: Table, name: str) -> int:
    """The snapshot that a branch or tag names. Raises RefNotFound."""
    current = tables.load_by_id(registry, table.table_id)
    return find(current, read_document(registry, current) or {}, name).snapshot_id


def _checked(ref: SnapshotRef) -> SnapshotRef:
    check_level(ref.name, ref.type)
    _check_not_main(ref.name)
    if ref.name.isdecimal():
        raise InvalidName(f"{ref.type} {ref.name!r} looks like a snapshot's id; use a name with a letter in it")
    numbers = {
        option: validation.whole_or_none(getattr(ref, option), f"{option} of {ref.type} {ref.name!r}:", 1, most)
        for option, most in (("min_snapshots_to_keep", INT), ("max_snapshot_age_ms", LONG), ("max_ref_age_ms", LONG))
    }
    if ref.type == "tag" and (ref.min_snapshots_to_keep is not None or ref.max_snapshot_age_ms is not None):
        raise InvalidInput(f"tag {ref.name!r} names one snapshot: only a branch has others to keep")
    return msgspec.structs.replace(ref, **numbers)


def _check_not_main(name: str) -> None:
    if name == MAIN:
        raise InvalidName(f"{name!r} is the branch that every table has; it is moved by writes and by a rollback alone")


def _no_snapshot(table: Table, snapshot_id: int, is_current: bool) -> str:
    if is_current:
        return f"{table.identifier} has no snapshot yet: append to it first"
    return f"{table.identifier} has no snapshot {snapshot_id}; `lakeward snapshots list {table.identifier}` shows what it has"
