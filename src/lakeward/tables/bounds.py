"""Column statistics of many files, from those of each. Bounds are compared as Iceberg's types order them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lakeward.iceberg.types import walk
from lakeward.tables.records.files import FileStatistics
from lakeward.tables.records.tables import ColumnStatistics, Document


def _integer(bound: bytes) -> Any:
    return int.from_bytes(bound, "little", signed=True)


def _decimal(bound: bytes) -> Any:
    return int.from_bytes(bound, "big", signed=True)


def _float(bound: bytes) -> Any:
    return struct.unpack("<f" if len(bound) == 4 else "<d", bound)[0]


def _bytes(bound: bytes) -> Any:
    return bound  # UTF-8's order is that of code points; uuid, fixed and binary compare by byte


_INTEGERS = ("int", "long", "date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
_ORDERS: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(_INTEGERS, _integer),
    "float": _float,
    "double": _float,
}


def order_of(type_: str) -> Callable[[bytes], Any]:
    """The key by which a primitive type's binary bounds compare (Iceberg specification, appendix D)."""
    return _decimal if type_.startswith("decimal") else _ORDERS.get(type_, _bytes)


Order = Callable[[bytes], Any]


def orders_by_id(schema: Document) -> dict[int, Order]:
    """How the bounds of each primitive field compare, nested fields too, by field id."""
    return {column.field_id: order_of(column.type) for column in walk(schema) if isinstance(column.type, str)}


def merge(
    columns: Mapping[int, ColumnStatistics], files: Iterable[FileStatistics], orders: Mapping[int, Order]
) -> dict[int, ColumnStatistics]:
    """`columns` with the statistics of `files` added."""
    # The fields are read once, and not once a column.
    added = [(file.value_counts, file.null_counts, file.nan_counts, file.lower, file.upper) for file in files]
    result = dict(columns)
    for field_id in set().union(*(file[0] for file in added)):
        old = result.get(field_id, _NOTHING)
        result[field_id] = _merged(old, added, field_id, orders.get(field_id, _bytes))
    return result


_NOTHING = ColumnStatistics()
_Counts = Mapping[int, int]
_Bounds = Mapping[int, bytes]
_File = tuple[_Counts, _Counts, _Counts, _Bounds, _Bounds]  # values, nulls, NaNs, lower, upper


def _merged(old: ColumnStatistics, files: Sequence[_File], field_id: int, order: Order) -> ColumnStatistics:
    values, nulls, nans, bounded = old.value_count, old.null_count, old.nan_count, old.bounded
    lower, upper = old.lower, old.upper
    for value_counts, null_counts, nan_counts, lows, highs in files:
        count = value_counts.get(field_id)
        if count is None:
            continue
        null_count = null_counts.get(field_id, 0)
        nan_count = nan_counts.get(field_id, 0) if nan_counts else 0
        values, nulls, nans = values + count, nulls + null_count, nans + nan_count
        low, high = lows.get(field_id), highs.get(field_id)
        # Only nulls and NaNs: nothing to bound. Otherwise a file without bounds takes them from the whole.
        if (low is None or high is None) and count > null_count + nan_count:
            bounded = False
        # Most bounds are the same as before, and need no decoding.
        if low is not None and low != lower and (lower is None or order(low) < order(lower)):
            lower = low
        if high is not None and high != upper and (upper is None or order(high) > order(upper)):
            upper = high
    if not bounded:
        return ColumnStatistics(values, nulls, nans, None, None, False)
    return ColumnStatistics(values, nulls, nans, lower, upper)
