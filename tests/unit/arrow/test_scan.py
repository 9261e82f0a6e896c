from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakeward.arrow import file_writer, scan
from lakeward.arrow.file_writer import NewSink
from lakeward.arrow.json_lines import JsonSink
from lakeward.arrow.scan import prepare, scan_files
from lakeward.arrow.target import TableTarget
from lakeward.arrow.write import ParquetSink, write_arrow
from lakeward.errors import (
    ColumnNotFound,
    FileRefused,
    InvalidFilter,
    InvalidInput,
    ObjectNotFound,
    PartitionMetadataNotFound,
    StorageError,
)
from lakeward.storage.parquet_footers import decode_footer
from lakeward.tables.records.files import DataFile, RegisteredFile, partition_key
from lakeward.tables.records.tables import Document
from tests.unit.arrow.targets import NOW, schema_of, target_for


def registered(file: DataFile, number: int, **changes: Any) -> RegisteredFile:
    values: dict[str, Any] = {
        "file_id": number, "table_id": 1, "file_name": file.path.rpartition("/")[2], "file_path": file.path,
        "file_size": file.size, "file_type": file.file_type, "content": 0, "partition_key": partition_key(file.partition),
        "partition_path": file.partition_path, "row_count": file.row_count, "checksum": file.checksum,
        "is_compressed": True, "statistics": file.statistics, "split_offsets": file.split_offsets,
        "schema_id": file.schema_id, "spec_id": file.spec_id, "sort_order_id": 0, "created_at": NOW, "modified_at": NOW,
        "registered_at": NOW, "intent_id": None, "snapshot_id": None, "sequence_number": None, "first_row_id": None,
        "set_aside_reason": None,
    }  # fmt: skip
    return RegisteredFile(**{**values, **changes})


class Table:
    """Files and their footers, as a registry would have them."""

    def __init__(self, target: TableTarget) -> None:
        self.target = target
        self.files: list[RegisteredFile] = []
        self.footers: dict[str, bytes | None] = {}
        self.schemas: dict[int, Document] = {}
        self.asked: list[list[str]] = []

    def add(self, files: Sequence[DataFile], schema: Document | None = None) -> None:
        for file in files:
            self.files.append(registered(file, len(self.files)))
            self.footers[file.path] = file.footer
        schema = schema or self.target.schema
        self.schemas[schema["schema-id"]] = schema

    def load(self, paths: list[str]) -> Mapping[str, Any]:
        self.asked.append(paths)
        return {p: None if (f := self.footers[p]) is None else decode_footer(f) for p in paths if p in self.footers}

    def scan(self, schema: Document | None = None, columns: Any = None, filter: Any = None) -> pa.RecordBatchReader:
        versions = [
            msgspec.structs.replace(self.target.metadata, schema=each, schema_version=each["schema-id"])
            for each in (*self.schemas.values(), schema or self.target.schema)
        ]
        return scan_files(prepare(versions, columns, filter), self.files, self.load, self.target.engine)

    def rows(self, *arguments: Any, **options: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.scan(*arguments, **options).read_all().to_pylist()
        return found


@pytest.fixture
def table(tmp_path: Path) -> Table:
    target = target_for(tmp_path, {"id": "long", "s": "string", "month": "int"}, ("month", "identity"))
    table = Table(target)
    for start in (0, 10):
        table.add(write_arrow(target, [{"id": i, "s": f"s{i}", "month": i % 3} for i in range(start, start + 10)]))
    return table


def test_all_rows_of_all_files_are_read_in_the_tables_schema(table: Table) -> None:
    reader = table.scan()
    assert reader.schema == table.target.arrow_schema
    assert sorted(row["id"] for row in reader.read_all().to_pylist()) == list(range(20))


def test_columns_come_in_the_order_asked_for_though_the_filter_needs_others(table: Table) -> None:
    found = table.scan(columns=["s", "id"], filter="month = 1 and id > 10")
    assert found.schema.names == ["s", "id"]
    assert sorted(row["id"] for row in found.read_all().to_pylist()) == [13, 16, 19]


@pytest.mark.parametrize("source", ["month = 1 and id >= 10", (pc.field("month") == 1) & (pc.field("id") >= 10)])
def test_only_files_that_may_match_are_opened(table: Table, source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    engine = type(table.target.engine)
    original = engine.open_input

    def recorded(self: Any, location: str) -> Any:
        opened.append(location)
        return original(self, location)

    monkeypatch.setattr(engine, "open_input", recorded)
    assert {row["id"] for row in table.rows(filter=source)} == {10, 13, 16, 19}
    assert len(opened) == 1
    assert table.asked == [opened]


def test_no_footer_is_read_from_the_objects(table: Table) -> None:
    for file in table.files:
        path = Path(file.file_path.removeprefix("file://"))
        data = path.read_bytes()
        footer = int.from_bytes(data[-8:-4], "little") + 8
        path.write_bytes(data[:-footer] + b"x" * footer)
    assert len(table.rows()) == 20


def test_where_no_footer_is_kept_the_objects_own_is_read(table: Table) -> None:
    table.footers = dict.fromkeys(table.footers)
    assert len(table.rows(filter="id < 5")) == 5


def test_a_path_that_the_loader_does_not_know_is_an_error(table: Table) -> None:
    path, _ = table.footers.popitem()
    with pytest.raises(PartitionMetadataNotFound, match=path):
        table.rows()


def test_row_groups_are_pruned_by_the_stored_footers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "FLUSH_ROWS", 100)
    monkeypatch.setattr(file_writer, "SLICE_ROWS", 100)
    table = Table(target_for(tmp_path, {"id": "long"}))
    table.add(write_arrow(table.target, {"id": list(range(1000))}))
    read: list[list[int]] = []
    original = pq.ParquetFile.iter_batches

    def recorded(self: Any, **options: Any) -> Any:
        read.append(options["row_groups"])
        return original(self, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", recorded)
    assert [row["id"] for row in table.rows(filter="id between 250 and 260")] == list(range(250, 261))
    assert read == [[2]]


def evolved(schema: Document, change: Callable[[list[Document]], None]) -> Document:
    document = {**schema, "schema-id": schema["schema-id"] + 1, "fields": [dict(f) for f in schema["fields"]]}
    change(document["fields"])
    return document


@pytest.mark.parametrize("new_sink", [ParquetSink, JsonSink])
def test_old_files_are_read_by_the_new_schema(tmp_path: Path, new_sink: NewSink) -> None:
    old = schema_of({"a": "int", "b": "float", "gone": "string", "d": "decimal(5, 2)", "n": "struct<x: int, y: int>"})
    table = Table(target_for(tmp_path, old))
    row = {"a": 1, "b": 1.5, "gone": "x", "d": 1, "n": {"x": 1, "y": 2}}
    table.add(write_arrow(table.target, [row, {}], new_sink), old)

    def change(fields: list[Document]) -> None:
        a, b, _, d, n = fields
        a.update(name="renamed", type="long")
        b.update(type="double")
        d.update(type="decimal(9, 2)")
        x, _ = n["type"]["fields"]
        n["type"] = {"type": "struct", "fields": [{**x, "name": "z"}, {**x, "id": 50, "name": "new"}]}
        fields[:] = [n, d, b, a, {"id": 60, "name": "a", "required": False, "type": "string"}]

    new = evolved(old, change)
    table.add([], new)
    expected = {"n": {"z": 1, "new": None}, "d": 1, "b": 1.5, "renamed": 1, "a": None}
    assert table.rows(new) == [expected, dict.fromkeys(expected)]
    assert table.rows(new, columns=["a"]) == [{"a": None}, {"a": None}]
    assert table.rows(new, columns=["b"], filter="renamed = 1") == [{"b": 1.5}]
    assert table.rows(new, columns=["renamed"], filter="a is null and d = 1.00") == [{"renamed": 1}]


def test_an_added_column_has_its_initial_default_in_old_files(tmp_path: Path) -> None:
    old = schema_of({"a": "int"}, format_version=3)
    table = Table(target_for(tmp_path, old))
    table.add(write_arrow(table.target, {"a": [1, 2]}))
    field = {"id": 9, "name": "d", "required": True, "type": "decimal(5, 2)", "initial-default": "1.50"}
    new = evolved(old, lambda fields: fields.append(field))
    assert [str(row["d"]) for row in table.rows(new)] == ["1.50", "1.50"]


def test_an_added_field_of_a_struct_has_its_initial_default_in_old_files(tmp_path: Path) -> None:
    old = schema_of({"n": "struct<x: int>"}, format_version=3)
    table = Table(target_for(tmp_path, old))
    table.add(write_arrow(table.target, [{"n": {"x": 1}}, {"n": None}]))
    field = {"id": 9, "name": "y", "required": False, "type": "int", "initial-default": 7}
    new = evolved(old, lambda fields: fields[0]["type"]["fields"].append(field))
    assert table.rows(new) == [{"n": {"x": 1, "y": 7}}, {"n": None}]


def test_json_and_parquet_files_are_read_together(tmp_path: Path) -> None:
    table = Table(target_for(tmp_path, {"a": "int", "t": "timestamptz"}))
    table.add(write_arrow(table.target, {"a": [1]}))
    table.add(write_arrow(table.target, {"a": [2]}, JsonSink))
    assert [row["a"] for row in table.rows()] == [1, 2]
    assert [row["a"] for row in table.rows(filter="a = 2")] == [2]


def test_names_with_dots_quotes_and_blanks_are_read(tmp_path: Path) -> None:
    names = ["a.b", "a b", 'a"b', "größe", "a"]
    table = Table(target_for(tmp_path, dict.fromkeys(names, "int")))
    table.add(write_arrow(table.target, {name: [i] for i, name in enumerate(names)}))
    for i, name in enumerate(names):
        assert table.rows(columns=[name]) == [{name: i}]
    assert table.rows(filter='"a b" = 1') == [dict(zip(names, range(5), strict=True))]
    assert table.rows(filter=pc.field("a.b") == 0, columns=["a"]) == [{"a": 4}]


def test_footers_are_asked_for_in_groups(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "FOOTERS_AT_A_TIME", 4)
    assert len(table.rows()) == 20
    assert [len(paths) for paths in table.asked] == [4, 2]


def test_nothing_is_opened_before_it_is_asked_for(table: Table) -> None:
    table.scan()
    assert table.asked == []


def test_no_files_are_an_empty_answer_in_the_right_schema(tmp_path: Path) -> None:
    empty = Table(target_for(tmp_path, {"a": "int"})).scan().read_all()
    assert (empty.num_rows, empty.schema.names) == (0, ["a"])


@pytest.mark.parametrize(
    "options, kind, what",
    [
        ({"columns": ["z"]}, ColumnNotFound, "'z'"),
        ({"columns": ["id", "id"]}, InvalidInput, "twice"),
        ({"columns": "id"}, InvalidInput, "list"),
        ({"columns": []}, InvalidInput, "none"),
        ({"filter": "z = 1"}, ColumnNotFound, "z"),
        ({"filter": "id ="}, InvalidFilter, "id ="),
    ],
)
def test_what_cannot_be_scanned_is_refused_at_once(
    table: Table, options: Any, kind: type[Exception], what: str
) -> None:
    with pytest.raises(kind, match=what):
        table.scan(**options)


def test_a_file_of_deletes_is_refused(table: Table) -> None:
    table.files.append(registered(write_arrow(table.target, {"id": [1], "month": [1]})[0], 99, content=1))
    with pytest.raises(InvalidInput, match="deletes"):
        table.scan()


def test_a_missing_or_broken_object_is_named(table: Table) -> None:
    path = Path(table.files[-1].file_path.removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises((StorageError, FileRefused), match=str(path)):
        table.rows()
    path.unlink()
    with pytest.raises(ObjectNotFound, match=f"{path} is registered, but not there any more; `lakeward audit TABLE`"):
        table.rows()
