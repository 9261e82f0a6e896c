"""Partition transforms (specification, 'Partition Transforms' and appendix B), on raw values: see `iceberg.values`."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import mmh3

from lakeward.errors import InvalidSchema
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
    """The raw result for a raw value of the source type; null stays null."""
    return None if raw is None else _function(transform, source)(raw)


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


def _time(kind: str, source: str, raw: int) -> int:
    if source == "date":
        days = raw
    else:
        micros = raw // 1000 if source.endswith("_ns") else raw
        if kind == "hour":
            return micros // _MICROS["hour"]
        days = micros // _MICROS["day"]
    if kind == "day":
        return days
    year, month, _ = values.civil(days)
    return year - 1970 if kind == "year" else (year - 1970) * 12 + month - 1


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
