"""Rows split by the partition that they belong to, and sorted by a table's sort order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakeward.errors import InvalidSchema
from lakeward.iceberg import transforms, values
from lakeward.model.files import PartitionValues
from lakeward.model.tables import Document
from lakeward.pipeline.statistics import Leaf, leaf_array, leaves


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
    result = _transform(term.transform, term.source.type)(_aligned(source))
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    return result.cast(pa.date32()) if term.result == "date" and not pt.is_date(result.type) else result


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
    return [values.to_json(type_, values.from_python(type_, scalar)) for scalar in column]


def sort(table: pa.Table, order_fields: Sequence[Document], order_terms: Sequence[Term]) -> pa.Table:
    """A table's rows in a sort order. NaN counts as larger than every number, as Iceberg has it."""
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
    return table.take(pc.sort_indices(by, sort_keys=keys))
