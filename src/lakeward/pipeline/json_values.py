"""Iceberg's single values as JSON (specification, appendix D) from and to Arrow arrays.

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
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import FileRefused, InvalidInput
from lakeward.iceberg import arrow, types
from lakeward.iceberg import values as iceberg_values
from lakeward.iceberg.types import TypeDocument

_TEXT_TYPES = ("date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
_NOT_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "+Infinity": math.inf, "-Infinity": -math.inf}


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
    texts = array.cast(pa.string())
    if type_.startswith("time"):
        texts = pc.replace_substring_regex(texts, r"(\.\d*[1-9])0+$", r"\1")
        texts = pc.replace_substring_regex(texts, r"\.0+$", "")
    if type_.startswith("timestamp"):
        texts = pc.replace_substring(texts, " ", "T")
    return pc.binary_join_element_wise(texts, "+00:00", "") if with_zone else texts


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


# From JSON --------------------------------------------------------------------------------------------------------------
def decode(values: Sequence[Any], type_: TypeDocument, path: str) -> pa.Array:
    """JSON values as an array of the Arrow type. `path` is the column's, for messages.

    What people's own files hold is taken too where it is not ambiguous: numbers for decimals, whole numbers for floats, a
    blank for the T in a timestamp.

    Raises:
        FileRefused: wrong_type, unknown_column or null_in_required; the caller knows the line.
    """
    if not isinstance(type_, str):
        return _decode_nested(values, type_, path)
    target = arrow.to_arrow_type(type_)
    try:
        return _decode_primitive(values, type_, target)
    except (pa.ArrowException, InvalidInput, ValueError, TypeError, ArithmeticError) as error:
        raise FileRefused("wrong_type", f"column {path!r}: a value is no {type_}: {error}") from error


def _decode_primitive(values: Sequence[Any], type_: str, target: pa.DataType) -> pa.Array:
    if type_ == "time":  # Arrow reads no times
        return pa.array([iceberg_values.from_json(type_, v) for v in values], pa.int64()).view(target)
    if type_ in _TEXT_TYPES:
        return pa.array([_typed(v, str) for v in values], pa.string()).cast(target)
    if types.decimal_parts(type_) is not None:
        return pa.array([None if v is None else _decimal_text(v) for v in values], pa.string()).cast(target)
    if type_ in ("float", "double"):
        return pa.array([None if v is None else _float(v) for v in values], target)
    if type_ == "uuid":
        storage = pa.array([None if v is None else uuid.UUID(v).bytes for v in values], target.storage_type)
        return pa.ExtensionArray.from_storage(target, storage)
    if type_ == "binary" or types.fixed_length(type_) is not None:
        return pa.array([None if v is None else bytes.fromhex(v) for v in values], target)
    if type_ in ("int", "long"):
        return pa.array([_typed(v, int) for v in values], target)
    return pa.array([_typed(v, str if type_ == "string" else bool) for v in values], target)


def _typed(value: Any, kind: type) -> Any:
    if value is None or type(value) is kind:
        return value
    raise ValueError(f"{str(value)[:80]!r}")


def _decimal_text(value: Any) -> str:
    if type(value) not in (str, int, float, Decimal):
        raise ValueError(f"{str(value)[:80]!r}")
    return str(value)


def _float(value: Any) -> float:
    if isinstance(value, str):
        if value not in _NOT_NUMBERS:
            raise ValueError(f"{value[:80]!r}")
        return _NOT_NUMBERS[value]
    if type(value) not in (int, float, Decimal):
        raise ValueError(f"{str(value)[:80]!r}")
    return float(value)


def _decode_nested(values: Sequence[Any], type_: Mapping[str, Any], path: str) -> pa.Array:
    target = arrow.to_arrow_type(dict(type_))
    missing = pa.array([v is None for v in values], pa.bool_())
    if type_["type"] == "struct":
        return _decode_struct(values, type_, target, missing, path)
    if type_["type"] == "list":
        offsets, parts = _flat([None if v is None else _of(v, list, path) for v in values])
        element = _checked(decode(parts, type_["element"], f"{path}.element"), target.value_field, f"{path}.element")
        return pa.ListArray.from_arrays(offsets, element, type=target, mask=missing)
    pairs = [None if v is None else _pairs(v, type_, path) for v in values]
    offsets, flat_keys = _flat([None if p is None else p[0] for p in pairs])
    _, flat_values = _flat([None if p is None else p[1] for p in pairs])
    keys = _checked(decode(flat_keys, type_["key"], f"{path}.key"), target.key_field, f"{path}.key")
    items = _checked(decode(flat_values, type_["value"], f"{path}.value"), target.item_field, f"{path}.value")
    return pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=missing)


def _decode_struct(
    values: Sequence[Any], type_: Mapping[str, Any], target: pa.DataType, missing: pa.Array, path: str
) -> pa.Array:
    names = {field["name"] for field in type_["fields"]}
    dicts = [{} if v is None else _of(v, dict, path) for v in values]
    for each in dicts:
        if unknown := each.keys() - names:
            raise FileRefused(
                "unknown_column", f"column {f'{path}.{min(unknown)}'!r} is not in the table; leave it out"
            )
    children = []
    for position, field in enumerate(type_["fields"]):
        inner = f"{path}.{field['name']}"
        child = decode([each.get(field["name"]) for each in dicts], field["type"], inner)
        if field["required"] and pc.sum(pc.and_not(child.is_null(), missing)).as_py():
            raise FileRefused("null_in_required", f"column {inner!r} is required and has nulls")
        children.append(child)
        assert target.field(position).name == field["name"]
    fields = [target.field(i) for i in range(target.num_fields)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=missing)


def _checked(array: pa.Array, field: pa.Field, path: str) -> pa.Array:
    if array.null_count and not field.nullable:
        raise FileRefused("null_in_required", f"column {path!r} is required and has nulls")
    return array


def _of(value: Any, kind: type, path: str) -> Any:
    if not isinstance(value, kind):
        shown = "an object" if kind is dict else "a list"
        raise FileRefused("wrong_type", f"column {path!r}: {str(value)[:80]!r} is not {shown}")
    return value


def _pairs(value: Any, type_: Mapping[str, Any], path: str) -> tuple[list[Any], list[Any]]:
    value = _of(value, dict, path)
    if type_["key"] == "string":
        return list(value.keys()), list(value.values())
    keys, values = value.get("keys"), value.get("values")
    if not isinstance(keys, list) or not isinstance(values, list) or len(keys) != len(values):
        raise FileRefused("wrong_type", f"column {path!r}: a map is written as {{'keys': [...], 'values': [...]}}")
    return keys, values


def _flat(lists: Sequence[list[Any] | None]) -> tuple[pa.Array, list[Any]]:
    offsets = [0]
    flat: list[Any] = []
    for each in lists:
        flat.extend(each or ())
        offsets.append(len(flat))
    return pa.array(offsets, pa.int32()), flat
