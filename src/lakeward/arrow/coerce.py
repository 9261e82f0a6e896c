"""What people hand over (Arrow data, rows, DataFrames) as batches of exactly a table's Arrow schema.

Columns are matched by name in any order; a missing optional one becomes null. What does not fit is refused by name:
nothing is cut, rounded or moved to another time zone in silence.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakeward.arrow import accepted, statistics
from lakeward.arrow.broken_rows import BrokenRow, BrokenRows, numbered, row_of, sift, value_of
from lakeward.arrow.casts import NO_DEFAULTS, Cast, Defaults, Extra, Key, by_name, cast_plan, filled, matched, same
from lakeward.arrow.growth import check_growth
from lakeward.arrow.nested import check_nulls, nested_parts
from lakeward.arrow.splitting import Term, check_held
from lakeward.arrow.target import arrow_schema
from lakeward.errors import FileRefused, InvalidInput
from lakeward.iceberg.types import TypeDocument, walk
from lakeward.tables.records.tables import Document

ROWS_AT_A_TIME = 10_000  # of an iterator of rows
_A_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def coerce(
    data: Any,
    schema: Document,
    partition_terms: Sequence[Term] = (),
    broken: BrokenRows | None = None,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> pa.RecordBatchReader:
    """Data as a stream of batches of the schema document's Arrow schema, field ids in it.

    `data`: an Arrow table, record batch or reader, anything with Arrow's stream protocol (Polars, pandas, DuckDB), a
    sequence or an iterator of dicts, or a dict of columns. A reader stays a reader: nothing is read before it is asked for,
    and a value that does not fit is refused when its batch comes. A missing column becomes its write-default if it has one.

    Args:
        partition_terms: what partitions are made from. These columns must be given: rows without them would all fall into
            the partition of null.
        broken: where rows go that do not fit, when their batch comes; none refuses them. Columns that do not fit as a whole,
            by name or type, are refused all the same.
        properties: the table's; its policy may be to grow.

    Raises:
        FileRefused: unknown_column, missing_column, wrong_type, null_in_required or wrong_partition (one that no manifest
            holds), with the column in the message.
        InvalidInput: data of another kind, or columns of different lengths.
        SchemaGrows: the table is to grow first; nothing was read.
    """
    wanted = Wanted.of(schema, partition_terms, judges=broken is not None, properties=properties)
    target = wanted.schema
    if isinstance(data, Mapping):
        return pa.RecordBatchReader.from_batches(target, list(_from_columns(data, wanted, broken)))
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | pa.RecordBatch) and not _is_stream(data):
        return pa.RecordBatchReader.from_batches(target, _from_rows(iter(data), wanted, broken))
    return pa.RecordBatchReader.from_batches(target, _from_arrow(_reader(data), wanted, broken))


def checked_values(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same batch. Arrow takes any bytes for a text, a number or a time of day until somebody looks.

    Raises:
        FileRefused: wrong_type, for a column that holds what its own type lacks.
    """
    for field, column in zip(batch.schema, batch.columns, strict=True):
        check_array(column, field.name)
    return batch


def check_array(array: pa.Array, path: str) -> None:
    """Raises FileRefused (wrong_type): the array holds what its own type lacks."""
    if _holds(array.type, _may_be_damaged):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            raise FileRefused(
                "wrong_type",
                f"column {path!r} is damaged: it holds bytes that are no {array.type}, such as a text that is no UTF-8; write "
                "it anew, or as binary",
            ) from None
    if pt.is_time(array.type):
        bounds = pc.min_max(array)
        if any(each.is_valid and not 0 <= each.value < 86_400 * _A_SECOND[array.type.unit] for each in bounds.values()):
            raise FileRefused("wrong_type", f"column {path!r} is damaged: it holds a time that no day has")
    elif _holds(array.type, pt.is_time) and pt.is_nested(array.type):
        for name, part in nested_parts(array):
            check_array(part, f"{path}.{name}")


def _may_be_damaged(type_: pa.DataType) -> bool:
    is_text = pt.is_string(type_) or pt.is_large_string(type_) or pt.is_string_view(type_) or pt.is_dictionary(type_)
    return bool(is_text or pt.is_decimal(type_))


def _holds(type_: pa.DataType, is_kind: Callable[[pa.DataType], bool]) -> bool:
    inner = [type_.field(i).type for i in range(type_.num_fields)] if pt.is_nested(type_) else []
    return bool(is_kind(type_)) or any(_holds(each, is_kind) for each in inner)


def _is_stream(data: Any) -> bool:
    return hasattr(data, "__arrow_c_stream__")


def _reader(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.Table):
        return data.to_reader()
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if _is_stream(data):
        return pa.RecordBatchReader.from_stream(data)
    raise InvalidInput(
        f"data of type {type(data).__name__} cannot be written; give an Arrow table or reader, a list of dicts or a dict of lists"
    )


# Arrow ------------------------------------------------------------------------------------------------------------------
def _from_arrow(reader: pa.RecordBatchReader, wanted: Wanted, broken: BrokenRows | None) -> Iterator[pa.RecordBatch]:
    """What is wrong with the columns themselves is refused now, and not when the first batch comes."""
    plan = None if reader.schema == wanted.schema else schema_plan(reader.schema, wanted)

    def convert(batch: pa.RecordBatch) -> pa.RecordBatch:
        return _checked(batch, wanted) if plan is None else run(plan, batch, wanted)

    def converted() -> Iterator[pa.RecordBatch]:
        first = 1
        for batch in reader:
            yield from sift(batch, convert, broken, row_of, first)
            first += batch.num_rows

    return converted()


class Wanted(NamedTuple):
    """The columns that a table wants: their schema's document, Arrow schema and Iceberg's types, what its partitions are made from, whose columns
    must be given though they are optional, and defaults.

    `judges`: rows are judged one by one, and a column that the table lacks is a fault of those that have a value in it.
    """

    document: Document
    schema: pa.Schema
    types: Mapping[str, TypeDocument]
    partition_terms: tuple[Term, ...] = ()
    defaults: Defaults = NO_DEFAULTS
    judges: bool = False
    properties: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def of(
        cls,
        schema: Document,
        partition_terms: Sequence[Term] = (),
        *,
        judges: bool = False,
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> Wanted:
        types = {field["name"]: field["type"] for field in schema["fields"]}
        return cls(
            schema,
            arrow_schema(schema),
            types,
            tuple(partition_terms),
            defaults_of(schema, "write-default"),
            judges,
            properties,
        )

    @property
    def extra(self) -> Extra:
        return "judge" if self.judges else "refuse"

    def batch(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        """A batch of converted columns. Raises FileRefused: wrong_partition, see `splitting.check_held`."""
        made = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        check_held(made, self.partition_terms)
        return made

    def check_missing(self, field: pa.Field) -> None:
        """Raises: FileRefused (missing_column): the column may not be left out."""
        if any(term.source.path[0] == field.name for term in self.partition_terms):
            raise FileRefused(
                "missing_column", f"column {field.name!r} is missing, and partitions are made from it; add it"
            )
        if not field.nullable and statistics.field_id(field) not in self.defaults:
            raise FileRefused("missing_column", f"column {field.name!r} is required and missing; add it")

    def filled(self, field: pa.Field, count: int) -> pa.Array:
        return filled(field, count, self.defaults)

    def decoded(self, field: pa.Field, values: Sequence[Any], *, written: bool = False) -> pa.Array:
        """A column of Python values; see `accepted.decode`. Raises FileRefused."""
        return check_nulls(
            accepted.decode(values, self.types[field.name], field.name, written=written), field, field.name
        )

    def made(self, column: Callable[[pa.Field], pa.Array], given: Container[str], count: int) -> pa.RecordBatch:
        """A batch of the columns that are given, each made by `column`, and of what the others hold without."""
        arrays = []
        for field in self.schema:
            if field.name not in given:
                self.check_missing(field)
            arrays.append(column(field) if field.name in given else self.filled(field, count))
        return self.batch(arrays)


def defaults_of(schema: Document, which: str) -> Defaults:
    """The 'write-default' or 'initial-default' of each field that has one (Iceberg format version 3), at every depth."""
    return {
        column.field_id: accepted.decode([default], column.type, column.name, written=True)[0]
        for column in walk(schema)
        if (default := column.field.get(which)) is not None
    }


def _checked(batch: pa.RecordBatch, wanted: Wanted) -> pa.RecordBatch:
    """A batch of the right types: only nulls in required columns are left to look for, at the top and inside."""
    columns = list(checked_values(batch).columns)
    for index, field in enumerate(wanted.schema):
        if pt.is_nested(field.type):
            columns[index] = cast_plan(batch.schema.field(index), field, by_name, field.name)(columns[index])
        else:
            check_nulls(columns[index], field, field.name)
    return wanted.batch(columns)


class Plan(NamedTuple):
    """For each wanted column its source's index (None where it is missing) and how it is cast; and the places of columns
    that the table lacks."""

    columns: list[tuple[int | None, Cast]]
    strays: list[int]


def schema_plan(source: pa.Schema, wanted: Wanted, key: Key = by_name, *, written: bool = False) -> Plan:
    """How batches of a schema become those of the table. `written`: see `cast_plan`.

    Raises:
        FileRefused: unknown_column, missing_column or wrong_type.
        InvalidInput: a name comes twice.
        SchemaGrows: the table is to grow first.
    """
    if key is by_name:
        if not written:  # CSV has no types to grow by
            check_growth(source, wanted.types, wanted.properties)
        check_names(source.names, wanted)
    indexes = matched(source, wanted.schema, key)
    plan = Plan([], sorted(set(range(len(source))) - set(indexes)))
    for index, field in zip(indexes, wanted.schema, strict=True):
        if index is None:
            wanted.check_missing(field)
            plan.columns.append((None, same))
        else:
            cast = cast_plan(
                source.field(index), field, key, field.name, wanted.extra, wanted.defaults, written=written
            )
            plan.columns.append((index, cast))
    return plan


def check_names(names: Sequence[str], wanted: Wanted) -> None:
    """Refuse columns that the table does not have, unless rows are judged one by one, and names that come twice.

    Raises:
        FileRefused: unknown_column.
        InvalidInput: a name comes twice.
    """
    known = set(wanted.schema.names)
    if not wanted.judges:
        for name in names:
            if name not in known:
                raise _unknown(name, wanted)
    if len(set(names)) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise InvalidInput(f"column {twice!r} is there twice; leave one of the two out")


def check_keys(row: Mapping[Any, Any], wanted: Wanted, known: Set[str]) -> None:
    """Raises FileRefused (unknown_column): a row has a column that the table lacks, and a value in it if that is judged."""
    if not row.keys() <= known:
        for name, value in row.items():
            if name not in known and (value is not None or not wanted.judges):
                raise _unknown(str(name), wanted)


def _unknown(name: str, wanted: Wanted) -> FileRefused:
    names = wanted.schema.names
    close = [each for each in names if each.lower() == name.lower()]
    hint = f"did you mean {close[0]!r}" if close else f"the table has {', '.join(map(repr, names[:20]))}"
    return FileRefused("unknown_column", f"column {name!r} is not in the table; {hint}")


def run(plan: Plan, batch: pa.RecordBatch, wanted: Wanted) -> pa.RecordBatch:
    """A batch by a plan. Raises: FileRefused: wrong_type or null_in_required, for its values."""
    checked_values(batch)
    for stray in plan.strays:
        if batch.column(stray).null_count < batch.num_rows:
            raise _unknown(batch.schema.names[stray], wanted)
    columns = [
        wanted.filled(field, batch.num_rows) if index is None else cast(batch.column(index))
        for (index, cast), field in zip(plan.columns, wanted.schema, strict=True)
    ]
    return wanted.batch(columns)


# Rows -------------------------------------------------------------------------------------------------------------------
def _from_rows(rows: Iterator[Any], wanted: Wanted, broken: BrokenRows | None) -> Iterator[pa.RecordBatch]:
    names = wanted.schema.names
    known = frozenset(names)
    first = 1
    while chunk := list(itertools.islice(rows, ROWS_AT_A_TIME)):
        for row in chunk:
            if not isinstance(row, Mapping):
                raise InvalidInput(
                    f"row {str(row)[:80]!r} is a {type(row).__name__}; give each row as a dict of its columns"
                )
        given = [name for name in names if any(name in row for row in chunk)]  # of the chunk, also for a part of it

        def convert(some: list[Any], given: Sequence[str] = given) -> pa.RecordBatch:
            for row in some:
                check_keys(row, wanted, known)
            return _batch({name: [row.get(name) for row in some] for name in given}, wanted, len(some))

        yield from sift(chunk, convert, broken, lambda rows, *why: numbered(dict(rows[0]), *why), first)
        first += len(chunk)


def _from_columns(columns: Mapping[str, Any], wanted: Wanted, broken: BrokenRows | None) -> Iterator[pa.RecordBatch]:
    check_names([str(name) for name in columns], wanted)
    single = next((name for name, values in columns.items() if not _is_column(values)), None)
    if single is not None:
        raise InvalidInput(
            f"column {single!r} is {str(columns[single])[:80]!r}, not a list of values; give one row as [{{...}}]"
        )
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidInput(f"columns have different lengths: {lengths}; give each the same number of values")
    count = next(iter(lengths.values()), 0)
    for field in wanted.schema:
        if field.name not in columns:
            wanted.check_missing(field)

    def convert(some: range) -> pa.RecordBatch:
        part = (
            columns
            if len(some) == count
            else {name: _by_index(v)[some.start : some.stop] for name, v in columns.items()}
        )
        for name in part.keys() - set(wanted.schema.names):
            if any(value_of(value) is not None for value in part[name]):
                raise _unknown(str(name), wanted)
        return _batch(part, wanted, len(some))

    def as_given(some: range, error: FileRefused, number: int) -> BrokenRow:
        return numbered(
            {name: value_of(_by_index(values)[some.start]) for name, values in columns.items()}, error, number
        )

    return sift(range(count), convert, broken, as_given)


def _by_index(values: Any) -> Any:
    """What is indexed by places; pandas goes by labels otherwise."""
    return values.iloc if hasattr(values, "iloc") else values


def are_columns(data: Mapping[str, Any]) -> bool:
    """Whether a dict holds Arrow columns, where one row (a dict of values) may come too."""
    return bool(data) and all(isinstance(values, (pa.Array, pa.ChunkedArray)) for values in data.values())


def _is_column(values: Any) -> bool:
    """A list of values, or something like it: a text is one value, and so is a dict."""
    return hasattr(values, "__len__") and not isinstance(values, (str, bytes, Mapping))


def _batch(columns: Mapping[str, Any], wanted: Wanted, count: int) -> pa.RecordBatch:
    return wanted.made(lambda field: _array(columns[field.name], field, wanted), columns, count)


def _array(values: Any, field: pa.Field, wanted: Wanted) -> pa.Array:
    """One column of Python values, or of something Arrow knows, in the field's type."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    elif hasattr(values, "dtype") and str(values.dtype) != "object":  # NumPy's, pandas' and Polars' own types
        values = _from_frame(values, field)
    if not isinstance(values, pa.Array):
        return wanted.decoded(field, list(values))
    check_array(values, field.name)
    return cast_plan(pa.field(field.name, values.type), field, by_name, field.name, wanted.extra, wanted.defaults)(
        values
    )


def _from_frame(values: Any, field: pa.Field) -> pa.Array:
    try:
        made = pa.array(values, from_pandas=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise FileRefused(
            "wrong_type", f"column {field.name!r} has the type {values.dtype}, which Arrow lacks"
        ) from error
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made
