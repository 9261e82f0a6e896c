"""Rows split by the partition that they belong to, and sorted by a table's sort order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakeward.arrow.statistics import Leaf, leaf_array, leaves
from lakeward.errors import FileRefused, InvalidInput, InvalidSchema
from lakeward.iceberg import transforms, values
from lakeward.tables.records.files import FileStatistics, PartitionValues
from lakeward.tables.records.tables import Document


class Term(msgspec.Struct, frozen=True):
    """One field of a partition spec or a sort order: a transform of a column. `result` is the transform's type."""

    field_id: int
    transform: str
    source: Leaf
    result: str


def terms(fields: Sequence[Document], schema: Document) -> list[Term]:
    """The fields of a spec or an order over a schema.

    Raises:
        InvalidSchema: a field's source column is not in the schema, is below a list or map, or a transform has several.
    """
    by_id = {leaf.field_id: leaf for leaf in leaves(schema)}
    return [_term(field, by_id) for field in fields]


def _term(field: Document, by_id: dict[int, Leaf]) -> Term:
    source_ids = field.get("source-ids") or [field["source-id"]]
    source = by_id.get(source_ids[0])
    if len(source_ids) != 1 or source is None or source.repeated:
        raise InvalidSchema(
            f"field {field.get('name', source_ids)!r} is made from column {source_ids}, which is no single column of the schema"
        )
    return Term(
        field.get("field-id", 0), field["transform"], source, transforms.result_type(field["transform"], source.type)
    )


def transformed(batch: pa.RecordBatch | pa.Table, term: Term) -> pa.Array:
    """The values of a term for each row, in the Arrow type of the term's result."""
    source = leaf_array(batch, term.source)
    if isinstance(source, pa.ChunkedArray):
        source = source.combine_chunks()
    if isinstance(source, pa.ExtensionArray):
        source = source.storage
    if term.transform == "identity":
        return source
    if term.transform == "void":
        return pa.nulls(len(source), source.type)
    if term.transform in ("year", "month", "day", "hour"):
        return _of_time(source, term)
    result = _transform(term.transform, term.source.type)(_aligned(source))
    return result.combine_chunks() if isinstance(result, pa.ChunkedArray) else result


def _of_time(source: pa.Array, term: Term) -> pa.Array:
    """Transforms of dates and timestamps, by whole numbers: calendars of libraries end before the types do."""
    raw = source.view(pa.int32() if term.source.type == "date" else pa.int64()).cast(pa.int64())
    whole = _floor_divided(raw, transforms.units(term.transform, term.source.type))
    if term.transform == "hour":
        return whole
    if term.transform == "day":
        return whole.cast(pa.int32()).view(pa.date32())
    days = whole.dictionary_encode()
    results = [transforms.of_days(term.transform, day) for day in days.dictionary.to_pylist()]
    return pa.array(results, pa.int32()).take(days.indices)


def _floor_divided(numbers: pa.Array, by: int) -> pa.Array:
    """Arrow divides towards zero."""
    if by == 1:
        return numbers
    result = pc.divide(numbers, by)
    rest = pc.subtract(numbers, pc.multiply(result, by))
    return pc.subtract(result, pc.less(rest, 0).cast(pa.int64()))


def _aligned(array: pa.Array) -> pa.Array:
    """The array, copied where a decimal's bytes begin at no multiple of 16: PyIceberg's core panics on such, and what came
    over Arrow's wire format (`DataFrame.toArrow()`) is aligned to 8 alone.
    """
    if not pt.is_decimal(array.type) or all(part is None or part.address % 16 == 0 for part in array.buffers()):
        return array
    return pa.concat_arrays([array, array[:0]])


@lru_cache(maxsize=512)
def _transform(transform: str, source: str) -> Any:
    from pyiceberg.transforms import parse_transform
    from pyiceberg.types import NestedField, PrimitiveType

    type_ = NestedField.model_validate({"id": 1, "name": "x", "type": source, "required": False}).field_type
    assert isinstance(type_, PrimitiveType)
    return parse_transform(transform).pyarrow_transform(type_)


def split(batch: pa.RecordBatch, spec_terms: Sequence[Term]) -> Iterator[tuple[PartitionValues, pa.RecordBatch]]:
    """The rows of each partition in a batch, in the order in which they came; values as Iceberg's single-value JSON."""
    columns = [transformed(batch, term) for term in spec_terms]
    names = [str(i) for i in range(len(columns))]
    table = pa.table([*columns, pa.arange(0, batch.num_rows)], names=[*names, "row"])
    groups = table.group_by(names, use_threads=False).aggregate([("row", "list")])
    keys = [_json(groups.column(name), term.result) for name, term in zip(names, spec_terms, strict=True)]
    rows = groups.column("row_list").combine_chunks()
    for number, each in enumerate(zip(*keys, strict=True)):
        partition = {term.field_id: key for term, key in zip(spec_terms, each, strict=True)}
        yield partition, batch if len(groups) == 1 else batch.take(rows[number].values)


def _json(column: pa.ChunkedArray, type_: str) -> list[Any]:
    read = transforms.widest(type_)
    return [values.to_json(type_, values.from_python(read, scalar)) for scalar in column]


def check_held(batch: pa.RecordBatch, spec_terms: Sequence[Term]) -> None:
    """Check that manifests can hold the partitions of all rows.

    Raises:
        FileRefused: wrong_partition, for a row whose partition they cannot.
    """
    for term in filter(_may_overflow, spec_terms):
        ends = pc.min_max(leaf_array(batch, term.source))
        for end in ("min", "max"):  # these transforms keep the order
            _check_value(term, values.from_python(term.source.type, ends[end]))


def _may_overflow(term: Term) -> bool:
    return transforms.may_overflow(term.transform, term.source.type)


def check_bounds_held(file: FileStatistics, spec_terms: Sequence[Term]) -> None:
    """As `check_held`, for the rows of a file. Raises: FileRefused: wrong_partition."""
    for term in filter(_may_overflow, spec_terms):
        for bounds in (file.lower, file.upper):
            if (bound := bounds.get(term.source.field_id)) is not None:
                _check_value(term, values.from_binary(term.source.type, bound))


def _check_value(term: Term, raw: Any) -> None:
    type_ = term.source.type
    try:
        transforms.check_held(term.transform, type_, transforms.transform_value(term.transform, type_, raw))
    except InvalidInput as error:
        column, shown = ".".join(term.source.path), values.to_json(type_, raw)
        raise FileRefused("wrong_partition", f"column {column!r} has {shown}: {error}, or leave it out") from error


def sort(table: pa.Table, order_fields: Sequence[Document], order_terms: Sequence[Term]) -> pa.Table:
    """A table's rows in a sort order; see `places`."""
    return table.take(places(table, order_fields, order_terms))


def places(table: pa.Table, order_fields: Sequence[Document], order_terms: Sequence[Term]) -> pa.Array:
    """The rows' places in a sort order: which row comes first, and so on. Equal rows stay in the order in which they came. NaN
    counts as larger than every number, as Iceberg has it.
    """
    columns: list[pa.Array] = []
    keys: list[tuple[str, str, str]] = []
    for field, term in zip(order_fields, order_terms, strict=True):
        direction = "descending" if field.get("direction", "asc") == "desc" else "ascending"
        nulls = "at_start" if field.get("null-order", "nulls-first") == "nulls-first" else "at_end"
        column = transformed(table, term)
        for each in [pc.is_nan(column), column] if pt.is_floating(column.type) else [column]:
            keys.append((str(len(columns)), direction, nulls))
            columns.append(each)
    by = pa.table(columns, names=[key[0] for key in keys])
    return pc.sort_indices(by, sort_keys=keys)
