"""Merging manifests: fewer and larger ones that hold the same files (specification, 'Snapshots', operation 'replace').

Manifests are merged by tiers of size: only those of about one size, once there are many of them. So an entry is written
anew once a tier, and not at every merge, however many snapshots follow; and a manifest list stays about as long as tiers
times the count that makes a merge. Every entry keeps its snapshot, sequence numbers and first row id.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lakeward.iceberg import entries, manifests, metadata, values
from lakeward.iceberg.commit import Built, Read
from lakeward.iceberg.manifests import EXISTING, Layout, Manifest, Record, Written
from lakeward.iceberg.snapshot_writer import SnapshotWriter, Write
from lakeward.tables.records.properties import MANIFEST_COUNT, MANIFEST_MERGE, MANIFEST_SIZE
from lakeward.tables.records.tables import Document


class Rule(msgspec.Struct, frozen=True):
    """When manifests are merged. `target`: bytes of a manifest that is large enough; `count`: how many of a tier are many.

    Iceberg's own default for `count` is 100, since its writers merge while they commit. Here nobody waits for a merge.
    """

    is_enabled: bool = MANIFEST_MERGE.default
    target: int = MANIFEST_SIZE.default
    count: int = MANIFEST_COUNT.default


class Merged(msgspec.Struct, frozen=True):
    """New manifests, written, and what they stand for: (path, first_row_id) of the manifests merged into them."""

    of: frozenset[tuple[str, int | None]]
    rows: list[Record]
    entries: int


def rule_of(properties: Mapping[str, str]) -> Rule:
    """What a table's properties say, under Iceberg's names. Raises InvalidInput: a value is none of its kind."""
    return Rule(MANIFEST_MERGE.of(properties), MANIFEST_SIZE.of(properties), MANIFEST_COUNT.of(properties))


# Which -----------------------------------------------------------------------------------------------------------------
def plan(rows: Sequence[Record], rule: Rule) -> list[list[Record]]:
    """The manifests of a list that are to become one each: of one content and spec, one tier, and near in age."""
    if not rule.is_enabled:
        return []
    full = (members for members in _tiers(rows, rule) if len(members) >= rule.count)
    return [group for members in full for group in _packed(members, rule.target) if len(group) > 1]


def lacking(rows: Sequence[Record], rule: Rule) -> int:
    """How many manifests must come at least before some are merged; very many where none ever are."""
    if not rule.is_enabled:
        return 2**62
    return max(rule.count - max((len(members) for members in _tiers(rows, rule)), default=0), 1)


def _tiers(rows: Sequence[Record], rule: Rule) -> list[list[Record]]:
    tiers: dict[tuple[int, int, int], list[Record]] = defaultdict(list)
    for row in rows:
        if row["manifest_length"] <= rule.target // 2 and row["added_files_count"] + row["existing_files_count"] > 0:
            tiers[row["content"], row["partition_spec_id"], tier(row["manifest_length"], rule)].append(row)
    return list(tiers.values())


def tier(length: int, rule: Rule) -> int:
    """0 for manifests of at most the target's size, 1 for those `count` times smaller, and so on."""
    return int(math.log(max(rule.target / max(length, 1), 1)) / math.log(rule.count))


def _packed(rows: Sequence[Record], target: int) -> list[list[Record]]:
    """In the order of their age, as many together as make up the target: files of one time tend to be asked for together."""
    groups: list[list[Record]] = []
    size = target + 1
    for row in sorted(rows, key=lambda r: (r["min_sequence_number"], r["sequence_number"], r["manifest_path"])):
        if size + row["manifest_length"] > target:
            groups.append([])
            size = 0
        groups[-1].append(row)
        size += row["manifest_length"]
    return groups


# The new manifests -----------------------------------------------------------------------------------------------------
def merge(
    document: Document, groups: Sequence[Sequence[Record]], *, read: Read, write: Write, prefix: str, snapshot_id: int
) -> list[Merged]:
    """Write each group as one manifest below `prefix`; as several if their partitions have types that no one can hold.

    Raises:
        StorageError: a manifest cannot be read; what `read` and `write` raise.
    """
    known = entries.Groups(document)
    out = SnapshotWriter(document, write, prefix, snapshot_id)
    result: list[Merged] = []
    for group in groups:
        made: dict[Any, Written] = {}
        for row in group:
            manifest = manifests.read_manifest(read(row["manifest_path"]), row)
            layout = _layout(known, document["format-version"], row, manifest)
            _add(made.setdefault(layout.encode, Written(layout, content=row["content"])), manifest)
        rows = [out.manifest(written) for written in made.values()]
        counted = sum(len(written.entries) for written in made.values())
        result.append(Merged(frozenset((r["manifest_path"], r.get("first_row_id")) for r in group), rows, counted))
    return result


def _layout(known: entries.Groups, version: int, row: Record, manifest: Manifest) -> Layout:
    """By the current schema, in which partitions may have wider types; as it was, where that lacks the column of one."""
    try:
        layout = known.of(row["partition_spec_id"]).layout
    except ValueError:  # another writer took the spec out of the metadata
        return manifests.layout_of(version, manifest)
    had = {field.key: field.type for field in manifest.fields}
    is_whole = had.keys() == {field.key for field in layout.fields}
    if is_whole and all(f.type != "unknown" or had[f.key] == "unknown" for f in layout.fields):
        return layout
    return manifests.layout_of(version, manifest)


def _add(made: Written, manifest: Manifest) -> None:
    had = {field.key: field.type for field in manifest.fields}
    changed = [(f.key, had[f.key], f.type) for f in made.layout.fields if had[f.key] != f.type]
    for entry in manifests.live(manifest.entries):
        data_file = entry["data_file"]
        partition = data_file["partition"]
        for key, old, new in changed:
            entry.pop("encoded", None)
            partition[key] = values.to_avro(new, values.from_avro(old, partition[key]))
        encoded = manifests.encode_again(made.layout, manifest, entry, EXISTING, entry["snapshot_id"])
        made.add(EXISTING, data_file, encoded, entry["sequence_number"])


# The snapshot ----------------------------------------------------------------------------------------------------------
def fits(merged: Merged, rows: Sequence[Record]) -> bool:
    """Whether a manifest list still has all that was merged: only then may the new manifests stand in their place."""
    return merged.of <= {(row["manifest_path"], row.get("first_row_id")) for row in rows}


def replace(
    document: Document,
    listed: Sequence[Record],
    merged: Sequence[Merged],
    *,
    write: Write,
    prefix: str,
    snapshot_id: int,
) -> Built:
    """A snapshot of the same files that lists merged manifests in place of theirs. It has its parent's time: its rows are
    those of then.

    `listed`: the manifest list of the document's current snapshot; all of `merged` fits it.
    """
    parent = metadata.current_snapshot(document)
    assert parent is not None and all(fits(each, listed) for each in merged)
    gone = {path for each in merged for path, _ in each.of}
    kept = [row for row in listed if row["manifest_path"] not in gone]
    out = SnapshotWriter(document, write, prefix, snapshot_id)
    new = [{**row, "sequence_number": out.sequence_number} for each in merged for row in each.rows]
    summary = {
        "operation": "replace",
        "manifests-created": str(len(new)),
        "manifests-kept": str(len(kept)),
        "manifests-replaced": str(len(gone)),
        "entries-processed": str(sum(each.entries for each in merged)),
        **{key: value for key, value in parent.get("summary", {}).items() if key.startswith("total-")},
    }
    snapshot = out.snapshot([*new, *kept], summary, parent["timestamp-ms"])
    return Built(
        document=metadata.with_snapshot(document, snapshot),
        snapshot=snapshot,
        written=out.written,
        superseded=sorted(gone),
    )
