"""A filter that judges many files, or many partitions, at once, by columns of keys.

An answer of 'no' is certain, and 'yes' means perhaps; it is 'yes' wherever that of `pruning` is, which judges what remains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, visit

from lakeward.arrow.keys import NANS, NULLS, VALUES, Answers, Column, key_range, prefix_range
from lakeward.iceberg.schemas import type_of

_PERHAPS = np.True_


def may_match(expression: BooleanExpression, columns: Mapping[int, Column], count: int) -> Answers:
    """For each of `count` files, whether it may hold rows that a bound expression keeps. A column that is missing says nothing."""
    return np.broadcast_to(visit(expression, _Judge(columns)), count)


def field_ids(expression: BooleanExpression) -> frozenset[int]:
    """The columns whose bounds say something of a bound expression."""
    judge = _Judge({})
    visit(expression, judge)
    return frozenset(judge.asked)


class _Judge(BoundBooleanExpressionVisitor[Any]):
    def __init__(self, columns: Mapping[int, Column]) -> None:
        self._columns = columns
        self.asked: set[int] = set()

    def _column(self, term: Any) -> Column | None:
        field_id = term.ref().field.field_id
        self.asked.add(field_id)
        return self._columns.get(field_id)

    def _flagged(self, term: Any, flag: int) -> Any:
        found = self._column(term)
        return _PERHAPS if found is None else (found.flags & flag) != 0

    def _between(self, term: Any, value: Any, *, above: bool = True, below: bool = True) -> Any:
        """Whether a column reaches a value from below (its lower bound is not above it), and from above."""
        found = self._column(term)
        if found is None:
            return _PERHAPS
        try:
            low, high = key_range(type_of(term.ref().field.field_type), value)
        except (ValueError, TypeError):
            return _PERHAPS
        return (found.lower <= high if below else _PERHAPS) & (found.upper >= low if above else _PERHAPS)

    def visit_in(self, term: Any, literals: set[Any]) -> Any:
        found = self._column(term)
        if found is None:
            return _PERHAPS
        type_ = type_of(term.ref().field.field_type)
        try:
            keys = np.unique(np.array([key for value in literals for key in key_range(type_, value)], np.int64))
        except (ValueError, TypeError):
            return _PERHAPS
        return np.searchsorted(keys, found.lower, "left") < np.searchsorted(keys, found.upper, "right")

    def visit_not_in(self, term: Any, literals: set[Any]) -> Any:
        return _PERHAPS

    def visit_is_nan(self, term: Any) -> Any:
        return self._flagged(term, NANS)

    def visit_not_nan(self, term: Any) -> Any:
        return _PERHAPS

    def visit_is_null(self, term: Any) -> Any:
        return self._flagged(term, NULLS)

    def visit_not_null(self, term: Any) -> Any:
        return self._flagged(term, VALUES)

    def visit_equal(self, term: Any, literal: Any) -> Any:
        return self._between(term, literal.value)

    def visit_not_equal(self, term: Any, literal: Any) -> Any:
        return _PERHAPS

    def visit_greater_than_or_equal(self, term: Any, literal: Any) -> Any:
        return self._between(term, literal.value, below=False)

    def visit_greater_than(self, term: Any, literal: Any) -> Any:
        return self._between(term, literal.value, below=False)

    def visit_less_than(self, term: Any, literal: Any) -> Any:
        return self._between(term, literal.value, above=False)

    def visit_less_than_or_equal(self, term: Any, literal: Any) -> Any:
        return self._between(term, literal.value, above=False)

    def visit_starts_with(self, term: Any, literal: Any) -> Any:
        found = self._column(term)
        if found is None:
            return _PERHAPS
        low, high = prefix_range(literal.value)
        return (found.lower <= high) & (found.upper >= low)

    def visit_not_starts_with(self, term: Any, literal: Any) -> Any:
        return _PERHAPS

    def visit_true(self) -> Any:
        return _PERHAPS

    def visit_false(self) -> Any:
        return np.False_

    def visit_not(self, child_result: Any) -> Any:
        return _PERHAPS  # expressions come without negations

    def visit_and(self, left_result: Any, right_result: Any) -> Any:
        return left_result & right_result

    def visit_or(self, left_result: Any, right_result: Any) -> Any:
        return left_result | right_result
