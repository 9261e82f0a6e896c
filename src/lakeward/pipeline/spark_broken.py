"""Rows of a DataFrame with a null in a required column, taken apart from the others before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING

from lakeward.model import exact
from lakeward.pipeline.broken_rows import BrokenRow, BrokenRows, record_of
from lakeward.pipeline.conform import null_in_required
from lakeward.pipeline.spark_values import MARKS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

_MARKED = f"`{MARKS[0]}` IS NOT NULL"


@contextmanager
def good_rows(rows: DataFrame, wanted: StructType, broken: BrokenRows) -> Iterator[DataFrame]:
    """The rows without nulls in required columns, to be written within; the others go to `broken`.

    The DataFrame is evaluated once for that, unless it says itself that it has no such nulls. Where it has some, it is cached
    meanwhile, so that a row is in one place or the other, whatever the DataFrame gives the next time.

    A cache of the caller's is relied on where it uses disks: partitions that memory alone held are computed again once they
    are evicted. What no cache helps against is the loss of an executor with its disk.

    Args:
        rows: columns as the table has them.
        wanted: the table's schema as Spark sees it.

    Raises:
        FileRefused: too many rows have such nulls.
    """
    count = len(wanted.fields)
    own = type(wanted)(rows.schema.fields[:count])
    rules = list(nulls_in_required(own, wanted))
    marked = len(rows.columns) > count
    conditions = [*([_MARKED] if marked else []), *(condition for _, condition in rules)]
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


def nulls_in_required(have: StructType, wanted: StructType) -> Iterator[tuple[str, str]]:
    """(path, SQL that is true for a row with a null there, else false) of each required column that may hold nulls, and of
    what is required inside structs, lists and maps."""
    yield from _of_fields(have, wanted, "", "", 0)


def _of_fields(have: StructType, wanted: StructType, source: str, path: str, depth: int) -> Iterator[tuple[str, str]]:
    for given, field in zip(have.fields, wanted.fields, strict=True):
        sql = f"{source}`{given.name.replace('`', '``')}`"
        may_be_null = given.nullable and not field.nullable
        yield from _of_value(given.dataType, field.dataType, may_be_null, sql, path + field.name, depth)


def _of_value(
    have: DataType, wanted: DataType, may_be_null: bool, sql: str, path: str, depth: int
) -> Iterator[tuple[str, str]]:
    """Rules of one value, and of what is in it if there is one. `depth`: of functions, whose parameters have names of their own."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if may_be_null:
        yield path, f"{sql} IS NULL"
    inner: Iterator[tuple[str, str]] = iter(())
    if isinstance(have, StructType) and isinstance(wanted, StructType):
        inner = _of_fields(have, wanted, f"{sql}.", f"{path}.", depth)
    elif isinstance(have, ArrayType) and isinstance(wanted, ArrayType):
        may = have.containsNull and not wanted.containsNull
        inner = _of_each(have.elementType, wanted.elementType, may, sql, f"{path}.element", depth)
    elif isinstance(have, MapType) and isinstance(wanted, MapType):
        may = have.valueContainsNull and not wanted.valueContainsNull
        inner = chain(
            _of_each(have.keyType, wanted.keyType, False, f"map_keys({sql})", f"{path}.key", depth),
            _of_each(have.valueType, wanted.valueType, may, f"map_values({sql})", f"{path}.value", depth),
        )
    for where, condition in inner:
        yield where, f"({sql} IS NOT NULL AND {condition})"


def _of_each(
    have: DataType, wanted: DataType, may_be_null: bool, sql: str, path: str, depth: int
) -> Iterator[tuple[str, str]]:
    one = f"x{depth}"
    for where, condition in _of_value(have, wanted, may_be_null, one, path, depth + 1):
        yield where, f"exists({sql}, {one} -> {condition})"


def _collected(rows: DataFrame, rules: list[tuple[str, str]], marked: bool) -> Iterator[BrokenRow]:
    marks = [f"WHEN {_MARKED} THEN -1"] if marked else []
    cases = " ".join([*marks, *(f"WHEN {condition} THEN {number}" for number, (_, condition) in enumerate(rules))])
    table = rows.selectExpr("*", f"CASE {cases} END AS `{'rule' * (len(rows.columns) + 1)}`").toArrow()
    for number, batch in _one_by_one(table):
        record = record_of(batch)
        if number < 0:
            reason, message, given = (record[name] for name in MARKS)
            yield BrokenRow(exact.loads(given), reason, message)
        else:
            error = null_in_required(rules[number][0])
            yield BrokenRow({name: record[name] for name in record if name not in MARKS}, error.reason, str(error))


def _one_by_one(table: pa.Table) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Each row, and the number in its last column."""
    numbers = iter(table.column(table.num_columns - 1).to_pylist())
    for batch in table.select(range(table.num_columns - 1)).to_batches():
        for place in range(batch.num_rows):
            yield next(numbers), batch.slice(place, 1)
