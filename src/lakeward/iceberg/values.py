"""Single values of primitive types in the forms that Iceberg has (specification, appendices A, B and D).

One value has four forms here:

    raw     what this module computes with: days (date), microseconds (time, timestamp, timestamptz), nanoseconds (..._ns),
            the unscaled integer (decimal), 16 bytes (uuid), bytes, str, int, float, bool; None for null
    JSON    "14.20", "2017-11-16", "22:31:08.5", "2017-11-16T22:31:08.5", "...+00:00"; uuid as its text; lower-case hex for
            bytes; NaN and infinities as "NaN", "Infinity" and "-Infinity"; a fraction of a second has no zeros at its end; a
            float is the double of its value, 0.10000000149011612 and not 0.1, so that it stays the same when its column is
            widened
    Avro    as raw, but for decimals: big-endian bytes of the type's length
    binary  little-endian numbers, big-endian decimals of the shortest length: bounds of columns and partitions

Dates before year 1 and after 9999, which Python's own types lack, are held.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any
from uuid import UUID

import pyarrow as pa

from lakeward.errors import InvalidInput
from lakeward.iceberg import types

_DAY = 86_400_000_000  # microseconds
_UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}  # nanoseconds
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - plain arithmetic; zones are taken off first
_NOT_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "+Infinity": math.inf, "-Infinity": -math.inf}
_DATE = r"([+-]?\d{4,})-(\d\d)-(\d\d)"
_TIME = r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?"
_DATE_TEXT = re.compile(_DATE)
_TIME_TEXT = re.compile(_TIME)
_TIMESTAMP_TEXT = re.compile(rf"{_DATE}[T ]{_TIME}(Z|[+-]\d\d:?\d\d)?")


def _wrong(type_: str, value: Any) -> InvalidInput:
    return InvalidInput(
        f"value {str(value)[:80]!r} ({type(value).__name__}) is no {type_}; give one that the column's type holds"
    )


# The calendar ------------------------------------------------------------------------------------------------------------
def civil(days: int) -> tuple[int, int, int]:
    """(year, month, day) of a day since 1970-01-01, in the proleptic Gregorian calendar, for any year."""
    era, of_era = divmod(days + 719_468, 146_097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153  # months from March on
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year_of_era + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def days_of(year: int, month: int, day: int) -> int:
    """The inverse of `civil`."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def year_text(year: int) -> str:
    return f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"


def _date_text(days: int) -> str:
    year, month, day = civil(days)
    return f"{year_text(year)}-{month:02d}-{day:02d}"


def _time_text(nanos: int) -> str:
    seconds, fraction = divmod(nanos, 10**9)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return text + (f".{fraction:09d}".rstrip("0") if fraction else "")


def _days(match: re.Match[str]) -> int:
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    result = days_of(year, month, day)
    if civil(result) != (year, month, day):
        raise ValueError("no such day")
    return result


def _nanos(hours: str, minutes: str, seconds: str | None, fraction: str | None) -> int:
    h, m, s = int(hours), int(minutes), int(seconds or 0)
    if h > 23 or m > 59 or s > 59:
        raise ValueError("no such time")
    return (h * 3600 + m * 60 + s) * 10**9 + int((fraction or "").ljust(9, "0"))


# From JSON -----------------------------------------------------------------------------------------------------------------
def from_json(type_: str, value: Any) -> Any:
    """The raw form of a single value in JSON.

    Raises:
        InvalidInput: the value is none of the type, out of its range, or finer than it holds.
    """
    if value is None:
        return None
    try:
        return _json_reader(type_)(value)
    except (ValueError, TypeError, ArithmeticError, KeyError) as error:
        raise _wrong(type_, value) from error


@lru_cache(maxsize=1024)
def _json_reader(type_: str) -> Callable[[Any], Any]:
    if type_ in _RANGES:
        low, high = _RANGES[type_]
        return lambda v: _whole(v, low, high)
    if (parts := types.decimal_parts(type_)) is not None:
        return lambda v: _unscaled(Decimal(_kind(v, str)), *parts)
    if (length := types.fixed_length(type_)) is not None:
        return lambda v: _sized(bytes.fromhex(_kind(v, str)), length)
    readers: dict[str, Callable[[Any], Any]] = {
        "boolean": lambda v: _kind(v, bool),
        "string": lambda v: _utf8(_kind(v, str)),
        "float": lambda v: _single(_float_from_json(v)),
        "double": _float_from_json,
        "date": lambda v: _limited(_days(_match(_DATE_TEXT, v)), 31),
        "time": lambda v: _units(_nanos(*_match(_TIME_TEXT, v).groups()), 1000),
        "uuid": lambda v: UUID(_kind(v, str)).bytes,
        "binary": lambda v: bytes.fromhex(_kind(v, str)),
        "unknown": lambda v: _no_value(),
    }
    if type_.startswith("timestamp"):
        unit = 1 if type_.endswith("_ns") else 1000
        return lambda v: _timestamp_from_json(v, unit, type_.startswith("timestamptz"))
    if type_ not in readers:
        raise ValueError(f"{type_} has no single values")
    return readers[type_]


_RANGES = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}


def _kind(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"not {kind.__name__}")
    return value


def _no_value() -> Any:
    raise ValueError("only null")


def _whole(value: Any, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError("out of range")
    return int(value)


def _limited(value: int, bits: int) -> int:
    return _whole(value, -(1 << bits), (1 << bits) - 1)


def _utf8(value: str) -> str:
    value.encode()  # surrogates cannot be stored
    return value


def _sized(value: bytes, length: int) -> bytes:
    if len(value) != length:
        raise ValueError(f"{len(value)} bytes instead of {length}")
    return value


def _float_from_json(value: Any) -> float:
    if isinstance(value, str):
        return _NOT_NUMBERS[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("no number")
    return float(value)


def _single(value: float) -> float:
    """The float that is nearest. Raises OverflowError: it would be infinite."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _match(pattern: re.Pattern[str], value: Any) -> re.Match[str]:
    match = pattern.fullmatch(_kind(value, str))
    if match is None:
        raise ValueError("wrong form")
    return match


def _units(nanos: int, unit: int) -> int:
    if nanos % unit:
        raise ValueError("finer than the type")
    return nanos // unit


def _timestamp_from_json(value: Any, unit: int, with_zone: bool) -> int:
    match = _match(_TIMESTAMP_TEXT, value)
    zone = match[8]
    if (zone is not None) != with_zone:
        raise ValueError("a zone too much or too little")
    offset = 0
    if zone and zone != "Z":
        offset = (int(zone[1:3]) * 60 + int(zone[-2:])) * (-1 if zone[0] == "-" else 1)
    nanos = (_days(match) * 86_400 - offset * 60) * 10**9 + _nanos(match[4], match[5], match[6], match[7])
    return _limited(_units(nanos, unit), 63)


def _unscaled(value: Decimal, precision: int, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError("no number")
    whole: int = int("".join(map(str, digits)) or "0")
    shift = exponent + scale
    if abs(shift) > 100:
        raise ValueError("more digits than the type has")
    if shift < 0 and whole % 10**-shift:
        raise ValueError("more digits after the point than the type has")
    whole = int(whole * 10**shift if shift >= 0 else whole // 10**-shift)
    if whole >= 10**precision:
        raise ValueError("more digits than the type has")
    return int(-whole if sign else whole)


# To JSON -------------------------------------------------------------------------------------------------------------------
def to_json(type_: str, raw: Any) -> Any:
    """The JSON form of a raw value."""
    if raw is None or type_ in ("boolean", "int", "long", "string"):
        return raw
    if type_ in ("float", "double"):
        if math.isfinite(raw):
            return raw
        return "NaN" if math.isnan(raw) else "Infinity" if raw > 0 else "-Infinity"
    if type_ == "date":
        return _date_text(raw)
    if type_ == "time":
        return _time_text(raw * 1000)
    if type_.startswith("timestamp"):
        days, nanos = divmod(raw * (1 if type_.endswith("_ns") else 1000), _DAY * 1000)
        return f"{_date_text(days)}T{_time_text(nanos)}" + ("+00:00" if type_.startswith("timestamptz") else "")
    if type_ == "uuid":
        return str(UUID(bytes=raw))
    if (parts := types.decimal_parts(type_)) is not None:
        return _decimal_text(raw, parts[1])
    return raw.hex()


def _decimal_text(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{text}" if unscaled < 0 else text


# From Python and Arrow -------------------------------------------------------------------------------------------------------
def from_python(type_: str, value: Any) -> Any:
    """The raw form of a Python value or an Arrow scalar of the type.

    Raises:
        InvalidInput: the value is none of the type, out of its range, or finer than it holds.
    """
    if isinstance(value, pa.Scalar):
        value = _from_scalar(value)
    if value is None:
        return None
    try:
        return _from_python(type_, value)
    except (ValueError, TypeError, ArithmeticError, InvalidOperation, KeyError) as error:
        raise _wrong(type_, value) from error


def _from_scalar(scalar: pa.Scalar) -> Any:
    """Python's value, but times as raw numbers wrapped in `_Nanos`: Python has no nanoseconds and no year 10000."""
    kind = scalar.type
    if isinstance(scalar, pa.DictionaryScalar):
        return _from_scalar(scalar.value)
    if not scalar.is_valid:
        return None
    if pa.types.is_date32(kind):
        return _Days(scalar.value)
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return _Nanos(scalar.value * _UNITS[kind.unit])
    return scalar.as_py()


class _Days(int):
    pass


class _Nanos(int):
    pass


def _from_python(type_: str, value: Any) -> Any:
    if type_ == "date":
        if isinstance(value, _Days):
            return int(value)
        if isinstance(value, datetime) or not isinstance(value, date):
            raise TypeError("no date")
        return value.toordinal() - 719_163
    if type_ == "time":
        if isinstance(value, time):
            return ((value.hour * 60 + value.minute) * 60 + value.second) * 10**6 + value.microsecond
        return _units(int(_kind(value, _Nanos)), 1000)
    if type_.startswith("timestamp"):
        unit = 1 if type_.endswith("_ns") else 1000
        return _limited(_units(_timestamp_nanos(value, type_.startswith("timestamptz")), unit), 63)
    if (parts := types.decimal_parts(type_)) is not None:
        return _unscaled(value if isinstance(value, Decimal) else Decimal(_kind(value, int)), *parts)
    if type_ == "uuid":
        return value.bytes if isinstance(value, UUID) else _sized(_kind(value, bytes), 16)
    if type_ == "binary":
        return _kind(value, bytes)
    if (length := types.fixed_length(type_)) is not None:
        return _sized(_kind(value, bytes), length)
    return _json_reader(type_)(value)


def _timestamp_nanos(value: Any, with_zone: bool) -> int:
    if isinstance(value, _Nanos):
        return int(value)
    if not isinstance(value, datetime) or (value.tzinfo is not None) != with_zone:
        raise TypeError("no timestamp, or a zone too much or too little")
    if with_zone:
        value = value.astimezone(UTC).replace(tzinfo=None)
    since: timedelta = value - _EPOCH
    return (since.days * _DAY + since.seconds * 10**6 + since.microseconds) * 1000


# Avro and binary ---------------------------------------------------------------------------------------------------------
def decimal_length(precision: int) -> int:
    """Bytes of a decimal in Avro: the least that hold every value of the precision."""
    largest: int = 10**precision - 1
    return largest.bit_length() // 8 + 1


def to_avro(type_: str, raw: Any) -> Any:
    parts = types.decimal_parts(type_)
    return raw if parts is None or raw is None else raw.to_bytes(decimal_length(parts[0]), "big", signed=True)


def from_avro(type_: str, value: Any) -> Any:
    return int.from_bytes(value, "big", signed=True) if value is not None and types.decimal_parts(type_) else value


_PACKED = {"boolean": "<?", "int": "<i", "date": "<i", "long": "<q", "time": "<q", "float": "<f", "double": "<d"}


def to_binary(type_: str, raw: Any) -> bytes:
    """The binary form (appendix D) of a raw value that is not null."""
    if (form := _PACKED.get(type_) or ("<q" if type_.startswith("timestamp") else None)) is not None:
        return struct.pack(form, raw)
    if type_ == "string":
        return bytes(raw.encode())
    if types.decimal_parts(type_) is not None:
        return shortest(raw)
    return bytes(raw)


def from_binary(type_: str, data: bytes) -> Any:
    """The raw form of a bound. A bound written before its column was widened is read too.

    Raises:
        InvalidInput: the bytes have a length that the type never has, or are no UTF-8.
    """
    try:
        if type_ in ("long", "double") and len(data) == 4:
            return struct.unpack("<i" if type_ == "long" else "<f", data)[0]
        if (form := _PACKED.get(type_) or ("<q" if type_.startswith("timestamp") else None)) is not None:
            return struct.unpack(form, data)[0]
        if type_ == "string":
            return data.decode()
        if type_ == "uuid":
            return _sized(data, 16)
    except (struct.error, ValueError) as error:
        raise InvalidInput(f"bytes {data[:40].hex()!r} are no value of {type_}") from error
    return int.from_bytes(data, "big", signed=True) if types.decimal_parts(type_) is not None else data


def shortest(unscaled: int) -> bytes:
    """Big-endian two's complement in the fewest bytes."""
    bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
    return unscaled.to_bytes(bits // 8 + 1, "big", signed=True)
