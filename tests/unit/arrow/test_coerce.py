from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakeward.arrow import splitting
from lakeward.arrow.coerce import coerce
from lakeward.errors import FileRefused, InvalidInput, LakewardError
from lakeward.iceberg.partitions import partition_spec
from tests.unit.arrow.targets import schema_of

D = Decimal
UTC = dt.UTC
NAIVE = dt.datetime(2024, 1, 1)
EPOCH = dt.datetime(1970, 1, 1)


def rows(data: Any, schema: Any, *sources: str) -> list[dict[str, Any]]:
    document = schema if isinstance(schema, dict) and schema.get("type") == "struct" else schema_of(schema)
    terms = splitting.terms(partition_spec(sources, document)[0]["fields"], document)
    result: list[dict[str, Any]] = coerce(data, document, terms).read_all().to_pylist()
    return result


def test_columns_are_matched_by_name_in_any_order_and_missing_ones_are_null() -> None:
    data = pa.table({"b": ["x"], "a": pa.array([1], pa.int16())})
    assert rows(data, {"a": "long", "b": "string", "c": "double"}) == [{"a": 1, "b": "x", "c": None}]


@pytest.mark.parametrize(
    "data",
    [
        pa.table({"a": [1, 2]}),
        pa.table({"a": [1, 2]}).to_reader(),
        pa.RecordBatch.from_pydict({"a": [1, 2]}),
        [{"a": 1}, {"a": 2}],
        ({"a": i} for i in (1, 2)),
        {"a": [1, 2]},
        {"a": pa.array([1, 2], pa.int8())},
        {"a": pa.chunked_array([[1], [2]])},
    ],
    ids=["table", "reader", "batch", "dicts", "iterator", "columns", "arrays", "chunks"],
)
def test_every_kind_of_data_gives_the_tables_own_schema(data: Any) -> None:
    schema = schema_of({"a": "long"})
    result = coerce(data, schema).read_all()
    assert result.to_pydict() == {"a": [1, 2]}
    assert result.schema.field("a").metadata[b"PARQUET:field_id"] == b"1"


def test_a_reader_is_not_read_before_it_is_asked_for() -> None:
    taken = []

    def batches() -> Iterator[pa.RecordBatch]:
        for i in range(1000):
            taken.append(i)
            yield pa.RecordBatch.from_pydict({"a": [i]})

    reader = coerce(
        pa.RecordBatchReader.from_batches(pa.schema([("a", pa.int64())]), batches()), schema_of({"a": "long"})
    )
    reader.read_next_batch()
    assert len(taken) <= 2


FITTING: list[tuple[pa.Array, str, list[Any]]] = [
    (pa.array([1, None], pa.int8()), "int", [1, None]),
    (pa.array([2**31 - 1], pa.int64()), "int", [2**31 - 1]),
    (pa.array([2**32 - 1], pa.uint32()), "long", [2**32 - 1]),
    (pa.array([2**53], pa.int64()), "double", [2.0**53]),
    (pa.array([1.5], pa.float32()), "double", [1.5]),
    (pa.array([1.5], pa.float16()), "float", [1.5]),
    (pa.array([D("1.5")], pa.decimal128(3, 1)), "decimal(9, 2)", [D("1.50")]),
    (pa.array([D("1.50")], pa.decimal128(38, 10)), "decimal(5, 2)", [D("1.50")]),
    (pa.array(["x"], pa.large_string()), "string", ["x"]),
    (pa.array(["x", None]).dictionary_encode(), "string", ["x", None]),
    (pa.array(["x"], pa.string_view()), "string", ["x"]),
    (pa.array([b"x"], pa.large_binary()), "binary", [b"x"]),
    (pa.array([b"abc"], pa.binary(3)), "fixed[3]", [b"abc"]),
    (pa.array([b"x" * 16], pa.binary(16)), "uuid", [uuid.UUID(bytes=b"x" * 16)]),
    (pa.array([1000], pa.timestamp("ns")), "timestamp", [EPOCH.replace(microsecond=1)]),
    (pa.array([1], pa.timestamp("s")), "timestamp", [EPOCH.replace(second=1)]),
    (pa.array([0], pa.timestamp("us", "Europe/Berlin")), "timestamptz", [dt.datetime(1970, 1, 1, tzinfo=UTC)]),
    (pa.array([86_400_000], pa.date64()), "date", [dt.date(1970, 1, 2)]),
    (pa.array([1], pa.time32("s")), "time", [dt.time(0, 0, 1)]),
    (pa.nulls(1), "long", [None]),
]


@pytest.mark.parametrize("array, type_, expected", FITTING, ids=[f"{a.type}-{t}" for a, t, _ in FITTING])
def test_a_type_whose_values_all_fit_is_taken(array: pa.Array, type_: str, expected: list[Any]) -> None:
    assert [row["a"] for row in rows(pa.table({"a": array}), {"a": type_})] == expected


REFUSED: list[tuple[pa.Array, str]] = [
    (pa.array([2**31]), "int"),
    (pa.array([2**63], pa.uint64()), "long"),
    (pa.array([2**53 + 1]), "double"),
    (pa.array([1.5]), "long"),
    (pa.array([1e39]), "float"),
    (pa.array([D("1e39")], pa.decimal256(50, 0)), "float"),
    (pa.array([True]), "int"),
    (pa.array([1]), "boolean"),
    (pa.array([1]), "string"),
    (pa.array(["1", "one"]), "int"),
    (pa.array(["x"]), "binary"),
    (pa.array([b"x"]), "string"),
    (pa.array([D("1.555")]), "decimal(9, 2)"),
    (pa.array([D("12345.5")]), "decimal(5, 2)"),
    (pa.array([1001], pa.timestamp("ns")), "timestamp"),
    (pa.array([0], pa.timestamp("us")), "timestamptz"),
    (pa.array([0], pa.timestamp("us", "UTC")), "timestamp"),
    (pa.array([1], pa.time64("ns")), "time"),
    (pa.array([0], pa.date32()), "timestamp"),
    (pa.array([b"x" * 16], pa.binary(16)), "fixed[15]"),
    (pa.array([b"x" * 15], pa.binary(15)), "uuid"),
    (pa.array([[1]]), "int"),
    (pa.array([1]), "list<int>"),
    (pa.array([1]), "map<string, int>"),
    (pa.array([1]), "struct<x: int>"),
]


@pytest.mark.parametrize("array, type_", REFUSED, ids=[f"{a.type}-{t}" for a, t in REFUSED])
def test_a_value_that_would_be_changed_is_refused_and_names_the_column(array: pa.Array, type_: str) -> None:
    with pytest.raises(FileRefused, match="'my col'") as caught:
        rows(pa.table({"my col": array}), {"my col": type_})
    assert caught.value.reason == "wrong_type"


ROW_VALUES: list[tuple[Any, str, Any]] = [
    (5, "int", 5),
    (5, "double", 5.0),
    (5, "decimal(9, 2)", D("5.00")),
    (D("5.1"), "decimal(9, 2)", D("5.10")),
    (NAIVE, "timestamp", NAIVE),
    (
        dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        "timestamptz",
        dt.datetime(2023, 12, 31, 22, tzinfo=UTC),
    ),
    (dt.date(2024, 1, 1), "date", dt.date(2024, 1, 1)),
    (uuid.UUID(int=5), "uuid", uuid.UUID(int=5)),
    (b"abc", "fixed[3]", b"abc"),
    ([1, None], "list<int>", [1, None]),
    ({"k": 1}, "map<string, int>", [("k", 1)]),
    ({"x": 1}, "struct<x: int, y: string>", {"x": 1, "y": None}),
    ({"x": [{"z": 1}, None]}, "struct<x: list<struct<z: int>>>", {"x": [{"z": 1}, None]}),
]


@pytest.mark.parametrize("value, type_, expected", ROW_VALUES, ids=[f"{v}-{t}" for v, t, _ in ROW_VALUES])
def test_a_python_value_of_the_type_is_taken(value: Any, type_: str, expected: Any) -> None:
    assert rows([{"a": value}, {}], {"a": type_}) == [{"a": expected}, {"a": None}]


REFUSED_VALUES: list[tuple[Any, str]] = [
    (2**31, "int"),
    (1.5, "int"),
    ("one", "int"),
    ("1.5", "int"),
    (1e39, "float"),
    (D("1e400"), "double"),
    ("1e400", "double"),
    (True, "int"),
    (1, "boolean"),
    (1, "string"),
    ("x", "binary"),
    ("x", "list<binary>"),
    (b"ab", "fixed[3]"),
    (D("1.555"), "decimal(9, 2)"),
    (1.555, "decimal(9, 2)"),
    (dt.datetime(2024, 1, 1, tzinfo=UTC), "timestamp"),
    (NAIVE, "timestamptz"),
    (5, "timestamp"),
    (NAIVE.replace(hour=5), "date"),
    (5, "date"),
    ([NAIVE], "list<timestamptz>"),
    ({"k": NAIVE}, "map<string, timestamptz>"),
    ({"t": NAIVE}, "struct<t: timestamptz>"),
]


@pytest.mark.parametrize("value, type_", REFUSED_VALUES, ids=[f"{v}-{t}" for v, t in REFUSED_VALUES])
def test_a_python_value_that_arrow_would_change_is_refused(value: Any, type_: str) -> None:
    with pytest.raises(FileRefused, match=r"'a[.']") as caught:
        rows([{"a": value}], {"a": type_})
    assert caught.value.reason == "wrong_type"


def test_the_row_of_a_wrong_value_is_named() -> None:
    with pytest.raises(FileRefused, match="row 3: column 'a': '99999999999'"):
        rows([{"a": 1}, {"a": None}, {"a": 99999999999}], {"a": "int"})


REASONS: list[tuple[Any, Any, str]] = [
    (pa.table({"A": [1]}), {"a": "long"}, "unknown_column"),
    (pa.table({"a": [1], "b": [1]}), {"a": "long"}, "unknown_column"),
    ([{"a": 1}, {"a": 2, "b": 1}], {"a": "long"}, "unknown_column"),
    ({"a": [1], "b": [1]}, {"a": "long"}, "unknown_column"),
    ([{"s": {"x": 1, "y": 2}}], {"s": "struct<x: int>"}, "unknown_column"),
    (pa.table({"s": [{"x": 1, "y": 2}]}), {"s": "struct<x: int>"}, "unknown_column"),
    (pa.table({"b": [1]}), {"a": "long not null", "b": "long"}, "missing_column"),
    ([{"b": 1}], {"a": "long not null", "b": "long"}, "missing_column"),
    ({"b": [1]}, {"a": "long not null", "b": "long"}, "missing_column"),
    (pa.table({"a": pa.array([1, None], pa.int64())}), {"a": "long not null"}, "null_in_required"),
    (pa.table({"a": pa.array([1, None], pa.int32())}), {"a": "long not null"}, "null_in_required"),
    ([{"a": 1}, {}], {"a": "long not null"}, "null_in_required"),
    ([{"s": {"x": None}}], {"s": "struct<x: int not null>"}, "null_in_required"),
    ([{"s": [1, None]}], {"s": "list<int not null>"}, "null_in_required"),
    (pa.table({"s": [{"y": 2}]}), {"s": "struct<x: int not null, y: long>"}, "missing_column"),
]


@pytest.mark.parametrize("data, schema, reason", REASONS)
def test_each_refusal_has_its_reason(data: Any, schema: Any, reason: str) -> None:
    with pytest.raises(FileRefused) as caught:
        rows(data, schema)
    assert caught.value.reason == reason


def test_a_required_field_of_a_null_struct_is_no_null() -> None:
    assert rows([{"s": {"x": 1}}, {"s": None}], {"s": "struct<x: int not null>"}) == [{"s": {"x": 1}}, {"s": None}]


def test_a_missing_partition_column_is_refused_though_it_is_optional() -> None:
    for data in (pa.table({"a": [1]}), [{"a": 1}], {"a": [1]}):
        with pytest.raises(FileRefused, match="'p' is missing, and partitions") as caught:
            rows(data, {"a": "long", "p": "int"}, "p")
        assert caught.value.reason == "missing_column"


def test_a_missing_column_becomes_its_write_default() -> None:
    schema = schema_of({"a": "long", "d": "date"}, format_version=3)
    schema["fields"][1]["write-default"] = "2024-01-31"
    for data in (pa.table({"a": [1]}), [{"a": 1}], {"a": [1]}):
        assert rows(data, schema) == [{"a": 1, "d": dt.date(2024, 1, 31)}]


@pytest.mark.parametrize("data", [5, "text", b"bytes", [5], ["a"], {"a": [1], "b": [1, 2]}, pa.array([1])])
def test_what_is_no_table_is_refused(data: Any) -> None:
    with pytest.raises(InvalidInput):
        rows(data, {"a": "long", "b": "long"})


def test_a_column_that_is_there_twice_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'a' is there twice"):
        rows(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), {"a": "long"})


def test_odd_names_of_columns_are_names() -> None:
    data = {"a.b": [1], "größe %": [2], 'say "x"': [3]}
    schema = {"a.b": "long", "größe %": "long", 'say "x"': "long"}
    assert rows(pa.table(data), list(schema.items())) == [{"a.b": 1, "größe %": 2, 'say "x"': 3}]


@pytest.mark.parametrize("start", [0, 1, 2])
def test_slices_of_nested_arrays_keep_their_values(start: int) -> None:
    values: list[dict[str, Any]] = [
        {"l": [1, 2], "m": {"a": 1}, "s": {"x": 1}},
        {"l": None, "m": None, "s": None},
        {"l": [], "m": {}, "s": {"x": None}},
        {"l": [3, None], "m": {"b": None, "c": 2}, "s": {"x": 3}},
    ]
    type_ = pa.struct(
        [("l", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int32())), ("s", pa.struct([("x", pa.int32())]))]
    )
    array = pa.array([{**v, "m": None if v["m"] is None else list(v["m"].items())} for v in values], type_)
    table = pa.Table.from_struct_array(array).slice(start)
    schema = schema_of({"l": "list<long>", "m": "map<string, long>", "s": "struct<x: long, y: string>"})
    expected = [
        {
            "l": v["l"],
            "m": None if v["m"] is None else list(v["m"].items()),
            "s": None if v["s"] is None else {**v["s"], "y": None},
        }
        for v in values[start:]
    ]
    assert rows(table, schema) == expected


@pytest.mark.parametrize("kind", [pa.large_list, pa.list_view, lambda t: pa.list_(t, 2)])
def test_other_kinds_of_lists_become_lists(kind: Any) -> None:
    table = pa.table({"a": pa.array([[1, 2], None, [3, 4]], kind(pa.int32()))}).slice(1)
    assert rows(table, {"a": "list<long>"}) == [{"a": None}, {"a": [3, 4]}]


def test_every_refusal_is_an_error_of_the_library() -> None:
    with pytest.raises(LakewardError):
        rows(object(), {"a": "long"})
