"""Which files and row groups may hold rows that a filter keeps, by statistics and partition values alone.

An answer of 'no' is certain; 'yes' means perhaps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import (
    _ExpressionEvaluationVisitor,
    _InclusiveMetricsEvaluationVisitor,
    bind,
    inclusive_projection,
    visit,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from lakeward.arrow import coarse, splitting, statistics
from lakeward.arrow.filters import BoundFilter
from lakeward.arrow.keys import Answers, Column, column, value_column
from lakeward.arrow.splitting import Term
from lakeward.arrow.statistics import Leaf
from lakeward.arrow.target import arrow_schema
from lakeward.iceberg import arrow, schemas, transforms
from lakeward.tables.records.files import FileStatistics, PartitionValues, partition_key, partition_values
from lakeward.tables.records.tables import Document


class Pruner:
    """A filter made ready for many files. `specs` by spec-id: all that the files were written with."""

    def __init__(self, bound: BoundFilter, specs: Mapping[int, Document]) -> None:
        self._bound = bound
        self._leaves = statistics.leaves(bound.schema)
        self._specs = specs
        self._partitions: dict[tuple[int, str], bool] = {}
        self._projections: dict[int, tuple[BooleanExpression, list[Term]] | None] = {}
        self._arrow = None if bound.expression is not None else _ArrowPruner(bound, self._leaves)

    def may_match(self, file: FileStatistics, row_count: int, partition: PartitionValues, spec_id: int) -> bool:
        """Whether a file may hold rows that the filter keeps."""
        return row_count != 0 and self._partition_may_match(partition, spec_id) and self._statistics_may_match(file)

    # Many at once: 'yes' wherever `may_match` says so.
    @property
    def field_ids(self) -> frozenset[int] | None:
        """The columns by whose bounds files are left out; None where the filter cannot be looked into."""
        return None if self._bound.expression is None else coarse.field_ids(self._bound.expression)

    def partitions_may_match(self, spec_id: int, keys: Sequence[str]) -> Answers:
        """Of each partition of a spec, by its key."""
        projected = self._projected(spec_id)
        if projected is None:
            return np.ones(len(keys), bool)
        expression, spec_terms = projected
        partitions = [partition_values(key) for key in keys]
        columns = {term.field_id: _value_column(term, partitions) for term in spec_terms}
        answers = coarse.may_match(expression, columns, len(keys))
        for term in spec_terms:
            if term.transform.startswith("truncate"):
                answers = answers | [_may_have_wrapped(term, each.get(term.field_id)) for each in partitions]
        return answers

    def files_may_match(self, files: Sequence[FileStatistics]) -> Answers:
        """Of each of some files, by the bounds of its columns alone."""
        types = {leaf.field_id: leaf.type for leaf in self._leaves}
        found = {i: column(types[i], files, i) for i in self.field_ids or () if i in types}
        return self.columns_may_match({i: each for i, each in found.items() if each is not None}, len(files))

    def columns_may_match(self, columns: Mapping[int, Column], count: int) -> Answers:
        """As `files_may_match`, of files whose columns have been made."""
        assert self._bound.expression is not None
        return coarse.may_match(self._bound.expression, columns, count)

    def row_groups(self, footer: pq.FileMetaData) -> list[int]:
        """The row groups, by number, that may hold rows that the filter keeps."""
        ids = statistics.leaf_field_ids(footer.schema.to_arrow_schema())
        groups = range(footer.num_row_groups)
        if None in ids:
            return list(groups)
        return [i for i in groups if self._statistics_may_match(self._of_group(footer, i, ids))]

    def _of_group(self, footer: pq.FileMetaData, group: int, ids: list[int | None]) -> FileStatistics:
        return statistics.from_footer(footer, self._bound.schema, row_group=group, ids=ids)

    def _statistics_may_match(self, file: FileStatistics) -> bool:
        if self._arrow is not None:
            return self._arrow.may_match(file)
        assert self._bound.expression is not None
        return visit(self._bound.expression, _InclusiveMetricsEvaluationVisitor(cast(Any, _Metrics.of(file))))

    def _partition_may_match(self, partition: PartitionValues, spec_id: int) -> bool:
        projected = self._projected(spec_id) if partition else None
        if projected is None:
            return True
        key = (spec_id, partition_key(partition))
        if key not in self._partitions:
            self._partitions[key] = _matches(partition, *projected)
        return self._partitions[key]

    def _projected(self, spec_id: int) -> tuple[BooleanExpression, list[Term]] | None:
        if spec_id not in self._projections:
            spec = self._specs.get(spec_id)
            is_asked = spec is not None and spec["fields"] and self._bound.expression is not None
            self._projections[spec_id] = _projection(self._bound, spec) if spec is not None and is_asked else None
        return self._projections[spec_id]


@dataclass(frozen=True)
class _Metrics:
    """What pyiceberg's evaluator asks of a data file."""

    value_counts: dict[int, int]
    null_value_counts: dict[int, int]
    nan_value_counts: dict[int, int]
    lower_bounds: dict[int, bytes]
    upper_bounds: dict[int, bytes]

    @classmethod
    def of(cls, file: FileStatistics) -> _Metrics:
        return cls(file.value_counts, file.null_counts, file.nan_counts, file.lower, file.upper)


# Partitions -------------------------------------------------------------------------------------------------------------
def _projection(bound: BoundFilter, spec: Document) -> tuple[BooleanExpression, list[Term]] | None:
    """What a filter asks of a spec's partitions, bound to the fields of the terms; None where they tell nothing."""
    schema: Schema = schemas.to_pyiceberg(bound.schema)
    known = {leaf.field_id for leaf in statistics.leaves(bound.schema)}
    # A field whose source column was dropped says nothing about the columns that are there.
    fields = [field for field in spec["fields"] if field.get("source-id") in known]
    partition_spec = PartitionSpec.model_validate({"spec-id": spec["spec-id"], "fields": fields})
    assert bound.unbound is not None
    try:
        projected: BooleanExpression = inclusive_projection(schema, partition_spec)(bound.unbound)
    except (OverflowError, ValueError):  # a literal at the end of what a date can be
        return None
    partition_schema = Schema(*partition_spec.partition_type(schema).fields)
    return bind(partition_schema, projected, case_sensitive=True), splitting.terms(fields, bound.schema)


def _matches(partition: PartitionValues, expression: BooleanExpression, spec_terms: Sequence[Term]) -> bool:
    if any(_may_have_wrapped(term, partition.get(term.field_id)) for term in spec_terms):
        return True
    record = Record(*(_ordered(partition.get(term.field_id), term) for term in spec_terms))
    return bool(visit(expression, _ExpressionEvaluationVisitor(record)))


def _value_column(term: Term, partitions: Sequence[PartitionValues]) -> Column:
    ordered: dict[Any, Any] = {}
    values = [partition.get(term.field_id) for partition in partitions]
    for value in values:
        if value not in ordered:
            ordered[value] = _ordered(value, term)
    return value_column(term.result, (ordered[value] for value in values))


def _may_have_wrapped(term: Term, value: Any) -> bool:
    """Truncating whole numbers near the least one gives, by Iceberg's arithmetic, one near the largest."""
    width = re.fullmatch(r"truncate\[(\d+)\]", term.transform)
    if width is None or value is None or term.result not in ("int", "long"):
        return False
    return bool(value > 2 ** (31 if term.result == "int" else 63) - int(width[1]))


def _ordered(value: Any, term: Term) -> Any:
    """A partition's value, in single-value JSON, as pyiceberg orders it: days, microseconds, numbers, text or bytes."""
    return statistics.ordered(term.result, transforms.result_from_json(term.transform, term.source.type, value))


# pyarrow's expressions --------------------------------------------------------------------------------------------------
class _ArrowPruner:
    """Asks pyarrow whether its expression can hold, given what the statistics guarantee."""

    def __init__(self, bound: BoundFilter, leaves: list[Leaf]) -> None:
        import pyarrow.dataset as ds  # it loads pandas where that is installed

        self._make_dataset = ds.FileSystemDataset
        self._filter = bound.arrow
        self._leaves = [leaf for leaf in leaves if len(leaf.path) == 1 and leaf.path[0] in bound.columns]
        self._schema = arrow_schema(bound.schema)
        self._format = ds.ParquetFileFormat()
        self._filesystem = pyarrow.fs.LocalFileSystem()

    def may_match(self, file: FileStatistics) -> bool:
        known = pc.scalar(True)
        for leaf in self._leaves:
            guarantee = _guarantee(leaf, file)
            if guarantee is not None:
                known = known & guarantee
        # The file is never opened: only what is guaranteed of it counts.
        fragment = self._format.make_fragment("unread", self._filesystem, partition_expression=known)
        dataset = self._make_dataset([fragment], self._schema, self._format, self._filesystem)
        return any(True for _ in dataset.get_fragments(filter=self._filter))


def _guarantee(leaf: Leaf, file: FileStatistics) -> pc.Expression | None:
    nulls, count = file.null_counts.get(leaf.field_id), file.value_counts.get(leaf.field_id)
    field = pc.field(leaf.path[0])
    if nulls is not None and nulls == count:
        return field.is_null()
    lower, upper = file.lower.get(leaf.field_id), file.upper.get(leaf.field_id)
    # An unknown NaN would be outside the bounds and yet satisfy a negation.
    may_be_nan = leaf.type in ("float", "double") and file.nan_counts.get(leaf.field_id) != 0
    if lower is None or upper is None or may_be_nan or leaf.type == "uuid":
        return None
    type_ = arrow.to_arrow_type(leaf.type)
    low, high = (pa.scalar(statistics.decode_bound(leaf.type, bound), type_) for bound in (lower, upper))
    within = (field >= low) & (field <= high)
    return within if nulls == 0 else within | field.is_null()
