"""Rows that break a table's schema, taken apart from those that fit.

Rows are converted many at a time. Only where such a conversion is refused are they halved, until each row that does not fit
stands alone: rows that fit cost nothing, and k bad ones among n about k log n conversions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.types as pt

from lakeward.errors import FileRefused

R = TypeVar("R", list[Any], pa.RecordBatch, range)
T = TypeVar("T")

# Rules that one row can break. All others, such as a file that cannot be read, are faults of the input as a whole.
REASONS = frozenset({"wrong_type", "null_in_required", "unknown_column", "missing_column"})


class BrokenRow(NamedTuple):
    """A row as it was given, and the rule that it breaks. `origin` says where it came from, such as a file and its line."""

    record: Any
    reason: str
    message: str
    origin: Mapping[str, Any] = {}


class BrokenRows:
    """The rows of one write that do not fit, in the order in which they were found; at most `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.rows: list[BrokenRow] = []

    def add(self, row: BrokenRow) -> None:
        """Raises FileRefused: with this one there are too many; its reason is that of the first."""
        self.rows.append(row)
        if len(self.rows) > self.limit:
            self.refuse()

    def refuse(self) -> None:
        """Raises FileRefused."""
        first, by_reason = self.rows[0], Counter(row.reason for row in self.rows)
        counted = ", ".join(f"{count:,} {reason}" for reason, count in by_reason.most_common())
        raise FileRefused(
            first.reason,
            f"more than {self.limit:,} rows do not fit ({counted} until then), so that none was taken and none is a dead "
            f"letter; the first: {first.message}; repair the source, or raise the table's lakeward.invalid-rows.max",
        )

    def new(self) -> BrokenRows:
        """An empty one with the same limit."""
        return BrokenRows(self.limit)


def sift(
    rows: R,
    convert: Callable[[R], T],
    broken: BrokenRows | None,
    as_given: Callable[[R, FileRefused], BrokenRow],
) -> Iterator[T]:
    """Convert rows, all at once if all fit. Those that do not go to `broken`, in their order.

    Args:
        convert: refuses rows by FileRefused. What it makes of some rows must not depend on the others.
        broken: none refuses all of them for one that does not fit.
        as_given: a row that does not fit, alone.

    Raises:
        FileRefused: a fault of no single row, or too many rows that do not fit.
    """
    waiting = [rows]
    while waiting:
        some = waiting.pop()
        try:
            made = convert(some)
        except FileRefused as error:
            if broken is None or error.reason not in REASONS or not len(some):
                raise
            if len(some) == 1:
                broken.add(as_given(some, error))
            else:
                middle = len(some) // 2
                waiting += (some[middle:], some[:middle])  # the first half is looked at first
            continue
        yield made


def row_of(batch: pa.RecordBatch, error: FileRefused) -> BrokenRow:
    """The first row of a batch."""
    record = {name: value_of(column[0]) for name, column in zip(batch.schema.names, batch.columns, strict=True)}
    return BrokenRow(record, error.reason, str(error))


def value_of(value: Any) -> Any:
    """A value of Arrow or NumPy as Python has it, other ones as they are. What Python has no value for, such as years past
    9999, nanoseconds, or bytes that are no text, comes as text or bytes."""
    if isinstance(value, pa.Scalar):
        return _of_arrow(value)
    if hasattr(value, "dtype") and hasattr(value, "item"):
        return str(value) if value.dtype.kind in "mM" else value.item()
    return value


def _of_arrow(scalar: pa.Scalar) -> Any:
    if not (pt.is_timestamp(scalar.type) and scalar.type.unit == "ns"):
        try:
            return scalar.as_py()
        except (ValueError, OverflowError, pa.ArrowException):
            pass
    if hasattr(scalar, "as_buffer") and scalar.is_valid:
        return scalar.as_buffer().to_pybytes()
    try:
        return scalar.cast(pa.string()).as_py()
    except (ValueError, pa.ArrowException):
        return repr(scalar)
