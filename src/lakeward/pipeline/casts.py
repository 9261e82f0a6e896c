"""Arrow arrays into the types of a table: columns matched by name or by field id, at every depth, values checked.

A plan is made once for a pair of types and then run over each batch. A cast never loses anything in silence: a value that
does not fit is refused. With `widening_only`, a type whose values might not fit is refused before any value is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakeward.errors import FileRefused

Cast: TypeAlias = Callable[[pa.Array], pa.Array]
# What a field is found by: its name or its field id.
Key: TypeAlias = Callable[[pa.Field], "str | int | None"]


def by_name(field: pa.Field) -> str | int | None:
    name: str = field.name
    return name


def matched(source: Iterable[pa.Field], target: Iterable[pa.Field], key: Key) -> list[int | None]:
    """For each target field the position of its source field, none where it has none."""
    positions: dict[str | int, int] = {}
    for position, field in enumerate(source):
        name = key(field)
        if name is not None:
            positions[name] = position
    wanted = [key(field) for field in target]
    return [None if name is None else positions.get(name) for name in wanted]


def cast_plan(
    source: pa.Field, target: pa.Field, key: Key, path: str, *, widening_only: bool = False, strict_fields: bool = True
) -> Cast:
    """How arrays of one field become arrays of the other.

    Args:
        strict_fields: refuse fields inside structs that the target does not have; else they are dropped.

    Raises:
        FileRefused: wrong_type, unknown_column or missing_column, with the column's path. The plan itself raises
            wrong_type for a value that does not fit and null_in_required for a null where none may be.
    """
    inner = _plan(source.type, target.type, key, path, widening_only, strict_fields)
    if target.nullable:
        return inner
    return lambda array: _required(inner(array), path)


def _required(array: pa.Array, path: str) -> pa.Array:
    if array.null_count:
        raise FileRefused(
            "null_in_required", f"column {path!r} is required and {array.null_count} of its values are null"
        )
    return array


def refused(path: str, source: pa.DataType, target: pa.DataType, way: str = "cast it before") -> FileRefused:
    return FileRefused("wrong_type", f"column {path!r} has the type {source}, the table's is {target}; {way}")


def _plan(source: pa.DataType, target: pa.DataType, key: Key, path: str, widening: bool, strict: bool) -> Cast:
    if pt.is_struct(target):
        return _struct_plan(source, target, key, path, widening, strict)
    if pt.is_map(target):
        return _map_plan(source, target, key, path, widening, strict)
    if pt.is_list(target):
        return _list_plan(source, target, key, path, widening, strict)
    if source == target:
        return _same
    if pt.is_null(source):
        return lambda array: pa.nulls(len(array), target)
    if pt.is_dictionary(source) or pt.is_run_end_encoded(source):
        inner = _plan(source.value_type, target, key, path, widening, strict)
        return lambda array: inner(_decoded(array))
    if isinstance(target, pa.BaseExtensionType):  # uuid
        if source != target.storage_type:
            raise refused(path, source, target, "give uuid values or 16 bytes each")
        return lambda array: pa.ExtensionArray.from_storage(target, array)
    if isinstance(source, pa.BaseExtensionType):
        inner = _plan(source.storage_type, target, key, path, widening, strict)
        return lambda array: inner(array.storage)
    _check_primitive(source, target, path, widening)
    return lambda array: _cast(array, target, path)


def _same(array: pa.Array) -> pa.Array:
    return array


def _decoded(array: pa.Array) -> pa.Array:
    if pt.is_dictionary(array.type):
        return array.dictionary_decode()
    return pc.run_end_decode(array)


def _cast(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    try:
        return pc.cast(array, target, safe=True)
    except pa.ArrowInvalid as error:
        raise FileRefused("wrong_type", f"column {path!r}: a value does not fit {target}: {error}") from error


# Which primitive types may become which -------------------------------------------------------------------------------
def _check_primitive(source: pa.DataType, target: pa.DataType, path: str, widening: bool) -> None:
    if pt.is_timestamp(target) and pt.is_timestamp(source):
        _check_timestamp(source, target, path, widening)
    elif not (_widens(source, target) or (not widening and _may_fit(source, target))):
        raise refused(path, source, target)


def _check_timestamp(source: pa.DataType, target: pa.DataType, path: str, widening: bool) -> None:
    if (source.tz is None) != (target.tz is None):
        way = (
            "say which zone is meant before: assume_timezone"
            if source.tz is None
            else "cast it to UTC without a zone before"
        )
        raise refused(path, source, target, way)
    if widening and source.unit == "ns" and target.unit != "ns":
        raise refused(path, source, target, f"cast it to microseconds ({target}) before; nanoseconds would be lost")


def _widens(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether every value of the source type is one of the target type."""
    if pt.is_integer(target) and pt.is_integer(source):
        narrower_unsigned = pt.is_unsigned_integer(source) and source.bit_width < target.bit_width
        return bool(narrower_unsigned or (pt.is_signed_integer(source) and source.bit_width <= target.bit_width))
    if pt.is_floating(target):
        return bool(pt.is_floating(source) and source.bit_width <= target.bit_width)
    if pt.is_decimal(target):
        fits = pt.is_decimal(source) and source.scale <= target.scale
        return bool(fits and source.precision - source.scale <= target.precision - target.scale)
    if pt.is_string(target):
        return bool(pt.is_large_string(source) or pt.is_string_view(source))
    if pt.is_binary(target):
        return bool(pt.is_large_binary(source) or pt.is_binary_view(source) or pt.is_fixed_size_binary(source))
    if pt.is_date32(target):
        return bool(pt.is_date64(source))
    return bool(pt.is_time64(target) and pt.is_time(source) and source.unit != "ns")


def _may_fit(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values of the source type are taken as long as each of them fits."""
    if pt.is_integer(target) or pt.is_floating(target):
        return bool(pt.is_integer(source))
    if pt.is_decimal(target):
        return bool(pt.is_decimal(source))
    return bool(pt.is_time64(target) and pt.is_time(source))


# Nested -------------------------------------------------------------------------------------------------------------------
def _struct_plan(source: pa.DataType, target: pa.DataType, key: Key, path: str, widening: bool, strict: bool) -> Cast:
    if pt.is_null(source):
        return lambda array: pa.nulls(len(array), target)
    if not pt.is_struct(source):
        raise refused(path, source, target)
    have = [source.field(i) for i in range(source.num_fields)]
    fields = [target.field(i) for i in range(target.num_fields)]
    positions = matched(have, fields, key)
    if strict and (unknown := sorted(set(range(len(have))) - set(positions) - {None})):
        raise FileRefused(
            "unknown_column", f"column {f'{path}.{have[unknown[0]].name}'!r} is not in the table; leave it out"
        )
    plans: list[tuple[int | None, Cast]] = []
    for position, field in zip(positions, fields, strict=True):
        inner_path = f"{path}.{field.name}"
        if position is None:
            if not field.nullable:
                raise FileRefused("missing_column", f"column {inner_path!r} is required and missing")
            plans.append((None, _same))
        else:
            plans.append((position, _plan(have[position].type, field.type, key, inner_path, widening, strict)))

    def run(array: pa.Array) -> pa.Array:
        mask = array.is_null()
        children = []
        for (position, plan), field in zip(plans, fields, strict=True):
            child = pa.nulls(len(array), field.type) if position is None else plan(array.field(position))
            children.append(child if field.nullable else _required_below(child, mask, f"{path}.{field.name}"))
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)

    return run


def _required_below(child: pa.Array, parent_is_null: pa.Array, path: str) -> pa.Array:
    """A required field of a struct: it may be null only where the struct is, and even there Parquet's writer wants a value."""
    if not child.null_count:
        return child
    bad = pc.sum(pc.and_not(child.is_null(), parent_is_null)).as_py()
    if bad:
        raise FileRefused("null_in_required", f"column {path!r} is required and {bad} of its values are null")
    return _without_nulls(child)


def _without_nulls(array: pa.Array) -> pa.Array:
    """The same array with its null slots taken for values (zeros, empty texts and lists): nobody reads them."""
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, _without_nulls(array.storage))
    if pt.is_struct(type_):
        fields = [type_.field(i) for i in range(type_.num_fields)]
        children = [array.field(i) for i in range(type_.num_fields)]
        return pa.StructArray.from_arrays(
            [c if f.nullable else _without_nulls(c) for c, f in zip(children, fields, strict=True)], fields=fields
        )
    if pt.is_map(type_):
        offsets, keys, items = _map_parts(array)
        return pa.MapArray.from_arrays(offsets, keys, items, type=type_)
    if pt.is_list(type_):
        offsets, values = _list_parts(array)
        return pa.ListArray.from_arrays(offsets, values, type=type_)
    return pa.Array.from_buffers(type_, len(array), [None, *array.buffers()[1:]], null_count=0, offset=array.offset)


def _list_plan(source: pa.DataType, target: pa.DataType, key: Key, path: str, widening: bool, strict: bool) -> Cast:
    if pt.is_null(source):
        return lambda array: pa.nulls(len(array), target)
    views = pt.is_list_view(source) or pt.is_large_list_view(source) or pt.is_fixed_size_list(source)
    if not (views or pt.is_list(source) or pt.is_large_list(source)):
        raise refused(path, source, target)
    element = cast_plan(
        source.value_field,
        target.value_field,
        key,
        f"{path}.element",
        widening_only=widening,
        strict_fields=strict,
    )

    def run(array: pa.Array) -> pa.Array:
        offsets, values = _view_parts(array) if views else _list_parts(array)
        return pa.ListArray.from_arrays(offsets, element(values), type=target, mask=_mask(array))

    return run


def _map_plan(source: pa.DataType, target: pa.DataType, key: Key, path: str, widening: bool, strict: bool) -> Cast:
    if pt.is_null(source):
        return lambda array: pa.nulls(len(array), target)
    if not pt.is_map(source):
        raise refused(path, source, target)
    parts = [
        cast_plan(have, wanted, key, f"{path}.{name}", widening_only=widening, strict_fields=strict)
        for name, have, wanted in (
            ("key", source.key_field, target.key_field),
            ("value", source.item_field, target.item_field),
        )
    ]

    def run(array: pa.Array) -> pa.Array:
        offsets, keys, items = _map_parts(array)
        return pa.MapArray.from_arrays(offsets, parts[0](keys), parts[1](items), type=target, mask=_mask(array))

    return run


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _list_parts(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Offsets from 0 on and the values that they span, for an array that may be a slice."""
    offsets = array.offsets
    start, end = (offsets[0].as_py(), offsets[-1].as_py()) if len(offsets) else (0, 0)
    return _from_zero(offsets, start), array.values.slice(start, end - start)


def _view_parts(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    lengths = pc.fill_null(pc.cast(pc.list_value_length(array), pa.int32()), 0)
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)]), array.flatten()


def _map_parts(array: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    offsets = array.offsets
    start, end = (offsets[0].as_py(), offsets[-1].as_py()) if len(offsets) else (0, 0)
    return (
        _from_zero(offsets, start),
        array.keys.slice(start, end - start),
        array.items.slice(start, end - start),
    )


def _from_zero(offsets: pa.Array, start: int) -> pa.Array:
    # Added up anew: the result has no offset of its own, which from_arrays demands beside a mask.
    return pc.cast(pc.subtract(offsets, pa.scalar(start, offsets.type)), pa.int32())
