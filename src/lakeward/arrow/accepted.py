"""What each column type takes: one rule for rows, JSON, CSV and Arrow, whatever form a value comes in.

A value is taken if it is exactly one of the type: "12" and 12.0 are the long 12, 1.5 is the decimal 1.50, "2024-01-31" is
a date. A number stands for the digits that it is written with, so that the float 0.1 is the decimal 0.1. Float and double
take the nearest of their values, as every language reads 0.1, but never an infinity for a finite number, nor another whole
number for a whole one. Nothing else is rounded, cut, or moved to another zone. docs/reference/values.md is this rule as a table.
"""

from __future__ import annotations

import math
import re
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakeward.arrow.nested import check_map_keys, check_nulls, required_below
from lakeward.arrow.plain_values import array_of
from lakeward.errors import FileRefused, InvalidInput
from lakeward.iceberg import arrow, types, values
from lakeward.iceberg.types import TypeDocument

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,6})?", re.ASCII)
_NOT_NUMBERS = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}
DATE_ONLY = re.compile(r"[+-]?\d{4,}-\d\d-\d\d", re.ASCII)
_HOURS_OF_ZONE = re.compile(r".*\d\d:\d\d.*[+-]\d\d", re.ASCII)
# Its groups are the parts between dashes. Without backslashes, as Java and SQL read it too.
UUID_TEXT = (
    "(?:urn:uuid:)?[{]?([0-9a-fA-F]{8})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{12})[}]?"
)
_UUID = re.compile(UUID_TEXT)
_EXACT = Context(prec=80)
_MAX_DIGITS = 1_000  # of a number in a text
_SHOWN = 80  # characters of a value in a message

# What Arrow's own parser reads as this rule does; other texts are read one by one.
_PLAIN_TIME = r"\d\d:\d\d(:\d\d(\.\d{1,6})?)?"
_PLAIN_TEXTS = {
    "int": r"^-?\d{1,18}$",
    "long": r"^-?\d{1,18}$",
    "float": r"^-?(\d{1,7}|\d{1,30}\.\d{1,30})$",
    "double": r"^-?(\d{1,15}|\d{1,30}\.\d{1,30})$",
    "decimal": r"^-?\d{1,38}(\.\d{1,38})?$",
    "date": r"^\d{4}-\d\d-\d\d$",
    "timestamp": rf"^\d{{4}}-\d\d-\d\d([T ]{_PLAIN_TIME})?$",
    "timestamp_ns": rf"^\d{{4}}-\d\d-\d\d([T ]{_PLAIN_TIME})?$",
    "timestamptz": rf"^\d{{4}}-\d\d-\d\d[T ]{_PLAIN_TIME}(Z|[+-]\d\d:\d\d)$",
    "timestamptz_ns": rf"^\d{{4}}-\d\d-\d\d[T ]{_PLAIN_TIME}(Z|[+-]\d\d:\d\d)$",
}
# Python types whose values Arrow takes as this rule does, or refuses.
_NATIVE: dict[str, type] = {
    "boolean": bool, "int": int, "long": int, "float": float, "double": float, "decimal": Decimal, "date": date,
    "string": str, "binary": bytes, "fixed": bytes,
}  # fmt: skip


# A float of that size is written with fewer digits than it has: those who read them would take another number.
SEVERAL = "a floating number of its size stands for several whole ones; give it as a whole number"


# Columns ------------------------------------------------------------------------------------------------------------------
def decode(given: Sequence[Any], type_: TypeDocument, path: str, *, written: bool = False) -> pa.Array:
    """Python values, nested ones too, as an array of the Arrow type of an Iceberg type; None is null.

    Args:
        path: the column's, for messages.
        written: the values were written as text, in JSON: bytes are hex texts, and a map whose keys are no texts is
            {"keys": [...], "values": [...]}.

    Raises:
        FileRefused: wrong_type, unknown_column or null_in_required, with the first value that is refused.
    """
    if isinstance(type_, str):
        return _primitives(given, type_, path, written)
    target = arrow.to_arrow_type(dict(type_))
    missing = array_of([v is None for v in given], pa.bool_())
    if type_["type"] == "struct":
        return _structs(given, type_, target, missing, path, written)
    if type_["type"] == "list":
        offsets, parts = _flat([None if v is None else _list(v, path) for v in given])
        inner = f"{path}.element"
        element = check_nulls(decode(parts, type_["element"], inner, written=written), target.value_field, inner)
        return pa.ListArray.from_arrays(offsets, element, type=target, mask=missing)
    pairs = [None if v is None else _pairs(v, type_, path, written) for v in given]
    offsets, flat_keys = _flat([None if p is None else p[0] for p in pairs])
    _, flat_items = _flat([None if p is None else p[1] for p in pairs])
    keys = decode(flat_keys, type_["key"], f"{path}.key", written=written)
    items = decode(flat_items, type_["value"], f"{path}.value", written=written)
    check_nulls(keys, target.key_field, f"{path}.key")
    check_nulls(items, target.item_field, f"{path}.value")
    return check_map_keys(pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=missing), path)


def _structs(
    given: Sequence[Any], type_: Mapping[str, Any], target: pa.DataType, missing: pa.Array, path: str, written: bool
) -> pa.Array:
    names = {field["name"] for field in type_["fields"]}
    dicts = [{} if v is None else _mapping(v, path) for v in given]
    for each in dicts:
        if unknown := each.keys() - names:
            first = min(map(str, unknown))
            raise FileRefused("unknown_column", f"column {f'{path}.{first}'!r} is not in the table; leave it out")
    children = []
    for field in type_["fields"]:
        inner = f"{path}.{field['name']}"
        default = _default(field, written)
        child = decode([each.get(field["name"], default) for each in dicts], field["type"], inner, written=written)
        children.append(required_below(child, missing, inner) if field["required"] else child)
    fields = [target.field(i) for i in range(target.num_fields)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=missing)


def _default(field: Mapping[str, Any], written: bool) -> Any:
    """What a struct without the field is given: its write-default, a text where JSON has no other form."""
    default = field.get("write-default")
    if default is None or written or not str(field["type"]).startswith(("binary", "fixed")):
        return default
    return bytes.fromhex(default)


def _mapping(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise FileRefused("wrong_type", f"column {path!r}: {shown(value)} is no object of fields")
    return value


def _list(value: Any, path: str) -> Sequence[Any]:
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "tolist"):  # NumPy and Arrow have that
        raise FileRefused("wrong_type", f"column {path!r}: {shown(value)} is no list")
    return list(value)


def _pairs(value: Any, type_: Mapping[str, Any], path: str, written: bool) -> tuple[list[Any], list[Any]]:
    """Keys and values of one map."""
    if not written and isinstance(value, (list, tuple)):
        if all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in value):
            return [key for key, _ in value], [item for _, item in value]
        raise FileRefused("wrong_type", f"column {path!r}: {shown(value)} is no map; give a dict or a list of pairs")
    if not isinstance(value, Mapping):
        raise FileRefused("wrong_type", f"column {path!r}: {shown(value)} is no map")
    if not written or type_["key"] == "string":
        return list(value.keys()), list(value.values())
    keys, items = value.get("keys"), value.get("values")
    if not isinstance(keys, list) or not isinstance(items, list) or len(keys) != len(items):
        raise FileRefused("wrong_type", f"column {path!r}: a map is written as {{'keys': [...], 'values': [...]}}")
    return keys, items


def _flat(lists: Sequence[Sequence[Any] | None]) -> tuple[pa.Array, list[Any]]:
    offsets = [0]
    flat: list[Any] = []
    for each in lists:
        flat.extend(() if each is None else each)
        offsets.append(len(flat))
    return array_of(offsets, pa.int32()), flat


def shown(value: Any) -> str:
    """A value in a message, with its type, cut to some length."""
    return f"{str(value)[:_SHOWN]!r} ({type(value).__name__})"


# Values of one primitive type -----------------------------------------------------------------------------------------------
def _primitives(given: Sequence[Any], type_: str, path: str, written: bool) -> pa.Array:
    target = arrow.to_arrow_type(type_)
    quick = _quickly(given, type_, target)
    if quick is not None:
        return quick
    try:
        return _from_raw(raw_values(given, type_, written=written), type_, target)
    except FileRefused as error:
        raise FileRefused(error.reason, f"column {path!r}: {error}") from None


def raw_values(given: Sequence[Any], type_: str, *, written: bool = False) -> list[Any]:
    """Values of a primitive type in their raw form (`iceberg.values`), one by one. Raises FileRefused: wrong_type."""
    accept = _ACCEPT.get(_kind(type_))
    if accept is None:
        raise FileRefused("wrong_type", f"{type_} has no single values")
    raws = []
    for value in given:
        try:
            raws.append(None if value is None else accept(_plain(value), type_, written))
        except (ValueError, TypeError, ArithmeticError, InvalidInput) as error:
            way = f"; {error}" if isinstance(error, _Hint) else ""
            raise FileRefused("wrong_type", f"{shown(value)} is no {type_}{way}") from None
    return raws


def _kind(type_: str) -> str:
    """A type's name without its parameters."""
    return re.split(r"[(\[]", type_, maxsplit=1)[0]


def _quickly(given: Sequence[Any], type_: str, target: pa.DataType) -> pa.Array | None:
    """The array where Arrow takes all values as the rule does; None where they must be looked at one by one."""
    kinds = set(map(type, given)) - {type(None)}
    if not kinds:
        return pa.nulls(len(given), target)
    if len(kinds) > 1:
        return None
    (kind,) = kinds
    try:
        if kind is _NATIVE.get(_kind(type_)):
            # From the double, since Arrow's float32 would be an infinity for what is too large.
            return narrowed(array_of(given, pa.float64()), target) if type_ == "float" else array_of(given, target)
        if kind is str:
            return from_texts(array_of(given, pa.string()), type_, target)
        if kind is datetime and type_.startswith("timestamp"):
            with_zone = type_.startswith("timestamptz")
            fits = all(v is None or (v.tzinfo is not None) == with_zone for v in given)
            return array_of(given, target) if fits else None
        if kind is uuid.UUID and type_ == "uuid":
            storage = array_of([None if v is None else v.bytes for v in given], target.storage_type)
            return pa.ExtensionArray.from_storage(target, storage)
    except (pa.ArrowException, ValueError, TypeError, OverflowError, FileRefused):
        pass  # one by one, the first that is wrong is found
    return None


def from_texts(texts: pa.Array, type_: str, target: pa.DataType) -> pa.Array | None:
    """Texts as values of a primitive type; None where Arrow may read one otherwise than the rule has it."""
    if type_ == "boolean":
        lower = pc.utf8_lower(texts)
        known = pc.is_in(lower, pa.array(["true", "false"]))
        return pc.equal(lower, "true") if pc.all(pc.or_(known, pc.is_null(lower))).as_py() is not False else None
    pattern = _PLAIN_TEXTS.get(_kind(type_))
    if pattern is None or pc.all(pc.match_substring_regex(texts, pattern)).as_py() is False:
        return None
    try:
        array = pc.cast(texts, target)
    except pa.ArrowException:
        return None
    is_infinite = pt.is_floating(target) and pc.any(pc.is_inf(array)).as_py()
    return None if is_infinite else array


def narrowed(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Floating numbers in another width, each the nearest one. Raises FileRefused (wrong_type): a finite one is too large."""
    made = pc.cast(array, target, safe=False)
    if pc.any(pc.and_not(pc.is_inf(made), pc.is_inf(array))).as_py():
        raise FileRefused("wrong_type", f"a number is too large for {target}")
    return made


def _from_raw(raws: list[Any], type_: str, target: pa.DataType) -> pa.Array:
    if type_ == "date":
        return array_of(raws, pa.int32()).view(target)
    if type_.startswith("time"):
        return array_of(raws, pa.int64()).view(target)
    if (parts := types.decimal_parts(type_)) is not None:
        return array_of([None if v is None else _EXACT.scaleb(Decimal(v), -parts[1]) for v in raws], target)
    if type_ == "uuid":
        return pa.ExtensionArray.from_storage(target, array_of(raws, target.storage_type))
    return array_of(raws, target)


# One value -----------------------------------------------------------------------------------------------------------------
class _Hint(ValueError):
    """A refusal that says what to do."""


def _plain(value: Any) -> Any:
    """NumPy's and Arrow's scalars as Python's, where Python has them."""
    if isinstance(value, pa.Scalar):
        return value if pt.is_temporal(value.type) else value.as_py()
    if hasattr(value, "dtype") and hasattr(value, "item"):
        if value.dtype.kind in "mM":
            return pa.scalar(value)
        # The digits of a short float are fewer than those of the double that Python would make of it.
        return Decimal(str(value)) if value.dtype.kind == "f" and math.isfinite(value) else value.item()
    return value


def _number(value: Any) -> int | Decimal:
    """A finite number as it is written."""
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        number: int | Decimal = value
    elif isinstance(value, float):
        number = Decimal(repr(float(value)))
    elif isinstance(value, str) and len(value) <= _MAX_DIGITS and _NUMBER.fullmatch(value):
        number = int(value) if value.lstrip("+-").isdecimal() else Decimal(value)
    else:
        raise ValueError
    if isinstance(number, Decimal) and not number.is_finite():
        raise ValueError
    return number


def _whole(value: Any, type_: str, written: bool) -> int:
    number = _number(value)
    if isinstance(number, Decimal):
        if number.adjusted() > 40:
            raise _Hint("it is too large")
        if number != number.to_integral_value(context=_EXACT):
            raise _Hint("round it before")
        is_float = "e" in value.lower() if isinstance(value, str) else isinstance(value, float) or written
        if is_float and Decimal(float(number)) != number:
            raise _Hint(SEVERAL)
    low, high = (-(2**31), 2**31 - 1) if type_ == "int" else (-(2**63), 2**63 - 1)
    if not low <= int(number) <= high:
        raise _Hint("it is too large")
    return int(number)


def _floating(value: Any, type_: str, written: bool) -> float:
    if isinstance(value, str) and (named := value.lower().lstrip("+-")) in _NOT_NUMBERS:
        return -_NOT_NUMBERS[named] if value.startswith("-") else _NOT_NUMBERS[named]
    if not (value.is_finite() if isinstance(value, Decimal) else not isinstance(value, float) or math.isfinite(value)):
        return float(value)
    number = _number(value)
    try:
        near = float(number)
        if type_ == "float":
            near = struct.unpack("<f", struct.pack("<f", near))[0]
    except OverflowError:
        near = math.inf
    if math.isinf(near):
        raise _Hint("it is too large")
    # 123456789012345680000 is how some programs write the double nearest to it.
    if isinstance(number, int) and near != number and Decimal(repr(near)) != number:
        raise _Hint("it has more digits than the type keeps")
    return near


def _decimal(value: Any, type_: str, written: bool) -> Any:
    number = _number(value)
    try:
        return values.from_python(type_, number)
    except InvalidInput:
        raise _Hint("it has more digits than the type holds") from None


def _boolean(value: Any, type_: str, written: bool) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError


def _text(value: Any, type_: str, written: bool) -> str:
    if not isinstance(value, str):
        raise _Hint("decode it before") if isinstance(value, bytes) else _Hint("make it a text before")
    value.encode()  # half characters cannot be stored
    return str(value)


def _bytes(value: Any, type_: str, written: bool) -> Any:
    if isinstance(value, str):
        if not written:
            raise _Hint("encode it before")
        value = bytes.fromhex(value)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        value = bytes(value)
    return values.from_python(type_, value)


def _uuid(value: Any, type_: str, written: bool) -> Any:
    if isinstance(value, str):
        if not _UUID.fullmatch(value):
            raise ValueError("no uuid")
        value = uuid.UUID(value)
    return values.from_python(type_, value)


def _date(value: Any, type_: str, written: bool) -> Any:
    if isinstance(value, datetime):
        raise _Hint("give value.date()")
    return values.from_json(type_, value) if isinstance(value, str) else values.from_python(type_, value)


def _time(value: Any, type_: str, written: bool) -> Any:
    if isinstance(value, time) and value.tzinfo is not None:
        raise _Hint("take its zone off before")
    return values.from_json(type_, value) if isinstance(value, str) else values.from_python(type_, value)


def _timestamp(value: Any, type_: str, written: bool) -> Any:
    with_zone = type_.startswith("timestamptz")
    if isinstance(value, str):
        if not with_zone and DATE_ONLY.fullmatch(value):
            value += "T00:00"  # a date alone is its first moment
        if with_zone and _HOURS_OF_ZONE.fullmatch(value):
            value += ":00"
        return values.from_json(type_, value)
    zone = value.type.tz if isinstance(value, pa.Scalar) else getattr(value, "tzinfo", None)
    if isinstance(value, (pa.Scalar, datetime)) and (zone is not None) != with_zone:
        raise _Hint("give it a zone, such as tzinfo=UTC" if with_zone else "make it naive before")
    raw = values.from_python(type_, value)
    nanos = getattr(value, "nanosecond", 0)  # pandas has them
    if nanos and not type_.endswith("_ns"):
        raise _Hint("it is finer than the type")
    return raw + nanos


_ACCEPT: dict[str, Callable[[Any, str, bool], Any]] = {
    "boolean": _boolean, "int": _whole, "long": _whole, "float": _floating, "double": _floating, "decimal": _decimal,
    "string": _text, "binary": _bytes, "fixed": _bytes, "uuid": _uuid, "date": _date, "time": _time,
    "timestamp": _timestamp, "timestamptz": _timestamp, "timestamp_ns": _timestamp, "timestamptz_ns": _timestamp,
}  # fmt: skip
