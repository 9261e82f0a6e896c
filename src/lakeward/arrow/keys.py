"""Bounds of many files, and values of many partitions, as columns of 64-bit keys, which are compared all at once.

A key keeps the order of what it stands for, but may be the same for two values: of texts and bytes it is the first eight bytes,
of decimals what fits into 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

import numpy as np
import numpy.typing as npt

from lakeward.iceberg import types
from lakeward.tables.records.files import FileStatistics

LEAST, MOST = -(2**63), 2**63 - 1  # where a bound is not known, and all is between
NULLS, VALUES, NANS = 1, 2, 4  # what a file may have: nulls, others than nulls, NaN

Keys: TypeAlias = npt.NDArray[np.int64]
Answers: TypeAlias = npt.NDArray[np.bool_]

_EXACT = Context(prec=200)
_TOP = 1 << 63
_INTEGERS = {"boolean": "u1", "int": "<i4", "long": "<i8", "date": "<i4", "time": "<i8"}
_WIDENED = {"long": ("<i4", 4), "double": ("<f4", 4)}


class Column(NamedTuple):
    """One column of many files: the keys of its bounds, and what else it may have."""

    lower: Keys
    upper: Keys
    flags: npt.NDArray[np.uint8]

    def encode(self) -> bytes:
        return self.lower.tobytes() + self.upper.tobytes() + self.flags.tobytes()

    @classmethod
    def decode(cls, data: bytes) -> Column:
        """What `encode` gave: 17 bytes a file."""
        count = len(data) // 17
        lower, upper = (np.frombuffer(data, "<i8", count, offset) for offset in (0, 8 * count))
        return cls(lower, upper, np.frombuffer(data, "u1", count, 16 * count))


def column(type_: str, files: Sequence[FileStatistics], field_id: int) -> Column | None:
    """A column of some files; None where nothing is known of it that a filter could use."""
    lower, upper = [file.lower.get(field_id) for file in files], [file.upper.get(field_id) for file in files]
    flags = _flags(files, field_id)
    if not any(lower) and not any(upper) and bool((flags == NULLS | VALUES | NANS).all()):
        return None
    low, high = _keys(type_, lower, LEAST), _keys(type_, upper, MOST)
    if type_ in ("float", "double"):  # where one bound is NaN, neither is to be relied on
        no_bounds = (low == LEAST) | (high == MOST)
        low[no_bounds], high[no_bounds] = LEAST, MOST
    only_nulls = (flags & VALUES) == 0
    low[only_nulls], high[only_nulls] = MOST, LEAST
    return Column(low, high, flags)


def value_column(type_: str, values: Iterable[Any]) -> Column:
    """A column of values, each as pyiceberg compares it (see `statistics.ordered`): its own bounds."""
    known: dict[Any, tuple[int, int, int]] = {}
    rows = []
    for value in values:
        row = known.get(value)
        if row is None:
            row = known[value] = _value_row(type_, value)
        rows.append(row)
    lower, upper, flags = zip(*rows, strict=True) if rows else ((), (), ())
    return Column(np.array(lower, np.int64), np.array(upper, np.int64), np.array(flags, np.uint8))


def _value_row(type_: str, value: Any) -> tuple[int, int, int]:
    if value is None:
        return MOST, LEAST, NULLS
    try:
        return *key_range(type_, value), VALUES | NANS
    except (ValueError, TypeError):
        return LEAST, MOST, VALUES | NANS


# Keys ---------------------------------------------------------------------------------------------------------------------
def key_range(type_: str, value: Any) -> tuple[int, int]:
    """The keys between which a value lies.

    Raises:
        ValueError: it has none, NaN that is.
    """
    if type_ in ("float", "double"):
        key = int(_float_keys(np.array([value], "<f8"), 0)[0])
        if value != value:
            raise ValueError("NaN is in no order")
        return key, key
    if (parts := types.decimal_parts(type_)) is not None:
        unscaled = Decimal(value).scaleb(parts[1], _EXACT)
        return tuple(_clamped(int(unscaled.to_integral_value(way, _EXACT))) for way in (ROUND_FLOOR, ROUND_CEILING))  # type: ignore[return-value]
    if isinstance(value, (str, bytes, UUID)):
        raw = value.encode() if isinstance(value, str) else value.bytes if isinstance(value, UUID) else value
        return _text_key(raw), _text_key(raw)
    return _clamped(int(value)), _clamped(int(value))


def prefix_range(prefix: str) -> tuple[int, int]:
    """The keys between which all texts lie that begin with one."""
    raw = prefix.encode()[:8]
    return _text_key(raw), int.from_bytes(raw.ljust(8, b"\xff"), "big") - _TOP


def _text_key(raw: bytes) -> int:
    return int.from_bytes(raw[:8].ljust(8, b"\0"), "big") - _TOP


def _clamped(value: int) -> int:
    return max(LEAST, min(MOST, value))


def _keys(type_: str, bounds: Sequence[bytes | None], missing: int) -> Keys:
    """The keys of bounds; `missing` where there is none, or none of the type's length."""
    if type_ in ("float", "double"):
        raw = _numbers(bounds, "<f4" if type_ == "float" else "<f8", _WIDENED.get(type_))
        return np.full(len(bounds), missing) if raw is None else _known(_float_keys(raw[0], missing), raw[1], missing)
    form = _INTEGERS.get(type_) or ("<i8" if type_.startswith("timestamp") else None)
    if form is not None:
        raw = _numbers(bounds, form, _WIDENED.get(type_))
        return np.full(len(bounds), missing) if raw is None else _known(raw[0].astype(np.int64), raw[1], missing)
    if types.decimal_parts(type_) is not None:
        decimals = (None if b is None else _clamped(int.from_bytes(b, "big", signed=True)) for b in bounds)
        return np.array([missing if key is None else key for key in decimals], np.int64)
    joined = b"".join(b"" if b is None else b[:8].ljust(8, b"\0") for b in bounds if b is not None)
    found = (np.frombuffer(joined, ">u8").astype(np.uint64) ^ np.uint64(_TOP)).view(np.int64)
    keys = np.full(len(bounds), missing)
    keys[[b is not None for b in bounds]] = found
    return keys


def _numbers(
    bounds: Sequence[bytes | None], form: str, widened: tuple[str, int] | None
) -> tuple[npt.NDArray[Any], Answers] | None:
    """The numbers, and which of them there are; None where none is of the form. Those from before a column was widened are read too."""
    length = np.dtype(form).itemsize
    if set(map(type, bounds)) == {bytes} and set(map(len, bounds)) == {length}:  # type: ignore[arg-type]
        return np.frombuffer(b"".join(bounds), form), np.True_  # type: ignore[arg-type, return-value]
    known = np.array([b is not None and len(b) == length for b in bounds], bool)
    zero = bytes(length)
    joined = b"".join(b if b is not None and len(b) == length else zero for b in bounds)
    numbers = np.frombuffer(joined, form)
    if widened is not None and not known.all():
        narrow, size = widened
        places = [i for i, b in enumerate(bounds) if b is not None and len(b) == size]
        numbers = numbers.copy()
        numbers[places] = np.frombuffer(b"".join(bounds[i] or b"" for i in places), narrow)
        known[places] = True
    return (numbers, known) if known.any() else None


def _known(keys: Keys, known: Answers, missing: int) -> Keys:
    return np.where(known, keys, missing)


def _float_keys(numbers: npt.NDArray[Any], missing: int) -> Keys:
    """Keys in the order of the numbers; -0.0 is 0.0, and NaN is missing."""
    doubles = numbers.astype("<f8") + 0.0
    bits = doubles.view(np.int64)
    keys = np.where(bits < 0, bits ^ MOST, bits)
    return np.where(np.isnan(doubles), missing, keys)


def _flags(files: Sequence[FileStatistics], field_id: int) -> npt.NDArray[np.uint8]:
    values = np.array([file.value_counts.get(field_id, -1) for file in files], np.int64)
    nulls = np.array([file.null_counts.get(field_id, -1) for file in files], np.int64)
    nans = np.array([file.nan_counts.get(field_id, -1) for file in files], np.int64)
    only_nulls = (values > 0) & (values == nulls)
    flags = VALUES + NULLS * (nulls != 0) + NANS * (nans != 0)
    return np.where(only_nulls, NULLS, flags).astype(np.uint8)
