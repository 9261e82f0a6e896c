"""Rows of a DataFrame with a null in a required column, taken apart from the others before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakeward.errors import FileRefused
from lakeward.pipeline.broken_rows import BrokenRows, row_of
from lakeward.pipeline.conform import null_in_required

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@contextmanager
def good_rows(rows: DataFrame, wanted: StructType, broken: BrokenRows) -> Iterator[DataFrame]:
    """The rows without nulls in required columns, to be written within; the others go to `broken`.

    The DataFrame is evaluated once for that, unless it says itself that it has no such nulls. Where it has some, it is cached
    meanwhile, so that a row is in one place or the other, whatever the DataFrame gives the next time.

    Args:
        rows: columns as the table has them.
        wanted: the table's schema as Spark sees it.

    Raises:
        FileRefused: too many rows have such nulls.
    """
    rules = list(nulls_in_required(rows.schema, wanted))
    is_bad = " OR ".join(f"({condition})" for _, condition in rules)
    if not rules or rows.where(is_bad).isEmpty():
        yield rows
        return
    is_callers = rows.storageLevel.useMemory or rows.storageLevel.useDisk
    cached = rows if is_callers else rows.persist()
    try:
        for found in _collected(cached.where(is_bad).limit(broken.limit + 1), rules):
            broken.add(row_of(*found))
        yield cached.where(f"NOT ({is_bad})")
    finally:
        if not is_callers:
            cached.unpersist()


def nulls_in_required(have: StructType, wanted: StructType) -> Iterator[tuple[str, str]]:
    """(path, SQL that is true for a row with a null there) of each required column that may hold nulls, and of required
    fields of structs. Elements of lists and maps are left to the writer, which refuses them."""
    yield from _rules(have, wanted, "", "", "")


def _rules(have: StructType, wanted: StructType, source: str, parent: str, path: str) -> Iterator[tuple[str, str]]:
    from pyspark.sql.types import StructType

    for given, field in zip(have.fields, wanted.fields, strict=True):
        sql = f"{source}`{given.name.replace('`', '``')}`"
        if given.nullable and not field.nullable:
            yield path + field.name, f"{parent}{sql} IS NULL"
        if isinstance(given.dataType, StructType) and isinstance(field.dataType, StructType):
            yield from _rules(
                given.dataType, field.dataType, f"{sql}.", f"{parent}{sql} IS NOT NULL AND ", f"{path}{field.name}."
            )


def _collected(rows: DataFrame, rules: list[tuple[str, str]]) -> Iterator[tuple[pa.RecordBatch, FileRefused]]:
    cases = " ".join(f"WHEN {condition} THEN {number}" for number, (_, condition) in enumerate(rules))
    table = rows.selectExpr("*", f"CASE {cases} END AS `{'rule' * (len(rows.columns) + 1)}`").toArrow()
    numbers = iter(table.column(table.num_columns - 1).to_pylist())
    for batch in table.select(range(table.num_columns - 1)).to_batches():
        for place in range(batch.num_rows):
            yield batch.slice(place, 1), null_in_required(rules[next(numbers)][0], 1)
