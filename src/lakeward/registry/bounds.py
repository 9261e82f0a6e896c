"""Column statistics of many files, from those of each. Bounds are compared as Iceberg's types order them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lakeward.model.files import FileStatistics
from lakeward.model.tables import ColumnStatistics, Document


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


def order_of(type_: Any) -> Callable[[bytes], Any]:
    """The key by which a primitive type's binary bounds compare (Iceberg specification, appendix D)."""
    if isinstance(type_, str) and type_.startswith("decimal"):
        return _decimal
    return _ORDERS.get(type_, _bytes) if isinstance(type_, str) else _bytes


Order = Callable[[bytes], Any]


def orders_by_id(schema: Document) -> dict[int, Order]:
    """How the bounds of each primitive field compare, nested fields too, by field id."""
    found: dict[int, Order] = {}
    stack: list[Any] = [schema]
    while stack:
        type_ = stack.pop()
        parts = [(field["id"], field["type"]) for field in type_.get("fields", ())]
        parts += [(type_[f"{p}-id"], type_[p]) for p in ("element", "key", "value") if f"{p}-id" in type_]
        for field_id, part in parts:
            if isinstance(part, dict):
                stack.append(part)
            else:
                found[field_id] = order_of(part)
    return found


def merge(
    columns: Mapping[int, ColumnStatistics], files: Iterable[FileStatistics], orders: Mapping[int, Order]
) -> dict[int, ColumnStatistics]:
    """`columns` with the statistics of `files` added."""
    added = list(files)
    result = dict(columns)
    for field_id in {field_id for file in added for field_id in file.value_counts}:
        old = result.get(field_id, ColumnStatistics())
        result[field_id] = _merged(old, added, field_id, orders.get(field_id, _bytes))
    return result


def _merged(old: ColumnStatistics, files: list[FileStatistics], field_id: int, order: Order) -> ColumnStatistics:
    having = [file for file in files if field_id in file.value_counts]
    values = [file.value_counts[field_id] for file in having]
    nulls = [file.null_counts.get(field_id, 0) for file in having]
    nans = [file.nan_counts.get(field_id, 0) for file in having]
    lowers = [file.lower.get(field_id) for file in having]
    uppers = [file.upper.get(field_id) for file in having]
    counts = (old.value_count + sum(values), old.null_count + sum(nulls), old.nan_count + sum(nans))
    # Only nulls and NaNs: nothing to bound. Otherwise a file without bounds takes them from the whole.
    bounded = old.bounded and (
        (None not in lowers and None not in uppers)
        or all(
            lower is not None and upper is not None or value <= null + nan
            for value, null, nan, lower, upper in zip(values, nulls, nans, lowers, uppers, strict=True)
        )
    )
    if not bounded:
        return ColumnStatistics(*counts, None, None, False)
    return ColumnStatistics(
        *counts, _extreme(min, {old.lower, *lowers}, order), _extreme(max, {old.upper, *uppers}, order)
    )


def _extreme(choose: Callable[..., bytes], bounds: set[bytes | None], order: Order) -> bytes | None:
    bounds.discard(None)
    return choose(bounds, key=order) if len(bounds) > 1 else next(iter(bounds), None)
