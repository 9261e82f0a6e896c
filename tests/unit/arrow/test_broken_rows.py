"""Rows that do not fit are taken apart from those that do, exactly, whatever the kind of data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.arrow.broken_rows import BrokenRow, BrokenRows, sift, value_of
from lakeward.arrow.coerce import Wanted, coerce
from lakeward.arrow.json_read import read_json_lines
from lakeward.errors import FileRefused
from tests.unit.arrow.targets import schema_of

SCHEMA = {"id": "long not null", "name": "string", "price": "decimal(4,2)"}
NO_TIME = "<value out of range: -62135596800000001>"


def refuse_negative(rows: list[int]) -> list[int]:
    if any(row < 0 for row in rows):
        raise FileRefused("wrong_type", f"{min(rows)} is negative")
    return list(rows)


def as_given(rows: list[int], error: FileRefused, number: int) -> BrokenRow:
    return BrokenRow(rows[0], error.reason, str(error), {"row": number})


@given(st.lists(st.integers(-3, 20), max_size=200))
def test_exactly_the_broken_rows_are_found_in_order_and_all_others_pass_in_order(rows: list[int]) -> None:
    broken = BrokenRows(len(rows) + 1)
    good = [row for part in sift(rows, refuse_negative, broken, as_given) for row in part]
    assert good == [row for row in rows if row >= 0]
    assert [row.record for row in broken.rows] == [row for row in rows if row < 0]
    assert all(row.message == f"{row.record} is negative" for row in broken.rows)
    assert [row.origin["row"] for row in broken.rows] == [n for n, row in enumerate(rows, start=1) if row < 0]


@given(st.integers(1, 2_000), st.data())
def test_rows_that_fit_are_converted_once_and_one_broken_row_costs_two_conversions_a_halving(
    count: int, data: st.DataObject
) -> None:
    calls: list[int] = []

    def convert(rows: list[int]) -> list[int]:
        calls.append(len(rows))
        return refuse_negative(rows)

    rows = list(range(count))
    assert len(list(sift(rows, convert, BrokenRows(1), as_given))) == len(calls) == 1
    calls.clear()
    rows[data.draw(st.integers(0, count - 1))] = -1
    list(sift(rows, convert, BrokenRows(1), as_given))
    assert len(calls) <= 2 * (count - 1).bit_length() + 1


@given(st.integers(1, 30), st.integers(1, 30))
def test_as_many_broken_rows_as_the_limit_pass_and_one_more_refuses_all(count: int, limit: int) -> None:
    broken = BrokenRows(limit)
    rows = [-1] * count
    if count <= limit:
        assert list(sift(rows, refuse_negative, broken, as_given)) == []
        assert len(broken.rows) == count
        return
    with pytest.raises(FileRefused, match=f"more than {limit} rows do not fit \\({limit + 1} wrong_type") as refused:
        list(sift(rows, refuse_negative, broken, as_given))
    assert refused.value.reason == "wrong_type"


def test_a_fault_of_no_single_row_is_raised() -> None:
    def convert(_rows: list[int]) -> list[int]:
        raise FileRefused("unreadable", "torn")

    with pytest.raises(FileRefused, match="torn"):
        list(sift([1, 2], convert, BrokenRows(10), as_given))


def test_without_a_place_for_broken_rows_the_refusal_is_that_of_the_first() -> None:
    with pytest.raises(FileRefused, match="-1 is negative"):
        list(sift([1, -1, -2], refuse_negative, None, as_given))


ROWS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "id": st.one_of(st.none(), st.integers(-(2**65), 2**65), st.text(max_size=2), st.integers(0, 9)),
            "name": st.one_of(st.none(), st.text(max_size=3), st.binary(max_size=2)),
            "price": st.one_of(st.none(), st.decimals(-200, 200, places=2), st.floats(0, 9)),
            "colour": st.just("red"),
        },
    ),
    max_size=30,
)


@given(ROWS)
def test_each_row_is_judged_as_it_is_alone(rows: list[dict[str, Any]]) -> None:
    def fits(row: Mapping[str, Any]) -> bool:
        try:
            coerce([row], schema_of(SCHEMA)).read_all()
        except FileRefused:
            return False
        return True

    broken = BrokenRows(1_000)
    good = coerce(rows, schema_of(SCHEMA), broken=broken).read_all().to_pylist()
    assert [row.record for row in broken.rows] == [row for row in rows if not fits(row)]
    alone = [coerce([row], schema_of(SCHEMA)).read_all().to_pylist()[0] for row in rows if fits(row)]
    assert good == alone


@given(st.lists(st.one_of(st.none(), st.integers(0, 2**64 - 1)), min_size=1, max_size=50), st.integers(1, 7))
def test_arrow_rows_are_taken_apart_in_whatever_batches_they_come(values: list[int | None], size: int) -> None:
    table = pa.table({"id": pa.array(values, pa.uint64()), "name": [str(i) for i in range(len(values))]})
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=size))
    broken = BrokenRows(1_000)
    good = coerce(reader, schema_of(SCHEMA), broken=broken).read_all()
    fit = [value is not None and value < 2**63 for value in values]
    names = [str(i) for i in range(len(values))]
    assert good["name"].to_pylist() == [name for name, ok in zip(names, fit, strict=True) if ok]
    assert [row.record for row in broken.rows] == [
        {"id": value, "name": name} for value, name, ok in zip(values, names, fit, strict=True) if not ok
    ]


def test_a_default_of_a_missing_column_is_the_same_for_a_row_beside_a_broken_one() -> None:
    """A column that no row of a chunk has gets its default, one that some have gets null: halves of a chunk do as it does."""
    schema = schema_of({"id": "long not null", "kind": "string"}, 3)
    schema["fields"][1] |= {"write-default": "new", "initial-default": "new"}
    rows: list[dict[str, Any]] = [{"id": 1}, {"id": 2}, {"id": None}, {"id": 4, "kind": "old"}]
    good = coerce(rows, schema, broken=BrokenRows(5)).read_all()
    assert good["kind"].to_pylist() == [None, None, "old"]
    assert coerce(rows[:3], schema, broken=BrokenRows(5)).read_all()["kind"].to_pylist() == ["new", "new"]
    lines = "\n".join(json.dumps(row) for row in rows).encode()
    read = read_json_lines(pa.BufferReader(lines), Wanted.of(schema, judges=True), "f", BrokenRows(5)).read_all()
    assert read["kind"].to_pylist() == [None, None, "old"]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("list<long>", 5),
        ("map<string, long>", 5),
        ("struct<x: long>", 5),
        ("map<string, long>", [1, 2]),
        ("long", object()),
    ],
)
def test_a_value_of_quite_another_shape_is_a_broken_row_and_no_other_error(type_: str, value: Any) -> None:
    schema = schema_of({"id": "long", "v": type_})
    with pytest.raises(FileRefused) as refused:
        coerce([{"id": 1, "v": value}], schema).read_all()
    assert refused.value.reason == "wrong_type"
    broken = BrokenRows(5)
    assert coerce([{"id": 1}, {"id": 2, "v": value}], schema, broken=broken).read_all()["id"].to_pylist() == [1]
    assert [row.record for row in broken.rows] == [{"id": 2, "v": value}]


def test_columns_of_numpy_and_pandas_are_taken_apart_by_position() -> None:
    import pandas as pd

    broken = BrokenRows(5)
    columns = {
        "id": pd.Series([1, 2, 3], index=[7, 8, 9]),
        "price": np.array([Decimal("1.00"), Decimal("123.45"), Decimal("2.00")], dtype=object),
    }
    good = coerce(columns, schema_of(SCHEMA), broken=broken).read_all()
    assert good["id"].to_pylist() == [1, 3]
    assert [row.record for row in broken.rows] == [{"id": 2, "price": Decimal("123.45")}]


@pytest.mark.parametrize(
    ("scalar", "expected"),
    [
        (pa.scalar(1, pa.int8()), 1),
        (pa.scalar(2**62, pa.timestamp("us")), "<value out of range: 4611686018427387904>"),
        (pa.scalar(1, pa.timestamp("ns")), "1970-01-01 00:00:00.000000001"),
        (pa.scalar(-1_000_000, pa.date32()), "-0768-02-04"),
        (pa.scalar([{"m": [("k", 1)]}], pa.list_(pa.struct({"m": pa.map_(pa.string(), pa.int8())}))), [{"m": [("k", 1)]}]),
        (pa.scalar([-(2**62)], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("us"))), ["<value out of range: -4611686018427387904>"]),
        (np.float64(0.5), 0.5),
        (np.datetime64("2024-01-01", "ns"), "2024-01-01T00:00:00.000000000"),
        ("as it is", "as it is"),
    ],
)  # fmt: skip
def test_values_are_those_of_python_or_texts_where_python_has_none(scalar: Any, expected: Any) -> None:
    assert value_of(scalar) == expected
    assert type(value_of(scalar)) is type(expected)


@pytest.mark.parametrize("shape", ["list", "large_list", "struct", "map"])
def test_what_python_has_no_value_for_is_a_text_within_others_too(shape: str) -> None:
    times = pa.array([-62_135_596_800_000_001], pa.int64()).view(pa.time64("us"))
    array, expected = {
        "list": (pa.ListArray.from_arrays([0, 1], times), [NO_TIME]),
        "large_list": (pa.LargeListArray.from_arrays([0, 1], times), [NO_TIME]),
        "struct": (pa.StructArray.from_arrays([times], names=["x"]), {"x": NO_TIME}),
        "map": (pa.MapArray.from_arrays([0, 1], pa.array(["k"]), times), [("k", NO_TIME)]),
    }[shape]
    assert value_of(array[0]) == expected
