"""The objects of one new snapshot: its manifests and their list, written below a prefix, and its document."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from uuid import uuid4

import msgspec

from lakeward.iceberg import manifest_lists, manifests, metadata
from lakeward.iceberg.manifests import Record, Written
from lakeward.tables.records.tables import Document

Write = Callable[[str, bytes], None]


def fresh_id(document: Document) -> int:
    """An id that no snapshot of the metadata has."""
    taken = {s["snapshot-id"] for s in document.get("snapshots") or ()}
    while True:
        new = secrets.randbits(63)
        if new and new not in taken:
            return new


class SnapshotWriter(msgspec.Struct):
    """`document`: the metadata to which the snapshot is to be added. `written`: locations, in order."""

    document: Document
    write: Write
    prefix: str  # ends in '/'
    snapshot_id: int
    uuid: str = msgspec.field(default_factory=lambda: str(uuid4()))
    written: list[str] = []

    @property
    def sequence_number(self) -> int:
        return int(self.document["last-sequence-number"]) + 1

    def _put(self, name: str, data: bytes) -> str:
        location = self.prefix + name
        self.write(location, data)
        self.written.append(location)
        return location

    def manifest(self, made: Written) -> Record:
        """Write a manifest; its row in the manifest list."""
        data = manifests.manifest_bytes(made)
        location = self._put(f"{self.uuid}-m{len(self.written)}.avro", data)
        return manifest_lists.manifest_file(made, location, len(data), self.snapshot_id, self.sequence_number)

    def snapshot(self, rows: list[Record], summary: Mapping[str, str], timestamp_ms: int) -> Document:
        """Write the manifest list; the document of the snapshot, whose parent is the current one.

        `timestamp_ms` is raised to the last snapshot's time if it is before it.
        """
        document, version = self.document, self.document["format-version"]
        parent = metadata.current_snapshot(document)
        parent_id = None if parent is None else parent["snapshot-id"]
        first_row_id = document.get("next-row-id", 0) if version >= 3 else None
        snapshot: Document = {"snapshot-id": self.snapshot_id, "sequence-number": self.sequence_number}
        if parent_id is not None:
            snapshot["parent-snapshot-id"] = parent_id
        if first_row_id is not None:
            snapshot["first-row-id"] = first_row_id
            snapshot["added-rows"] = manifest_lists.assign_row_ids(rows, first_row_id) - first_row_id
        data = manifest_lists.manifest_list_bytes(
            version, rows, self.snapshot_id, parent_id, self.sequence_number, first_row_id
        )
        return {
            **snapshot,
            "timestamp-ms": metadata.snapshot_time(document, timestamp_ms),
            "summary": dict(summary),
            "manifest-list": self._put(f"snap-{self.snapshot_id}-1-{self.uuid}.avro", data),
            "schema-id": document["current-schema-id"],
        }
