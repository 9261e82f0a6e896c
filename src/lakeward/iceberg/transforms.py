"""Partition transforms (specification, 'Partition Transforms' and appendix B), on raw values: see `iceberg.values`."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import mmh3

from lakeward.errors import InvalidInput, InvalidSchema
from lakeward.iceberg import types, values
from lakeward.iceberg.types import TypeDocument

_WIDTH = re.compile(r"(bucket|truncate)\[([0-9]{1,10})\]")
_MICROS = {"hour": 3_600_000_000, "day": 86_400_000_000}
_TIMESTAMPS = ("timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
_MAX = 2**31 - 1


def width(transform: str) -> tuple[str, int | None]:
    """('bucket', 16) of 'bucket[16]'; the number is none for transforms that have none.

    Raises:
        InvalidSchema: no transform of Iceberg, or a number outside 1..2147483647.
    """
    match = _WIDTH.fullmatch(transform)
    if match is None:
        if transform in ("identity", "void", "year", "month", "day", "hour"):
            return transform, None
    elif 1 <= int(match[2]) <= _MAX:
        return match[1], int(match[2])
    else:
        raise InvalidSchema(
            f"{match[1]} by {match[2]} cannot be; give a number from 1 to {_MAX}, as in {match[1]}(16, column)"
        )
    raise InvalidSchema(
        f"transform {transform!r} is not known; use identity, year, month, day, hour, bucket[n], truncate[n] or void"
    )


def applies(transform: str, source: TypeDocument) -> bool:
    """Whether a transform takes values of a type."""
    kind, _ = width(transform)
    if not isinstance(source, str) or source.startswith(("geometry", "geography", "variant", "unknown")):
        return kind == "void"
    if kind == "bucket":
        return source not in ("boolean", "float", "double")
    if kind == "truncate":
        return source in ("int", "long", "string", "binary") or types.decimal_parts(source) is not None
    if kind == "hour":
        return source in _TIMESTAMPS
    return kind in ("identity", "void") or source == "date" or source in _TIMESTAMPS


def result_type(transform: str, source: str) -> str:
    """The type of a transform's values; days are dates, as Iceberg's implementations write them."""
    kind, _ = width(transform)
    return {"bucket": "int", "year": "int", "month": "int", "hour": "int", "day": "date"}.get(kind, source)


def transform_value(transform: str, source: str, raw: Any) -> Any:
    """The raw result for a raw value of the source type; null stays null. It may be more than a manifest holds: `check_held`."""
    return None if raw is None else _function(transform, source)(raw)


def may_overflow(transform: str, source: str) -> bool:
    """Whether some value of the source type has a result that no manifest holds."""
    kind, _ = width(transform)
    return kind == "hour" or (kind == "truncate" and types.decimal_parts(source) is not None)


def check_held(transform: str, source: str, raw: Any) -> None:
    """Check that a manifest can hold a raw result.

    Hours are 32-bit numbers (specification, 'Partition Transforms'); decimals have the bytes of their precision, in which a
    truncated one may have a digit more.

    Raises:
        InvalidInput: it cannot.
    """
    if raw is None or not may_overflow(transform, source):
        return
    parts = types.decimal_parts(source)
    bits = 32 if parts is None else 8 * values.decimal_length(parts[0])
    if -(1 << (bits - 1)) <= raw < 1 << (bits - 1):
        return
    of_time = "the hour {} since 1970, and Iceberg counts hours in 32 bits; partition by day or month".format
    of_decimal = "{}, which " + source + " cannot hold; partition by a smaller width, or by bucket"
    result = of_time(raw) if parts is None else of_decimal.format(values.to_json(source, raw))
    raise InvalidInput(f"{transform} of it is {result}")


def result_from_json(transform: str, source: str, value: Any) -> Any:
    """The raw form of a transform's result in single-value JSON.

    Raises:
        InvalidInput: the value is none of the transform's result type.
    """
    result = result_type(transform, source)
    return values.from_json(widest(result) if transform.startswith("truncate") else result, value)


def widest(result: str) -> str:
    """The type of all results of truncation: it gives the least decimals of a precision a few digits more."""
    parts = types.decimal_parts(result)
    return result if parts is None else f"decimal({parts[0] + 10}, {parts[1]})"


@lru_cache(maxsize=1024)
def _function(transform: str, source: str) -> Callable[[Any], Any]:
    kind, number = width(transform)
    if kind == "identity":
        return lambda raw: raw
    if kind == "void":
        return lambda raw: None
    if kind == "bucket":
        return lambda raw: (mmh3.hash(_hashed(source, raw)) & _MAX) % (number or 1)
    if kind == "truncate":
        return lambda raw: _truncated(source, raw, number or 1)
    return lambda raw: _time(kind, source, raw)


def _hashed(source: str, raw: Any) -> bytes:
    if types.decimal_parts(source) is not None:
        return values.shortest(raw)
    if source.endswith("_ns"):
        return struct.pack("<q", raw // 1000)  # as the same moment in microseconds
    if isinstance(raw, int):
        return struct.pack("<q", raw)
    return bytes(raw.encode() if isinstance(raw, str) else raw)


def _truncated(source: str, raw: Any, number: int) -> Any:
    if not isinstance(raw, int):
        return raw[:number]
    result = raw - raw % number
    bits = {"int": 32, "long": 64}.get(source)
    if bits is not None and result < -(1 << (bits - 1)):
        result += 1 << bits  # as Java's arithmetic wraps
    return result


def units(kind: str, source: str) -> int:
    """What a date or timestamp counts in, in one day, or in one hour for the hour transform."""
    if source == "date":
        return 1
    return _MICROS["hour" if kind == "hour" else "day"] * (1000 if source.endswith("_ns") else 1)


def of_days(kind: str, days: int) -> int:
    """The year or month transform of a day since 1970-01-01."""
    year, month, _ = values.civil(days)
    return year - 1970 if kind == "year" else (year - 1970) * 12 + month - 1


def _time(kind: str, source: str, raw: int) -> int:
    whole = raw // units(kind, source)
    return whole if kind in ("hour", "day") else of_days(kind, whole)


def human(transform: str, source: str, raw: Any) -> str:
    """A transform's result as people read it in partition paths: '2017-11' for a month; 'null' for null."""
    if raw is None:
        return "null"
    kind, _ = width(transform)
    if kind == "year":
        return values.year_text(1970 + raw)
    if kind == "month":
        return f"{values.year_text(1970 + raw // 12)}-{raw % 12 + 1:02d}"
    if kind == "hour":
        return f"{values.to_json('date', raw // 24)}-{raw % 24:02d}"
    shown = values.to_json(result_type(transform, source), raw)
    return str(shown).lower() if isinstance(shown, bool) else str(shown)


def from_human(transform: str, source: str, text: str) -> Any:
    """The raw result that `human` shows so; a null is none of its business.

    Raises:
        InvalidInput: the text shows none.
    """
    kind, number = width(transform)
    try:
        if kind == "year":
            return int(_match(_YEAR, text)[1]) - 1970
        if kind == "month":
            match = _match(_MONTH, text)
            return (int(match[1]) - 1970) * 12 + int(match[2]) - 1
        if kind == "hour":
            match = _match(_HOUR, text)
            return values.from_json("date", match[1]) * 24 + int(match[2])
        result = result_type(transform, source)
        shown: Any = text
        if result in ("int", "long"):
            shown = int(text)
        elif result in ("float", "double") and text not in ("NaN", "Infinity", "-Infinity"):
            shown = float(text)
        elif result == "boolean":
            shown = {"true": True, "false": False}[text]
        raw = result_from_json(transform, source, shown)
        if kind == "bucket" and not 0 <= raw < (number or 0):
            raise ValueError("no such bucket")
    except (ValueError, KeyError, InvalidInput) as error:
        raise InvalidInput(f"{text!r} is no value of {transform} of a {source}") from error
    return raw


_YEAR = re.compile(r"([+-]?\d{4,})")
_MONTH = re.compile(r"([+-]?\d{4,})-(0[1-9]|1[0-2])")
_HOUR = re.compile(r"(.+)-([01]\d|2[0-3])")


def _match(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError("wrong form")
    return match
