"""Snapshots: what engines read out of them, what they count, and what is refused."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg import expressions
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import StaticTable

from lakeward.errors import MetadataConflict
from lakeward.iceberg import (
    commit,
    entries,
    evolution,
    manifest_lists,
    manifests,
    metadata,
    partitions,
    schemas,
    values,
)
from lakeward.tables.records.files import FileStatistics, partition_key
from tests.unit.iceberg.tables import NOW_MS, LocalTable, registered

JUDGED: Any = expressions  # its own types refuse what its documentation writes

ALL_TYPES: dict[str, tuple[str, list[Any]]] = {
    "flag": ("boolean", [True, False, None]),
    "number": ("int", [-(2**31), 2**31 - 1, None]),
    "big": ("long", [-(2**63), 2**63 - 1, None]),
    "single": ("float", [math.nan, -math.inf, None]),
    "double": ("double", [math.nan, math.inf, -0.0]),
    "small_decimal": ("decimal(9, 2)", [Decimal("-1.10"), Decimal("9999999.99"), None]),
    "large_decimal": ("decimal(38, 10)", [Decimal("-1234567890123456789012345678.0000000001"), Decimal("0E-10"), None]),
    "day": ("date", [date(1, 1, 1), date(9999, 12, 31), None]),
    "at": ("time", [time(0, 0), time(23, 59, 59, 999999), None]),
    "ts": ("timestamp", [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2026, 1, 1), None]),
    "tstz": (
        "timestamptz",
        [datetime(1900, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC), None],
    ),
    "text": ("string", ["", "ünï/😀%=&", None]),
    "bytes": ("binary", [b"", b"\x00\xff", None]),
    "fixed": ("fixed[3]", [b"abc", b"\x00\x00\x00", None]),
    "uuid": ("uuid", [UUID(int=0).bytes, UUID(int=2**128 - 1).bytes, None]),
    "list": ("list<int>", [[1, None], [], None]),
    "map": ("map<string, double>", [[("a", 1.0)], [], None]),
    "struct": (
        "struct<a: int, b: struct<c: list<string>>>",
        [{"a": 1, "b": {"c": ["x"]}}, {"a": None, "b": None}, None],
    ),
}


def rows_of_all_types(table: LocalTable) -> pa.Table:
    arrow = schemas.to_arrow(table.schema)
    columns = []
    for field in arrow:
        cells = ALL_TYPES[field.name][1]
        if field.type == pa.uuid():
            columns.append(pa.ExtensionArray.from_storage(pa.uuid(), pa.array(cells, pa.binary(16))))
        else:
            columns.append(pa.array(cells, field.type))
    return pa.table(columns, schema=arrow)


def plain(value: Any) -> Any:
    """A cell in a form that is equal exactly where the values are, NaN included."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, dict):
        return [(plain(k), plain(v)) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


@pytest.mark.parametrize("version", [2, 3])
def test_pyiceberg_reads_every_type_back_as_it_was_written(tmp_path: Path, version: int) -> None:
    table = LocalTable(tmp_path, {k: t for k, (t, _) in ALL_TYPES.items()}, version=version)
    rows = rows_of_all_types(table)
    table.build([table.parquet(rows)])
    scanned = table.pyiceberg().scan().to_arrow()
    assert scanned.num_rows == 3
    for name in ALL_TYPES:
        assert plain(scanned[name].to_pylist()) == plain(rows[name].to_pylist()), name


@pytest.mark.parametrize("version", [2, 3])
def test_duckdb_reads_every_type_that_it_has(tmp_path: Path, version: int) -> None:
    table = LocalTable(tmp_path, {k: t for k, (t, _) in ALL_TYPES.items()}, version=version)
    rows = rows_of_all_types(table)
    table.build([table.parquet(rows)])
    names = [n for n in ALL_TYPES if n not in ("tstz", "map", "uuid")]  # their Python forms differ; counted below
    found = table.duckdb("select " + ", ".join(f'"{n}"' for n in names) + " from t")
    assert plain([list(r) for r in found]) == plain(
        [list(r) for r in zip(*(rows[n].to_pylist() for n in names), strict=True)]
    )
    assert table.duckdb("select count(tstz), count(map), count(uuid), epoch_us(min(tstz)) from t") == [
        (2, 2, 2, -2208988800 * 10**6)
    ]


PARTITION_CASES = [
    ("identity(`a b`)", "string", ["", "null", "x/y=z%", "ü😀", None]),
    ("identity(`a b`)", "boolean", [True, False, None]),
    ("identity(`a b`)", "int", [-1, 0, 2**31 - 1, None]),
    ("identity(`a b`)", "long", [-(2**63), 0, None]),
    ("identity(`a b`)", "double", [math.nan, math.inf, -math.inf, 1.5, None]),
    ("identity(`a b`)", "float", [0.5, None]),
    ("identity(`a b`)", "decimal(9, 2)", [Decimal("-1.10"), Decimal("0.00"), None]),
    ("identity(`a b`)", "decimal(38, 10)", [Decimal("-9999999999999999999999999999.9999999999"), None]),
    ("identity(`a b`)", "date", [date(1, 1, 1), date(2026, 2, 28), None]),
    ("identity(`a b`)", "timestamp", [datetime(1969, 12, 31, 23, 59, 59, 999999), None]),
    ("identity(`a b`)", "timestamptz", [datetime(2026, 1, 1, tzinfo=UTC), None]),
    ("identity(`a b`)", "time", [time(1, 2, 3, 4), None]),
    ("identity(`a b`)", "binary", [b"\x00\xff", b"", None]),
    ("identity(`a b`)", "fixed[3]", [b"abc", None]),
    ("identity(`a b`)", "uuid", [UUID(int=7), None]),
    ("bucket(4, `a b`)", "string", ["", "x", None]),
    ("bucket(4, `a b`)", "long", [0, -1, None]),
    ("bucket(4, `a b`)", "uuid", [UUID(int=7), None]),
    ("truncate(2, `a b`)", "string", ["", "x", "😀😀😀", None]),
    ("truncate(10, `a b`)", "int", [-1, 19, None]),
    ("truncate(10, `a b`)", "decimal(9, 2)", [Decimal("-1.11"), None]),
    ("year(`a b`)", "date", [date(1969, 12, 31), None]),
    ("month(`a b`)", "timestamp", [datetime(1969, 12, 31), None]),
    ("day(`a b`)", "timestamptz", [datetime(1969, 12, 31, 23, tzinfo=UTC), None]),
    ("hour(`a b`)", "timestamp", [datetime(1969, 12, 31, 23, 30), None]),
]


@pytest.mark.parametrize("text, type_, cells", PARTITION_CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_engines_read_and_prune_partitions_of_every_transform_and_type(
    tmp_path: Path, text: str, type_: str, cells: list[Any]
) -> None:
    table = LocalTable(tmp_path, {"a b": type_, "n": "int"}, [text])
    transform = table.spec["fields"][0]["transform"]
    arrow = schemas.to_arrow(table.schema)
    files = []
    for number, cell in enumerate(cells):
        storage = cell.bytes if isinstance(cell, UUID) else cell
        array = pa.array([storage], arrow.field(0).type if type_ != "uuid" else pa.binary(16))
        if type_ == "uuid":
            array = pa.ExtensionArray.from_storage(pa.uuid(), array)
        data = pa.table([array, pa.array([number], pa.int32())], schema=arrow)
        files.append(table.parquet(data, {1000: partitions.partition_value(transform, type_, cell)}))
    built = table.build(files)
    assert built.rejected == []
    judge = table.pyiceberg()
    assert sorted(judge.scan().to_arrow()["n"].to_pylist()) == list(range(len(cells)))
    assert judge.scan(JUDGED.IsNull("a b")).to_arrow()["n"].to_pylist() == [i for i, c in enumerate(cells) if c is None]
    for number, cell in enumerate(cells):
        if cell is None or type_ in ("binary", "fixed[3]", "time", "uuid"):
            continue  # PyIceberg cannot filter by all of these
        is_nan = isinstance(cell, float) and math.isnan(cell)
        condition: Any = JUDGED.IsNaN("a b") if is_nan else JUDGED.EqualTo("a b", cell)
        if not (isinstance(cell, float) and math.isinf(cell)):
            assert judge.scan(condition).to_arrow()["n"].to_pylist() == [number]
    if type_ not in ("float", "double") or all(c is None or math.isfinite(c) for c in cells):
        assert table.duckdb("select n from t order by n") == [(i,) for i in range(len(cells))]
        assert table.duckdb('select n from t where "a b" is null') == [(i,) for i, c in enumerate(cells) if c is None]


@pytest.mark.parametrize("version", [2, 3])
def test_an_append_keeps_the_old_manifests_and_counts_what_it_added(tmp_path: Path, version: int) -> None:
    table = LocalTable(tmp_path, {"a": "int"}, version=version)
    data = pa.table({"a": pa.array([1, 2, 3], pa.int32())})
    first, second = table.parquet(data), table.parquet(data)
    one = table.build([first])
    two = table.build([second])
    assert (one.snapshot, two.snapshot) != (None, None)
    assert two.snapshot is not None
    assert one.snapshot is not None
    rows = manifest_lists.read_manifest_list(table.read(two.snapshot["manifest-list"]))
    assert [r["sequence_number"] for r in rows] == [2, 1]
    assert [r["manifest_path"] for r in rows] == [two.written[0], one.written[0]]
    assert two.superseded == []
    assert two.snapshot["parent-snapshot-id"] == one.snapshot["snapshot-id"]
    assert two.snapshot["summary"] == {
        "operation": "append",
        "added-data-files": "1",
        "added-records": "3",
        "added-files-size": str(second.file_size),
        "changed-partition-count": "1",
        "total-data-files": "2",
        "total-records": "6",
        "total-files-size": str(first.file_size + second.file_size),
        "total-delete-files": "0",
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
    }
    judge = table.pyiceberg()
    assert judge.scan().to_arrow()["a"].to_pylist() == [1, 2, 3] * 2
    assert judge.scan(snapshot_id=one.snapshot["snapshot-id"]).to_arrow().num_rows == 3


@pytest.mark.parametrize("version", [2, 3])
def test_removed_files_are_gone_and_the_others_keep_their_numbers(tmp_path: Path, version: int) -> None:
    table = LocalTable(tmp_path, {"a": "int"}, ["truncate(100, a)"], version=version)
    field = table.spec["fields"][0]["field-id"]
    files = [
        table.parquet(pa.table({"a": pa.array([n, n + 1], pa.int32())}), {field: n // 100 * 100})
        for n in (0, 10, 100, 200)
    ]
    table.build(files[:2])
    table.build(files[2:])
    before = {e["data_file"]["file_path"]: e for e in live_entries(table)}
    new = table.parquet(pa.table({"a": pa.array([5], pa.int32())}), {field: 0})
    reads: list[str] = []
    real_read = table.read

    def read(location: str) -> bytes:
        reads.append(location)
        return real_read(location)

    table.read = read  # type: ignore[method-assign]
    built = table.build([new], [files[0].file_path], removed_partitions={files[0].file_path: (0, {field: 0})})
    assert len(reads) == 2, "the manifest list and the only manifest that can hold the partition"
    assert len(built.superseded) == 1
    assert built.snapshot is not None
    summary = built.snapshot["summary"]
    assert summary["operation"] == "overwrite"
    assert (summary["deleted-data-files"], summary["deleted-records"], summary["total-data-files"]) == ("1", "2", "4")
    assert summary["total-records"] == "7"
    after = {e["data_file"]["file_path"]: e for e in live_entries(table)}
    assert after.keys() == before.keys() - {files[0].file_path} | {new.file_path}
    for path in before.keys() & after.keys():
        for key in ("sequence_number", "file_sequence_number", "snapshot_id"):
            assert after[path][key] == before[path][key]
        assert after[path]["data_file"].get("first_row_id") == before[path]["data_file"].get("first_row_id")
    deleted = [e for e in all_entries(table) if e["status"] == manifests.DELETED]
    assert [(e["data_file"]["file_path"], e["snapshot_id"]) for e in deleted] == [
        (files[0].file_path, built.snapshot["snapshot-id"])
    ]
    assert sorted(table.pyiceberg().scan().to_arrow()["a"].to_pylist()) == [5, 10, 11, 100, 101, 200, 201]
    assert sorted(table.duckdb("select a from t")) == [(n,) for n in (5, 10, 11, 100, 101, 200, 201)]

    rest = [f.file_path for f in files[1:]] + [new.file_path]
    gone = table.build(removed=rest)
    assert gone.snapshot is not None
    assert gone.snapshot["summary"]["operation"] == "delete"
    assert gone.snapshot["summary"]["total-records"] == "0"
    assert table.pyiceberg().scan().to_arrow().num_rows == 0
    after_that = table.build([table.parquet(pa.table({"a": pa.array([1], pa.int32())}), {field: 0})])
    assert after_that.snapshot is not None
    rows = manifest_lists.read_manifest_list(table.read(after_that.snapshot["manifest-list"]))
    assert len(rows) == 1, "manifests without a live file leave the list"
    assert len(after_that.superseded) == 3


def all_entries(table: LocalTable) -> list[dict[str, Any]]:
    rows = manifest_lists.read_manifest_list(table.read(table.document["snapshots"][-1]["manifest-list"]))
    return [e for row in rows for e in manifests.read_manifest(table.read(row["manifest_path"]), row).entries]


def live_entries(table: LocalTable) -> list[dict[str, Any]]:
    return list(manifests.live(all_entries(table)))


def test_a_removed_path_that_the_snapshot_does_not_hold_is_a_conflict(tmp_path: Path) -> None:
    table = LocalTable(tmp_path, {"a": "int"})
    table.build([registered("/x/1.parquet")])
    with pytest.raises(MetadataConflict, match=r"1 of 2 removed files .*2\.parquet"):
        table.build(removed=["/x/1.parquet", "/x/2.parquet"])


def test_row_ids_of_version_3_are_given_once_and_as_the_registry_is_told(tmp_path: Path) -> None:
    table = LocalTable(tmp_path, {"a": "int"}, version=3)
    files = [registered(f"/x/{n}.parquet", row_count=n) for n in (3, 5, 7)]
    one, two = table.build(files[:2]), table.build(files[2:])
    assert one.first_row_ids == {"/x/3.parquet": 0, "/x/5.parquet": 3}
    assert two.first_row_ids == {"/x/7.parquet": 8}
    assert table.document["next-row-id"] == 15
    assert two.snapshot is not None
    assert (two.snapshot["first-row-id"], two.snapshot["added-rows"]) == (8, 7)
    table.build(removed=["/x/3.parquet"])
    found = {e["data_file"]["file_path"]: e["data_file"]["first_row_id"] for e in live_entries(table)}
    assert found == {"/x/5.parquet": 3, "/x/7.parquet": 8}
    more = table.build([registered("/x/9.parquet")])
    assert more.first_row_ids["/x/9.parquet"] >= 15


def test_files_that_cannot_be_in_a_manifest_are_rejected_with_the_reason_and_the_rest_is_committed(
    tmp_path: Path,
) -> None:
    table = LocalTable(tmp_path, {"a": "int", "s": "string"}, ["a"])

    def file(name: str, value: Any = 1, **fields: Any) -> Any:
        return registered(f"/x/{name}", **{"partition_key": partition_key({1000: value}), **fields})

    bad = {
        "is no int": file("text", "one"),
        "2147483648": file("range", 2**31),
        "has no value": file("missing", partition_key="{}"),
        "partition spec 9": file("spec", spec_id=9),
        "schema 9": file("schema", schema_id=9),
        "of column 1 is no value of int": file("bound", statistics=FileStatistics(lower={1: b"\x00"})),
        "of column 2 is no value of string": file("utf8", statistics=FileStatistics(upper={2: b"\xff\xff"})),
        "json file": file("json", file_type="json"),
        "content 1": file("deletes", content=1),
        "more than 64 bits": file("rows", row_count=2**64),
        "-1 rows": file("negative", row_count=-1),
        "twice": file("good"),
    }
    built = table.build([file("good"), *bad.values(), file("null", None)])
    assert [f.file_path for f, _ in built.rejected] == [f.file_path for f in bad.values()]
    for (_, reason), expected in zip(built.rejected, bad, strict=True):
        assert expected in reason
    assert [e["data_file"]["file_path"] for e in live_entries(table)] == ["/x/good", "/x/null"]
    assert [t.file.file_path for t in table.pyiceberg().scan().plan_files()] == ["/x/good", "/x/null"]


def test_nothing_to_commit_makes_no_snapshot_and_writes_nothing(tmp_path: Path) -> None:
    table = LocalTable(tmp_path, {"a": "int"})
    before = table.document
    built = table.build([registered("/x", spec_id=4)])
    assert (built.snapshot, built.written, built.document) == (None, [], before)
    assert len(built.rejected) == 1
    assert list((tmp_path / "metadata").iterdir()) == []


def test_a_bound_that_is_nan_is_left_out(tmp_path: Path) -> None:
    table = LocalTable(tmp_path, {"a": "double"})
    bounds = FileStatistics(lower={1: values.to_binary("double", math.nan)}, upper={1: values.to_binary("double", 2.0)})
    table.build([registered("/x/1", statistics=bounds)])
    [entry] = live_entries(table)
    assert entry["data_file"]["lower_bounds"] is None
    assert len(entry["data_file"]["upper_bounds"]) == 1


def test_files_of_several_schemas_and_specs_are_in_one_snapshot(tmp_path: Path) -> None:
    table = LocalTable(tmp_path, {"a": "int", "b": "int"}, ["a"])
    old = table.parquet(pa.table({"a": pa.array([1], pa.int32()), "b": pa.array([2], pa.int32())}), {1000: 1})
    schema, _ = evolution.add_column(table.schema, table.last_column_id, "c", "string")
    schema = evolution.widen_column(schema, "a", "long")
    schema = evolution.rename_column(schema, "b", "bee")
    schema = schemas.with_schema_id(schema, 1)
    spec, _ = partitions.partition_spec(["bucket(2, bee)", "c"], schema, 1, 1000)
    table.evolve(schema, spec)
    data = pa.table({"a": [2**40], "bee": pa.array([3], pa.int32()), "c": ["x"]})
    new = table.parquet(data, {1001: partitions.partition_value("bucket[2]", "int", 3), 1002: "x"})
    later = table.parquet(data, {1001: None, 1002: None})
    built = table.build([old, new, later])
    assert built.rejected == []
    assert len(built.written) == 3, "a manifest for each spec and schema, and the list"
    expected = [(1, 2, None), (2**40, 3, "x"), (2**40, 3, "x")]
    scanned = table.pyiceberg().scan(selected_fields=("a", "bee", "c")).to_arrow()
    assert sorted(zip(*(scanned[n].to_pylist() for n in ("a", "bee", "c")), strict=True)) == expected
    assert table.duckdb("select a, bee, c from t order by a") == expected
    assert table.pyiceberg().scan(JUDGED.GreaterThan("a", 5)).to_arrow().num_rows == 2
    table.build(removed=[old.file_path])
    assert table.duckdb("select a from t") == [(2**40,), (2**40,)]
    assert table.pyiceberg().scan().to_arrow().num_rows == 2


def test_snapshot_times_and_sequence_numbers_never_run_backwards(tmp_path: Path) -> None:
    table = LocalTable(tmp_path, {"a": "int"})
    for number, given in enumerate((NOW_MS, NOW_MS - 5000, NOW_MS + 3, NOW_MS + 1)):
        table.build([registered(f"/x/{number}")], timestamp_ms=given)
    times = [e["timestamp-ms"] for e in table.document["snapshot-log"]]
    assert times == [NOW_MS, NOW_MS, NOW_MS + 3, NOW_MS + 3]
    assert [s["sequence-number"] for s in table.document["snapshots"]] == [1, 2, 3, 4]
    assert table.document["last-updated-ms"] == NOW_MS + 3


def test_a_table_of_2000_columns_is_committed_and_read(tmp_path: Path) -> None:
    table = LocalTable(tmp_path, {f"c{n}": "int" for n in range(2000)})
    table.build([table.parquet(pa.table({f"c{n}": pa.array([n], pa.int32()) for n in range(2000)}))])
    scanned = table.pyiceberg().scan(selected_fields=("c7", "c1999")).to_arrow()
    assert (scanned["c7"].to_pylist(), scanned["c1999"].to_pylist()) == ([7], [1999])


def test_a_table_upgraded_to_version_3_gives_ids_to_its_old_rows(tmp_path: Path) -> None:
    table = LocalTable(tmp_path, {"a": "int"})
    table.build([registered("/x/1", row_count=4)])
    table.build([registered("/x/2", row_count=6)])
    table.document = {**table.document, "format-version": 3, "next-row-id": 0}
    built = table.build([registered("/x/3", row_count=5)], removed=["/x/1"])
    assert built.snapshot is not None
    found = {e["data_file"]["file_path"]: e["data_file"].get("first_row_id") for e in live_entries(table)}
    spans = sorted((found[f"/x/{n}"], found[f"/x/{n}"] + rows) for n, rows in ((2, 6), (3, 5)))
    assert spans[0][1] <= spans[1][0]
    assert table.document["next-row-id"] == built.snapshot["added-rows"] >= spans[1][1]


def test_a_table_that_pyiceberg_wrote_goes_on(tmp_path: Path) -> None:
    catalog = InMemoryCatalog("judge", warehouse=str(tmp_path))
    catalog.create_namespace("ns")
    schema, _ = schemas.schema_from({"a": "int", "d": "decimal(9, 2)", "e": "decimal(9, 2)"})
    spec, _ = partitions.partition_spec(["d", "e", "bucket(2, a)"], schema)
    theirs = catalog.create_table(
        "ns.t",
        schemas.to_pyiceberg(schema),
        partition_spec=PartitionSpec.model_validate(spec),
        location=f"{tmp_path}/t",
    )
    cells = {"a": [1, 2, 3], "d": [Decimal("1.50"), None, Decimal("-7.00")], "e": [Decimal("0.01")] * 3}
    theirs.append(pa.table(cells, schema=schemas.to_arrow(schema)))
    theirs.append(pa.table(cells, schema=schemas.to_arrow(schema)))
    document = metadata.decode(Path(theirs.metadata_location.removeprefix("file://")).read_bytes())
    gone = [t.file.file_path for t in theirs.scan(JUDGED.EqualTo("a", 3)).plan_files()]
    assert len(gone) == 2

    def read(location: str) -> bytes:
        return Path(location.removeprefix("file://")).read_bytes()

    def write(location: str, data: bytes) -> None:
        Path(location).write_bytes(data)

    built = commit.build_snapshot(
        document,
        [],
        gone,
        read=read,
        write=write,
        prefix=f"{tmp_path}/t/metadata",
        timestamp_ms=document["last-updated-ms"],
    )
    assert built.snapshot is not None
    assert built.snapshot["summary"]["total-records"] == "4"
    location = f"{tmp_path}/t/metadata/{metadata.metadata_file_name(9)}"
    write(location, metadata.encode(built.document))
    scanned = StaticTable.from_metadata(location).scan().to_arrow()
    assert sorted(zip(scanned["a"].to_pylist(), scanned["d"].to_pylist(), strict=True), key=str) == [
        (1, Decimal("1.50")),
        (1, Decimal("1.50")),
        (2, None),
        (2, None),
    ]


def test_a_deletion_vector_goes_with_its_file_and_the_others_stay(tmp_path: Path) -> None:
    table = LocalTable(tmp_path, {"a": "int"}, version=3)
    table.build([registered("/x/1"), registered("/x/2")])
    group = entries.Groups(table.document).of(0, 0)
    made = manifests.Written(group.layout, content=manifests.DELETES)
    for number in (1, 2):
        vector = {
            **entries.data_file(registered(f"/x/{number}", row_count=3), group),
            "content": 1,
            "file_path": "/x/dv.puffin",
            "file_format": "PUFFIN",
            "referenced_data_file": f"/x/{number}",
            "content_offset": number,
            "content_size_in_bytes": 1,
        }
        made.add(manifests.ADDED, vector, manifests.encode_entry(group.layout, manifests.ADDED, vector, 5))
    data = manifests.manifest_bytes(made)
    table.write(f"{tmp_path}/metadata/dv.avro", data)
    [parent] = table.document["snapshots"]
    rows = manifest_lists.read_manifest_list(table.read(parent["manifest-list"]))
    rows.append(manifest_lists.manifest_file(made, f"{tmp_path}/metadata/dv.avro", len(data), 5, 2))
    parent["manifest-list"] = f"{tmp_path}/metadata/list.avro"
    parent["summary"] |= {"total-delete-files": "2", "total-position-deletes": "6"}
    table.write(parent["manifest-list"], manifest_lists.manifest_list_bytes(3, rows, parent["snapshot-id"], None, 1, 0))
    built = table.build(removed=["/x/1"])
    live = [(e["data_file"]["file_path"], e["data_file"]["referenced_data_file"]) for e in live_entries(table)]
    assert live == [("/x/2", None), ("/x/dv.puffin", "/x/2")]
    assert built.snapshot is not None
    summary = built.snapshot["summary"]
    assert (summary["total-delete-files"], summary["total-position-deletes"], summary["removed-delete-files"]) == (
        "1",
        "3",
        "1",
    )
    assert (summary["deleted-data-files"], summary["total-records"]) == ("1", "10")


def test_partitions_of_zeros_and_of_nan_are_counted_as_they_are(tmp_path: Path) -> None:
    """0.0 and -0.0 are two, though they are equal; NaN is one, though it is not equal to itself."""
    table = LocalTable(tmp_path, {"f": "double"}, ["f"])
    cells = [0.0, -0.0, "NaN", "NaN", "NaN", None]
    files = [registered(f"/x/{i}", partition_key=partition_key({1000: cell})) for i, cell in enumerate(cells)]
    built = table.build(files)
    assert built.snapshot is not None and built.snapshot["summary"]["changed-partition-count"] == "4"
    gone = table.build([], [files[0].file_path, files[1].file_path, files[2].file_path, files[3].file_path])
    assert gone.snapshot is not None and gone.snapshot["summary"]["changed-partition-count"] == "3"


def test_bounds_of_uuids_are_in_no_manifest(tmp_path: Path) -> None:
    table = LocalTable(tmp_path, {"u": "uuid", "i": "int"})
    bounds = {1: UUID(int=5).bytes, 2: b"\1\0\0\0"}
    built = table.build(
        [registered("/x/1", statistics=FileStatistics(value_counts={1: 1, 2: 1}, lower=bounds, upper=bounds))]
    )
    assert built.snapshot is not None
    (row,) = manifest_lists.read_manifest_list(table.read(built.snapshot["manifest-list"]))
    (entry,) = manifests.read_manifest(table.read(row["manifest_path"]), row).entries
    for name in ("lower_bounds", "upper_bounds"):
        assert entry["data_file"][name] == [{"key": 2, "value": b"\1\0\0\0"}]
