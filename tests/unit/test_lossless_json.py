"""Values come back from their text as they went in: type for type."""

from __future__ import annotations

import enum
import json
import math
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward import lossless_json
from lakeward.errors import InvalidInput

KEPT: list[Any] = [
    {"lsn": "0/16B3748", "offset": 2**63, "big": 2**200, "negative": -(2**100)},
    {"one": 1, "one point zero": 1.0, "minus zero": -0.0, "true": True, "none": None},
    {"infinite": math.inf, "minus": -math.inf},
    "NUL \0 and \ud800 alone, ä, 😀",
    {"\0": {"": []}},
    b"\x00\xff" * 10,
    bytearray(b"\x00"),
    Decimal("1234567890123456789012345678901234567890.1234567890"),
    [Decimal("NaN"), Decimal("1E+400"), Decimal("-0.00")],
    [date(1, 1, 1), date(9999, 12, 31), "0044-03-15 BC", "294276-12-31", "infinity"],
    [
        datetime(1, 1, 1),
        datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=5))),
    ],
    [time(1, 2, 3, 4), timedelta(days=-1, microseconds=1), uuid.UUID(int=5)],
    (1, (2, [3])),
    {1, 2},
    frozenset({b"a"}),
    {1: "a", (2, 3): "b", None: b"c"},
    {"$decimal": "1"},
    {"$object": {"$bytes": "AA=="}},
    {"$unknown": 1},
    {"$a": 1, "$b": Decimal(1)},
    {"b": 1, "a": 2},
]


def _typed(value: Any) -> Any:
    """A value with the types of all its parts, so that 1, 1.0 and True differ, and NaN is NaN."""
    if isinstance(value, dict):
        return dict, [(_typed(key), _typed(each)) for key, each in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [_typed(each) for each in value]
    return type(value), repr(sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value)


@pytest.mark.parametrize("value", KEPT, ids=lambda value: repr(value)[:40])
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    text = lossless_json.dumps(value)
    text.encode()
    assert "\0" not in text
    assert _typed(lossless_json.loads(text)) == _typed(value)


def test_a_number_with_more_digits_than_python_reads_comes_back() -> None:
    value = {"digits": 10**5000, "negative": [-(10**5000)]}
    assert lossless_json.loads(lossless_json.dumps(value)) == value


def test_nan_comes_back_as_nan() -> None:
    assert math.isnan(lossless_json.loads(lossless_json.dumps({"a": [math.nan]}))["a"][0])


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.decimals()
    | st.dates()
    | st.datetimes().map(lambda value: value.replace(fold=0))
    | st.timedeltas(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.just("$decimal"), inner),
    max_leaves=10,
)


@given(VALUES)
def test_any_value_comes_back_as_it_was(value: Any) -> None:
    assert _typed(lossless_json.loads(lossless_json.dumps(value))) == _typed(value)


def test_what_json_has_is_written_as_json_writes_it() -> None:
    value = {"id": 1, "name": "ä", "tags": ["a", {"b": None}], "price": 1.5}
    assert json.loads(lossless_json.dumps(value)) == value


def test_values_are_the_same_type_for_type_whatever_the_order_of_keys() -> None:
    assert lossless_json.same({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert lossless_json.same({"a": math.nan}, {"a": math.nan})
    for other in ({"a": 1.0}, {"a": True}, {"a": "1"}, {"a": Decimal(1)}):
        assert not lossless_json.same({"a": 1}, other)
    numbers = [8, 1, 16, 0]  # 8, 16 and 0 fall together in a small set, and stand in it in the order in which they came
    for kind in (set, frozenset):
        assert lossless_json.same({"a": kind(numbers)}, {"a": kind(numbers[::-1])})
    assert lossless_json.same({1: "a", (2,): {3: 4, 5: 6}}, {(2,): {5: 6, 3: 4}, 1: "a"})
    assert not lossless_json.same({1: "a"}, {True: "a"})
    assert list(lossless_json.loads(lossless_json.dumps({2: "b", 1: "a"}))) == [2, 1], (
        "written in the order that was given"
    )


class _Kind(enum.Enum):
    PRICE = Decimal("1.5")
    NAME = "name"
    NONE = object()


def test_a_member_of_an_enumeration_is_kept_as_its_value() -> None:
    assert lossless_json.loads(lossless_json.dumps({"a": _Kind.PRICE, "b": _Kind.NAME})) == {
        "a": Decimal("1.5"),
        "b": "name",
    }
    with pytest.raises(InvalidInput, match=r"value\.a is of the type builtins\.object"):
        lossless_json.dumps({"a": _Kind.NONE})


class _NoTime(datetime):
    """As pandas' NaT: a datetime by class alone."""

    def isoformat(self, *_: Any) -> str:
        return "NaT"


class _Finer(timedelta):
    """As pandas' Timedelta: with a part that timedelta has not."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Finer)

    __hash__ = timedelta.__hash__


@pytest.mark.parametrize("value", [_NoTime(2026, 1, 1), _Finer(1)])
def test_a_value_that_would_not_come_back_equal_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"record\.at is of the type"):
        lossless_json.dumps({"at": value}, "record")


def test_what_cannot_be_kept_is_refused_with_its_place_or_shown_as_its_repr() -> None:
    value = {"a": [1, {"b": object}]}
    with pytest.raises(InvalidInput, match=r"record\.a\[1\]\.b is of the type builtins\.type"):
        lossless_json.dumps(value, "record")
    assert lossless_json.loads(lossless_json.dumps(value, lenient=True)) == {"a": [1, {"b": repr(object)}]}


def test_what_is_nested_too_deep_is_refused() -> None:
    deep: Any = 1.5
    for _ in range(lossless_json.MAX_DEPTH + 2):
        deep = [deep]
    with pytest.raises(InvalidInput, match="deeper than 100 levels"):
        lossless_json.dumps(deep)
    assert "nested deeper than 100 levels" in lossless_json.dumps(deep, lenient=True)
    cycle: dict[str, Any] = {}
    cycle["me"] = cycle
    with pytest.raises(InvalidInput, match="deeper than 100 levels"):
        lossless_json.dumps(cycle)


@pytest.mark.parametrize(
    "text",
    ['{"a": {"$decimal": "abc"}}', '{"$bytes": "abc"}', '{"$pairs": 5}', '{"$set": [[1]]}', '{"$timedelta": [1e300]}'],
)
def test_a_mark_that_was_written_by_hand_on_what_is_no_such_value_is_refused_or_left(text: str) -> None:
    with pytest.raises(lossless_json.NOT_OURS):
        lossless_json.loads(text)
    assert lossless_json.loads_stored(text) == json.loads(text)
