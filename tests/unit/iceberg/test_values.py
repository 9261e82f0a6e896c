"""Single values and transforms: the same as PyIceberg's, and more where Python's own types end."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import conversions
from pyiceberg.transforms import parse_transform
from pyiceberg.types import NestedField

from lakeward.errors import InvalidInput, InvalidSchema
from lakeward.iceberg import partitions, transforms, values


def judge_type(type_: str) -> Any:
    return NestedField.model_validate({"id": 1, "name": "x", "type": type_, "required": False}).field_type


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)))


PYTHON: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "date": st.dates(),
    "time": st.times(),
    "timestamp": st.datetimes(),
    "timestamptz": st.datetimes(timezones=st.just(UTC)),
    "string": st.text(st.characters(exclude_categories=["Cs"])),
    "uuid": st.uuids(),
    "binary": st.binary(max_size=20),
    "fixed[5]": st.binary(min_size=5, max_size=5),
    "decimal(9, 2)": _decimals(9, 2),
    "decimal(18, 0)": _decimals(18, 0),
    "decimal(38, 38)": _decimals(38, 38).filter(lambda d: len(d.as_tuple().digits) <= 38),
}
CASES = st.one_of([st.tuples(st.just(t), strategy) for t, strategy in PYTHON.items()])


def same(a: Any, b: Any) -> bool:
    return bool(a == b) or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


@given(CASES)
@settings(max_examples=400, deadline=None)
def test_every_form_of_a_value_gives_it_back(case: tuple[str, Any]) -> None:
    type_, value = case
    raw = values.from_python(type_, value)
    assert same(values.from_json(type_, values.to_json(type_, raw)), raw)
    assert same(values.from_binary(type_, values.to_binary(type_, raw)), raw)
    assert same(values.from_avro(type_, values.to_avro(type_, raw)), raw)


@given(CASES)
@settings(max_examples=400, deadline=None)
def test_pyiceberg_reads_the_same_out_of_json_and_has_the_same_bytes(case: tuple[str, Any]) -> None:
    type_, value = case
    raw, theirs = values.from_python(type_, value), judge_type(type_)
    exact = Decimal(value) if isinstance(value, Decimal) else value
    assert values.to_binary(type_, raw) == conversions.to_bytes(theirs, exact)
    if not (isinstance(value, float) and not math.isfinite(value)):
        assert conversions.from_json(theirs, values.to_json(type_, raw)) == value


@given(
    CASES,
    st.sampled_from(["identity", "void", "bucket[7]", "bucket[1]", "truncate[3]", "year", "month", "day", "hour"]),
)
@settings(max_examples=800, deadline=None)
def test_transforms_give_what_pyiceberg_gives(case: tuple[str, Any], transform: str) -> None:
    type_, value = case
    theirs, judge = judge_type(type_), parse_transform(transform)
    if transform != "void":
        assert transforms.applies(transform, type_) == judge.can_transform(theirs)
    if not transforms.applies(transform, type_):
        with pytest.raises(InvalidSchema):
            partitions.partition_value(transform, type_, value)
        return
    kept = transforms.result_type(transform, type_)
    ours = values.from_json(kept, partitions.partition_value(transform, type_, value))
    if transform == "truncate[3]" and type_ == "int" and value < -(2**31) + 3:
        return  # wraps in Java, and has no answer in PyIceberg
    if transform == "truncate[3]" and type_ == "long" and value < -(2**63) + 3:
        return
    given_ = value.bytes if isinstance(value, UUID) else value
    expected = judge.transform(theirs)(given_)
    if isinstance(expected, Decimal):
        expected = values.from_python(type_, expected)
    elif isinstance(expected, date | datetime | time):
        expected = values.from_python(kept, expected)
    assert same(ours, expected), (ours, expected)


def test_appendix_b_of_the_specification_has_these_hashes() -> None:
    hashes = [
        ("int", 34, 2017239379),
        ("long", 34, 2017239379),
        ("decimal(9, 2)", Decimal("14.20"), -500754589),
        ("date", date(2017, 11, 16), -653330422),
        ("time", time(22, 31, 8), -662762989),
        ("timestamp", datetime(2017, 11, 16, 22, 31, 8), -2047944441),
        ("timestamp", datetime(2017, 11, 16, 22, 31, 8, 1), -1207196810),
        ("timestamptz", datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC), -2047944441),
        ("string", "iceberg", 1210000089),
        ("uuid", UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"), 1488055340),
        ("fixed[4]", b"\x00\x01\x02\x03", -188683207),
        ("binary", b"\x00\x01\x02\x03", -188683207),
    ]
    for type_, value, expected in hashes:
        assert partitions.partition_value("bucket[1000000]", type_, value) == (expected & (2**31 - 1)) % 1000000, type_


@pytest.mark.parametrize("type_", PYTHON)
def test_null_is_null_in_every_form(type_: str) -> None:
    assert values.from_python(type_, None) is None
    assert values.from_json(type_, None) is None
    assert values.to_json(type_, None) is None
    assert values.from_python(type_, pa.scalar(None, pa.int32())) is None
    assert partitions.partition_value("identity", type_, None) is None


def test_json_is_written_as_the_specification_has_it() -> None:
    forms = [
        ("decimal(9, 2)", Decimal("14.20"), "14.20"),
        ("decimal(9, 2)", Decimal("-0.05"), "-0.05"),
        ("decimal(9, 2)", Decimal("5"), "5.00"),
        ("date", date(2017, 11, 16), "2017-11-16"),
        ("time", time(22, 31, 8, 123456), "22:31:08.123456"),
        ("timestamp", datetime(2017, 11, 16, 22, 31, 8, 500000), "2017-11-16T22:31:08.5"),
        ("timestamptz", datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC), "2017-11-16T22:31:08+00:00"),
        ("uuid", UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"), "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
        ("fixed[4]", b"\x00\x01\xfe\xff", "0001feff"),
        ("double", -math.inf, "-Infinity"),
    ]
    for type_, value, expected in forms:
        assert values.to_json(type_, values.from_python(type_, value)) == expected


def test_arrow_scalars_are_read_beyond_what_python_holds() -> None:
    cases = [
        ("timestamp_ns", pa.scalar(-1, pa.timestamp("ns")), "1969-12-31T23:59:59.999999999"),
        ("timestamptz", pa.scalar(253402300800000000, pa.timestamp("us", "UTC")), "+10000-01-01T00:00:00+00:00"),
        ("date", pa.scalar(-719529, pa.date32()), "-0001-12-31"),
        ("date", pa.scalar(-719528, pa.date32()), "0000-01-01"),
        ("timestamp", pa.scalar(5, pa.timestamp("s")), "1970-01-01T00:00:05"),
        ("string", pa.scalar("x", pa.dictionary(pa.int8(), pa.string())), "x"),
    ]
    for type_, scalar, expected in cases:
        raw = values.from_python(type_, scalar)
        assert values.to_json(type_, raw) == expected
        assert values.from_json(type_, expected) == raw


@given(st.integers(-(10**8), 10**8))
def test_the_calendar_is_its_own_inverse(days: int) -> None:
    assert values.days_of(*values.civil(days)) == days
    assert values.from_json("date", values.to_json("date", days)) == days


@given(st.dates())
def test_the_calendar_is_pythons(day: date) -> None:
    assert values.civil(day.toordinal() - 719163) == (day.year, day.month, day.day)


@pytest.mark.parametrize(
    "type_, value",
    [
        ("int", 2**31),
        ("int", True),
        ("int", "1"),
        ("int", 1.0),
        ("long", 2**63),
        ("boolean", 1),
        ("decimal(4, 2)", "123.45"),
        ("decimal(4, 2)", "1.234"),
        ("decimal(4, 2)", "NaN"),
        ("decimal(4, 2)", "1e999999999"),
        ("decimal(4, 2)", 1),
        ("date", "2017-02-30"),
        ("date", "17-02-03"),
        ("date", 5),
        ("time", "24:00:00"),
        ("timestamp", "2017-01-01T00:00:00+00:00"),
        ("timestamp", "2017-01-01T00:00:00.1234567"),
        ("timestamptz", "2017-01-01T00:00:00"),
        ("uuid", "x"),
        ("binary", "0"),
        ("fixed[2]", "00"),
        ("string", "\ud800"),
        ("float", "one"),
        ("variant", "x"),
    ],
    ids=str,
)
def test_json_that_is_no_value_of_the_type_is_refused_by_value_and_type(type_: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match="is no"):
        values.from_json(type_, value)


def test_bounds_of_columns_that_were_widened_are_read() -> None:
    assert values.from_binary("long", values.to_binary("int", -7)) == -7
    assert values.from_binary("double", values.to_binary("float", 0.5)) == 0.5
    with pytest.raises(InvalidInput):
        values.from_binary("int", b"\x00")
