"""Filters of rows: from text like SQL's WHERE, from PyIceberg's or from pyarrow's expressions.

Comparisons are SQL's: with null they are unknown, so that such a row is not kept, `!=` and `not in` included. NaN is equal
to nothing and neither less nor greater; `is nan` finds it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, bind, rewrite_not, visit

from lakeward.arrow import filter_grammar
from lakeward.arrow.literals import exact
from lakeward.arrow.plain_values import array_of
from lakeward.arrow.target import arrow_schema
from lakeward.errors import InvalidFilter
from lakeward.iceberg import schemas
from lakeward.iceberg.arrow import to_arrow_type
from lakeward.tables.records.tables import Document


@dataclass(frozen=True)
class Filter:
    """Exactly one of the two is given. A pyarrow expression cannot be looked into, so it has a way of its own."""

    expression: BooleanExpression | None = None
    arrow: pc.Expression | None = None


@dataclass(frozen=True)
class BoundFilter:
    """A filter over the columns of one schema; `columns` are the top-level ones that it needs.

    `unbound` and `expression` are without negations, which would be true of NaN; both are none for one of pyarrow's.
    """

    schema: Document
    arrow: pc.Expression
    columns: tuple[str, ...]
    unbound: BooleanExpression | None = None
    expression: BooleanExpression | None = None


def parse_filter(source: Any) -> Filter | None:
    """A filter from text, a pyiceberg BooleanExpression or a pyarrow compute.Expression; none from none or ''.

    Text (`filter_grammar` has the grammar): comparisons of a column with literals joined by and, or, not and brackets;
    in (...), between, like 'x%', is [not] null, is [not] nan. Names that are no plain words stand in double quotes; texts,
    dates, times and bytes (in hex) in single ones:
    "month = 1 and origin in ('JFK', 'LGA') and \\"dep delay\\" > 10.5 or day >= '2024-01-31'".

    Raises:
        InvalidFilter: the text cannot be read, or it is of another type.
    """
    if source is None or isinstance(source, Filter):
        return source
    if isinstance(source, pc.Expression):
        return Filter(arrow=source)
    if isinstance(source, BooleanExpression):
        return Filter(expression=source)
    if not isinstance(source, str):
        raise InvalidFilter(f'a filter cannot be made from {type(source).__name__}; give text such as "month = 1"')
    if not source.strip():
        return None
    if any(0xD800 <= ord(c) <= 0xDFFF for c in source):
        raise InvalidFilter(f"filter {source!r} holds a lone surrogate, which no text in a table has")
    return Filter(expression=filter_grammar.parse(source))


def bind_filter(source: Filter, schema: Document) -> BoundFilter:
    """A filter over a schema's columns.

    Raises:
        ColumnNotFound: a column is not in the schema.
        InvalidFilter: a literal does not fit its column's type.
    """
    if source.arrow is not None:
        return BoundFilter(schema, source.arrow, _arrow_columns(source.arrow, schema))
    assert source.expression is not None
    columns = schemas.to_pyiceberg(schema)
    unbound = exact(rewrite_not(source.expression), columns)
    bound = bind(columns, unbound, case_sensitive=True)
    visitor = _ToArrow(schema)
    arrow = visit(bound, visitor)
    return BoundFilter(schema, arrow, tuple(sorted(visitor.columns)), unbound, bound)


def _arrow_columns(expression: pc.Expression, schema: Document) -> tuple[str, ...]:
    """The columns that a pyarrow expression needs, found by trying: those whose names are in its text, else all."""
    target = arrow_schema(schema)
    text = str(expression)
    likely = [name for name in target.names if name in text]
    for names in (likely, target.names):
        try:
            empty = pa.Table.from_batches([], pa.schema([target.field(name) for name in names]))
            empty.filter(expression)
        except (pa.ArrowException, KeyError) as error:
            failure: Exception = error
        else:
            return tuple(names)
    if isinstance(failure, pa.ArrowNotImplementedError):
        why = "it compares or computes with values of types that do not go together; cast one of them"
    else:
        why = f"it names a column that is not there, or a value of another type; the table has {', '.join(target.names[:20])}"
    raise InvalidFilter(f"filter {text} does not fit the table: {why}") from failure


def _compared(compare: Callable[[pc.Expression, pa.Scalar], pc.Expression]) -> Callable[..., pc.Expression]:
    def visit_comparison(self: _ToArrow, term: Any, literal: Any) -> pc.Expression:
        return compare(self._field(term), self._literal(term, literal.value))

    return visit_comparison


class _ToArrow(BoundBooleanExpressionVisitor[pc.Expression]):
    """pyiceberg's bound expression as pyarrow's, nulls as SQL has them."""

    def __init__(self, schema: Document) -> None:
        self._paths = {column.field_id: column.path for column in schemas.columns(schema)}
        self._types = {column.field_id: column.type for column in schemas.columns(schema)}
        self.columns: set[str] = set()

    def _field(self, term: Any) -> pc.Expression:
        path = self._paths[term.ref().field.field_id]
        self.columns.add(path[0])
        field = pc.field(*path) if len(path) == 1 else pc.field(path)
        # Extension types have no comparisons.
        return field.cast(pa.binary(16)) if self._type(term) == pa.uuid() else field

    def _type(self, term: Any) -> pa.DataType:
        return to_arrow_type(self._types[term.ref().field.field_id])

    def _literal(self, term: Any, value: Any) -> pa.Scalar:
        type_ = self._type(term)
        if type_ == pa.uuid():
            return pa.scalar(getattr(value, "bytes", value), pa.binary(16))
        if (
            type(value) is int
            and not pt.is_floating(type_)
            and (whole := {32: pa.int32(), 64: pa.int64()}.get(type_.bit_width)) is not None
        ):
            return array_of([value], whole).view(type_)[0]
        return array_of([value], type_)[0]

    def visit_in(self, term: Any, literals: set[Any]) -> pc.Expression:
        values = [self._literal(term, value) for value in literals]
        found = self._field(term).isin(array_of([v.as_py() for v in values], values[0].type))
        # pyarrow's isin tells 0.0 from -0.0, its == does not.
        zeros = [v for v in values if isinstance(v.as_py(), float) and v.as_py() == 0]
        return found | (self._field(term) == zeros[0]) if zeros else found

    def visit_not_in(self, term: Any, literals: set[Any]) -> pc.Expression:
        return ~self.visit_in(term, literals) & self._field(term).is_valid()

    def visit_is_nan(self, term: Any) -> pc.Expression:
        return pc.is_nan(self._field(term))

    def visit_not_nan(self, term: Any) -> pc.Expression:
        return ~pc.is_nan(self._field(term))

    def visit_is_null(self, term: Any) -> pc.Expression:
        return self._field(term).is_null(nan_is_null=False)

    def visit_not_null(self, term: Any) -> pc.Expression:
        return self._field(term).is_valid()

    visit_equal, visit_not_equal = _compared(operator.eq), _compared(operator.ne)
    visit_greater_than, visit_greater_than_or_equal = _compared(operator.gt), _compared(operator.ge)
    visit_less_than, visit_less_than_or_equal = _compared(operator.lt), _compared(operator.le)

    def visit_starts_with(self, term: Any, literal: Any) -> pc.Expression:
        return pc.starts_with(self._field(term), literal.value)

    def visit_not_starts_with(self, term: Any, literal: Any) -> pc.Expression:
        return ~pc.starts_with(self._field(term), literal.value)

    def visit_true(self) -> pc.Expression:
        return pc.scalar(True)

    def visit_false(self) -> pc.Expression:
        return pc.scalar(False)

    def visit_not(self, child_result: pc.Expression) -> pc.Expression:
        return ~child_result

    def visit_and(self, left_result: pc.Expression, right_result: pc.Expression) -> pc.Expression:
        return left_result & right_result

    def visit_or(self, left_result: pc.Expression, right_result: pc.Expression) -> pc.Expression:
        return left_result | right_result
