"""Conditions of which a caller gives some: a value that is none asks for nothing, and leaves no trace in the query."""

from __future__ import annotations

from enum import Enum
from typing import Any

import sqlalchemy as sa


def equal(column: sa.Column[Any], value: Any) -> sa.ColumnElement[bool]:
    """An Enum stands for its value."""
    return sa.true() if value is None else column == (value.value if isinstance(value, Enum) else value)


def at_least(column: sa.Column[Any], value: Any) -> sa.ColumnElement[bool]:
    return sa.true() if value is None else column >= value


def below(column: sa.Column[Any], value: Any) -> sa.ColumnElement[bool]:
    return sa.true() if value is None else column < value
