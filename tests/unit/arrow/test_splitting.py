"""Rows split by partition."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.types as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.arrow.broken_rows import BrokenRows
from lakeward.arrow.coerce import coerce
from lakeward.arrow.splitting import check_held, split, terms, transformed
from lakeward.errors import FileRefused
from lakeward.iceberg.arrow import to_arrow_type
from lakeward.iceberg.partitions import canonical_partition, partition_path
from lakeward.iceberg.transforms import transform_value
from tests.unit.arrow.targets import schema_of, spec_of

SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "price", "type": "decimal(9, 2)", "required": False}]}


@pytest.mark.parametrize("transform", ["bucket[3]", "truncate[100]"])
def test_decimals_that_came_over_the_wire_may_begin_anywhere(transform: str) -> None:
    prices = pa.array([Decimal(number) / 4 for number in range(7)], pa.decimal128(9, 2))
    memory = pa.allocate_buffer(8 + prices.buffers()[1].size)
    buffer = pa.py_buffer(memory).slice(8)
    with pa.FixedSizeBufferWriter(memory) as writer:
        writer.write(bytes(8))
        writer.write(prices.buffers()[1])
    shifted = pa.Array.from_buffers(prices.type, len(prices), [None, buffer])
    assert shifted.equals(prices)
    assert shifted.buffers()[1].address % 16 == 8
    spec = [{"source-id": 1, "field-id": 1000, "name": "p", "transform": transform}]
    expected, found = (
        {
            str(partition): rows.to_pydict()
            for partition, rows in split(pa.record_batch({"price": each}), terms(spec, SCHEMA))
        }
        for each in (prices, shifted)
    )
    assert found == expected


LAST = 2**63 - 1  # of a timestamp: a common 'for ever'
WHOLE: dict[str, tuple[pa.DataType, int]] = {
    "date": (pa.date32(), 31),
    "timestamp": (pa.timestamp("us"), 63),
    "timestamptz": (pa.timestamp("us", "UTC"), 63),
    "timestamp_ns": (pa.timestamp("ns"), 63),
    "timestamptz_ns": (pa.timestamp("ns", "UTC"), 63),
}


def transformed_one(type_: str, transform: str, array: pa.Array) -> list[object]:
    schema = schema_of({"x": type_}, 3)
    (term,) = terms(spec_of(schema, ("x", transform))["fields"], schema)
    result = transformed(pa.record_batch({"x": array}), term)
    return list(result.cast(pa.int64() if not pt.is_date32(result.type) else pa.int32()).to_pylist())


@pytest.mark.parametrize("transform", ["year", "month", "day", "hour"])
@pytest.mark.parametrize("type_", WHOLE)
@given(data=st.data())
def test_times_at_any_distance_have_their_own_year_month_day_and_hour(
    type_: str, transform: str, data: st.DataObject
) -> None:
    kind, bits = WHOLE[type_]
    if (type_, transform) == ("date", "hour"):
        return  # Iceberg has no such transform
    ends = st.sampled_from([-(2**bits), 2**bits - 1, 0, -1])
    raws = data.draw(st.lists(st.none() | ends | st.integers(-(2**bits), 2**bits - 1), max_size=5))
    array = pa.array(raws, pa.int32() if bits == 31 else pa.int64()).view(kind)
    assert transformed_one(type_, transform, array) == [transform_value(transform, type_, raw) for raw in raws]


@pytest.mark.parametrize(
    ("type_", "transform", "value", "expected"),
    [
        ("timestamp", "year", LAST, 294_247 - 1970),
        ("timestamp", "month", LAST, (294_247 - 1970) * 12),
        ("timestamp", "day", LAST, 106_751_991),
        ("timestamp", "year", -(2**63), -290_308 - 1970),
        ("date", "year", 2**31 - 1, 5_881_580 - 1970),
        ("date", "month", -(2**31), (-5_877_641 - 1970) * 12 + 5),
        ("timestamp", "hour", -1, -1),
        ("timestamp_ns", "year", -1, -1),
    ],
)
def test_the_years_of_the_ends_of_time(type_: str, transform: str, value: int, expected: int) -> None:
    kind, bits = WHOLE[type_]
    array = pa.array([value, None], pa.int32() if bits == 31 else pa.int64()).view(kind)
    assert transformed_one(type_, transform, array) == [expected, None]


@pytest.mark.parametrize(
    ("type_", "width", "least", "expected"),
    [
        ("decimal(9, 2)", 50, "-9999999.99", "-10000000.00"),
        ("decimal(38, 0)", 7, "-" + "9" * 38, "-100000000000000000000000000000000000005"),
    ],
)
def test_the_least_decimals_are_truncated_to_a_digit_more(type_: str, width: int, least: str, expected: str) -> None:
    schema = schema_of({"x": type_})
    spec = spec_of(schema, ("x", f"truncate[{width}]"))
    batch = pa.record_batch({"x": pa.array([Decimal(least)], to_arrow_type(type_))})
    check_held(batch, terms(spec["fields"], schema))
    ((partition, _),) = split(batch, terms(spec["fields"], schema))
    assert partition == {1000: expected} == canonical_partition(schema, spec, partition)
    assert partition_path(schema, spec, partition) == f"x_truncate={expected}"


@pytest.mark.parametrize(
    ("type_", "transform", "raw", "message"),
    [
        ("timestamptz", "hour", LAST, r"'x' has \+294247-01-10T04:00:54.775807\+00:00: hour of it is .*32 bits"),
        ("timestamp", "hour", -(2**63), r"'x' has -290308-12-21T19:59:05.224192: hour of it is .*32 bits"),
        (
            "decimal(1, 0)",
            "truncate[200]",
            -9,
            r"'x' has -9: truncate\[200\] of it is -200, which decimal\(1, 0\) cannot",
        ),
    ],
)
def test_what_no_manifest_holds_is_refused_by_name_as_a_row(type_: str, transform: str, raw: int, message: str) -> None:
    schema = schema_of({"id": "long", "x": type_})
    spec_terms = terms(spec_of(schema, ("x", transform))["fields"], schema)
    is_decimal = type_.startswith("decimal")
    good, bad = (
        pa.array([Decimal(each)], to_arrow_type(type_))
        if is_decimal
        else pa.array([each], pa.int64()).view(WHOLE[type_][0])
        for each in (0, raw)
    )
    table = pa.table({"id": [1, 2], "x": pa.chunked_array([good, bad]).combine_chunks()})
    with pytest.raises(FileRefused, match=message) as caught:
        coerce(table, schema, spec_terms).read_all()
    assert caught.value.reason == "wrong_partition"
    broken = BrokenRows(5)
    assert coerce(table, schema, spec_terms, broken).read_all()["id"].to_pylist() == [1]
    assert [row.reason for row in broken.rows] == ["wrong_partition"]
    assert coerce(table, schema, terms(spec_of(schema, ("id", "identity"))["fields"], schema)).read_all().num_rows == 2
