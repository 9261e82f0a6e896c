"""What people hand over (Arrow data, rows, DataFrames) as batches of exactly a table's Arrow schema.

Columns are matched by name in any order; a missing optional one becomes null. What does not fit is refused by name:
nothing is cut, rounded or moved to another time zone in silence.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.types as pt

from lakeward.errors import FileRefused, InvalidInput
from lakeward.model.tables import Document
from lakeward.pipeline import json_values
from lakeward.pipeline.broken_rows import BrokenRow, BrokenRows, row_of, sift, value_of
from lakeward.pipeline.casts import Cast, Key, by_name, cast_plan, matched
from lakeward.pipeline.target import arrow_schema

ROWS_AT_A_TIME = 10_000  # of an iterator of rows


def conform(
    data: Any, schema: Document, partition_sources: Iterable[str] = (), broken: BrokenRows | None = None
) -> pa.RecordBatchReader:
    """Data as a stream of batches of the schema document's Arrow schema, field ids in it.

    `data`: an Arrow table, record batch or reader, anything with Arrow's stream protocol (Polars, pandas, DuckDB), a
    sequence or an iterator of dicts, or a dict of columns. A reader stays a reader: nothing is read before it is asked for,
    and a value that does not fit is refused when its batch comes. A missing column becomes its write-default if it has one.

    Args:
        partition_sources: columns that partitions are made from. They must be given: rows without them would all fall into
            the partition of null.
        broken: where rows go that do not fit, when their batch comes; none refuses them. Columns that do not fit as a whole,
            by name or type, are refused all the same.

    Raises:
        FileRefused: unknown_column, missing_column, wrong_type or null_in_required, with the column in the message.
        InvalidInput: data of another kind, or columns of different lengths.
    """
    target = arrow_schema(schema)
    wanted = Wanted(target, frozenset(partition_sources), write_defaults(schema))
    if isinstance(data, Mapping):
        return pa.RecordBatchReader.from_batches(target, list(_from_columns(data, wanted, broken)))
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | pa.RecordBatch) and not _is_stream(data):
        return pa.RecordBatchReader.from_batches(target, _from_rows(iter(data), wanted, broken))
    return pa.RecordBatchReader.from_batches(target, _from_arrow(_reader(data), wanted, broken))


def _holds_text(type_: pa.DataType) -> bool:
    inner = [type_.field(i).type for i in range(type_.num_fields)] if pt.is_nested(type_) else []
    is_text = pt.is_string(type_) or pt.is_large_string(type_) or pt.is_string_view(type_) or pt.is_dictionary(type_)
    return bool(is_text) or any(_holds_text(each) for each in inner)


def _with_valid_texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Arrow takes any bytes for a text until somebody looks. Raises FileRefused: wrong_type."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if _holds_text(field.type):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as error:
                raise FileRefused("wrong_type", f"column {field.name!r} is damaged: {error}") from error
    return batch


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
    hold_text = any(_holds_text(field.type) for field in reader.schema)

    def convert(batch: pa.RecordBatch) -> pa.RecordBatch:
        if hold_text:
            batch = _with_valid_texts(batch)
        return _checked(batch, wanted) if plan is None else run(plan, batch, wanted)

    return (made for batch in reader for made in sift(batch, convert, broken, row_of))


class Wanted(NamedTuple):
    """The columns that a table wants: their Arrow schema, those that must be given though they are optional, and defaults."""

    schema: pa.Schema
    must: frozenset[str] = frozenset()
    defaults: Mapping[str, pa.Scalar] = {}

    def check_missing(self, field: pa.Field) -> None:
        """Raises: FileRefused (missing_column): the column may not be left out."""
        if field.name in self.must:
            raise FileRefused(
                "missing_column", f"column {field.name!r} is missing, and partitions are made from it; add it"
            )
        if not field.nullable and field.name not in self.defaults:
            raise FileRefused("missing_column", f"column {field.name!r} is required and missing; add it")

    def filled(self, field: pa.Field, count: int) -> pa.Array:
        default = self.defaults.get(field.name)
        return pa.nulls(count, field.type) if default is None else pa.repeat(default, count)


def write_defaults(schema: Document) -> dict[str, pa.Scalar]:
    """The write-default of each top-level column that has one (Iceberg format version 3), by name."""
    return {
        field["name"]: json_values.decode([field["write-default"]], field["type"], field["name"])[0]
        for field in schema["fields"]
        if field.get("write-default") is not None
    }


def _checked(batch: pa.RecordBatch, wanted: Wanted) -> pa.RecordBatch:
    """A batch of the right types: only nulls in required columns are left to look for, at the top and inside."""
    columns = list(batch.columns)
    for position, field in enumerate(wanted.schema):
        if pt.is_nested(field.type):
            columns[position] = cast_plan(batch.schema.field(position), field, by_name, field.name)(columns[position])
        elif not field.nullable and columns[position].null_count:
            raise null_in_required(field.name, columns[position].null_count)
    return pa.RecordBatch.from_arrays(columns, schema=wanted.schema)


def null_in_required(name: str, count: int) -> FileRefused:
    return FileRefused("null_in_required", f"column {name!r} is required and {count} of its values are null")


Plan: TypeAlias = "list[tuple[int | None, Cast]]"


def schema_plan(source: pa.Schema, wanted: Wanted, key: Key = by_name, *, widening_only: bool = False) -> Plan:
    """For each wanted column its source's position (none where it is missing) and how it is cast.

    Raises:
        FileRefused: unknown_column, missing_column or wrong_type.
        InvalidInput: a name comes twice.
    """
    if key is by_name:
        check_names(source.names, wanted.schema.names)
    plan: Plan = []
    for position, field in zip(matched(source, wanted.schema, key), wanted.schema, strict=True):
        if position is None:
            wanted.check_missing(field)
            plan.append((None, _unused))
        else:
            cast = cast_plan(source.field(position), field, key, field.name, widening_only=widening_only)
            plan.append((position, cast))
    return plan


def _unused(array: pa.Array) -> pa.Array:
    return array


def check_names(names: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse columns that the table does not have, and names that come twice.

    Raises:
        FileRefused: unknown_column.
        InvalidInput: a name comes twice.
    """
    known = set(wanted)
    for name in names:
        if name not in known:
            close = [each for each in wanted if each.lower() == name.lower()]
            hint = f"did you mean {close[0]!r}" if close else f"the table has {', '.join(map(repr, wanted[:20]))}"
            raise FileRefused("unknown_column", f"column {name!r} is not in the table; {hint}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise InvalidInput(f"column {twice!r} is there twice; leave one of the two out")


def run(plan: Plan, batch: pa.RecordBatch, wanted: Wanted) -> pa.RecordBatch:
    """A batch by a plan. Raises: FileRefused: wrong_type or null_in_required, for its values."""
    columns = [
        wanted.filled(field, batch.num_rows) if position is None else cast(batch.column(position))
        for (position, cast), field in zip(plan, wanted.schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=wanted.schema)


# Rows -------------------------------------------------------------------------------------------------------------------
def _from_rows(rows: Iterator[Any], wanted: Wanted, broken: BrokenRows | None) -> Iterator[pa.RecordBatch]:
    names = wanted.schema.names
    known = set(names)
    while chunk := list(itertools.islice(rows, ROWS_AT_A_TIME)):
        for row in chunk:
            if not isinstance(row, Mapping):
                raise InvalidInput(
                    f"row {str(row)[:80]!r} is a {type(row).__name__}; give each row as a dict of its columns"
                )
        given = [name for name in names if any(name in row for row in chunk)]  # of the chunk, also for a part of it

        def convert(some: list[Any], given: Sequence[str] = given) -> pa.RecordBatch:
            for row in some:
                if not row.keys() <= known:
                    check_names([str(name) for name in row], names)
            return _batch({name: [row.get(name) for row in some] for name in given}, wanted, len(some))

        yield from sift(chunk, convert, broken, _dict_of)


def _dict_of(rows: list[Any], error: FileRefused) -> BrokenRow:
    return BrokenRow(dict(rows[0]), error.reason, str(error))


def _from_columns(columns: Mapping[str, Any], wanted: Wanted, broken: BrokenRows | None) -> Iterator[pa.RecordBatch]:
    check_names([str(name) for name in columns], wanted.schema.names)
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
        part = columns if len(some) == count else {name: _cut(values, some) for name, values in columns.items()}
        return _batch(part, wanted, len(some))

    def as_given(some: range, error: FileRefused) -> BrokenRow:
        record = {name: value_of(_at(values, some.start)) for name, values in columns.items()}
        return BrokenRow(record, error.reason, str(error))

    return sift(range(count), convert, broken, as_given)


def _cut(values: Any, some: range) -> Any:
    """By position; pandas goes by labels otherwise."""
    return (values.iloc if hasattr(values, "iloc") else values)[some.start : some.stop]


def _at(values: Any, place: int) -> Any:
    return (values.iloc if hasattr(values, "iloc") else values)[place]


def are_columns(data: Mapping[str, Any]) -> bool:
    """Whether a dict holds Arrow columns, where one row (a dict of values) may come too."""
    return bool(data) and all(isinstance(values, (pa.Array, pa.ChunkedArray)) for values in data.values())


def _is_column(values: Any) -> bool:
    """A list of values, or something like it: a text is one value, and so is a dict."""
    return hasattr(values, "__len__") and not isinstance(values, (str, bytes, Mapping))


def _batch(columns: Mapping[str, Any], wanted: Wanted, count: int) -> pa.RecordBatch:
    arrays = []
    for field in wanted.schema:
        if field.name not in columns:
            wanted.check_missing(field)
            arrays.append(wanted.filled(field, count))
        else:
            arrays.append(_array(columns[field.name], field))
    return pa.RecordBatch.from_arrays(arrays, schema=wanted.schema)


def _array(values: Any, field: pa.Field) -> pa.Array:
    """One column of Python values, or of something Arrow knows, in the field's type."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not isinstance(values, pa.Array):
        _check_python(values, field)
        values = _from_python(values, field)
    return cast_plan(pa.field(field.name, values.type), field, by_name, field.name)(values)


def _check_python(values: Any, field: pa.Field) -> None:
    try:
        check_values(values, field.type, field.name)
    except (TypeError, ValueError) as error:  # such as a number where a list belongs
        raise FileRefused(
            "wrong_type", f"column {field.name!r}: a value does not fit {field.type}: {_position(values, field)}{error}"
        ) from error


def _from_python(values: Any, field: pa.Field) -> pa.Array:
    try:
        return pa.array(values, type=field.type, from_pandas=False)
    except (
        pa.ArrowInvalid,
        pa.ArrowTypeError,
        pa.ArrowNotImplementedError,
        OverflowError,
        TypeError,
        ValueError,
    ) as error:
        raise FileRefused(
            "wrong_type", f"column {field.name!r}: a value does not fit {field.type}: {_position(values, field)}{error}"
        ) from error


def _position(values: Any, field: pa.Field) -> str:
    for number, value in enumerate(values):
        try:
            pa.array([value], type=field.type, from_pandas=False)
        except Exception:
            return f"row {number}, {str(value)[:80]!r}: "
    return ""


def check_values(values: Iterable[Any], type_: pa.DataType, path: str) -> None:
    """Refuse Python values that Arrow would change in silence: zones mixed up, a time cut off a date, a fraction off a number,
    text for bytes, keys of dicts that the struct does not have.

    Raises:
        FileRefused: wrong_type or unknown_column.
    """
    if pt.is_timestamp(type_):
        _check_zones(values, type_, path)
    elif pt.is_date(type_):
        if any(isinstance(v, datetime) for v in values):
            raise FileRefused("wrong_type", f"column {path!r} holds dates and got a datetime; give value.date()")
        if any(v is not None and not isinstance(v, date) for v in values) and not hasattr(values, "dtype"):
            raise FileRefused(
                "wrong_type", f"column {path!r} holds dates and got another type; give datetime.date values"
            )
    elif pt.is_integer(type_):
        if any(isinstance(v, float | Decimal) for v in values):
            raise FileRefused("wrong_type", f"column {path!r} holds whole numbers and got another; round it before")
    elif pt.is_binary(type_) or pt.is_fixed_size_binary(type_):
        if any(isinstance(v, str) for v in values):
            raise FileRefused("wrong_type", f"column {path!r} holds bytes and got a text; encode it before")
    elif pt.is_struct(type_):
        _check_dicts(list(values), type_, path)
    elif pt.is_list(type_):
        check_values([e for v in values if v is not None for e in v], type_.value_type, f"{path}.element")
    elif pt.is_map(type_):
        pairs = [pair for v in values if v is not None for pair in (v.items() if isinstance(v, Mapping) else v)]
        check_values([k for k, _ in pairs], type_.key_type, f"{path}.key")
        check_values([v for _, v in pairs], type_.item_type, f"{path}.value")


def _check_zones(values: Iterable[Any], type_: pa.DataType, path: str) -> None:
    for value in values:
        if not isinstance(value, datetime):
            if value is None or hasattr(values, "dtype"):
                continue
            raise FileRefused("wrong_type", f"column {path!r} holds timestamps and got {value!r}; give datetime values")
        if (value.tzinfo is None) != (type_.tz is None):
            way = "give it a zone, such as tzinfo=UTC" if value.tzinfo is None else "make it naive before"
            raise FileRefused("wrong_type", f"column {path!r} is {type_}, and {value!r} does not fit it; {way}")


def _check_dicts(values: list[Any], type_: pa.DataType, path: str) -> None:
    fields = [type_.field(i) for i in range(type_.num_fields)]
    names = {field.name for field in fields}
    dicts = [v for v in values if isinstance(v, Mapping)]
    for value in dicts:
        if unknown := value.keys() - names:
            raise FileRefused(
                "unknown_column", f"column {f'{path}.{min(unknown)}'!r} is not in the table; leave it out"
            )
    for field in fields:
        check_values([value.get(field.name) for value in dicts], field.type, f"{path}.{field.name}")
