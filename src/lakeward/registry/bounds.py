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


def types_by_id(schema: Document) -> dict[int, Any]:
    """Types of all fields, nested ones too, by field id."""
    found: dict[int, Any] = {}
    stack: list[Any] = [schema]
    while stack:
        type_ = stack.pop()
        for field in type_.get("fields", ()):
            found[field["id"]] = field["type"]
            stack.append(field["type"]) if isinstance(field["type"], dict) else None
        for part in ("element", "key", "value"):
            if f"{part}-id" in type_:
                found[type_[f"{part}-id"]] = type_[part]
                stack.append(type_[part]) if isinstance(type_[part], dict) else None
    return found


def merge(
    columns: Mapping[int, ColumnStatistics], files: Iterable[FileStatistics], types: Mapping[int, Any]
) -> dict[int, ColumnStatistics]:
    """`columns` with the statistics of `files` added."""
    result = dict(columns)
    for file in files:
        for field_id, value_count in file.value_counts.items():
            result[field_id] = _merged(result.get(field_id), file, field_id, value_count, order_of(types.get(field_id)))
    return result


def _merged(
    old: ColumnStatistics | None, file: FileStatistics, field_id: int, values: int, order: Callable[[bytes], Any]
) -> ColumnStatistics:
    nulls = file.null_counts.get(field_id, 0)
    nans = file.nan_counts.get(field_id, 0)
    lower, upper = file.lower.get(field_id), file.upper.get(field_id)
    # Only nulls and NaNs: nothing to bound. Otherwise a file without bounds takes them from the whole.
    bounded = values <= nulls + nans or (lower is not None and upper is not None)
    if old is None:
        return ColumnStatistics(values, nulls, nans, *((lower, upper) if bounded else (None, None)), bounded)
    bounded = bounded and old.bounded
    return ColumnStatistics(
        old.value_count + values,
        old.null_count + nulls,
        old.nan_count + nans,
        _extreme(min, old.lower, lower, order) if bounded else None,
        _extreme(max, old.upper, upper, order) if bounded else None,
        bounded,
    )


def _extreme(
    choose: Callable[..., bytes], a: bytes | None, b: bytes | None, order: Callable[[bytes], Any]
) -> bytes | None:
    if a is None or b is None or a == b:
        return b if a is None else a
    return choose(a, b, key=order)
