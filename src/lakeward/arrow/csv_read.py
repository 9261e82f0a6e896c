"""CSV as batches of a table's Arrow schema: a line of names, then rows. UTF-8, compressed or not.

An empty field is null, and a text that is empty stands in quotes. Lists, maps and structs are JSON.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.types as pt

from lakeward.arrow import accepted
from lakeward.arrow.broken_rows import BrokenRow, BrokenRows, numbered, record_of, sift
from lakeward.arrow.coerce import Wanted, check_array, run, schema_plan
from lakeward.arrow.text_files import decompressed, read_errors
from lakeward.errors import FileRefused, InvalidInput

BLOCK = 1 << 20  # bytes that are parsed at a time
_DELIMITERS = (",", ";", "\t", "|")


def read_csv(
    source: pa.NativeFile, wanted: Wanted, name: str, broken: BrokenRows | None = None, *, delimiter: str = ","
) -> Iterator[pa.RecordBatch]:
    """Rows of a CSV file as batches of the wanted columns; a missing one is null.

    Args:
        name: the file's, for messages.
        broken: where rows go that do not fit the schema, or that have more or fewer fields than the first line, as texts;
            none refuses the file.

    Raises (when a batch is read):
        FileRefused: unreadable, truncated, unknown_column, missing_column, wrong_type, null_in_required, with the row's
            number; the first row after the names is 1.
    """
    torn = _Torn(name, broken)
    first = 1
    last: pa.RecordBatch | None = None
    with read_errors(name):
        opened = _open(source, name, delimiter, torn)
        if opened is None:
            return
        reader, end = opened
        _check_apart(reader.schema.names, wanted, name, delimiter)
        try:
            plan = schema_plan(_with_types(reader.schema, wanted), wanted, written=True)
        except InvalidInput as error:
            raise FileRefused(getattr(error, "reason", "unreadable"), f"{name}: {error}") from error

        def convert(rows: pa.RecordBatch) -> pa.RecordBatch:
            return run(plan, _with_json(rows, wanted), wanted)

        def as_given(rows: pa.RecordBatch, error: FileRefused, number: int) -> BrokenRow:
            return numbered(record_of(rows), error, torn.number(number), name)

        for batch in _whole(reader, name):
            torn.settle()
            yield from sift(batch, convert, broken, as_given, first)
            first += batch.num_rows
            last = batch if batch.num_rows else last
        torn.settle()
        if torn.is_open(delimiter) or (last is not None and end.is_open(last.column(last.num_columns - 1))):
            raise FileRefused(
                "truncated", f"{name}: a quote of its last row is left open; close it, or copy the file again"
            )


def _check_apart(names: Sequence[str], wanted: Wanted, name: str, delimiter: str) -> None:
    """Raises FileRefused (unknown_column): what seems to stand between the names is another character."""
    if len(names) != 1 or names[0] in wanted.schema.names:
        return
    found = next((each for each in _DELIMITERS if each != delimiter and each in names[0]), None)
    if found is not None:
        raise FileRefused(
            "unknown_column",
            f"{name}: its first line is {accepted.shown(names[0])}, with {found!r} between the names; a file of CSV has ',' there, "
            "and one of tsv a tab: convert it, or call it by its right format (.csv, .tsv; --format)",
        )


class _End:
    """A stream of bytes that knows its head and, once it is read, its end. The reader takes the end of a file for a closing quote, in silence."""

    closed = False

    def __init__(self, source: Any) -> None:
        self.head: bytes = source.read(BLOCK)
        self._source, self._ahead, self._end = source, self.head, b""

    def read(self, count: int = -1) -> bytes:
        data: bytes
        if self._ahead:
            data, self._ahead = (self._ahead, b"") if count < 0 else (self._ahead[:count], self._ahead[count:])
        else:
            data = self._source.read(count)
        if data:
            self._end = (self._end + data)[-2 * BLOCK :]  # no row is longer than a block
        return data

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """Whoever opened the file closes it."""

    def is_open(self, fields: pa.Array) -> bool:
        """Whether the last of these fields, which ends the file, began with a quote that nothing closes."""
        value = fields.slice(len(fields) - 1).cast(pa.binary())[0].as_py()
        if value is None:
            return False
        escaped = value.replace(b'"', b'""')
        closed = self._end.rstrip(b"\r\n").endswith(b'"' + escaped + b'"')
        return not closed and self._end.endswith(b'"' + escaped)


class _Torn:
    """Rows with more or fewer fields than there are names, which the reader passes over."""

    def __init__(self, name: str, broken: BrokenRows | None) -> None:
        self._name, self._broken = name, broken
        self._waiting: list[BrokenRow] = []
        self._numbers: list[int] = []
        self._last = ""  # row's text

    def found(self, row: Any) -> str:
        number = row.number - 1  # the names are its first
        self._numbers.append(number)
        self._last = row.text
        fields = "field" if row.actual_columns == 1 else "fields"
        message = f"{row.actual_columns} {fields}, where the first line has {row.expected_columns}"
        self._waiting.append(numbered(row.text, FileRefused("unreadable", message), number, self._name))
        return "skip"

    def is_open(self, delimiter: str) -> bool:
        """Whether the file's last row is torn by a quote that nothing closes."""
        return _is_open([self._last], delimiter)

    def settle(self) -> None:
        """Raises FileRefused: there is such a row, and none may be broken, or there are too many."""
        for row in self._waiting:
            if self._broken is None:
                raise FileRefused(row.reason, row.message)
            self._broken.add(row)
        self._waiting.clear()

    def number(self, counted: int) -> int:
        """The number of a row by its place among those that are whole."""
        for number in self._numbers:
            counted += number <= counted
        return counted


def _is_open(lines: Sequence[str], delimiter: str) -> bool:
    try:
        list(csv.reader(lines, delimiter=delimiter, strict=True))
    except csv.Error as error:
        return "unexpected end" in str(error)
    return False


def _whole(reader: Any, name: str) -> Iterator[pa.RecordBatch]:
    """The reader's batches. Raises FileRefused (unreadable): a row does not end within a block."""
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except pa.ArrowInvalid as error:
            if "straddling" in str(error):
                raise _too_long(name) from error
            raise
        yield batch


def _too_long(where: str) -> FileRefused:
    return FileRefused(
        "unreadable",
        f"{where}: a row is longer than {BLOCK >> 20} MiB; is a quote left open? Close it, or split the row",
    )


def _open(source: pa.NativeFile, name: str, delimiter: str, torn: _Torn) -> tuple[Any, _End] | None:
    """A reader whose columns are all texts, and what it reads; None for a file without a line."""
    import pyarrow.csv as pacsv

    read = pacsv.ReadOptions(use_threads=False, block_size=BLOCK)  # rows have numbers only so

    def parse(invalid: Callable[[Any], str]) -> pacsv.ParseOptions:
        return pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=invalid)

    end = _End(decompressed(source))
    try:
        head = pa.BufferReader(end.head)
        names = pacsv.open_csv(head, read, parse(lambda _: "skip"), pacsv.ConvertOptions(check_utf8=False)).schema.names
        texts = pacsv.ConvertOptions(
            check_utf8=False,
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        return pacsv.open_csv(end, read, parse(torn.found), texts), end
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        if "Empty CSV file" in str(error):
            if _is_open(end.head.decode(errors="replace").splitlines(keepends=True), delimiter):
                raise FileRefused("truncated", f"{name}: a quote of its first line is left open; close it") from error
            return None
        if "straddling" in str(error):
            raise _too_long(name) from error
        raise FileRefused("unreadable", f"{name}: no CSV: its first line cannot be read; it has the names") from error


def _with_types(schema: pa.Schema, wanted: Wanted) -> pa.Schema:
    """What `_with_json` makes of such columns."""
    types = {field.name: field.type for field in wanted.schema if pt.is_nested(field.type)}
    return pa.schema([pa.field(field.name, types.get(field.name, field.type)) for field in schema])


def _with_json(rows: pa.RecordBatch, wanted: Wanted) -> pa.RecordBatch:
    columns = list(rows.columns)
    for index, field in enumerate(_with_types(rows.schema, wanted)):
        if pt.is_nested(field.type):
            check_array(columns[index], field.name)
            values = [None if text is None else _json(text, field.name) for text in columns[index].to_pylist()]
            columns[index] = accepted.decode(values, wanted.types[field.name], field.name, written=True)
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def _json(text: str, path: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise FileRefused("wrong_type", f"column {path!r}: {accepted.shown(text)} is no JSON") from None
