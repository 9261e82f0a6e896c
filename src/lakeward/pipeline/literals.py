"""Numbers in filters, exactly: a literal that a column's type cannot hold is never rounded in silence.

`i > 1.5` on whole numbers is `i >= 2`, `i = 1.5` is true of none, and `i < 99999999999` of every int that there is.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from typing import Any, NamedTuple

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotIn,
    NotNull,
    UnboundPredicate,
)
from pyiceberg.expressions.literals import (
    DecimalLiteral,
    DoubleLiteral,
    FloatLiteral,
    Literal,
    LongLiteral,
    StringLiteral,
)
from pyiceberg.expressions.visitors import BooleanExpressionVisitor, visit
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    TimestampType,
    TimestamptzType,
)

_EXACT = Context(prec=200)
_LARGEST_FLOAT = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def _made(kind: Any, *arguments: Any) -> BooleanExpression:
    """A predicate; its constructors' types say less than they take."""
    predicate: BooleanExpression = kind(*arguments)
    return predicate


class _Near(NamedTuple):
    """The largest value of a type that is not above a number, and the least that is not below it; none where none is."""

    floor: Any
    ceiling: Any

    @property
    def is_exact(self) -> bool:
        return self.floor is not None and self.floor == self.ceiling


def exact(expression: BooleanExpression, schema: Schema) -> BooleanExpression:
    """An equal expression whose numeric literals are all of their columns' types. It is without negations (`rewrite_not`)."""
    return visit(expression, _Exact(schema))


class _Exact(BooleanExpressionVisitor[BooleanExpression]):
    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def visit_true(self) -> BooleanExpression:
        return AlwaysTrue()

    def visit_false(self) -> BooleanExpression:
        return AlwaysFalse()

    def visit_not(self, child_result: BooleanExpression) -> BooleanExpression:
        return ~child_result

    def visit_and(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return left_result & right_result

    def visit_or(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return left_result | right_result

    def visit_bound_predicate(self, predicate: Any) -> BooleanExpression:
        return predicate  # type: ignore[no-any-return]

    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> BooleanExpression:
        name = getattr(predicate.term, "name", None)
        try:
            type_ = self._schema.find_field(name).field_type if isinstance(name, str) else None
        except ValueError:  # binding says so
            return predicate
        if isinstance(type_, (TimestampType, TimestamptzType)):
            return _at_midnight(predicate, type_)
        literal = _literals_of(type_)
        if literal is None:
            return predicate
        if isinstance(predicate, (In, NotIn)):
            return _set(predicate, type_, literal)
        return _comparison(predicate, type_, literal)


def _literals_of(type_: IcebergType | None) -> Callable[[Any], Literal[Any]] | None:
    """What makes a literal of a numeric type; none for the other types."""
    if isinstance(type_, (IntegerType, LongType)):
        return LongLiteral
    if isinstance(type_, FloatType):
        return FloatLiteral
    if isinstance(type_, DoubleType):
        return DoubleLiteral
    return DecimalLiteral if isinstance(type_, DecimalType) else None


def _comparison(predicate: Any, type_: Any, literal: Callable[[Any], Literal[Any]]) -> BooleanExpression:
    number = _number(getattr(getattr(predicate, "literal", None), "value", None))
    if number is None:
        return predicate  # type: ignore[no-any-return]
    near, term = _near(number, type_), predicate.term
    if near.is_exact:
        return _made(type(predicate), term, literal(near.floor))
    if isinstance(predicate, EqualTo):
        return AlwaysFalse()
    if isinstance(predicate, NotEqualTo):
        return _made(NotNull, term)
    if isinstance(predicate, (LessThan, LessThanOrEqual)):
        return AlwaysFalse() if near.floor is None else _made(LessThanOrEqual, term, literal(near.floor))
    if isinstance(predicate, (GreaterThan, GreaterThanOrEqual)):
        return AlwaysFalse() if near.ceiling is None else _made(GreaterThanOrEqual, term, literal(near.ceiling))
    return predicate  # type: ignore[no-any-return]


def _set(predicate: In | NotIn, type_: Any, literal: Callable[[Any], Literal[Any]]) -> BooleanExpression:
    numbers = [_number(each.value) for each in predicate.literals]
    if any(number is None for number in numbers):
        return predicate
    near = [_near(number, type_) for number in numbers if number is not None]
    held = {literal(each.floor) for each in near if each.is_exact}
    if held:
        return _made(type(predicate), predicate.term, held)
    return AlwaysFalse() if isinstance(predicate, In) else _made(NotNull, predicate.term)


def _number(value: Any) -> Decimal | None:
    """A literal's number; none for what is none, NaN included."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        return None
    try:
        number = Decimal(value.strip() if isinstance(value, str) else value)
    except InvalidOperation:
        return None
    return None if number.is_nan() else number


def _near(number: Decimal, type_: Any) -> _Near:
    if isinstance(type_, (FloatType, DoubleType)):
        return _near_float(number, _LARGEST_FLOAT if isinstance(type_, FloatType) else sys.float_info.max, type_)
    if isinstance(type_, DecimalType):
        step, most = Decimal(1).scaleb(-type_.scale), Decimal(10**type_.precision - 1).scaleb(-type_.scale, _EXACT)
        return _near_step(number, step, -most, most, lambda value: value)
    bits = 31 if isinstance(type_, IntegerType) else 63
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
    if isinstance(type_, FloatType) and number.is_finite():
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    return _Near(value, value)


def _at_midnight(predicate: Any, type_: IcebergType) -> BooleanExpression:
    """A date alone is its first moment (UTC where the column has a zone)."""
    time = "T00:00:00+00:00" if isinstance(type_, TimestamptzType) else "T00:00:00"

    def full(literal: Literal[Any]) -> Literal[Any]:
        is_date = isinstance(literal, StringLiteral) and _DATE.fullmatch(literal.value)
        return StringLiteral(literal.value + time) if is_date else literal

    if isinstance(predicate, (In, NotIn)):
        return _made(type(predicate), predicate.term, {full(each) for each in predicate.literals})
    if isinstance(predicate, (EqualTo, NotEqualTo, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual)):
        return _made(type(predicate), predicate.term, full(predicate.literal))
    return predicate  # type: ignore[no-any-return]
