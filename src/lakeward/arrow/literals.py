"""Literals in filters, exactly: each becomes a value of its column's type, by the rule of `accepted`, or is refused.

A number that a type cannot hold is never rounded in silence: `i > 1.5` on whole numbers is `i >= 2`, `i = 1.5` is true of none,
and `i < 99999999999` of every int that there is.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from typing import Any, NamedTuple

from pyiceberg import expressions, types
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions import literals as values
from pyiceberg.expressions.visitors import BooleanExpressionVisitor, visit
from pyiceberg.schema import Schema

from lakeward.arrow import accepted
from lakeward.errors import ColumnNotFound, FileRefused, InvalidFilter
from lakeward.iceberg.schemas import type_of

_EXACT = Context(prec=200)
_LARGEST_FLOAT = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]


def predicate_of(kind: Any, *arguments: Any) -> BooleanExpression:
    """A predicate; its constructors' types say less than they take."""
    predicate: BooleanExpression = kind(*arguments)
    return predicate


class _Near(NamedTuple):
    """The largest value of a type that is not above a number, and the least that is not below it; None where none is."""

    floor: Any
    ceiling: Any

    @property
    def is_exact(self) -> bool:
        return self.floor is not None and self.floor == self.ceiling


def exact(expression: BooleanExpression, schema: Schema) -> BooleanExpression:
    """An equal expression whose literals are all of their columns' types. It is without negations (`rewrite_not`).

    Raises:
        ColumnNotFound: a column is not in the schema.
        InvalidFilter: a literal is none of its column's type.
    """
    return visit(expression, _Exact(schema))


class _Exact(BooleanExpressionVisitor[BooleanExpression]):
    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def visit_true(self) -> BooleanExpression:
        return expressions.AlwaysTrue()

    def visit_false(self) -> BooleanExpression:
        return expressions.AlwaysFalse()

    def visit_not(self, child_result: BooleanExpression) -> BooleanExpression:
        return ~child_result

    def visit_and(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return left_result & right_result

    def visit_or(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return left_result | right_result

    def visit_bound_predicate(self, predicate: Any) -> BooleanExpression:
        return predicate  # type: ignore[no-any-return]

    def visit_unbound_predicate(self, predicate: expressions.UnboundPredicate) -> BooleanExpression:
        name = str(getattr(predicate.term, "name", predicate.term))
        try:
            type_ = self._schema.find_field(name).field_type
        except ValueError as error:
            names = ", ".join(field.name for field in self._schema.fields[:20])
            raise ColumnNotFound(f"the filter names column {name!r}; the table has {names}") from error
        if isinstance(predicate, expressions.UnaryPredicate):
            return predicate
        if not isinstance(type_, types.PrimitiveType):
            raise InvalidFilter(
                f"the filter compares column {name!r} of type {type_}; name a field in it, or use 'is null'"
            )
        if isinstance(predicate, (expressions.StartsWith, expressions.NotStartsWith)):
            if isinstance(type_, types.StringType):
                return predicate
            raise InvalidFilter(
                f"the filter takes column {name!r} for a text, by 'like'; its type is {type_}: compare it"
            )
        literal = _literals_of(type_)
        if literal is not None and not any(isinstance(each.value, bool) for each in _literals(predicate)):
            if isinstance(predicate, (expressions.In, expressions.NotIn)):
                return _set(predicate, type_, literal, name)
            return _comparison(predicate, type_, literal, name)
        made = {_of_type(each, type_, name) for each in _literals(predicate)}
        return predicate_of(
            type(predicate),
            predicate.term,
            made if isinstance(predicate, (expressions.In, expressions.NotIn)) else made.pop(),
        )


def _literals(predicate: Any) -> list[values.Literal[Any]]:
    return (
        list(predicate.literals) if isinstance(predicate, (expressions.In, expressions.NotIn)) else [predicate.literal]
    )


def _wrong(literal: Any, type_: Any, name: str) -> InvalidFilter:
    shown = getattr(literal, "value", literal)
    return InvalidFilter(
        f"the filter compares column {name!r} of type {type_} with {str(shown)[:80]!r}; give a value of its type"
    )


def _of_type(literal: values.Literal[Any], type_: Any, name: str) -> values.Literal[Any]:
    """A literal as one of the type, which is no number's."""
    try:
        if isinstance(literal, values.StringLiteral) and not isinstance(type_, types.StringType):
            text = literal.value
            if isinstance(type_, (types.TimestamptzType, types.TimestamptzNanoType)) and accepted.DATE_ONLY.fullmatch(
                text
            ):
                text += "T00:00Z"  # a date alone is its first moment, in UTC
            (raw,) = accepted.raw_values([text], type_of(type_), written=True)
            return _LITERALS[type(type_)](raw)
        if isinstance(literal, (values.LongLiteral, values.DecimalLiteral)):
            raise _wrong(literal, type_, name)  # PyIceberg would take days or microseconds since 1970
        made: values.Literal[Any] = literal.to(type_)
        return made
    except (FileRefused, ValueError, TypeError, ArithmeticError) as error:
        raise _wrong(literal, type_, name) from error


class _NanosLiteral(values.TimestampLiteral):
    """Nanoseconds, for which PyIceberg has no literal."""

    def to(self, type_var: types.IcebergType) -> values.Literal[int]:
        return self


_LITERALS: dict[type, Callable[[Any], values.Literal[Any]]] = {
    types.BooleanType: values.BooleanLiteral, types.DateType: values.DateLiteral, types.TimeType: values.TimeLiteral, types.TimestampType: values.TimestampLiteral,
    types.TimestamptzType: values.TimestampLiteral, types.TimestampNanoType: _NanosLiteral, types.TimestamptzNanoType: _NanosLiteral,
    types.UUIDType: values.UUIDLiteral, types.BinaryType: values.BinaryLiteral, types.FixedType: values.FixedLiteral,
}  # fmt: skip


def _literals_of(type_: types.IcebergType | None) -> Callable[[Any], values.Literal[Any]] | None:
    """What makes a literal of a numeric type; None for the other types."""
    if isinstance(type_, (types.IntegerType, types.LongType)):
        return values.LongLiteral
    if isinstance(type_, types.FloatType):
        return values.FloatLiteral
    if isinstance(type_, types.DoubleType):
        return values.DoubleLiteral
    return values.DecimalLiteral if isinstance(type_, types.DecimalType) else None


def _comparison(
    predicate: Any, type_: Any, literal: Callable[[Any], values.Literal[Any]], name: str
) -> BooleanExpression:
    number = _number(predicate.literal.value)
    if number is None:
        raise _wrong(predicate.literal, type_, name)
    if number.is_nan():  # which compares with nothing; `is nan` finds it
        return (
            predicate_of(expressions.NotNull, predicate.term)
            if isinstance(predicate, expressions.NotEqualTo)
            else expressions.AlwaysFalse()
        )
    near, term = _near(number, type_), predicate.term
    if near.is_exact:
        return predicate_of(type(predicate), term, literal(near.floor))
    if isinstance(predicate, expressions.EqualTo):
        return expressions.AlwaysFalse()
    if isinstance(predicate, expressions.NotEqualTo):
        return predicate_of(expressions.NotNull, term)
    if isinstance(predicate, (expressions.LessThan, expressions.LessThanOrEqual)):
        return (
            expressions.AlwaysFalse()
            if near.floor is None
            else predicate_of(expressions.LessThanOrEqual, term, literal(near.floor))
        )
    if isinstance(predicate, (expressions.GreaterThan, expressions.GreaterThanOrEqual)):
        return (
            expressions.AlwaysFalse()
            if near.ceiling is None
            else predicate_of(expressions.GreaterThanOrEqual, term, literal(near.ceiling))
        )
    return predicate  # type: ignore[no-any-return]


def _set(
    predicate: expressions.In | expressions.NotIn, type_: Any, literal: Callable[[Any], values.Literal[Any]], name: str
) -> BooleanExpression:
    near = []
    for each in predicate.literals:
        number = _number(each.value)
        if number is None:
            raise _wrong(each, type_, name)
        if not number.is_nan():
            near.append(_near(number, type_))
    held = {literal(each.floor) for each in near if each.is_exact}
    if held:
        return predicate_of(type(predicate), predicate.term, held)
    return (
        expressions.AlwaysFalse()
        if isinstance(predicate, expressions.In)
        else predicate_of(expressions.NotNull, predicate.term)
    )


def _number(value: Any) -> Decimal | None:
    """A literal's number; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        return None
    try:
        return Decimal(value.strip() if isinstance(value, str) else value)
    except InvalidOperation:
        return None


def _near(number: Decimal, type_: Any) -> _Near:
    if isinstance(type_, (types.FloatType, types.DoubleType)):
        return _near_float(number, _LARGEST_FLOAT if isinstance(type_, types.FloatType) else sys.float_info.max, type_)
    if isinstance(type_, types.DecimalType):
        step, most = Decimal(1).scaleb(-type_.scale), Decimal(10**type_.precision - 1).scaleb(-type_.scale, _EXACT)
        return _near_step(number, step, -most, most, lambda value: value)
    bits = 31 if isinstance(type_, types.IntegerType) else 63
    return _near_step(number, Decimal(1), Decimal(-(2**bits)), Decimal(2**bits - 1), int)


def _near_step(number: Decimal, step: Decimal, least: Decimal, most: Decimal, make: Callable[[Decimal], Any]) -> _Near:
    """On a scale of equal steps."""
    if number > most:
        return _Near(make(most.quantize(step, context=_EXACT)), None)
    if number < least:
        return _Near(None, make(least.quantize(step, context=_EXACT)))
    return _Near(make(number.quantize(step, ROUND_FLOOR, _EXACT)), make(number.quantize(step, ROUND_CEILING, _EXACT)))


def _near_float(number: Decimal, most: float, type_: Any) -> _Near:
    """Within a type's range the nearest value counts as the number itself, as every language reads '0.1'."""
    value = float(number)
    if number.is_finite() and abs(value) > most:
        return _Near(most, float("inf")) if number > 0 else _Near(float("-inf"), -most)
    if isinstance(type_, types.FloatType) and number.is_finite():
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    return _Near(value, value)
