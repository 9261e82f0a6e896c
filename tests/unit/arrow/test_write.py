from __future__ import annotations

import datetime as dt
import hashlib
import math
import uuid
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import parse_transform

from lakeward.arrow import file_writer, statistics
from lakeward.arrow.target import TableTarget
from lakeward.arrow.write import write_arrow
from lakeward.errors import FileRefused, InvalidSetting, StorageError
from lakeward.iceberg import schemas
from lakeward.storage.parquet_footers import decode_footer
from lakeward.tables.records.files import DataFile, partition_key
from tests.unit.arrow.targets import schema_of, target_for

D = Decimal


def content(target: TableTarget, file: DataFile) -> pa.Table:
    with target.engine.open_input(file.path) as source:
        return pq.ParquetFile(source).read()


def rows(target: TableTarget, files: list[DataFile]) -> list[dict[str, Any]]:
    return [row for file in files for row in content(target, file).to_pylist()]


EVERYTHING = {
    "b": "boolean", "i": "int", "l": "long", "f": "float", "d": "double", "dec": "decimal(9, 2)", "big": "decimal(38, 4)",
    "day": "date", "t": "time", "ts": "timestamp", "tz": "timestamptz", "s": "string", "u": "uuid", "fx": "fixed[3]",
    "bin": "binary", "li": "list<struct<x: int, y: list<string>>>", "m": "map<string, struct<z: double>>",
    "st": "struct<a: int not null, b: struct<c: string>>",
}  # fmt: skip
EVERY_VALUE: dict[str, Any] = {
    "b": True, "i": -1, "l": 2**40, "f": 1.5, "d": math.pi, "dec": D("-1.25"), "big": D("12345678901234567890.1234"),
    "day": dt.date(1960, 2, 29), "t": dt.time(23, 59, 59, 999999), "ts": dt.datetime(1960, 1, 1, 0, 0, 0, 1),
    "tz": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "s": "é𝄞'\"%\n", "u": uuid.UUID(int=2**127), "fx": b"\x00\xff\x80",
    "bin": b"", "li": [{"x": 1, "y": ["a", None]}, None], "m": [("k", {"z": 1.0}), ("l", None)],
    "st": {"a": 1, "b": {"c": None}},
}  # fmt: skip


def test_every_type_is_read_back_and_every_leaf_has_its_field_id(tmp_path: Path) -> None:
    target = target_for(tmp_path, EVERYTHING)
    (file,) = write_arrow(target, [EVERY_VALUE, {}])
    back = content(target, file)
    leaves = [c.field_id for c in schemas.columns(target.schema) if isinstance(c.type, str)]
    assert statistics.leaf_field_ids(back.schema) == leaves
    restored = back.to_pylist()
    assert restored[0] == {**EVERY_VALUE, "u": EVERY_VALUE["u"].bytes} or restored[0] == EVERY_VALUE
    assert set(restored[1].values()) == {None}


def test_uuids_within_other_values_are_written_without_statistics_too(tmp_path: Path) -> None:
    types = {"us": "list<uuid>", "st": "struct<u: uuid, n: int>", "m": "map<string, uuid>"}
    value = uuid.UUID(int=2**127)
    target = target_for(tmp_path, types)
    (file,) = write_arrow(target, [{"us": [value, None], "st": {"u": value, "n": 1}, "m": [("k", value)]}, {}])
    assert rows(target, [file])[0]["st"]["n"] == 1
    with target.engine.open_input(file.path) as source:
        group = pq.ParquetFile(source).metadata.row_group(0)
    counted = [column.path_in_schema for i in range(group.num_columns) if (column := group.column(i)).is_stats_set]
    assert counted == ["st.n", "m.key_value.key"]


def test_what_is_said_of_a_file_is_true(tmp_path: Path) -> None:
    target = target_for(tmp_path, {"a": "long", "d": "double", "s": "struct<f: float>"})
    data = [{"a": i, "d": math.nan if i % 2 else 1.0, "s": {"f": math.nan} if i else None} for i in range(10)]
    (file,) = write_arrow(target, data)
    raw = target.engine.read(file.path)
    assert file.path.startswith(target.intent.prefix)
    assert (file.size, file.row_count, file.file_type) == (len(raw), 10, "parquet")
    assert file.checksum == f"sha256:{hashlib.sha256(raw).hexdigest()}"
    assert file.footer is not None
    footer = decode_footer(file.footer)
    assert footer.equals(pq.read_metadata(pa.BufferReader(raw)))
    assert file.split_offsets == [4]
    assert file.statistics.nan_counts == {2: 5, 4: 9}
    assert file.statistics.value_counts == {1: 10, 2: 10, 4: 10}
    assert file.statistics.null_counts == {1: 0, 2: 0, 4: 1}
    assert file.statistics.lower[2] == file.statistics.upper[2]
    assert 4 not in file.statistics.lower
    assert (file.schema_id, file.spec_id, file.sort_order_id) == (target.schema["schema-id"], 1, 0)


@pytest.mark.parametrize("data", [[], {"a": []}, pa.table({"a": pa.array([], pa.int64())}), iter(())])
def test_no_rows_make_no_file(tmp_path: Path, data: Any) -> None:
    assert write_arrow(target_for(tmp_path, {"a": "long"}), data) == []
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4", "none"])
def test_the_tables_codec_is_the_files(tmp_path: Path, codec: str) -> None:
    target = target_for(tmp_path, {"a": "long"}, compression=codec)
    (file,) = write_arrow(target, {"a": list(range(1000))})
    found = pq.read_metadata(file.path.removeprefix("file://")).row_group(0).column(0).compression
    assert found == {"none": "UNCOMPRESSED"}.get(codec, codec.upper())
    assert file.is_compressed == (codec != "none")
    assert rows(target, [file]) == [{"a": i} for i in range(1000)]


def test_an_unknown_codec_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="'brotlix' is not known"):
        write_arrow(target_for(tmp_path, {"a": "long"}, compression="brotlix"), {"a": [1]})


PARTITIONS: list[tuple[str, str, list[Any]]] = [
    ("long", "identity", [1, None, 2, 1, -(2**63)]),
    ("string", "identity", ["a", None, "", "a/b=c", "..", "%2F", "é𝄞", "x" * 500, " ", "'\"\n"]),
    ("boolean", "identity", [True, None, False]),
    ("double", "identity", [1.5, None, math.nan, math.inf, -0.0, 0.0, math.nan]),
    ("decimal(9, 2)", "identity", [D("1.10"), None, D("-1.10")]),
    ("date", "identity", [dt.date(2024, 1, 31), None]),
    ("timestamp", "identity", [dt.datetime(2024, 1, 31, 1), dt.datetime(2024, 1, 31, 1, 0, 0, 500000)]),
    ("binary", "identity", [b"", b"\xff", None]),
    ("uuid", "identity", [uuid.UUID(int=1), None]),
    ("long", "bucket[4]", [1, None, 2, 3, 4, 5]),
    ("string", "bucket[4]", ["a", "b", None, "é𝄞"]),
    ("uuid", "bucket[4]", [uuid.UUID(int=1), uuid.UUID(int=2), None]),
    ("decimal(9, 2)", "bucket[4]", [D("1.10"), D("-5.00"), None]),
    ("long", "truncate[10]", [1, 11, -1, None]),
    ("string", "truncate[2]", ["abc", "abd", "é𝄞x", "", None]),
    ("date", "year", [dt.date(1969, 12, 31), dt.date(1970, 1, 1), None]),
    ("date", "month", [dt.date(1969, 12, 31), dt.date(1970, 1, 1), None]),
    ("date", "day", [dt.date(1969, 12, 31), dt.date(1970, 1, 1), None]),
    ("timestamp", "day", [dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(1970, 1, 1), None]),
    ("timestamptz", "hour", [dt.datetime(1969, 12, 31, 23, 59, tzinfo=dt.UTC), None]),
    ("long", "void", [1, 2]),
]


def expected_partition(type_: str, transform: str, value: Any) -> Any:
    """The transform by pyiceberg's scalar code, which shares nothing with the one under test."""
    if value is None or transform == "void":
        return None
    from pyiceberg.conversions import to_json
    from pyiceberg.types import DateType, IntegerType, PrimitiveType
    from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

    model = schemas.to_pyiceberg(schema_of({"x": type_})).fields[0].field_type
    assert isinstance(model, PrimitiveType)
    internal = value
    if isinstance(value, dt.datetime):
        internal = datetime_to_micros(value)
    elif isinstance(value, dt.date):
        internal = date_to_days(value)
    elif isinstance(value, dt.time):
        internal = time_to_micros(value)
    elif isinstance(value, uuid.UUID) and transform != "identity":
        internal = value.bytes
    result = parse_transform(transform).transform(model)(internal)
    if transform == "identity" or transform.startswith("truncate"):
        if isinstance(value, float) and not math.isfinite(value):
            return {"nan": "NaN", "inf": "Infinity"}[str(value)]
        if type_ == "timestamp":
            text = to_json(model, result)
            return text.rstrip("0").rstrip(".") if "." in text else text
        return to_json(model, result)
    return to_json(DateType() if transform == "day" else IntegerType(), result)


@pytest.mark.parametrize("type_, transform, values", PARTITIONS, ids=[f"{t}-{f}" for t, f, _ in PARTITIONS])
def test_rows_are_split_by_every_transform(tmp_path: Path, type_: str, transform: str, values: list[Any]) -> None:
    target = target_for(tmp_path, {"n": "long", "x": type_}, ("x", transform))
    files = write_arrow(target, [{"n": i, "x": value} for i, value in enumerate(values)])
    expected = defaultdict(list)
    for i, value in enumerate(values):
        expected[partition_key({1000: expected_partition(type_, transform, value)})].append(i)
    found = {partition_key(file.partition): content(target, file).column("n").to_pylist() for file in files}
    assert found == dict(expected)
    assert len({file.partition_path for file in files}) == len(files)
    for file in files:
        assert file.path.removeprefix(target.intent.prefix).count("/") == 0


def test_two_partition_fields_and_a_nested_source(tmp_path: Path) -> None:
    target = target_for(
        tmp_path, {"a": "int", "s": "struct<p: string>"}, ("a", "identity"), ("s.p", "identity"), ("a", "bucket[2]")
    )
    data = [{"a": a, "s": s} for a in (1, 2) for s in ({"p": "x"}, {"p": None}, None)]
    files = write_arrow(target, data)
    assert {(f.partition[1000], f.partition[1001]) for f in files} == {(1, "x"), (1, None), (2, "x"), (2, None)}
    assert sum(f.row_count for f in files) == 6


def test_a_missing_partition_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileRefused, match="'x' is missing"):
        write_arrow(target_for(tmp_path, {"n": "long", "x": "int"}, ("x", "identity")), {"n": [1]})


ORDERS = [
    ("asc", "nulls-first", [None, None, -math.inf, 1.0, 2.0, math.inf, math.nan]),
    ("asc", "nulls-last", [-math.inf, 1.0, 2.0, math.inf, math.nan, None, None]),
    ("desc", "nulls-first", [None, None, math.nan, math.inf, 2.0, 1.0, -math.inf]),
    ("desc", "nulls-last", [math.nan, math.inf, 2.0, 1.0, -math.inf, None, None]),
]


@pytest.mark.parametrize("direction, nulls, expected", ORDERS)
def test_rows_are_sorted_as_the_table_says(tmp_path: Path, direction: str, nulls: str, expected: list[Any]) -> None:
    target = target_for(tmp_path, {"x": "double", "n": "long"}, sort_by=(("x", direction, nulls),))
    (file,) = write_arrow(target, {"x": [2.0, None, math.nan, 1.0, math.inf, -math.inf, None], "n": list(range(7))})
    assert str(content(target, file).column("x").to_pylist()) == str(expected)
    assert file.sort_order_id == 1


def test_a_second_sort_column_decides_among_equals(tmp_path: Path) -> None:
    target = target_for(
        tmp_path, {"x": "int", "y": "string"}, sort_by=(("x", "desc", "nulls-last"), ("y", "asc", "nulls-first"))
    )
    (file,) = write_arrow(target, {"x": [1, 2, 1, 2], "y": ["b", "b", None, "a"]})
    assert [tuple(r.values()) for r in content(target, file).to_pylist()] == [(2, "a"), (2, "b"), (1, None), (1, "b")]


def test_a_file_of_several_row_groups_does_not_say_that_it_is_sorted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_writer, "FLUSH_ROWS", 3)
    monkeypatch.setattr(file_writer, "SLICE_ROWS", 3)
    target = target_for(tmp_path, {"x": "int"}, sort_by=(("x", "asc", "nulls-first"),))
    (file,) = write_arrow(target, {"x": [9, 8, 7, 3, 2, 1]})
    assert content(target, file).column("x").to_pylist() == [7, 8, 9, 1, 2, 3]
    assert file.sort_order_id == 0
    assert len(file.split_offsets) == 2


def batches(count: int, rows_each: int) -> Iterator[pa.RecordBatch]:
    for i in range(count):
        yield pa.record_batch({"n": range(i * rows_each, (i + 1) * rows_each), "p": [i % 7] * rows_each})


def test_files_roll_at_the_target_size_and_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "FLUSH_ROWS", 1000)
    target = target_for(
        tmp_path, {"n": "long", "p": "long"}, properties={"write.target-file-size-bytes": "20000"}, compression="none"
    )
    reader = pa.RecordBatchReader.from_batches(next(batches(1, 1)).schema, batches(20, 1000))
    files = write_arrow(target, reader)
    assert len(files) > 3
    assert all(file.size < 40000 for file in files)
    assert sorted(row["n"] for row in rows(target, files)) == list(range(20000))
    for file in files:
        raw = target.engine.read(file.path)
        assert file.checksum == f"sha256:{hashlib.sha256(raw).hexdigest()}"
        assert file.size == len(raw)
        assert decode_footer(file.footer or b"").equals(pq.read_metadata(pa.BufferReader(raw)))


def test_open_files_and_waiting_rows_are_bounded_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_writer, "FLUSH_ROWS", 100)
    monkeypatch.setattr(file_writer, "BUFFER_BYTES", 2000)
    monkeypatch.setattr(file_writer, "MAX_OPEN_FILES", 2)
    target = target_for(tmp_path, {"n": "long", "p": "long"}, ("p", "identity"))
    opened = 0
    most = 0
    output = type(target.engine.open_output(f"{target.intent.prefix}probe"))
    original_init, original_close = output.__init__, output.close

    def counted(self: Any, *arguments: Any, **options: Any) -> None:
        nonlocal opened, most
        original_init(self, *arguments, **options)
        opened += 1
        most = max(most, opened)

    def closed(self: Any) -> None:
        nonlocal opened
        opened -= not self.closed
        original_close(self)

    monkeypatch.setattr(output, "__init__", counted)
    monkeypatch.setattr(output, "close", closed)
    files = write_arrow(target, pa.RecordBatchReader.from_batches(next(batches(1, 1)).schema, batches(70, 50)))
    assert most <= 3  # a third one is opened just before the oldest is finished
    assert sorted(row["n"] for row in rows(target, files)) == list(range(3500))
    assert all(len(set(content(target, f).column("p").to_pylist())) == 1 for f in files)


def test_a_value_refused_in_the_middle_leaves_no_open_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "FLUSH_ROWS", 10)

    def data() -> Iterator[dict[str, Any]]:
        for i in range(30_000):
            yield {"n": i}
        yield {"n": "x"}

    with pytest.raises(FileRefused, match="'n'"):
        write_arrow(target_for(tmp_path, {"n": "long"}), data())
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_writes_of_one_intent_do_not_meet(tmp_path: Path) -> None:
    target = target_for(tmp_path, {"n": "long"})
    files = [file for i in range(3) for file in write_arrow(target, {"n": [i]})]
    assert len({file.path for file in files}) == 3
    assert [row["n"] for row in rows(target, files)] == [0, 1, 2]


def test_two_thousand_columns_are_written_and_counted(tmp_path: Path) -> None:
    target = target_for(tmp_path, {f"c{i}": "int" for i in range(2000)})
    (file,) = write_arrow(target, {f"c{i}": [i, None] for i in range(2000)})
    assert len(file.statistics.lower) == 2000
    assert file.statistics.null_counts == dict.fromkeys(range(1, 2001), 1)


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file where the warehouse should be")
    with pytest.raises(StorageError, match="lake"):
        write_arrow(target_for(tmp_path / "lake", {"n": "long"}), {"n": [1]})
