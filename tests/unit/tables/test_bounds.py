from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.iceberg.schemas import schema_from
from lakeward.tables.bounds import merge, order_of, orders_by_id
from lakeward.tables.records.files import FileStatistics
from lakeward.tables.records.tables import ColumnStatistics


def whole(value: int, size: int = 8) -> bytes:
    return value.to_bytes(size, "little", signed=True)


def decimal(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def double(value: float) -> bytes:
    return struct.pack("<d", value)


# Type, values, how a value becomes a bound (Iceberg specification, appendix D).
KINDS: list[tuple[str, st.SearchStrategy[Any], Callable[[Any], bytes]]] = [
    ("int", st.integers(-(2**31), 2**31 - 1), lambda v: whole(v, 4)),
    ("long", st.integers(-(2**63), 2**63 - 1), whole),
    ("timestamptz", st.integers(-(2**63), 2**63 - 1), whole),
    ("decimal(38,2)", st.integers(-(10**38) + 1, 10**38 - 1), decimal),
    ("double", st.floats(allow_nan=False), double),
    ("float", st.floats(allow_nan=False, width=32), lambda v: struct.pack("<f", v)),
    ("string", st.text(), lambda v: v.encode()),
    ("binary", st.binary(), bytes),
]


@pytest.mark.parametrize(("type_", "values", "encode"), KINDS, ids=[kind[0] for kind in KINDS])
def test_bounds_compare_as_their_values_do(
    type_: str, values: st.SearchStrategy[Any], encode: Callable[[Any], bytes]
) -> None:
    @given(st.lists(values, min_size=1, max_size=6))
    def check(found: list[Any]) -> None:
        ordered = sorted((encode(value) for value in found), key=order_of(type_))
        assert ordered == [encode(value) for value in sorted(found)]

    check()


def test_a_column_that_was_widened_compares_old_bounds_with_new_ones() -> None:
    assert order_of("long")(whole(-5, 4)) < order_of("long")(whole(3))
    assert order_of("double")(struct.pack("<f", -1.5)) < order_of("double")(double(1e300))
    assert order_of("decimal(20,2)")(decimal(-129)) < order_of("decimal(20,2)")(decimal(127))


def test_nested_fields_have_orders_of_their_own() -> None:
    schema = {"a": {"type": "struct", "fields": [{"id": 10, "name": "x", "type": "int", "required": False}]}}
    document = {
        "type": "struct",
        "fields": [
            {"id": 1, "name": "a", "required": False, "type": schema["a"]},
            {"id": 2, "name": "l", "required": False,
             "type": {"type": "list", "element-id": 3, "element": "double", "element-required": False}},
            {"id": 4, "name": "m", "required": False,
             "type": {"type": "map", "key-id": 5, "key": "string", "value-id": 6, "value": "decimal(9,2)",
                      "value-required": False}},
        ],
    }  # fmt: skip
    orders = orders_by_id(document)
    assert set(orders) == {10, 3, 5, 6}
    assert orders[10](whole(-1, 4)) == -1
    assert orders[6](decimal(-300)) == -300
    assert len(orders_by_id(schema_from({f"c{i}": "int" for i in range(2000)}, 2)[0])) == 2000


ORDERS = {1: order_of("long")}


def file(*values: int | None) -> FileStatistics:
    known = [value for value in values if value is not None]
    return FileStatistics(
        value_counts={1: len(values)},
        null_counts={1: len(values) - len(known)},
        lower={1: whole(min(known))} if known else {},
        upper={1: whole(max(known))} if known else {},
    )


files = st.lists(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=5), min_size=1, max_size=6)


@given(files)
def test_the_whole_is_the_same_however_its_files_came(values: list[list[int | None]]) -> None:
    made = [file(*each) for each in values]
    at_once = merge({}, made, ORDERS)
    one_by_one: dict[int, ColumnStatistics] = {}
    for each in reversed(made):
        one_by_one = merge(one_by_one, [each], ORDERS)
    assert one_by_one == at_once
    assert at_once == merge({}, [file(*(v for each in values for v in each))], ORDERS)


def only(*stats: FileStatistics) -> ColumnStatistics:
    return merge({}, stats, ORDERS)[1]


def test_a_file_with_values_and_no_bounds_takes_them_from_the_whole_for_good() -> None:
    unknown = FileStatistics(value_counts={1: 3}, null_counts={1: 1})
    merged = only(file(1, 2), unknown)
    assert (merged.lower, merged.upper, merged.bounded) == (None, None, False)
    again = merge({1: merged}, [file(5)], ORDERS)[1]
    assert (again.lower, again.bounded, again.value_count) == (None, False, 6)
    half = FileStatistics(value_counts={1: 3}, lower={1: whole(0)})
    assert not only(half).bounded


@pytest.mark.parametrize(("nulls", "nans"), [(3, 0), (0, 3), (1, 2)])
def test_a_file_of_nulls_and_nans_leaves_the_bounds_as_they_are(nulls: int, nans: int) -> None:
    nothing = FileStatistics(value_counts={1: 3}, null_counts={1: nulls}, nan_counts={1: nans})
    merged = only(file(7, 9), nothing)
    assert (merged.lower, merged.upper, merged.bounded) == (whole(7), whole(9), True)
    assert (merged.null_count, merged.nan_count) == (nulls, nans)


def test_a_column_that_a_file_does_not_have_is_not_touched() -> None:
    before = merge({}, [file(1)], ORDERS)
    assert merge(before, [FileStatistics(value_counts={2: 4})], ORDERS)[1] == before[1]


def test_infinities_are_bounds() -> None:
    def of(*values: float) -> FileStatistics:
        return FileStatistics(
            value_counts={1: len(values)}, lower={1: double(min(values))}, upper={1: double(max(values))}
        )

    both: Sequence[FileStatistics] = [of(1.0, float("inf")), of(-1.0, float("-inf"))]
    merged = merge({}, both, {1: order_of("double")})[1]
    assert (merged.lower, merged.upper) == (double(float("-inf")), double(float("inf")))
