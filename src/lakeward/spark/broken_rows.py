"""Rows of a DataFrame that do not fit the table, taken apart from the others before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakeward import lossless_json
from lakeward.arrow.broken_rows import BrokenRow, BrokenRows, record_of
from lakeward.spark.rules import RowRule
from lakeward.spark.values import MARKS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_MARKED = f"`{MARKS[0]}` IS NOT NULL"


@contextmanager
def good_rows(rows: DataFrame, rules: Sequence[RowRule], broken: BrokenRows) -> Iterator[DataFrame]:
    """The rows that break no rule and have no marks, to be written within; the others go to `broken`.

    The DataFrame is evaluated once for that, unless there is no rule that it may break. Where rows do, it is cached meanwhile,
    so that a row is in one place or the other, whatever the DataFrame gives the next time.

    A cache of the caller's is relied on where it uses disks: partitions that memory alone held are computed again once they
    are evicted. What no cache helps against is the loss of an executor with its disk.

    Args:
        rows: columns as the table has them, and MARKS, if any.

    Raises:
        FileRefused: too many rows do not fit.
    """
    marked = MARKS[0] in rows.columns
    conditions = [*([_MARKED] if marked else []), *(rule.broken for rule in rules)]
    is_bad = " OR ".join(f"({condition})" for condition in conditions)
    if not conditions or rows.where(is_bad).isEmpty():
        yield rows.drop(*MARKS)
        return
    is_callers = rows.storageLevel.useDisk
    # The filter makes it another plan than one that the caller has in memory.
    cached = rows if is_callers else rows.where("true").persist()
    try:
        for row in _collected(cached.where(is_bad).limit(broken.limit + 1), rules, marked):
            broken.add(row)
        yield cached.where(f"NOT ({is_bad})").drop(*MARKS)
    finally:
        if not is_callers:
            cached.unpersist()


def _collected(rows: DataFrame, rules: Sequence[RowRule], marked: bool) -> Iterator[BrokenRow]:
    marks = [f"WHEN {_MARKED} THEN -1"] if marked else []
    cases = " ".join([*marks, *(f"WHEN {rule.broken} THEN {number}" for number, rule in enumerate(rules))])
    table = rows.selectExpr("*", f"CASE {cases} END AS `{'rule' * (len(rows.columns) + 1)}`").toArrow()
    for number, batch in _one_by_one(table):
        record = record_of(batch)
        if number < 0:
            reason, message, given = (record[name] for name in MARKS)
            yield BrokenRow(lossless_json.loads(given), reason, message)
        else:
            given = {name: record[name] for name in record if name not in MARKS}
            yield BrokenRow(given, rules[number].reason, rules[number].message)


def _one_by_one(table: pa.Table) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Each row, and the number in its last column."""
    numbers = iter(table.column(table.num_columns - 1).to_pylist())
    for batch in table.select(range(table.num_columns - 1)).to_batches():
        for place in range(batch.num_rows):
            yield next(numbers), batch.slice(place, 1)
