"""Values of a DataFrame whose types are not the table's, taken by the rule that all ways in share (`accepted`).

What Spark casts without a loss, it casts. Other columns go through Arrow, in Spark's Python workers, which need Lakeward then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward import lossless_json
from lakeward.arrow.broken_rows import BrokenRow, BrokenRows, record_of, sift
from lakeward.arrow.casts import by_name, cast_plan, check_strays
from lakeward.errors import FileRefused
from lakeward.spark.columns import arrow_schema_of, fits, quoted
from lakeward.spark.executors import check_lakeward

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

# Columns of a row that does not fit: the rule it breaks, why, and the row as it was given (`model.exact`); else null.
MARKS = ("lakeward broken reason", "lakeward broken message", "lakeward broken row")

Batches = Iterable[pa.RecordBatch]


def judged(rows: DataFrame, wanted: StructType, table: str, broken: BrokenRows | None) -> DataFrame:
    """The DataFrame with columns of the table's types, where they were of others; itself where nothing is to be judged.

    With `broken`, rows that do not fit, and those that have a value in a column which the table lacks, are there without
    values, and the columns of MARKS are added; without it, such a row fails the job by FileRefused.

    Raises:
        FileRefused: wrong_type, for a column none of whose values could fit.
        ExecutorsUnfit: there are columns of other types, and the executors of a cluster lack Lakeward.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    names = {field.name.lower(): field for field in wanted.fields}
    given = {field.name: field for field in rows.schema.fields}
    into = {name: names[name.lower()] for name in given if name.lower() in names}
    strays = [name for name in given if name not in into] if broken is not None else []
    others = [name for name in into if not fits(given[name].dataType, into[name].dataType, table, name)]
    if not (others or strays) or len(given) < len(rows.columns):
        return rows
    check_lakeward(rows.sparkSession, f"to bring columns of other types into {table}")
    kept = [
        StructField(name, into[name].dataType if name in others else field.dataType)
        for name, field in given.items()
        if name not in strays
    ]
    marks = [StructField(name, StringType()) for name in MARKS] if broken is not None else []
    targets = {field.name: field for field in arrow_schema_of(StructType(kept)) if field.name in others}
    for field in arrow_schema_of(rows.schema):
        if field.name in targets:
            cast_plan(field, targets[field.name], by_name, field.name)
    limit = None if broken is None else broken.limit
    convert = _converter([field.name for field in kept], targets, strays, limit)
    return rows.select(*map(quoted, given)).mapInArrow(convert, StructType([*kept, *marks]))


def _converter(
    kept: list[str], targets: dict[str, pa.Field], strays: list[str], limit: int | None
) -> Callable[[Batches], Batches]:
    def with_marks(batch: pa.RecordBatch, marks: list[list[str | None]]) -> pa.RecordBatch:
        columns = [*batch.columns, *(pa.array(mark, pa.string()) for mark in marks)]
        return pa.RecordBatch.from_arrays(columns, names=[*kept, *MARKS])

    def convert(batches: Batches) -> Batches:
        for batch in batches:
            plans = {
                name: cast_plan(batch.schema.field(name), target, by_name, name) for name, target in targets.items()
            }
            broken = None if limit is None else BrokenRows(limit)

            def good(some: pa.RecordBatch, plans: dict[str, Callable[[pa.Array], pa.Array]] = plans) -> pa.RecordBatch:
                check_strays([(name, some.column(name)) for name in strays])
                columns = [plans[name](some.column(name)) if name in plans else some.column(name) for name in kept]
                return pa.RecordBatch.from_arrays(columns, names=kept)

            for made in sift(batch, good, broken, _as_given):
                yield made if limit is None else with_marks(made, [[None] * made.num_rows] * len(MARKS))
            if broken is not None and broken.rows:
                types = [targets[name].type if name in targets else batch.schema.field(name).type for name in kept]
                empty = pa.RecordBatch.from_arrays([pa.nulls(len(broken.rows), each) for each in types], names=kept)
                told = [(row.reason, row.message, lossless_json.dumps(row.record, lenient=True)) for row in broken.rows]
                yield with_marks(empty, [list(column) for column in zip(*told, strict=True)])

    return convert


def _as_given(rows: pa.RecordBatch, error: FileRefused, _: int) -> BrokenRow:
    return BrokenRow(record_of(rows), error.reason, str(error))
