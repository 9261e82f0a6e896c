"""Each line of docs/reference/values.md, by every way in that needs no Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakeward.arrow.coerce import Wanted
from lakeward.arrow.imports import import_files
from lakeward.arrow.json_lines import JsonSink
from lakeward.arrow.json_read import read_json_lines
from lakeward.arrow.target import TableTarget
from lakeward.arrow.write import write_arrow
from lakeward.errors import FileRefused
from lakeward.iceberg.arrow import to_arrow_type
from lakeward.tables.records.files import DataFile
from tests.support.value_rules import ValueRule, arrow_array, value_rules
from tests.unit.arrow.targets import schema_of, target_for

RULES = value_rules()
Way = Callable[[ValueRule, Path], Any]


def rows(rule: ValueRule, folder: Path) -> Any:
    return [{"a": rule.value}]


def columns(rule: ValueRule, folder: Path) -> Any:
    return {"a": [rule.value]}


def arrow(rule: ValueRule, folder: Path) -> Any:
    if rule.type.startswith("map"):
        return pa.table({"a": pa.array([list(rule.value.items())], pa.map_(pa.string(), pa.int64()))})
    array = arrow_array(rule.value)
    return None if array is None else pa.table({"a": array})


def dictionary(rule: ValueRule, folder: Path) -> Any:
    return pa.table({"a": pa.array([rule.value]).dictionary_encode()}) if isinstance(rule.value, str) else None


def parquet(rule: ValueRule, folder: Path) -> Any:
    table = arrow(rule, folder)
    if table is None or rule.type.startswith(
        ("map", "uuid")
    ):  # Parquet tells a struct from a map, and bytes from a UUID
        return None
    pq.write_table(table, folder / "a.parquet")
    return folder / "a.parquet"


def json_lines(rule: ValueRule, folder: Path) -> Any:
    (folder / "a.jsonl").write_text(json.dumps({"a": rule.value}) if rule.is_in_json else "")
    return folder / "a.jsonl" if rule.is_in_json else None


def json_array(rule: ValueRule, folder: Path) -> Any:
    (folder / "a.json").write_text(json.dumps([{"a": rule.value}], indent=2) if rule.is_in_json else "")
    return folder / "a.json" if rule.is_in_json else None


def csv(rule: ValueRule, folder: Path) -> Any:
    value = rule.value if isinstance(rule.value, str) else json.dumps(rule.value) if rule.is_in_csv else None
    if not rule.is_in_csv and isinstance(rule.value, (list, dict)):
        value = '"' + json.dumps(rule.value).replace('"', '""') + '"'
    if value is None:
        return None
    (folder / "a.csv").write_text(f"a\n{value}\n")
    return folder / "a.csv"


def written(target: TableTarget, data: Any) -> list[DataFile]:
    if isinstance(data, Path):
        return import_files(target, [data])
    return write_arrow(target, data, JsonSink if target.metadata.format == "json" else None)


def read(target: TableTarget, file: DataFile) -> pa.Table:
    if file.file_type == "json":
        with target.engine.open_input(file.path) as source:
            return read_json_lines(source, Wanted.of(target.schema), file.path).read_all()
    return pq.read_table(file.path.removeprefix("file://"), schema=target.arrow_schema)


@pytest.mark.parametrize("format", ["parquet", "json"])
@pytest.mark.parametrize("way", [rows, columns, arrow, dictionary, parquet, json_lines, json_array, csv])
def test_each_line_of_the_page_is_so(tmp_path: Path, way: Way, format: str) -> None:
    tried = 0
    for number, rule in enumerate(RULES):
        folder = tmp_path / str(number)
        folder.mkdir()
        data = way(rule, folder)
        if data is None:
            continue
        tried += 1
        target = target_for(folder / "lake", {"a": rule.type}, file_format=format)
        if rule.is_refused:
            with pytest.raises(FileRefused) as refused:
                written(target, data)
                raise AssertionError(f"{rule} was taken")
            assert refused.value.reason == "wrong_type", rule
            assert "'a" in str(refused.value), rule
        else:
            (file,) = written(target, data)
            (found,) = read(target, file)["a"].to_pylist()
            assert found == rule.becomes and type(found) is type(rule.becomes), rule
    assert tried > 20


def test_the_page_has_rules_for_every_type() -> None:
    assert {rule.type.partition("<")[0].partition("(")[0].partition("[")[0] for rule in RULES} == {
        "boolean", "int", "long", "float", "double", "decimal", "date", "time", "timestamp", "timestamptz", "string", "uuid",
        "binary", "fixed", "list", "map", "struct",
    }  # fmt: skip


# What is taken is read back the same -----------------------------------------------------------------------------------------
_INT64 = st.integers(-(2**63), 2**63 - 1)
# Every value that an array of Arrow's can have of each type, as what its buffer holds.
RAW: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": _INT64,
    "float": st.floats(width=32),
    "double": st.floats(),
    "decimal(38, 10)": st.decimals(-(10**27), 10**27, places=10, allow_nan=False, allow_infinity=False),
    "date": st.integers(-(2**31), 2**31 - 1),
    "time": _INT64 | st.integers(0, 86_399_999_999),
    "timestamp": _INT64,
    "timestamptz": _INT64,
    "timestamp_ns": _INT64,
    "timestamptz_ns": _INT64,
    "string": st.text(),
    "binary": st.binary(),
    "fixed[3]": st.binary(min_size=3, max_size=3),
    "uuid": st.binary(min_size=16, max_size=16),
}


def array_of(type_: str, raws: list[Any]) -> pa.Array:
    target = to_arrow_type(schema_of({"a": type_}, format_version=3)["fields"][0]["type"])
    if pa.types.is_temporal(target):
        return pa.array(raws, pa.int32() if type_ == "date" else pa.int64()).view(target)
    if type_ == "uuid":
        return pa.ExtensionArray.from_storage(target, pa.array(raws, pa.binary(16)))
    return pa.array(raws, target)


def same(one: pa.Table, other: pa.Table) -> bool:
    """Value for value, NaN being NaN and 0.0 not -0.0."""
    if one.schema.types == other.schema.types and one.equals(other):
        return True
    return str(one.to_pydict()) == str(other.to_pydict())


@pytest.mark.parametrize("format", ["parquet", "json"])
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_is_taken_of_any_type_is_read_back_the_same(
    tmp_path_factory: pytest.TempPathFactory, format: str, data: st.DataObject
) -> None:
    type_ = data.draw(st.sampled_from(sorted(RAW)))
    values = array_of(type_, data.draw(st.lists(st.none() | RAW[type_], min_size=1, max_size=6)))
    lists = pa.ListArray.from_arrays(pa.array([0, *range(1, len(values) + 1)], pa.int32()), values)
    structs = pa.StructArray.from_arrays([values], fields=[pa.field("x", values.type)])
    table = pa.table({"a": values, "l": lists, "s": structs})
    schema = {"a": type_, "l": f"list<{type_}>", "s": f"struct<x: {type_}>"}
    target = target_for(tmp_path_factory.mktemp("t"), schema_of(schema, format_version=3), file_format=format)
    try:
        (file,) = written(target, table)
    except FileRefused:
        assert type_ == "time"  # of which some are in no day
        return
    assert same(read(target, file).cast(table.schema), table)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_rows_lines_of_json_and_arrow_data_of_the_same_values_give_the_same_or_are_all_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    type_ = data.draw(
        st.sampled_from(["boolean", "int", "long", "float", "double", "decimal(9,2)", "date", "timestamp", "string"])
    )
    number = st.integers(-(2**34), 2**34) | st.floats(allow_nan=False, allow_infinity=False)
    text = st.text("0123456789+-.eE:TZ ", max_size=12) | number.map(str) | st.datetimes().map(str) | st.dates().map(str)
    value = data.draw(number | text | st.booleans())
    folder = tmp_path_factory.mktemp("t")
    (folder / "a.jsonl").write_text(json.dumps({"a": value}))
    answers = []
    for name, form in {"rows": [{"a": value}], "arrow": pa.table({"a": [value]}), "json": folder / "a.jsonl"}.items():
        target = target_for(folder, {"a": type_}, intent=name)
        try:
            answers.append(str(read(target, written(target, form)[0])["a"].to_pylist()))
        except FileRefused as error:
            answers.append(error.reason)
    assert len(set(answers)) == 1, (type_, value, answers)
