"""Python values as Arrow arrays, without pandas.

`pyarrow.array` imports pandas wherever it is installed, to see whether it was given a series: a program that appends some rows
would wait for that longer than for all the rest. So columns of plain values are put into Arrow's memory here, and whatever is
not plain (a subclass, a value that does not fit, a nested column) is left to pyarrow, which knows all cases and their messages.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH = _EPOCH_UTC.replace(tzinfo=None)
_MICROSECOND = timedelta(microseconds=1)
_DAYS = date(1970, 1, 1).toordinal()
_MOST = 10_000  # more rows are quicker by pyarrow, its import of pandas included


def array_of(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """What `pyarrow.array(values, type_, from_pandas=False)` gives. Raises what it raises."""
    known = None if "pandas" in sys.modules or len(values) > _MOST else _plain_kind(type_)
    if known is not None:
        kind, buffers = known
        try:
            if all(value is None or type(value) is kind for value in values):
                validity, nulls = _validity(values)
                return pa.Array.from_buffers(type_, len(values), [validity, *buffers(values)], nulls)
        except (ArithmeticError, ValueError, TypeError):  # it does not fit, and pyarrow says why
            pass
    return pa.array(values, type=type_, from_pandas=False)


def _plain_kind(type_: pa.DataType) -> tuple[type, Callable[[Sequence[Any]], list[pa.Buffer]]] | None:
    """The Python type of a column's plain values, and what makes Arrow's buffers of them."""
    if pa.types.is_decimal128(type_):
        return Decimal, lambda values: [_decimals(values, type_.precision, type_.scale)]
    return {
        pa.bool_(): (bool, lambda values: [_bits(values)]),
        pa.int32(): (int, lambda values: [_numbers("i", values, 0)]),
        pa.int64(): (int, lambda values: [_numbers("q", values, 0)]),
        pa.float64(): (float, lambda values: [_numbers("d", values, 0.0)]),
        pa.date32(): (date, lambda values: [_numbers("i", [v and v.toordinal() - _DAYS for v in values], 0)]),
        pa.timestamp("us"): (datetime, lambda values: [_microseconds(values, _EPOCH)]),
        pa.timestamp("us", "UTC"): (datetime, lambda values: [_microseconds(values, _EPOCH_UTC)]),
        pa.string(): (str, lambda values: _texts([v and v.encode() for v in values])),
        pa.binary(): (bytes, _texts),
    }.get(type_)


def _validity(values: Sequence[Any]) -> tuple[pa.Buffer | None, int]:
    nulls = sum(value is None for value in values)
    return (_bits([value is not None for value in values]) if nulls else None), nulls


def _bits(values: Sequence[Any]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.fromiter(values, bool, len(values)), bitorder="little"))


def _numbers(code: str, values: Sequence[Any], nothing: float) -> pa.Buffer:
    return pa.py_buffer(array(code, [nothing if value is None else value for value in values]))


def _microseconds(values: Sequence[Any], epoch: datetime) -> pa.Buffer:
    """Raises TypeError: a time with a zone where none belongs, or the other way round."""
    return _numbers("q", [None if value is None else (value - epoch) // _MICROSECOND for value in values], 0)


def _decimals(values: Sequence[Any], precision: int, scale: int) -> pa.Buffer:
    """Raises ValueError, ArithmeticError: a value that is no number, or has more digits than the type."""
    unscaled = [0 if value is None else _unscaled(value, precision, scale) for value in values]
    return pa.py_buffer(b"".join(each.to_bytes(16, "little", signed=True) for each in unscaled))


def _unscaled(value: Decimal, precision: int, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent < -scale or len(digits) + exponent + scale > precision:
        raise ValueError
    number: int = int("".join(map(str, digits))) * 10 ** (exponent + scale)
    return -number if sign else number


def _texts(values: Sequence[bytes | None]) -> list[pa.Buffer]:
    ends = accumulate((len(value or b"") for value in values), initial=0)
    return [pa.py_buffer(array("i", ends)), pa.py_buffer(b"".join(value for value in values if value))]
