"""Iceberg's single values as JSON (specification, appendix D) from Arrow arrays; `accepted` reads them.

    decimal "14.20"   date "2017-11-16"   time "22:31:08.123456"   timestamp "2017-11-16T22:31:08.5"   timestamptz with "+00:00"
    uuid as its text   fixed, binary in hex   others as JSON has them; NaN and infinities as "NaN", "Infinity", "-Infinity"

A fraction of a second has no zeros at its end, as in what Iceberg's Java writes, so that equal values are equal texts.
Inside rows a struct is an object by names (not by ids, so that anybody can read it), a map whose keys are texts an object,
any other map {"keys": [...], "values": [...]}.
"""

from __future__ import annotations

import itertools
import math
import uuid
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakeward.iceberg import types
from lakeward.iceberg import values as iceberg_values
from lakeward.iceberg.types import TypeDocument

_TEXT_TYPES = ("date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
_A_SECOND = {"us": 10**6, "ns": 10**9}
_FIRST_DAY, _LAST_DAY = iceberg_values.days_of(0, 1, 1), iceberg_values.days_of(9999, 12, 31)


# To JSON ----------------------------------------------------------------------------------------------------------------
def encode(array: pa.Array, type_: TypeDocument) -> list[Any]:
    """The values of an array of the Arrow type of an Iceberg type, as JSON has them; nulls are None."""
    if not isinstance(type_, str):
        return _encode_nested(array, type_)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if type_ in ("float", "double"):
        return [_number(v) for v in array.to_pylist()]
    if type_ in _TEXT_TYPES or types.decimal_parts(type_) is not None:
        return list(_texts(array, type_).to_pylist())
    if type_ == "uuid":
        return [None if v is None else str(uuid.UUID(bytes=v)) for v in array.to_pylist()]
    if type_ == "binary" or types.fixed_length(type_) is not None:
        return [None if v is None else v.hex() for v in array.to_pylist()]
    return list(array.to_pylist())


def _number(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _texts(array: pa.Array, type_: str) -> pa.Array:
    with_zone = type_.startswith("timestamptz")
    if with_zone:
        array = array.cast(pa.timestamp(array.type.unit))
    if not _has_common_years(array):
        raw = array.view(pa.int32() if type_ == "date" else pa.int64()).to_pylist()
        return pa.array([iceberg_values.to_json(type_, v) for v in raw], pa.string())
    texts = array.cast(pa.string())
    if type_.startswith("time"):
        texts = pc.replace_substring_regex(texts, r"(\.\d*[1-9])0+$", r"\1")
        texts = pc.replace_substring_regex(texts, r"\.0+$", "")
    if type_.startswith("timestamp"):
        texts = pc.replace_substring(texts, " ", "T")
    return pc.binary_join_element_wise(texts, "+00:00", "") if with_zone else texts


def _has_common_years(array: pa.Array) -> bool:
    """Whether Arrow writes all values as ISO 8601 has them: it cuts and loses signs of other years."""
    if not (pt.is_date(array.type) or pt.is_timestamp(array.type)):
        return True
    bounds = pc.min_max(array)
    a_day = 1 if pt.is_date(array.type) else 86_400 * _A_SECOND[array.type.unit]
    low, high = (0 if each.value is None else each.value // a_day for each in (bounds["min"], bounds["max"]))
    return low >= _FIRST_DAY and high <= _LAST_DAY


def _encode_nested(array: pa.Array, type_: Mapping[str, Any]) -> list[Any]:
    valid = array.is_valid().to_pylist()
    if type_["type"] == "struct":
        names = [field["name"] for field in type_["fields"]]
        columns = [encode(array.field(i), field["type"]) for i, field in enumerate(type_["fields"])]
        rows = zip(*columns, strict=True)
        return [dict(zip(names, row, strict=True)) if ok else None for ok, row in zip(valid, rows, strict=True)]
    offsets = array.offsets.to_pylist()
    start = offsets[0] if offsets else 0
    spans = [(a - start, b - start) for a, b in itertools.pairwise(offsets)]
    length = offsets[-1] - start if offsets else 0
    if type_["type"] == "list":
        values = encode(array.values.slice(start, length), type_["element"])
        return [values[a:b] if ok else None for ok, (a, b) in zip(valid, spans, strict=True)]
    keys = encode(array.keys.slice(start, length), type_["key"])
    items = encode(array.items.slice(start, length), type_["value"])
    return [_map(type_, keys[a:b], items[a:b]) if ok else None for ok, (a, b) in zip(valid, spans, strict=True)]


def _map(type_: Mapping[str, Any], keys: list[Any], values: list[Any]) -> dict[str, Any]:
    if type_["key"] == "string":
        return dict(zip(keys, values, strict=True))
    return {"keys": keys, "values": values}
