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
REASONS = frozenset({"wrong_type", "null_in_required", "unknown_column", "missing_column", "wrong_partition"})


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
    as_given: Callable[[R, FileRefused, int], BrokenRow],
    first: int = 1,
) -> Iterator[T]:
    """Convert rows, all at once if all fit. Those that do not go to `broken`, in their order.

    Args:
        convert: refuses rows by FileRefused. What it makes of some rows must not depend on the others.
        broken: none refuses all of them for one that does not fit.
        as_given: a row that does not fit, alone, and its number.
        first: the number of the first row.

    Raises:
        FileRefused: a fault of no single row; the first row that does not fit, by its number; or too many of them.
    """
    waiting = [(rows, first)]
    while waiting:
        some, number = waiting.pop()
        try:
            made = convert(some)
        except FileRefused as error:
            if error.reason not in REASONS or not len(some):
                raise
            if len(some) == 1:
                row = as_given(some, error, number)
                if broken is None:
                    raise FileRefused(row.reason, row.message) from error
                broken.add(row)
            else:
                middle = len(some) // 2
                # The first half is looked at first.
                waiting += ((some[middle:], number + middle), (some[:middle], number))
            continue
        yield made


def row_of(batch: pa.RecordBatch, error: FileRefused, number: int) -> BrokenRow:
    """The first row of a batch."""
    return numbered(record_of(batch), error, number)


def record_of(batch: pa.RecordBatch) -> dict[str, Any]:
    """The first row of a batch, as Python has it."""
    return {name: value_of(column[0]) for name, column in zip(batch.schema.names, batch.columns, strict=True)}


def numbered(record: Any, error: FileRefused, number: int, file: str | None = None, unit: str = "row") -> BrokenRow:
    """A row of what was handed over, or of a file, by its number; the first is 1."""
    if file is None:
        return BrokenRow(record, error.reason, f"row {number:,}: {error}", {"row": number})
    return BrokenRow(record, error.reason, f"{file}, {unit} {number}: {error}", {"file": file, unit: number})


def value_of(value: Any) -> Any:
    """A value of Arrow or NumPy as Python has it, other ones as they are. What Python has no value for, such as years past
    9999, nanoseconds, or bytes that are no text, comes as text or bytes."""
    if isinstance(value, pa.Scalar):
        return _of_arrow(value)
    if hasattr(value, "dtype") and hasattr(value, "item"):
        return str(value) if value.dtype.kind in "mM" else value.item()
    return value


def _of_arrow(scalar: pa.Scalar) -> Any:
    if isinstance(scalar, pa.StructScalar) and scalar.is_valid:
        return {field.name: _of_arrow(scalar[number]) for number, field in enumerate(scalar.type)}
    if isinstance(scalar, pa.MapScalar) and scalar.is_valid:
        return [tuple(_of_arrow(each).values()) for each in scalar.values]
    if isinstance(scalar, pa.ListScalar | pa.LargeListScalar | pa.FixedSizeListScalar) and scalar.is_valid:
        return [_of_arrow(each) for each in scalar.values]
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
