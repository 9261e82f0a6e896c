"""Merged manifests: the same files, judged by PyIceberg and DuckDB, and few of them however many commits there were."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeward.errors import InvalidInput
from lakeward.iceberg import (
    commit,
    entries,
    evolution,
    manifest_lists,
    manifests,
    merging,
    metadata,
    partitions,
    snapshot_writer,
)
from lakeward.iceberg.merging import Rule
from lakeward.tables.records.files import partition_key
from tests.unit.iceberg.tables import LocalTable, registered

FEW = Rule(count=2)
KEPT = ("snapshot_id", "sequence_number", "file_sequence_number")


def listed(table: LocalTable) -> list[dict[str, Any]]:
    current = metadata.current_snapshot(table.document)
    assert current is not None
    return manifest_lists.read_manifest_list(table.read(current["manifest-list"]))


def live_entries(table: LocalTable) -> dict[str, dict[str, Any]]:
    found = [e for row in listed(table) for e in manifests.read_manifest(table.read(row["manifest_path"]), row).entries]
    return {e["data_file"]["file_path"]: e for e in manifests.live(found)}


def write_merged(table: LocalTable, rule: Rule = FEW) -> tuple[list[merging.Merged], int]:
    snapshot_id = snapshot_writer.fresh_id(table.document)
    groups = merging.plan(listed(table), rule)
    made = merging.merge(
        table.document, groups, read=table.read, write=table.write, prefix=table.prefix, snapshot_id=snapshot_id
    )
    return made, snapshot_id


def merge(table: LocalTable, rule: Rule = FEW) -> commit.Built:
    made, snapshot_id = write_merged(table, rule)
    replaced = merging.replace(
        table.document, listed(table), made, write=table.write, prefix=table.prefix, snapshot_id=snapshot_id
    )
    table.document = replaced.document
    return replaced


def longs(*numbers: int) -> pa.Table:
    return pa.table({"a": pa.array(numbers, pa.int64())})


@pytest.mark.parametrize("version", [2, 3])
def test_engines_read_the_same_rows_and_every_entry_keeps_its_numbers(tmp_path: Path, version: int) -> None:
    table = LocalTable(tmp_path, {"a": "long"}, ["truncate(10, a)"], version=version)
    for n in range(5):
        table.build([table.parquet(longs(n, n + 1), {1000: 0}), table.parquet(longs(10 + n), {1000: 10})])
    gone = live_entries(table)
    table.build(removed=[min(gone)])
    before, rows = live_entries(table), sorted(table.pyiceberg().scan().to_arrow()["a"].to_pylist())
    replaced = merge(table)
    (row,) = listed(table)
    after = live_entries(table)
    assert after.keys() == before.keys()
    for path, entry in after.items():
        assert entry["status"] == manifests.EXISTING
        assert [entry[key] for key in KEPT] == [before[path][key] for key in KEPT]
        assert entry["data_file"] == before[path]["data_file"]
    assert (row["added_files_count"], row["existing_files_count"], row["existing_rows_count"]) == (0, 9, len(rows))
    assert row["min_sequence_number"] == min(entry["sequence_number"] for entry in before.values())
    assert len(replaced.superseded) == 5
    assert sorted(table.pyiceberg().scan().to_arrow()["a"].to_pylist()) == rows
    assert sorted(a for (a,) in table.duckdb("select a from t")) == rows
    assert table.duckdb("select a from t where a >= 12 order by a") == [(12,), (13,), (14,)]
    assert sorted(table.pyiceberg().scan("a < 10").to_arrow()["a"].to_pylist()) == [a for a in rows if a < 10]


def test_the_snapshot_says_that_nothing_changed_and_has_its_parents_time(tmp_path: Path) -> None:
    table = LocalTable(tmp_path, {"a": "int"})
    table.build([registered("/x/1", row_count=3)])
    parent = table.build([registered("/x/2", row_count=4)], timestamp_ms=2_000_000_000_000).snapshot
    assert parent is not None
    snapshot = merge(table).snapshot
    assert snapshot is not None
    assert snapshot["summary"] == {
        "operation": "replace",
        "manifests-created": "1",
        "manifests-kept": "0",
        "manifests-replaced": "2",
        "entries-processed": "2",
        **{key: value for key, value in parent["summary"].items() if key.startswith("total-")},
    }
    assert snapshot["summary"]["total-records"] == "7"
    assert (snapshot["parent-snapshot-id"], snapshot["sequence-number"]) == (parent["snapshot-id"], 3)
    assert snapshot["timestamp-ms"] == parent["timestamp-ms"]
    judge = table.pyiceberg()
    assert [s.snapshot_id for s in judge.snapshots()] == [s["snapshot-id"] for s in table.document["snapshots"]]


def test_row_ids_of_version_3_stay_those_of_their_rows_and_new_rows_get_others(tmp_path: Path) -> None:
    table = LocalTable(tmp_path, {"a": "int"}, version=3)
    for n in (3, 5, 7):
        table.build([registered(f"/x/{n}", row_count=n), registered(f"/y/{n}", row_count=n)])
    before = {path: entry["data_file"]["first_row_id"] for path, entry in live_entries(table).items()}
    snapshot = merge(table).snapshot
    assert snapshot is not None
    assert {path: entry["data_file"]["first_row_id"] for path, entry in live_entries(table).items()} == before
    assert table.document["next-row-id"] == snapshot["first-row-id"] + snapshot["added-rows"]
    new = table.build([registered("/x/9", row_count=9)])
    assert new.first_row_ids["/x/9"] >= max(before.values()) + 7
    merge(table)
    assert len(live_entries(table)) == 7
    assert live_entries(table)["/x/9"]["data_file"]["first_row_id"] == new.first_row_ids["/x/9"]


def test_manifests_of_different_specs_and_contents_stay_apart(tmp_path: Path) -> None:
    table = LocalTable(tmp_path, {"a": "long"})
    for n in range(3):
        table.build([table.parquet(longs(n))])
    table.evolve(table.schema, partitions.evolved_spec(["truncate(10, a)"], table.schema, [table.spec], 999)[0])
    for n in range(10, 13):
        table.build([table.parquet(longs(n), {1000: 10})])
    merge(table)
    assert sorted((row["partition_spec_id"], row["existing_files_count"]) for row in listed(table)) == [(0, 3), (1, 3)]
    assert sorted(table.pyiceberg().scan().to_arrow()["a"].to_pylist()) == [0, 1, 2, 10, 11, 12]
    assert table.duckdb("select a from t where a > 10 order by a") == [(11,), (12,)]


@pytest.mark.parametrize(
    ("before", "after", "values"),
    [
        ("int", "long", [1, -2]),
        ("decimal(9, 2)", "decimal(20, 2)", [Decimal("1.50"), Decimal("-7.25")]),
        ("float", "double", [1.5, -2.25]),
    ],
)
def test_partitions_of_a_column_that_was_widened_are_merged_as_the_wider_type(
    tmp_path: Path, before: str, after: str, values: list[Any]
) -> None:
    table = LocalTable(tmp_path, {"a": before}, ["a"])

    def file(number: int) -> Any:
        shown = str(values[number]) if before.startswith("decimal") else values[number]
        data = pa.table({"a": pa.array([values[number]])})
        return table.parquet(data, {1000: shown})

    first = file(0)
    table.build([first])
    schema = evolution.widen_column(table.schema, "a", after)
    table.evolve({**schema, "schema-id": 1}, schema_version=1)
    table.build([file(1)])
    table.build([file(0)])
    assert len(listed(table)) == 3
    merge(table)
    assert len(listed(table)) == 1
    assert sorted(table.pyiceberg().scan().to_arrow()["a"].to_pylist()) == sorted([*values, values[0]])
    assert sorted(table.duckdb("select a from t")) == sorted([(v,) for v in (*values, values[0])])
    assert table.pyiceberg().scan(f"a = {values[0]}").to_arrow()["a"].to_pylist() == [values[0]] * 2
    assert table.pyiceberg().scan(f"a = {values[1]}").to_arrow()["a"].to_pylist() == [values[1]]


def test_partitions_of_a_column_that_is_gone_keep_their_values(tmp_path: Path) -> None:
    table = LocalTable(tmp_path, {"a": "long", "b": "string"}, ["b"])
    for n, b in enumerate(("x", "y", None)):
        data = pa.table({"a": pa.array([n], pa.int64()), "b": pa.array([b], pa.string())})
        table.build([table.parquet(data, {1000: b})])
    before = {path: entry["data_file"]["partition"] for path, entry in live_entries(table).items()}
    schema = evolution.drop_column(table.schema, "b")
    spec, _ = partitions.evolved_spec([], schema, [table.spec], 1000)
    table.evolve({**schema, "schema-id": 1}, spec, schema_version=1)
    merge(table)
    assert {path: entry["data_file"]["partition"] for path, entry in live_entries(table).items()} == before
    assert len(listed(table)) == 1
    assert sorted(table.pyiceberg().scan().to_arrow()["a"].to_pylist()) == [0, 1, 2]


def test_deletes_are_merged_among_themselves_and_keep_their_sequence_numbers(tmp_path: Path) -> None:
    table = LocalTable(tmp_path, {"a": "int"}, version=3)
    table.build([registered("/x/1"), registered("/x/2")])
    group = entries.Groups(table.document).of(0, 0)
    [parent] = table.document["snapshots"]
    rows = manifest_lists.read_manifest_list(table.read(parent["manifest-list"]))
    for number in (1, 2):
        made = manifests.Written(group.layout, content=manifests.DELETES)
        vector = {
            **entries.data_file(registered(f"/x/{number}", row_count=3), group),
            "content": 1,
            "file_path": f"/x/dv{number}.puffin",
            "file_format": "PUFFIN",
            "referenced_data_file": f"/x/{number}",
            "content_offset": number,
            "content_size_in_bytes": 1,
        }
        made.add(manifests.ADDED, vector, manifests.encode_entry(group.layout, manifests.ADDED, vector, 5))
        data = manifests.manifest_bytes(made)
        table.write(f"{tmp_path}/metadata/dv{number}.avro", data)
        rows.append(manifest_lists.manifest_file(made, f"{tmp_path}/metadata/dv{number}.avro", len(data), 5, number))
    parent["manifest-list"] = f"{tmp_path}/metadata/list.avro"
    table.write(parent["manifest-list"], manifest_lists.manifest_list_bytes(3, rows, parent["snapshot-id"], None, 1, 0))
    before = live_entries(table)
    merge(table)
    assert sorted((row["content"], row["existing_files_count"]) for row in listed(table)) == [(0, 0), (1, 2)]
    after = live_entries(table)
    for path in before:
        assert [after[path][key] for key in KEPT] == [before[path][key] for key in KEPT]
        assert after[path]["data_file"] == before[path]["data_file"]


def test_a_merge_that_was_written_before_other_commits_is_committed_after_them(tmp_path: Path) -> None:
    table = LocalTable(tmp_path, {"a": "long"})
    for n in range(3):
        table.build([table.parquet(longs(n))])
    made, snapshot_id = write_merged(table)
    for n in range(3, 6):
        table.build([table.parquet(longs(n))])
    assert all(merging.fits(each, listed(table)) for each in made)
    replaced = merging.replace(
        table.document, listed(table), made, write=table.write, prefix=table.prefix, snapshot_id=snapshot_id
    )
    table.document = replaced.document
    assert sorted(row["added_files_count"] + row["existing_files_count"] for row in listed(table)) == [1, 1, 1, 3]
    assert {row["sequence_number"] for row in listed(table)} == {4, 5, 6, 7}
    assert sorted(table.pyiceberg().scan().to_arrow()["a"].to_pylist()) == list(range(6))


def test_a_merge_does_not_fit_once_one_of_its_files_has_left(tmp_path: Path) -> None:
    table = LocalTable(tmp_path, {"a": "long"})
    files = [table.parquet(longs(n)) for n in range(3)]
    for file in files:
        table.build([file])
    made, _ = write_merged(table)
    table.build(removed=[files[1].file_path])
    assert not any(merging.fits(each, listed(table)) for each in made)


def row(number: int, length: int, spec: int = 0, content: int = 0, files: int = 1) -> dict[str, Any]:
    return {
        "manifest_path": f"/m{number:05d}",
        "manifest_length": length,
        "partition_spec_id": spec,
        "content": content,
        "added_files_count": files,
        "existing_files_count": 0,
        "sequence_number": number,
        "min_sequence_number": number,
    }


def numbers(groups: list[list[dict[str, Any]]]) -> list[list[int]]:
    return [[row["sequence_number"] for row in group] for group in groups]


def test_manifests_are_merged_once_there_are_many_of_a_size_spec_and_content() -> None:
    rule = Rule(target=1_000_000, count=3)
    assert merging.plan([row(1, 100), row(2, 100)], rule) == []
    assert numbers(merging.plan([row(3, 100), row(1, 110), row(2, 90)], rule)) == [[1, 2, 3]]
    assert merging.plan([row(1, 100), row(2, 100), row(3, 100_000)], rule) == []
    assert merging.plan([row(1, 100), row(2, 100, spec=1), row(3, 100, content=1)], rule) == []
    assert merging.plan([row(n, 600_000) for n in range(9)], rule) == [], "large enough"
    assert merging.plan([row(n, 100, files=0) for n in range(9)], rule) == [], "the next commit drops them"
    assert merging.plan([row(n, 100) for n in range(9)], Rule(is_enabled=False)) == []


def test_merged_manifests_are_of_the_target_size_at_most_and_near_in_age() -> None:
    rule = Rule(target=1000, count=3)
    groups = numbers(merging.plan([row(n, 400) for n in (5, 1, 4, 2, 3)], rule))
    assert groups == [[1, 2], [3, 4]], "the last one alone would only be copied"


@pytest.mark.parametrize("count", [2, 10, 100])
def test_a_list_stays_short_and_an_entry_is_written_a_few_times_however_many_commits_there_are(count: int) -> None:
    rule = Rule(target=1 << 20, count=count)
    rows: list[dict[str, Any]] = []
    written = longest = 0
    for number in range(10_000):
        rows.append(row(number, 500))
        for group in merging.plan(rows, rule):
            gone = {r["manifest_path"] for r in group}
            length = sum(r["manifest_length"] for r in group)
            written += length
            rows = [r for r in rows if r["manifest_path"] not in gone]
            rows.append({**row(number, length), "manifest_path": f"/n{number}"})
        longest = max(longest, len(rows))
    tiers = merging.tier(500, rule) + 1
    large = 10_000 * 500 // (rule.target // 2) + 1
    assert longest <= tiers * count + large
    assert written <= tiers * 10_000 * 500


def test_properties_have_icebergs_names_and_are_checked() -> None:
    assert merging.rule_of({}) == Rule()
    properties = {
        "commit.manifest-merge.enabled": "False",
        "commit.manifest.target-size-bytes": "1000",
        "commit.manifest.min-count-to-merge": "7",
    }
    assert merging.rule_of(properties) == Rule(False, 1000, 7)
    for name, bad in (
        ("commit.manifest-merge.enabled", "yes"),
        ("commit.manifest.target-size-bytes", "0"),
        ("commit.manifest.target-size-bytes", "8 MB"),
        ("commit.manifest.min-count-to-merge", "1"),
        ("commit.manifest.min-count-to-merge", "-5"),
    ):
        with pytest.raises(InvalidInput, match=name):
            merging.rule_of({name: bad})


def test_a_partition_of_every_kind_of_value_is_the_same_after_a_merge(tmp_path: Path) -> None:
    schema = {"i": "int", "s": "string", "d": "decimal(38, 3)", "u": "uuid", "b": "binary", "t": "timestamptz"}
    table = LocalTable(tmp_path, schema, list(schema))
    cells: list[list[Any]] = [
        [1, "é", "1.500", "f79c3e09-677c-4bbd-a479-3f349cb785e7", "00ff", "2026-01-02T03:04:05.678901+00:00"],
        [None] * 6,
        [-5, "", "-0.001", "00000000-0000-0000-0000-000000000000", "", "1969-12-31T23:59:59.000001+00:00"],
    ]
    for number, values in enumerate(cells):
        partition = {1000 + i: value for i, value in enumerate(values)}
        table.build([registered(f"/x/{number}", partition_key=partition_key(partition))])
    before = {path: entry["data_file"] for path, entry in live_entries(table).items()}
    merge(table)
    after = {path: entry["data_file"] for path, entry in live_entries(table).items()}
    assert after == before
    (row_,) = listed(table)
    assert row_["partitions"] is None, "of uuids nothing is said: Java would compare it wrongly"
