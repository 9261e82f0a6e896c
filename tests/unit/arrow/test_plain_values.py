"""Columns of plain values are what pyarrow makes of them, whether pandas is loaded or not."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.arrow import plain_values

TIMES = st.datetimes()
ANY: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(1 << 31), (1 << 31) - 1),
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.date32(): st.dates(),
    pa.timestamp("us"): TIMES,
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(UTC) | st.just(timezone(timedelta(hours=5, minutes=30)))),
    pa.decimal128(9, 2): st.decimals(-9_999_999, 9_999_999, places=2) | st.integers(-999, 999).map(Decimal),
    pa.decimal128(38, 0): st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
    pa.string(): st.text(),
    pa.binary(): st.binary(),
    pa.list_(pa.int64()): st.lists(st.integers(0, 9)),
}


@pytest.fixture(autouse=True)
def without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_values, "sys", SimpleNamespace(modules={}))  # other tests may have loaded it


@settings(deadline=None)
@given(st.data(), st.sampled_from(list(ANY)))
def test_values_and_nulls_are_what_pyarrow_makes_of_them(data: st.DataObject, type_: pa.DataType) -> None:
    values = data.draw(st.lists(st.none() | ANY[type_], max_size=20))
    made = plain_values.array_of(values, type_)
    made.validate(full=True)
    assert made.equals(pa.array(values, type_, from_pandas=False))


def test_nan_stays_a_value() -> None:
    made = plain_values.array_of([float("nan"), None], pa.float64())
    assert made.null_count == 1 and str(made[0]) == "nan"


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.int32(), 1 << 31),
        (pa.int64(), 1 << 63),
        (pa.int64(), "x"),
        (pa.decimal128(4, 2), Decimal("1.234")),
        (pa.decimal128(4, 2), Decimal("123")),
        (pa.decimal128(4, 2), Decimal("Infinity")),
        (pa.string(), "\ud800"),
        (pa.bool_(), 1),
    ],
)
def test_what_does_not_fit_is_refused_as_pyarrow_refuses_it(type_: pa.DataType, value: Any) -> None:
    with pytest.raises(Exception) as by_pyarrow:
        pa.array([value], type_, from_pandas=False)
    with pytest.raises(type(by_pyarrow.value)) as ours:
        plain_values.array_of([value], type_)
    assert str(ours.value) == str(by_pyarrow.value)


def test_a_time_with_a_zone_and_one_without_are_told_apart_as_by_pyarrow() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    for type_, value in [(pa.timestamp("us"), at), (pa.timestamp("us", "UTC"), at.replace(tzinfo=None))]:
        assert plain_values.array_of([value], type_).equals(pa.array([value], type_, from_pandas=False))


def test_more_columns_than_plain_ones_are_left_to_pyarrow_without_pandas_too() -> None:
    program = (
        "import sys, pyarrow as pa\n"
        "from lakeward.arrow.plain_values import array_of\n"
        "array_of([1, None], pa.int64()); print('pandas' in sys.modules)\n"
        "print(array_of([[1]], pa.list_(pa.int64())).to_pylist())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["False", "[[1]]"]
