"""Lists, maps and structs of Arrow, taken apart and put together again."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakeward.errors import FileRefused


def null_in_required(path: str) -> FileRefused:
    """What a null is refused by, in a column that is to have none."""
    return FileRefused("null_in_required", f"column {path!r} is required and null; fill such rows, or leave them out")


def check_nulls(array: pa.Array, field: pa.Field, path: str) -> pa.Array:
    """The same array. Raises FileRefused (null_in_required): it has nulls, and the field may have none."""
    if array.null_count and not field.nullable:
        raise null_in_required(path)
    return array


def required_below(child: pa.Array, parent_is_null: pa.Array, path: str) -> pa.Array:
    """A required field of a struct: it may be null only where the struct is, and even there Parquet's writer wants a value."""
    if not child.null_count:
        return child
    bad = pc.sum(pc.and_not(child.is_null(), parent_is_null)).as_py()
    if bad:
        raise null_in_required(path)
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
        offsets, keys, items = map_parts(array)
        return pa.MapArray.from_arrays(offsets, keys, items, type=type_)
    if pt.is_list(type_):
        offsets, values = list_parts(array)
        return pa.ListArray.from_arrays(offsets, values, type=type_)
    return pa.Array.from_buffers(type_, len(array), [None, *array.buffers()[1:]], null_count=0, offset=array.offset)


def check_map_keys(array: pa.MapArray, path: str) -> pa.MapArray:
    """The same array. Raises FileRefused (wrong_type): a map has a key twice, of which each reader would keep another one."""
    offsets, keys, _ = map_parts(array)
    if len(keys) < 2:
        return array
    parents = pc.list_parent_indices(pa.ListArray.from_arrays(offsets, keys))
    storage = keys.storage if isinstance(keys, pa.ExtensionArray) else keys
    try:
        distinct = pa.table({"map": parents, "key": storage}).group_by(["map", "key"]).aggregate([]).num_rows
    except pa.ArrowNotImplementedError:  # of nested keys
        distinct = len({(parent, repr(key)) for parent, key in zip(parents, storage, strict=True)})
    if distinct < len(keys):
        raise FileRefused("wrong_type", f"column {path!r}: a map has a key twice; leave one of the two out")
    return array


def nested_parts(array: pa.Array) -> list[tuple[str, pa.Array]]:
    """The arrays inside a nested one, by the names that Iceberg has for them; null where what holds them is."""
    if pt.is_struct(array.type):
        return [(array.type.field(i).name, part) for i, part in enumerate(array.flatten())]
    if pt.is_map(array.type):
        _, keys, items = map_parts(array)
        return [("key", keys), ("value", items)]
    return [("element", array.flatten())]


def inner_fields(type_: pa.DataType) -> list[tuple[str, pa.Field]]:
    """The fields inside a nested type, by the names that Iceberg has for them; none inside others."""
    if pt.is_map(type_):
        return [("key", type_.key_field), ("value", type_.item_field)]
    if pt.is_struct(type_):
        fields = [type_.field(i) for i in range(type_.num_fields)]
        return [(field.name, field) for field in fields]
    return [("element", type_.value_field)] if pt.is_nested(type_) else []


def mask_of(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def list_parts(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Offsets from 0 on and the values that they span, for an array that may be a slice."""
    offsets = array.offsets
    start, end = (offsets[0].as_py(), offsets[-1].as_py()) if len(offsets) else (0, 0)
    return _from_zero(offsets, start), array.values.slice(start, end - start)


def view_parts(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    lengths = pc.fill_null(pc.cast(pc.list_value_length(array), pa.int32()), 0)
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)]), array.flatten()


def map_parts(array: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
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
