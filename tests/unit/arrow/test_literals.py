"""Numbers in filters mean what they say, for every numeric type, at the ends of its range too; checked against Python."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.arrow.filters import bind_filter, parse_filter
from lakeward.arrow.pruning import Pruner
from lakeward.arrow.target import arrow_schema
from lakeward.tables.records.files import FileStatistics

INF = math.inf
TYPES: dict[str, list[Any]] = {
    "int": [None, -(2**31), -1, 0, 1, 2, 2**31 - 1],
    "long": [None, -(2**63), -1, 0, 1, 2, 2**63 - 1],
    "float": [None, math.nan, -INF, -3.4028234663852886e38, -1.5, -0.0, 0.0, 1.5, 3.4028234663852886e38, INF],
    "double": [None, math.nan, -INF, -1.7976931348623157e308, -1.5, -0.0, 0.0, 1.5, 1.7976931348623157e308, INF],
    "decimal(12, 2)": [None, Decimal("-9999999999.99"), Decimal("-1.50"), Decimal("0.00"), Decimal("1.50"), Decimal("9999999999.99")],
}  # fmt: skip
NUMBERS = ["0", "-0.0", "1", "1.5", "1.50", "1.505", "-1.5", "2", "99999999999", "-99999999999", "1e39", "-1e39", "1e400",
           "-1e400", "inf", "-inf", "9223372036854775807", "9223372036854775808", "2147483647.5", "0.001"]  # fmt: skip
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def schema_of(type_: str) -> dict[str, Any]:
    return {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "x", "type": type_, "required": False}]}


def kept(type_: str, text: str) -> list[Any]:
    schema = schema_of(type_)
    parsed = parse_filter(text)
    assert parsed is not None
    bound = bind_filter(parsed, schema)
    table = pa.table({"x": pa.array(TYPES[type_], arrow_schema(schema).field("x").type)})
    found: list[Any] = table.filter(bound.arrow)["x"].to_pylist()
    assert not found or Pruner(bound, {}).may_match(FileStatistics(), len(table), {}, 0)
    return found


def number(value: Any) -> Any:
    """A number that compares with any other exactly."""
    if isinstance(value, float) and math.isinf(value):
        return value
    decimal = Decimal(value)
    if decimal.is_infinite():
        return float(decimal)
    return Fraction(decimal)


def expected(type_: str, how: Callable[[Any], bool], nan: bool = False) -> list[str]:
    """`nan`: whether it is kept. It is equal to nothing, and neither less nor greater."""
    values = [v for v in TYPES[type_] if v is not None]
    return [repr(v) for v in values if (nan if isinstance(v, float) and math.isnan(v) else how(v))]


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("text", NUMBERS)
def test_a_comparison_with_a_number_is_exact(type_: str, text: str) -> None:
    for sign, compare in OPERATORS.items():
        found = [repr(v) for v in kept(type_, f"x {sign} '{text}'")]
        assert found == expected(type_, lambda v, c=compare: c(number(v), number(text)), sign == "!="), sign  # type: ignore[misc]


@pytest.mark.parametrize("type_", TYPES)
def test_a_set_of_numbers_is_exact(type_: str) -> None:
    for chosen in (["1.5", "inf"], ["-0.0", "1"], ["1e400"], ["0", "2", "99999999999"], NUMBERS):
        inside = {number(text) for text in chosen}
        literals = ", ".join(f"'{text}'" for text in chosen)
        found = [repr(v) for v in kept(type_, f"x in ({literals})")]
        assert found == expected(type_, lambda v, s=inside: number(v) in s)  # type: ignore[misc]
        others = [repr(v) for v in kept(type_, f"x not in ({literals})")]
        assert others == expected(type_, lambda v, s=inside: number(v) not in s, nan=True)  # type: ignore[misc]


@pytest.mark.parametrize("type_", TYPES)
def test_a_negation_keeps_neither_null_nor_nan(type_: str) -> None:
    for text in NUMBERS:
        found = [repr(v) for v in kept(type_, f"not x < '{text}'")]
        assert found == expected(type_, lambda v: number(v) >= number(text))  # noqa: B023


@given(st.floats(width=32), st.sampled_from(sorted(OPERATORS)))
def test_every_value_of_a_float_column_equals_itself(value: float, sign: str) -> None:
    if math.isnan(value):
        return
    schema = schema_of("float")
    parsed = parse_filter(f"x {sign} '{value!r}'")
    assert parsed is not None
    table = pa.table({"x": pa.array([value], pa.float32())})
    same = struct.unpack("<f", struct.pack("<f", value))[0]
    assert len(table.filter(bind_filter(parsed, schema).arrow)) == OPERATORS[sign](same, value)


@pytest.mark.parametrize(("type_", "text"), [("timestamp", "2024-01-01"), ("timestamptz", "2024-01-01")])
def test_a_date_alone_is_its_first_moment(type_: str, text: str) -> None:
    parsed = parse_filter(f"x >= '{text}'")
    assert parsed is not None
    bound = bind_filter(parsed, schema_of(type_))
    assert "2024-01-01" in str(bound.arrow)
