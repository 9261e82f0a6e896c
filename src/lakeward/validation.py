"""What callers give, checked before a database sees it: each of them would refuse it in a way of its own, or take it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache, partial
from numbers import Real
from typing import Any, TypeVar, get_args

import msgspec

from lakeward.errors import InvalidInput, InvalidName, InvalidSetting
from lakeward.names import is_storable

E = TypeVar("E", bound=Enum)
F = TypeVar("F", bound=msgspec.Struct)

MAX_INTEGER = (1 << 63) - 1
MAX_DAYS = 365_000  # a thousand years: further back or ahead there are no times


def whole(
    value: Any,
    what: str,
    least: int = -MAX_INTEGER - 1,
    most: int = MAX_INTEGER,
    *,
    refused: type[InvalidInput] = InvalidInput,
) -> int:
    """A whole number that the databases can hold. Raises `refused`."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not least <= number <= most:
        raise refused(f"{what} {_short(value)} is no whole number from {least:,} to {most:,}")
    return number


def whole_or_none(value: Any, what: str, least: int = -MAX_INTEGER - 1, most: int = MAX_INTEGER) -> int | None:
    return None if value is None else whole(value, what, least, most)


def page_of(limit: Any, before: Any) -> tuple[int | None, int]:
    """How many rows a page has at most, None for all; and the id before which it begins. Raises InvalidInput."""
    return whole_or_none(limit, "limit", 0), MAX_INTEGER if before is None else whole(before, "before")


def text_or_none(value: Any, what: str) -> str | None:
    """A text to look for. Raises InvalidName: what is no text, or one that no row can have."""
    if value is not None and (not isinstance(value, str) or not is_storable(value)):
        raise InvalidName(f"{what} {_short(value)} is no text without NUL and surrogates")
    return value


def one_of(kind: type[E], value: Any, what: str) -> E:
    """A member, given as one or as its value. Raises InvalidInput: naming what would be accepted."""
    try:
        return kind(value)
    except ValueError:
        raise InvalidInput(f"{what} {_short(value)} is none of {', '.join(each.value for each in kind)}") from None


def one_of_or_none(kind: type[E], value: Any, what: str) -> E | None:
    return None if value is None else one_of(kind, value, what)


def filter_of(kind: type[F], chosen: F | None, fields: Mapping[str, Any], what: str, *, is_needed: bool = False) -> F:
    """A filter that was given as an object, or by its fields as keywords; with neither, one that narrows nothing.

    Its values are such as no database refuses; members of enumerations may be given as texts.

    Raises:
        InvalidInput, InvalidName: both were given, or what is no such filter; or neither, where the filter `is_needed`; or a value
            that no row has.
        TypeError: a keyword that is none of its fields.
    """
    if (chosen is not None and fields) or (is_needed and chosen is None and not fields):
        raise InvalidInput(
            f"say which {what}: by fields such as schema_name='shop', or by one {kind.__name__}; {kind.__name__}() is all of them"
        )
    if chosen is None:
        chosen = kind(**fields)
    elif not isinstance(chosen, kind):
        raise InvalidInput(f"{_short(chosen)} chooses no {what}; give {kind.__name__}(schema_name='shop'), say")
    return kind(**{name: check(getattr(chosen, name), name) for name, check in _checks(kind)})


@cache
def _checks(kind: type[msgspec.Struct]) -> list[tuple[str, Callable[[Any, str], Any]]]:
    """What checks each field of a filter, by its type beside None."""
    plain: dict[Any, Callable[[Any, str], Any]] = {str: text_or_none, int: whole_or_none, datetime: moment}
    types = [(field.name, get_args(field.type)[0]) for field in msgspec.structs.fields(kind)]
    return [(name, plain.get(type_) or partial(one_of_or_none, type_)) for name, type_ in types]


def moment(value: Any, what: str) -> datetime | None:
    """A point in time, UTC. Raises InvalidInput: it says no time zone, or is no datetime."""
    if value is None:
        return None
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidInput(f"{what} {_short(value)} is no datetime with a time zone; write datetime.now(UTC), say")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise InvalidInput(f"{what} {_short(value)} is before the year 1 or after 9999 in UTC") from None


def number(value: Any, what: str, least: float, most: float, *, refused: type[InvalidInput] = InvalidInput) -> float:
    """A number in a range, and finite. Raises `refused`."""
    found = _real(value)
    if not least <= found <= most or found == math.inf:
        raise refused(f"{what} {_short(value)} is no number from {least:g} to {most:g}")
    return found


def span(value: Any, what: str, unit: str, *, refused: type[InvalidInput] = InvalidInput) -> timedelta:
    """A number of `unit` (a keyword of timedelta) above 0. Raises `refused`: also for more than MAX_DAYS days."""
    number = _real(value)
    if number > 0:
        try:
            found = timedelta(**{unit: number})
        except OverflowError:  # infinity too
            found = timedelta.max
        if timedelta() < found <= timedelta(days=MAX_DAYS):
            return found
    raise refused(f"{what} {_short(value)} must be a number of {unit} above 0, and at most {MAX_DAYS:,} days")


def check_config(config: object, **least: int) -> None:
    """Check the fields of a config by their annotations: an int is a whole number from 1 on, or from what `least` says of it, a
    float a number of seconds, a str no empty one; None only where the annotation has it.

    Raises InvalidSetting: naming the field.
    """
    for name, annotation in type(config).__annotations__.items():
        value, kind = getattr(config, name), annotation.removesuffix(" | None")
        if value is None and kind != annotation:
            continue
        if kind == "int":
            whole(value, name, least.get(name, 1), refused=InvalidSetting)
        elif kind == "float":
            span(value, name, "seconds", refused=InvalidSetting)
        elif kind in ("str", "bool") and (value == "" or type(value).__name__ != kind):
            raise InvalidSetting(f"{name} {_short(value)} is no {'text' if kind == 'str' else 'true or false'}")


def _real(value: Any) -> float:
    """A number of Python's or of numpy's; NaN for what is none."""
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan


def _short(value: Any) -> str:
    try:
        shown = repr(value)
    except (ValueError, RecursionError):  # of numbers with thousands of digits
        shown = f"a {type(value).__name__}"
    return shown if len(shown) <= 100 else f"{shown[:80]}..."
