"""Arrow arrays into the types of a table: columns matched by name or by field id, at every depth, values checked.

A plan is made once for a pair of types and then run over each batch, by the rule of `accepted`: a value that is no value of
the table's type is refused. A type none of whose values is one is refused before any value is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakeward.arrow import accepted, statistics
from lakeward.arrow.broken_rows import value_of
from lakeward.arrow.nested import (
    check_map_keys,
    check_nulls,
    list_parts,
    map_parts,
    mask_of,
    required_below,
    view_parts,
)
from lakeward.errors import FileRefused
from lakeward.iceberg import arrow

Cast: TypeAlias = Callable[[pa.Array], pa.Array]
# What a field is found by: its name or its field id.
Key: TypeAlias = Callable[[pa.Field], "str | int | None"]
# Fields that the target does not have: refused, refused where they hold a value, or left out.
Extra: TypeAlias = Literal["refuse", "judge", "drop"]
# What a field that is missing becomes, by its field id; null where it has none here.
Defaults: TypeAlias = Mapping[int, pa.Scalar]
NO_DEFAULTS: Defaults = MappingProxyType({})


def by_name(field: pa.Field) -> str | int | None:
    name: str = field.name
    return name


def matched(source: Iterable[pa.Field], target: Iterable[pa.Field], key: Key) -> list[int | None]:
    """For each target field the index of its source field, None where it has none."""
    indexes: dict[str | int, int] = {}
    for index, field in enumerate(source):
        name = key(field)
        if name is not None:
            indexes[name] = index
    wanted = [key(field) for field in target]
    return [None if name is None else indexes.get(name) for name in wanted]


def cast_plan(
    source: pa.Field,
    target: pa.Field,
    key: Key,
    path: str,
    extra: Extra = "refuse",
    defaults: Defaults = NO_DEFAULTS,
    *,
    written: bool = False,
) -> Cast:
    """How arrays of one field become arrays of the other.

    Args:
        extra: what becomes of fields inside structs that the target does not have.
        defaults: for those inside structs that the source does not have.
        written: texts stand for bytes in hex, as in CSV.

    Raises:
        FileRefused: wrong_type, unknown_column or missing_column, with the column's path. The plan itself raises
            wrong_type for a value that does not fit, null_in_required for a null where none may be and, if extra fields are
            judged by their values, unknown_column.
    """
    return _Planner(key, extra, defaults, written).of_field(source, target, path)


class _Planner(NamedTuple):
    """What plans of nested types have in common, at every depth."""

    key: Key
    extra: Extra
    defaults: Defaults
    written: bool

    def of_field(self, source: pa.Field, target: pa.Field, path: str) -> Cast:
        inner = self.of_type(source.type, target.type, path)
        return inner if target.nullable else lambda array: check_nulls(inner(array), target, path)

    def of_type(self, source: pa.DataType, target: pa.DataType, path: str) -> Cast:
        if pt.is_dictionary(source) or pt.is_run_end_encoded(source):
            inner = self.of_type(source.value_type, target, path)
            return lambda array: inner(_decoded(array))
        if pt.is_null(source):
            return lambda array: pa.nulls(len(array), target)
        if pt.is_nested(target):
            nested = _struct_plan if pt.is_struct(target) else _map_plan if pt.is_map(target) else _list_plan
            return nested(source, target, path, self._replace(written=False))
        if source == target:
            return same
        if isinstance(target, pa.BaseExtensionType) and source == target.storage_type:  # uuid
            # Rows of a Parquet file have the type of the extension, though the schema of its footer has that of the storage.
            return lambda array: array if array.type == target else pa.ExtensionArray.from_storage(target, array)
        if isinstance(source, pa.BaseExtensionType):
            inner = self.of_type(source.storage_type, target, path)
            return lambda array: inner(array.storage)
        return _primitive_plan(source, target, path, self.written)


def refused(path: str, source: pa.DataType, target: pa.DataType, way: str = "cast it before") -> FileRefused:
    return FileRefused("wrong_type", f"column {path!r} has the type {source}, the table's is {target}; {way}")


def same(array: pa.Array) -> pa.Array:
    return array


def _decoded(array: pa.Array) -> pa.Array:
    if pt.is_dictionary(array.type):
        return array.dictionary_decode()
    return pc.run_end_decode(array)


# Primitive types ----------------------------------------------------------------------------------------------------------
def _primitive_plan(source: pa.DataType, target: pa.DataType, path: str, written: bool) -> Cast:
    """How values of one primitive type become another's.

    Raises FileRefused (wrong_type): values of the one type are never values of the other.
    """
    if pt.is_timestamp(target) and pt.is_timestamp(source) and (source.tz is None) != (target.tz is None):
        way = (
            "assume_timezone says which zone is meant" if source.tz is None else "cast it to UTC without a zone before"
        )
        raise refused(path, source, target, way)
    if widens(source, target):
        return lambda array: pc.cast(array, target)
    if pt.is_integer(source) and pt.is_floating(target):
        return lambda array: _whole_to_floating(array, target, path)
    convert = _conversion(source, target)
    if convert is not None:
        return lambda array: _converted(array, target, path, convert)
    if _is_text(source) and (written or (not pt.is_binary(target) and not pt.is_fixed_size_binary(target))):
        return lambda array: _one_by_one(array, target, path, written)
    if _is_bytes(source) and (pt.is_fixed_size_binary(target) or isinstance(target, pa.BaseExtensionType)):
        return lambda array: _one_by_one(array, target, path, written)
    raise refused(path, source, target)


def _is_text(type_: pa.DataType) -> bool:
    return bool(pt.is_string(type_) or pt.is_large_string(type_) or pt.is_string_view(type_))


def _is_bytes(type_: pa.DataType) -> bool:
    is_bytes = (pt.is_binary, pt.is_large_binary, pt.is_binary_view, pt.is_fixed_size_binary)
    return any(is_kind(type_) for is_kind in is_bytes)


# Decimal digits of their values, at most.
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}


def widens(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether every value of the source type is one of the target type, and Arrow casts it."""
    if pt.is_integer(target) and pt.is_integer(source):
        narrower_unsigned = pt.is_unsigned_integer(source) and source.bit_width < target.bit_width
        return bool(narrower_unsigned or (pt.is_signed_integer(source) and source.bit_width <= target.bit_width))
    if pt.is_floating(target):
        return bool(pt.is_floating(source) and source.bit_width <= target.bit_width)
    if pt.is_decimal(target):
        whole_digits = target.precision - target.scale
        if source in _DIGITS:
            return bool(_DIGITS[source] <= whole_digits)
        fits = pt.is_decimal(source) and source.scale <= target.scale
        return bool(fits and source.precision - source.scale <= whole_digits)
    if pt.is_string(target):
        return _is_text(source)
    if pt.is_binary(target):
        return _is_bytes(source)
    if pt.is_date32(target):
        return bool(pt.is_date64(source))
    return bool(pt.is_time64(target) and pt.is_time(source) and source.unit != "ns")


def _conversion(source: pa.DataType, target: pa.DataType) -> Cast | None:
    """What converts values of a type of which only some are values of the other; it raises for those that are not."""

    def safe(array: pa.Array) -> pa.Array:
        return pc.cast(array, target)

    if pt.is_floating(source):
        if pt.is_integer(target):
            return lambda array: _floating_to_whole(array, target)
        if pt.is_floating(target):
            return lambda array: accepted.narrowed(array, target)
        # By the digits that a number is written with.
        return (lambda array: safe(pc.cast(array, pa.string()))) if pt.is_decimal(target) else None
    if pt.is_decimal(source):
        if pt.is_floating(target):
            return lambda array: accepted.narrowed(array, target)
        return safe if pt.is_integer(target) or pt.is_decimal(target) else None
    if pt.is_integer(source):
        if pt.is_decimal(target):
            return lambda array: safe(pc.cast(array, pa.decimal128(38, 0)))
        return safe if pt.is_integer(target) else None
    of_time = (pt.is_timestamp(source) and pt.is_timestamp(target)) or (pt.is_time(source) and pt.is_time64(target))
    return safe if of_time else None


def _floating_to_whole(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Floating point numbers as whole ones.

    Raises ArrowInvalid, FileRefused: a value is no whole number, or of a size at which it stands for several.
    """
    whole = pc.cast(array, target)
    is_large = pc.or_(pc.greater(whole, 1 << 24), pc.less(whole, -(1 << 24)))
    written, kept = pc.cast(array.filter(is_large), pa.string()).to_pylist(), whole.filter(is_large).to_pylist()
    if any(Decimal(text) != value for text, value in zip(written, kept, strict=True)):
        raise FileRefused("wrong_type", accepted.SEVERAL)
    return whole


def _converted(array: pa.Array, target: pa.DataType, path: str, convert: Cast) -> pa.Array:
    try:
        return convert(array)
    except (pa.ArrowException, FileRefused):
        start, length = 0, len(array)
        while length > 1:  # halved until the first value that is refused stands alone
            half = length // 2
            start, length = (
                (start, half) if _is_refused(array.slice(start, half), convert) else (start + half, length - half)
            )
        way = (
            "nanoseconds would be lost, or it is out of range"
            if pt.is_temporal(target)
            else "it is out of range, or finer"
        )
        raise FileRefused(
            "wrong_type", f"column {path!r}: {accepted.shown(value_of(array[start]))} is no {_name(target)}; {way}"
        ) from None


def _is_refused(array: pa.Array, convert: Cast) -> bool:
    try:
        convert(array)
    except (pa.ArrowException, FileRefused):
        return True
    return False


def _whole_to_floating(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    try:
        return pc.cast(array, target)
    except pa.ArrowInvalid:  # it takes none past the first whole number that the type lacks
        return _one_by_one(array, target, path, written=False)


def _one_by_one(array: pa.Array, target: pa.DataType, path: str, written: bool) -> pa.Array:
    """By the rule for single values, unless they are texts that Arrow reads as the rule does."""
    type_ = _name(target)
    made = accepted.from_texts(array, type_, target) if _is_text(array.type) else None
    return accepted.decode(array.to_pylist(), type_, path, written=written) if made is None else made


def _name(target: pa.DataType) -> str:
    """What Iceberg calls a primitive type."""
    return "uuid" if isinstance(target, pa.BaseExtensionType) else str(arrow.from_arrow(target, "", 3))


# Nested -------------------------------------------------------------------------------------------------------------------
def _struct_plan(source: pa.DataType, target: pa.DataType, path: str, planner: _Planner) -> Cast:
    if not pt.is_struct(source):
        raise refused(path, source, target)
    have = [source.field(i) for i in range(source.num_fields)]
    fields = [target.field(i) for i in range(target.num_fields)]
    indexes = matched(have, fields, planner.key)
    strays = sorted(set(range(len(have))) - set(indexes) - {None}) if planner.extra != "drop" else []
    if strays and planner.extra == "refuse":
        raise _stray(f"{path}.{have[strays[0]].name}")
    plans: list[tuple[int | None, Cast]] = []
    for index, field in zip(indexes, fields, strict=True):
        inner_path = f"{path}.{field.name}"
        if index is None:
            if not field.nullable and statistics.field_id(field) not in planner.defaults:
                raise FileRefused("missing_column", f"column {inner_path!r} is required and missing")
            plans.append((None, same))
        else:
            plans.append((index, planner.of_type(have[index].type, field.type, inner_path)))

    def run(array: pa.Array) -> pa.Array:
        mask = array.is_null()
        check_strays([(f"{path}.{have[stray].name}", _child(array, stray)) for stray in strays])
        children = []
        for (index, plan), field in zip(plans, fields, strict=True):
            child = filled(field, len(array), planner.defaults) if index is None else plan(_child(array, index))
            children.append(child if field.nullable else required_below(child, mask, f"{path}.{field.name}"))
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)

    return run


def filled(field: pa.Field, count: int, defaults: Defaults) -> pa.Array:
    """The values of a field that is missing."""
    default = defaults.get(statistics.field_id(field) or 0)
    return pa.nulls(count, field.type) if default is None else pa.repeat(default, count)


def _child(array: pa.StructArray, index: int) -> pa.Array:
    """A field's values; null where the struct is, whatever stands there."""
    return pc.struct_field(array, [index]) if array.null_count else array.field(index)


def check_strays(strays: Iterable[tuple[str, pa.Array]]) -> None:
    """Raises FileRefused (unknown_column): a column that the table lacks, given with its path, holds a value."""
    for path, array in strays:
        if array.null_count < len(array):
            raise _stray(path)


def _stray(path: str) -> FileRefused:
    return FileRefused("unknown_column", f"column {path!r} is not in the table; leave it out")


def _list_plan(source: pa.DataType, target: pa.DataType, path: str, planner: _Planner) -> Cast:
    views = pt.is_list_view(source) or pt.is_large_list_view(source) or pt.is_fixed_size_list(source)
    if not (views or pt.is_list(source) or pt.is_large_list(source)):
        raise refused(path, source, target)
    element = planner.of_field(source.value_field, target.value_field, f"{path}.element")

    def run(array: pa.Array) -> pa.Array:
        offsets, values = view_parts(array) if views else list_parts(array)
        return pa.ListArray.from_arrays(offsets, element(values), type=target, mask=mask_of(array))

    return run


def _map_plan(source: pa.DataType, target: pa.DataType, path: str, planner: _Planner) -> Cast:
    if not pt.is_map(source):
        raise refused(path, source, target)
    of_keys = planner.of_field(source.key_field, target.key_field, f"{path}.key")
    of_items = planner.of_field(source.item_field, target.item_field, f"{path}.value")

    def run(array: pa.Array) -> pa.Array:
        offsets, keys, items = map_parts(array)
        made = pa.MapArray.from_arrays(offsets, of_keys(keys), of_items(items), type=target, mask=mask_of(array))
        return check_map_keys(made, path)

    return run
