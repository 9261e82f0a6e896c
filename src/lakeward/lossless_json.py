"""Python values as JSON text that gives them back as they were: type for type, key for key.

What JSON has is written as JSON writes it, so that SQL reads it. What JSON lacks is an object of one key that begins with
'$': {"$decimal": "1.10"}, {"$bytes": "AAE="}, {"$float": "nan"}, {"$date": "2026-01-02"}.
"""

from __future__ import annotations

import base64
import contextlib
import enum
import json
import math
import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from lakeward.errors import InvalidInput

MAX_DEPTH = 100  # levels of objects and lists in one another; databases and parsers have limits of their own
_MAX_BITS = 10_000  # of a number that is written as JSON writes it: Python reads no more than 4,300 digits
_PLAIN = frozenset({str, int, bool, type(None)})


def dumps(value: Any, what: str = "value", *, sort_keys: bool = False, lenient: bool = False) -> str:
    """The text. With `lenient`, what cannot be kept becomes its repr. With `sort_keys`, the same values have the same text.

    Raises:
        InvalidInput: a value of a type that cannot be kept, or more than MAX_DEPTH levels; the message says where.
    """
    if not sort_keys and _is_plain(value):
        with contextlib.suppress(ValueError):  # of lone surrogates, and of numbers with thousands of digits
            return msgspec.json.encode(value).decode()
    plain = _encoded(value, what, 0, lenient)
    if sort_keys:
        plain = _with_sorted_pairs(plain)
    text = json.dumps(plain, ensure_ascii=False, allow_nan=False, sort_keys=sort_keys, separators=(",", ":"))
    if not text.isascii() and any(0xD800 <= ord(c) <= 0xDFFF for c in text):  # UTF-8 has no lone surrogates, escapes do
        text = json.dumps(plain, allow_nan=False, sort_keys=sort_keys, separators=(",", ":"))
    return text


def can_keep(value: Any) -> bool:
    """Whether a single value, of no object or list, is of a type that can be kept."""
    return type(value) in _PLAIN or type(value) is float or isinstance(value, tuple(_WRITERS))


# What `loads` raises for a text that `dumps` did not make.
NOT_OURS = (ValueError, TypeError, ArithmeticError, RecursionError)


def loads(text: str) -> Any:
    """The value that `dumps` was given."""
    value = json.loads(text)
    return _decoded(value) if '"$' in text else value


def loads_stored(text: str) -> Any:
    """As `loads`; but JSON that somebody wrote into the database by hand, with a mark of ours on what is no such value, comes
    back as it stands, so that the rows around it can be read."""
    try:
        return loads(text)
    except NOT_OURS:
        return json.loads(text)


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same, type for type (1 is not 1.0, NaN is NaN); the order of keys does not matter."""
    return dumps(one, sort_keys=True) == dumps(other, sort_keys=True)


def _is_plain(value: Any) -> bool:
    """A flat object of JSON's own values, which most positions are."""
    return type(value) is dict and all(
        type(key) is str and not key.startswith("$") and type(each) in _PLAIN for key, each in value.items()
    )


def _encoded(value: Any, where: str, depth: int, lenient: bool) -> Any:
    kind = type(value)
    if kind is int and value.bit_length() > _MAX_BITS:
        return {"$int": hex(value)}
    if kind in _PLAIN:
        return value
    if isinstance(value, enum.Enum):
        return _encoded(value.value, where, depth, lenient)
    if depth > MAX_DEPTH:
        if lenient:
            return f"(nested deeper than {MAX_DEPTH} levels)"
        raise InvalidInput(f"{where[:200]} is nested deeper than {MAX_DEPTH} levels; store it as text or bytes")
    if kind is float:
        return value if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, Mapping):
        return _object(value, where, depth, lenient)
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [_encoded(each, f"{where}[{number}]", depth + 1, lenient) for number, each in enumerate(value)]
        tag = next((tag for type_, tag in _COLLECTIONS.items() if isinstance(value, type_)), None)
        if tag in ("$set", "$frozenset"):
            items.sort(key=json.dumps)
        return items if tag is None else {tag: items}
    for type_, (tag, write) in _WRITERS.items():
        if isinstance(value, type_) and (kind is type_ or _survives(value, tag, write)):
            return write(value) if tag is None else {tag: write(value)}
    if lenient:
        return repr(value)
    raise InvalidInput(
        f"{where} is of the type {kind.__module__}.{kind.__qualname__}, which cannot be kept; give what JSON has, or bytes, "
        "Decimal, date, time, datetime, timedelta, UUID, tuple, set"
    )


def _survives(value: Any, tag: str | None, write: Callable[[Any], Any]) -> bool:
    """Whether a value of a subclass comes back equal: pandas has datetimes that are no times, and some with nanoseconds."""
    if tag is None:
        return True
    try:
        back = _READERS[tag](write(value))
        return bool(back == value or (back != back and value != value))
    except (ValueError, TypeError, ArithmeticError):
        return False


def _object(value: Mapping[Any, Any], where: str, depth: int, lenient: bool) -> Any:
    if all(type(key) is str for key in value):
        made = {key: _encoded(each, f"{where}.{key}", depth + 1, lenient) for key, each in value.items()}
        # An object that looks like one of ours is wrapped.
        return {"$object": made} if len(made) == 1 and next(iter(made)).startswith("$") else made
    pairs = [
        [_encoded(key, f"{where} (a key)", depth + 1, lenient), _encoded(each, f"{where}[{key!r}]", depth + 1, lenient)]
        for key, each in value.items()
    ]
    return {"$pairs": pairs}


def _with_sorted_pairs(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_with_sorted_pairs(each) for each in plain]
    if not isinstance(plain, dict):
        return plain
    made = {key: _with_sorted_pairs(each) for key, each in plain.items()}
    if list(made) == ["$pairs"]:
        made["$pairs"].sort(key=lambda pair: json.dumps(pair[0], sort_keys=True))
    return made


def _base64(value: Any) -> str:
    return base64.b64encode(value).decode()


_COLLECTIONS: dict[type, str] = {tuple: "$tuple", frozenset: "$frozenset", set: "$set"}
# In this order: a datetime is a date too.
_WRITERS: dict[type, tuple[str | None, Callable[[Any], Any]]] = {
    bytes: ("$bytes", _base64),
    bytearray: ("$bytearray", _base64),
    memoryview: ("$bytes", _base64),
    Decimal: ("$decimal", str),
    datetime: ("$datetime", lambda value: value.isoformat()),
    date: ("$date", lambda value: value.isoformat()),
    time: ("$time", lambda value: value.isoformat()),
    timedelta: ("$timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    uuid.UUID: ("$uuid", str),
    bool: (None, bool),
    int: (None, lambda value: _encoded(int(value), "", 0, False)),
    float: (None, lambda value: float(value) if math.isfinite(value) else {"$float": str(float(value))}),
    str: (None, str),
}


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(each) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, content),) = value.items()
        if key == "$object":
            return {name: _decoded(each) for name, each in content.items()}
        if key in _READERS:
            return _READERS[key](content)
    return {key: _decoded(each) for key, each in value.items()}


_READERS: dict[str, Callable[[Any], Any]] = {
    "$int": lambda text: int(text, 16),
    "$float": float,
    "$bytes": base64.b64decode,
    "$bytearray": lambda text: bytearray(base64.b64decode(text)),
    "$decimal": Decimal,
    "$datetime": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$time": time.fromisoformat,
    "$timedelta": lambda parts: timedelta(*parts),
    "$uuid": uuid.UUID,
    "$tuple": lambda items: tuple(_decoded(each) for each in items),
    "$set": lambda items: {_decoded(each) for each in items},
    "$frozenset": lambda items: frozenset(_decoded(each) for each in items),
    "$pairs": lambda pairs: {_decoded(key): _decoded(each) for key, each in pairs},
}
