from __future__ import annotations

import gzip
import io
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.arrow import json_values
from lakeward.arrow.accepted import decode
from lakeward.arrow.coerce import Wanted, coerce
from lakeward.arrow.json_lines import JsonSink, encode_lines
from lakeward.arrow.json_read import read_json_lines
from lakeward.arrow.target import TableTarget
from lakeward.arrow.write import write_arrow
from lakeward.errors import FileRefused, InvalidSetting
from lakeward.tables.records.files import DataFile
from lakeward.tables.records.tables import Document
from tests.unit.arrow.targets import schema_of, target_for
from tests.unit.arrow.test_write import EVERY_VALUE, EVERYTHING


def read(target: TableTarget, file: DataFile) -> pa.Table:
    with target.engine.open_input(file.path) as source:
        return read_json_lines(source, Wanted.of(target.schema), file.path).read_all()


def parse(text: str | bytes, schema: Document) -> list[dict[str, Any]]:
    data = text.encode() if isinstance(text, str) else text
    rows: list[dict[str, Any]] = (
        read_json_lines(pa.BufferReader(data), Wanted.of(schema), "my.json").read_all().to_pylist()
    )
    return rows


@pytest.mark.parametrize("codec", ["zstd", "gzip", "none"])
def test_every_type_is_read_back_the_same(tmp_path: Path, codec: str) -> None:
    target = target_for(tmp_path, EVERYTHING, file_format="json", compression=codec)
    data = coerce([EVERY_VALUE, {}], target.schema).read_all()
    (file,) = write_arrow(target, data, JsonSink)
    assert read(target, file).equals(data)
    assert (file.file_type, file.row_count, file.is_compressed) == ("json", 2, codec != "none")
    assert file.size == target.engine.size(file.path)
    assert file.statistics.null_counts[1] == 1
    assert not file.statistics.lower


def test_values_are_icebergs_single_values_in_json() -> None:
    schema = schema_of(EVERYTHING)
    line = json.loads(encode_lines(coerce([EVERY_VALUE], schema).read_next_batch(), schema))
    assert {name: line[name] for name in ("dec", "day", "t", "ts", "tz", "u", "fx")} == {
        "dec": "-1.25",
        "day": "1960-02-29",
        "t": "23:59:59.999999",
        "ts": "1960-01-01T00:00:00.000001",
        "tz": "2024-01-01T00:00:00+00:00",
        "u": "80000000-0000-0000-0000-000000000000",
        "fx": "00ff80",
    }
    assert line["m"] == {"k": {"z": 1.0}, "l": None}


def test_what_is_not_a_number_is_kept() -> None:
    schema = schema_of({"d": "double", "f": "float"})
    batch = coerce(
        {"d": [math.nan, math.inf, -math.inf, -0.0], "f": [math.nan, 1.5, None, 0.1]}, schema
    ).read_next_batch()
    lines = encode_lines(batch, schema)
    assert b'"NaN"' in lines
    assert str(parse(lines, schema)) == str(batch.to_pylist())


@pytest.mark.parametrize(
    "type_, text",
    [
        ("timestamp", "2024-01-01T10:00:00.5"),
        ("timestamptz_ns", "2024-01-01T10:00:00.000000001+00:00"),
        ("timestamp", "1969-12-31T23:59:59.999999"),
        ("time", "10:00:00"),
        ("decimal(38, 20)", "-123456789012345678.12345678901234567890"),
        ("map<int, string>", {"keys": [1, 2], "values": ["a", None]}),
        ("list<list<int>>", [[1], None, []]),
    ],
)
def test_a_single_value_is_written_as_it_was_read(type_: str, text: Any) -> None:
    document = schema_of({"x": type_}, format_version=3)["fields"][0]["type"]
    assert json_values.encode(decode([text, None], document, "x", written=True), document) == [text, None]


TYPES = st.sampled_from(["long", "double", "string", "decimal(20, 3)", "timestamp", "date", "binary", "boolean"])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(),
    "string": st.text(),
    "decimal(20, 3)": st.decimals(
        allow_nan=False, allow_infinity=False, places=3, min_value=-(10**16), max_value=10**16
    ),
    "timestamp": st.datetimes(),
    "date": st.dates(),
    "binary": st.binary(),
    "boolean": st.booleans(),
}


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_value_in_any_nesting_comes_back(data: st.DataObject) -> None:
    type_ = data.draw(TYPES)
    value = st.none() | VALUES[type_]
    nested = {"v": type_, "l": f"list<{type_}>", "s": f"struct<x: {type_}>", "m": f"map<string, {type_}>"}
    rows = data.draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "v": value,
                    "l": st.none() | st.lists(value, max_size=3),
                    "s": st.none() | st.fixed_dictionaries({"x": value}),
                    "m": st.none() | st.dictionaries(st.text(max_size=3), value, max_size=3),
                }
            ),
            min_size=1,
            max_size=5,
        )
    )
    schema = schema_of(nested)
    batch = coerce(rows, schema).read_next_batch()
    assert str(parse(encode_lines(batch, schema), schema)) == str(batch.to_pylist())


def test_what_people_write_is_taken_too() -> None:
    schema = schema_of({"dec": "decimal(9, 2)", "d": "double", "ts": "timestamp", "tz": "timestamptz", "s": "string"})
    text = (
        '\ufeff{"dec": 1.5, "d": 3, "ts": "2024-01-31 10:00:00", "tz": "2024-01-31T10:00:00+02:00"}\r\n'
        "\n"
        '{"s": "é", "dec": 12345.67, "ts": "2024-01-31"}'
    )
    first, second = parse(text, schema)
    assert first["dec"] == Decimal("1.50")
    assert first["d"] == 3.0
    assert first["tz"].isoformat() == "2024-01-31T08:00:00+00:00"
    assert (second["s"], second["dec"]) == ("é", Decimal("12345.67"))


@pytest.mark.parametrize(
    "line, reason, what",
    [
        ('{"a": 1', "unreadable", "no JSON"),
        ("[1]", "unreadable", "no object"),
        ("nonsense", "unreadable", "no JSON"),
        ('{"a": 1, "z": 2}', "unknown_column", "'z'"),
        ('{"a": "one"}', "wrong_type", "'a'"),
        ('{"a": 1.5}', "wrong_type", "'a'"),
        ('{"a": true}', "wrong_type", "'a'"),
        ('{"a": 2147483648}', "wrong_type", "'a'"),
        ('{"r": null, "a": 1}', "null_in_required", "'r'"),
        ('{"d": "31.1.2024"}', "wrong_type", "'d'"),
        ('{"ts": "2024-01-31T10:00:00Z"}', "wrong_type", "'ts'"),
        ('{"ts": "2024-01-31T10:00:00.1234567"}', "wrong_type", "'ts'"),
        ('{"dec": 1.555}', "wrong_type", "'dec'"),
        ('{"l": 5}', "wrong_type", "'l'"),
        ('{"l": [5, "x"]}', "wrong_type", "'l.element'"),
        ('{"s": {"y": 1}}', "unknown_column", "'s.y'"),
        ('{"u": "no uuid"}', "wrong_type", "'u'"),
        ('{"b": "zz"}', "wrong_type", "'b'"),
    ],
)
def test_a_bad_line_is_refused_with_its_number(line: str, reason: str, what: str) -> None:
    schema = schema_of(
        {"a": "int", "r": "int not null", "d": "date", "ts": "timestamp", "dec": "decimal(9, 2)", "l": "list<int>",
         "s": "struct<x: int>", "u": "uuid", "b": "binary"}
    )  # fmt: skip
    if line.startswith("{") and '"r"' not in line:
        line = line.replace("{", '{"r": 1, ', 1)
    with pytest.raises(FileRefused) as caught:
        parse('{"r": 1}\n\n' + line + '\n{"r": 1}\n', schema)
    assert caught.value.reason == reason
    assert "my.json, line 3" in str(caught.value)
    assert what in str(caught.value)


def test_a_required_column_that_no_line_has_is_missing() -> None:
    with pytest.raises(FileRefused, match=r"line 1: column 'a' is required and missing") as caught:
        parse('{"b": 1}\n', schema_of({"a": "int not null", "b": "int"}))
    assert caught.value.reason == "missing_column"


def test_compressed_lines_that_end_in_the_middle_are_truncated() -> None:
    data = gzip.compress(b'{"a": 1}\n' * 100_000)
    with pytest.raises(FileRefused, match=r"my\.json") as caught:
        parse(data[: len(data) // 2], schema_of({"a": "int"}))
    assert caught.value.reason == "truncated"


def test_more_rows_than_are_read_at_a_time_keep_their_order() -> None:
    stream = io.BytesIO()
    for i in range(25_000):
        stream.write(b'{"a": %d}\n' % i)
    assert [row["a"] for row in parse(gzip.compress(stream.getvalue()), schema_of({"a": "int"}))] == list(range(25_000))


def test_rows_are_split_by_partition(tmp_path: Path) -> None:
    target = target_for(tmp_path, {"a": "int", "p": "string"}, ("p", "identity"), file_format="json")
    files = write_arrow(target, [{"a": i, "p": "xy"[i % 2]} for i in range(4)], JsonSink)
    assert {(f.partition[1000], tuple(read(target, f).column("a").to_pylist())) for f in files} == {
        ("x", (0, 2)),
        ("y", (1, 3)),
    }


def test_no_rows_make_no_file_and_a_codec_of_parquet_alone_is_refused(tmp_path: Path) -> None:
    assert write_arrow(target_for(tmp_path, {"a": "int"}, file_format="json"), [], JsonSink) == []
    with pytest.raises(InvalidSetting, match="snappy"):
        write_arrow(target_for(tmp_path, {"a": "int"}, file_format="json", compression="snappy"), [{"a": 1}], JsonSink)
