from __future__ import annotations

import gzip
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.arrow import statistics
from lakeward.arrow.coerce import Wanted
from lakeward.arrow.imports import import_files
from lakeward.arrow.json_read import read_json_lines
from lakeward.arrow.target import TableTarget, arrow_schema
from lakeward.arrow.write import write_arrow
from lakeward.errors import FileRefused
from lakeward.tables.records.files import DataFile
from tests.unit.arrow.targets import schema_of, target_for

SCHEMA = {"id": "long", "name": "string", "price": "decimal(9, 2)"}
ROWS = [{"id": i, "name": f"n{i}", "price": Decimal(i)} for i in range(3)]


def path_of(file: DataFile) -> Path:
    return Path(file.path.removeprefix("file://"))


def rows(files: list[DataFile]) -> list[dict[str, Any]]:
    return [row for file in files for row in pq.ParquetFile(path_of(file)).read().to_pylist()]


def native(
    folder: Path, *partition_by: tuple[str, str], data: Any = ROWS, schema: Any = SCHEMA, **options: Any
) -> Path:
    """A file that a table of this shape has written."""
    (file,) = write_arrow(target_for(folder / "other", schema, *partition_by, **options), data)
    return path_of(file)


def refusal(target: TableTarget, *paths: Path | str) -> FileRefused:
    with pytest.raises(FileRefused) as caught:
        import_files(target, paths)
    assert not list(Path(target.intent.prefix.removeprefix("file://")).rglob("*"))
    return caught.value


def test_a_file_of_the_tables_own_kind_is_copied_byte_for_byte(tmp_path: Path) -> None:
    source = native(tmp_path)
    before = source.read_bytes()
    (file,) = import_files(target_for(tmp_path / "lake", SCHEMA), [source])
    assert path_of(file).read_bytes() == before == source.read_bytes()
    assert file.path.startswith(target_for(tmp_path / "lake", SCHEMA).intent.prefix)
    (written,) = write_arrow(target_for(tmp_path / "again", SCHEMA), ROWS)
    assert (file.checksum, file.size, file.row_count) == (written.checksum, written.size, written.row_count)
    assert (file.footer, file.split_offsets) == (written.footer, written.split_offsets)
    assert file.statistics.lower == written.statistics.lower


def test_columns_without_ids_are_matched_by_name_and_get_ids(tmp_path: Path) -> None:
    pq.write_table(pa.table({"name": ["a"], "id": pa.array([1], pa.int32())}), tmp_path / "f.parquet")
    (file,) = import_files(target_for(tmp_path, SCHEMA), [tmp_path / "f.parquet"])
    assert rows([file]) == [{"id": 1, "name": "a", "price": None}]
    assert statistics.leaf_field_ids(pq.read_schema(path_of(file))) == [1, 2, 3]


def test_columns_renamed_since_are_matched_by_id(tmp_path: Path) -> None:
    source = native(tmp_path)
    schema = schema_of(SCHEMA)
    schema["fields"][1]["name"] = "title"
    (file,) = import_files(target_for(tmp_path / "lake", schema), [source])
    assert path_of(file).read_bytes() == source.read_bytes()
    rewritten = target_for(tmp_path / "lake", schema, compression="snappy", intent="i2")
    assert rows(import_files(rewritten, [source])) == [
        {"id": r["id"], "title": r["name"], "price": r["price"]} for r in ROWS
    ]


def test_ids_that_are_another_programs_are_passed_over(tmp_path: Path) -> None:
    fields = [pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(i)}) for name, i in (("a", 7), ("b", 8))]
    pq.write_table(pa.table([[1], [2]], schema=pa.schema(fields)), tmp_path / "f.parquet")
    assert rows(import_files(target_for(tmp_path, {"b": "long", "a": "long"}), [tmp_path / "f.parquet"])) == [
        {"b": 2, "a": 1}
    ]


def test_an_id_and_a_name_that_mean_two_columns_are_refused(tmp_path: Path) -> None:
    fields = [pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(i)}) for name, i in (("b", 1), ("a", 2))]
    pq.write_table(pa.table([[1], [2]], schema=pa.schema(fields)), tmp_path / "f.parquet")
    error = refusal(target_for(tmp_path, {"a": "long", "b": "long"}), tmp_path / "f.parquet")
    assert error.reason == "unknown_field_id"
    assert "'b'" in str(error)
    assert "f.parquet" in str(error)


@pytest.mark.parametrize("codec", ["snappy", "none"])
def test_a_file_of_another_codec_is_rewritten(tmp_path: Path, codec: str) -> None:
    (file,) = import_files(target_for(tmp_path / "lake", SCHEMA), [native(tmp_path, compression=codec)])
    assert pq.read_metadata(path_of(file)).row_group(0).column(0).compression == "ZSTD"
    assert rows([file]) == ROWS


def test_a_file_without_statistics_is_rewritten_and_gets_them(tmp_path: Path) -> None:
    source = native(tmp_path)
    table = pq.ParquetFile(source).read()
    pq.write_table(table, tmp_path / "f.parquet", write_statistics=False, compression="zstd", store_schema=False)
    (file,) = import_files(target_for(tmp_path / "lake", SCHEMA), [tmp_path / "f.parquet"])
    assert set(file.statistics.lower) == {1, 2, 3}


def test_a_file_of_one_partition_is_copied_and_of_several_is_split(tmp_path: Path) -> None:
    by_name = ("name", "identity")
    target = target_for(tmp_path / "lake", SCHEMA, by_name)
    one = native(tmp_path, data=[{"id": 1, "name": "a/b"}, {"id": 2, "name": "a/b"}])
    several = native(tmp_path / "b", data=[{"id": 3, "name": "c"}, {"id": 4, "name": None}])
    files = import_files(target, [one, several])
    assert {f.partition[1000]: f.row_count for f in files} == {"a/b": 2, "c": 1, None: 1}
    assert path_of(files[0]).read_bytes() == one.read_bytes()
    assert len({f.partition_path for f in files}) == 3


def test_partitions_of_a_renamed_column_are_found_by_id(tmp_path: Path) -> None:
    schema = schema_of(SCHEMA)
    schema["fields"][1]["name"] = "title"
    source = native(tmp_path, data=[{"id": 1, "name": "abc"}])
    (file,) = import_files(target_for(tmp_path / "lake", schema, ("title", "truncate[2]")), [source])
    assert file.partition == {1000: "ab"}
    assert path_of(file).read_bytes() == source.read_bytes()


def test_many_small_files_become_one(tmp_path: Path) -> None:
    for i in range(5):
        pq.write_table(pa.table({"id": [i]}), tmp_path / f"{i}.parquet")
    (file,) = import_files(target_for(tmp_path, SCHEMA), [tmp_path / f"{i}.parquet" for i in range(5)])
    assert [row["id"] for row in rows([file])] == list(range(5))


def test_a_file_without_rows_is_no_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "e.parquet")
    (tmp_path / "e.json").write_text("")
    empty = native(tmp_path)
    schema = pq.read_schema(empty)
    pq.write_table(schema.empty_table(), tmp_path / "own.parquet", compression="zstd", store_schema=False)
    sources = [tmp_path / name for name in ("e.parquet", "e.json", "own.parquet")]
    assert import_files(target_for(tmp_path, SCHEMA), sources) == []


BAD: list[tuple[str, pa.Table, str, str]] = [
    ("unknown_column", pa.table({"id": [1], "z": [1]}), "id", "'z'"),
    ("wrong_type", pa.table({"id": ["x"]}), "id", "'id'"),
    ("wrong_type", pa.table({"id": pa.array([2**63], pa.uint64())}), "id", "'id'"),
    ("wrong_type", pa.table({"price": pa.array([Decimal("12345678.90")], pa.decimal128(10, 2))}), "price", "'price'"),
    ("wrong_type", pa.table({"ts": pa.array([1], pa.timestamp("ns"))}), "ts", "nanoseconds"),
    ("wrong_type", pa.table({"ts": pa.array([1], pa.timestamp("us", "UTC"))}), "ts", "'ts'"),
    ("missing_column", pa.table({"id": [1]}), "must", "'must'"),
    ("null_in_required", pa.table({"must": pa.array([1, None])}), "must", "'must'"),
    ("missing_column", pa.table({"id": [1]}), "part", "'part'"),
]


@pytest.mark.parametrize("reason, table, kind, what", BAD, ids=[f"{b[0]}-{b[2]}-{i}" for i, b in enumerate(BAD)])
def test_a_file_that_does_not_fit_is_refused_before_any_is_copied(
    tmp_path: Path, reason: str, table: pa.Table, kind: str, what: str
) -> None:
    schema = {"id": "int" if table.schema.names == ["x"] else "long", "price": "decimal(9, 2)", "ts": "timestamp"}
    if kind == "must":
        schema["must"] = "long not null"
    partition = ()
    if kind == "part":
        schema["part"] = "int"
        partition = (("part", "identity"),)  # type: ignore[assignment]
    target = target_for(tmp_path / "lake", schema, *partition)
    good = (
        {"id": [1]}
        | ({"must": [1]} if kind == "must" else {})
        | ({"part": pa.array([1], pa.int32())} if partition else {})
    )
    pq.write_table(pa.table(good), tmp_path / "good.parquet")
    pq.write_table(table, tmp_path / "bad.parquet")
    error = refusal(target, tmp_path / "good.parquet", tmp_path / "bad.parquet")
    assert error.reason == reason
    assert what in str(error)
    assert "bad.parquet" in str(error)


def test_nulls_in_a_required_column_are_found_without_statistics_and_inside(tmp_path: Path) -> None:
    pq.write_table(pa.table({"must": pa.array([1, None])}), tmp_path / "f.parquet", write_statistics=False)
    assert refusal(target_for(tmp_path / "lake", {"must": "long not null"}), tmp_path / "f.parquet").reason == (
        "null_in_required"
    )


@pytest.mark.parametrize(
    "name, content, reason",
    [
        ("a.parquet", b"", "truncated"),
        ("a.parquet", b"PAR1", "truncated"),
        ("a.parquet", b"no parquet at all, but long enough to be one", "wrong_format"),
        ("a.txt", b"id,name\n1,a\n", "wrong_format"),
        ("a.orc", b"ORC\x00\x01\x02\x03\x04", "wrong_format"),
        ("a.parquet", b"PAR1" + bytes(100) + b"PARE", "wrong_format"),
        ("a.parquet", b"PAR1" + bytes(100) + b"\x20\x00\x00\x00PAR1", "unreadable"),
        ("a.json", b'{"id": 1}\n{"id": }\n', "unreadable"),
        ("a.json", b'{"id": 1}\n{"id": "x"}\n', "wrong_type"),
        ("a.jsonl.gz", gzip.compress(b'{"id": 1}\n' * 100_000)[:200], "truncated"),
    ],
)
def test_what_is_no_whole_file_is_refused_by_name(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(content)
    error = refusal(target_for(tmp_path / "lake", SCHEMA), tmp_path / name)
    assert (error.reason, name in str(error)) == (reason, True)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    source = native(tmp_path)
    source.write_bytes(source.read_bytes()[:-20])
    assert refusal(target_for(tmp_path / "lake", SCHEMA), source).reason == "truncated"


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    target = target_for(tmp_path / "lake", SCHEMA)
    assert refusal(target, tmp_path / "none.parquet").reason == "not_found"
    assert refusal(target, str(tmp_path)).reason == "wrong_format"


def test_the_line_of_a_bad_json_value_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1}\n{"id": 2}\n{"id": "x"}\n')
    assert "a.json, line 3" in str(refusal(target_for(tmp_path / "lake", SCHEMA), tmp_path / "a.json"))


def test_json_lines_become_parquet_and_parquet_becomes_json_lines(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text('{"id": 1, "price": 1.5}\n{"id": 2, "name": "x"}\n')
    expected = [
        {"id": 1, "name": None, "price": Decimal("1.50")},
        {"id": 2, "name": "x", "price": None},
    ]
    assert rows(import_files(target_for(tmp_path / "lake", SCHEMA), [tmp_path / "a.ndjson"])) == expected
    target = target_for(tmp_path / "landing", SCHEMA, file_format="json")
    (file,) = import_files(target, [native(tmp_path)])
    with target.engine.open_input(file.path) as source:
        assert read_json_lines(source, Wanted.of(target.schema), "x").read_all().to_pylist() == ROWS
    assert file.file_type == "json"


def test_a_path_with_odd_characters_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "a b#c?d%20e"
    folder.mkdir()
    pq.write_table(pa.table({"id": [1]}), folder / "ü [1].parquet")
    assert rows(import_files(target_for(tmp_path / "lake", {"id": "long"}), [folder / "ü [1].parquet"])) == [{"id": 1}]


def test_a_footer_of_several_megabytes_and_two_thousand_columns_are_taken(tmp_path: Path) -> None:
    schema = {f"c{i}": "int" for i in range(2000)}
    table = pa.table({name: pa.array(range(30), pa.int32()) for name in schema})
    pq.write_table(table, tmp_path / "wide.parquet", row_group_size=1)
    assert pq.read_metadata(tmp_path / "wide.parquet").serialized_size > 3 << 20
    (file,) = import_files(target_for(tmp_path / "lake", schema), [tmp_path / "wide.parquet"])
    assert (file.row_count, len(file.statistics.lower)) == (30, 2000)


def test_nested_columns_are_matched_inside_and_copied_if_their_ids_are_the_tables(tmp_path: Path) -> None:
    schema = {"s": "struct<a: int, b: list<struct<c: string>>>", "m": "map<string, long>"}
    data = [{"s": {"a": 1, "b": [{"c": "x"}, None]}, "m": [("k", 1)]}, {"s": None, "m": None}]
    source = native(tmp_path, schema=schema, data=data)
    (copied,) = import_files(target_for(tmp_path / "lake", schema), [source])
    assert path_of(copied).read_bytes() == source.read_bytes()
    pq.write_table(pa.Table.from_pylist([{"s": {"b": [{"c": "y"}]}}]), tmp_path / "f.parquet")
    (rewritten,) = import_files(target_for(tmp_path / "lake", schema, intent="i2"), [tmp_path / "f.parquet"])
    assert rows([rewritten]) == [{"s": {"a": None, "b": [{"c": "y"}]}, "m": None}]


def test_a_file_that_lacks_a_column_with_a_write_default_is_rewritten_with_it(tmp_path: Path) -> None:
    """Readers would have null for it, or what was the default when the column came."""
    schema = schema_of({"id": "long", "k": "long not null", "o": "long"}, 3)
    schema["fields"][1] |= {"write-default": 7}
    schema["fields"][2] |= {"write-default": 9, "initial-default": 1}
    source = native(tmp_path, data=[{"id": 1}, {"id": 2}], schema={"id": "long"})
    (file,) = import_files(target_for(tmp_path / "lake", schema), [source])
    assert path_of(file).read_bytes() != source.read_bytes()
    assert pq.read_table(path_of(file)).to_pylist() == [{"id": 1, "k": 7, "o": 9}, {"id": 2, "k": 7, "o": 9}]
    plain = schema_of({"id": "long", "o": "long"}, 3)
    (copied,) = import_files(target_for(tmp_path / "lake", plain, intent="i2"), [source])
    assert path_of(copied).read_bytes() == source.read_bytes()


def test_a_file_that_lacks_a_field_of_a_struct_with_a_write_default_is_rewritten_with_it(tmp_path: Path) -> None:
    schema = schema_of({"s": "struct<a: int, k: long not null>", "l": "list<struct<a: int, b: binary>>"}, 3)
    schema["fields"][0]["type"]["fields"][1] |= {"write-default": 7}
    schema["fields"][1]["type"]["element"]["fields"][1] |= {"write-default": "00ff"}
    given = [{"s": {"a": 1}, "l": [{"a": 2}, None]}, {"s": None, "l": None}]
    becomes = [{"s": {"a": 1, "k": 7}, "l": [{"a": 2, "b": b"\x00\xff"}, None]}, {"s": None, "l": None}]
    element = pa.struct([pa.field("a", pa.int32(), metadata={statistics.FIELD_ID: str(inner_id(schema, 1))})])
    ids = arrow_schema(schema)
    struct = pa.struct([ids.field("s").type.field("a")])
    fields = [
        pa.field("s", struct, metadata=ids.field("s").metadata),
        pa.field("l", pa.list_(ids.field("l").type.value_field.with_type(element)), metadata=ids.field("l").metadata),
    ]
    source = tmp_path / "f.parquet"
    pq.write_table(pa.Table.from_pylist(given, pa.schema(fields)), source, compression="zstd")
    (file,) = import_files(target_for(tmp_path / "lake", schema), [source])
    assert rows([file]) == becomes
    (tmp_path / "f.jsonl").write_text('{"s": {"a": 1}, "l": [{"a": 2}, null]}\n{"s": null, "l": null}\n')
    (file,) = import_files(target_for(tmp_path / "lake", schema, intent="i2"), [tmp_path / "f.jsonl"])
    assert rows([file]) == becomes
    (file,) = write_arrow(target_for(tmp_path / "lake", schema, intent="i3"), given)
    assert rows([file]) == becomes


def inner_id(schema: dict[str, Any], column: int) -> int:
    """The field id of the first field of the structs in a list."""
    found: int = schema["fields"][column]["type"]["element"]["fields"][0]["id"]
    return found


def test_a_file_whose_uuids_are_counted_or_in_a_dictionary_is_rewritten_without(tmp_path: Path) -> None:
    schema = {"id": "long", "u": "uuid"}
    most, least = uuid.UUID(int=2**127 + 5), uuid.UUID(int=3)
    data = [{"id": i, "u": each} for i, each in enumerate((most, least, None))]
    (first,) = write_arrow(target_for(tmp_path / "a", schema), data)
    chunks = pq.read_metadata(path_of(first)).row_group(0)
    assert [chunks.column(i).is_stats_set for i in range(2)] == [True, False]
    assert not chunks.column(1).has_dictionary_page
    found = first.statistics
    assert (found.lower[2], found.upper[2], found.null_counts[2]) == (least.bytes, most.bytes, 1)
    pq.write_table(pq.read_table(path_of(first)), tmp_path / "f.parquet", compression="zstd")
    (made,) = import_files(target_for(tmp_path / "b", schema, intent="i2"), [tmp_path / "f.parquet"])
    assert not pq.read_metadata(path_of(made)).row_group(0).column(1).is_stats_set
    assert [row["u"] for row in rows([made])] == [most, least, None]
