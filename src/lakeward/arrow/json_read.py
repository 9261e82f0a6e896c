"""Objects of JSON, one a line or in one array, as batches of a table's Arrow schema. UTF-8, compressed or not."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterable, Iterator, Set
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from lakeward.arrow import statistics
from lakeward.arrow.broken_rows import BrokenRow, BrokenRows, numbered, sift
from lakeward.arrow.coerce import Wanted, check_keys
from lakeward.arrow.text_files import BOM, as_text, decompressed, read_errors
from lakeward.errors import FileRefused
from lakeward.iceberg import types

ROWS_AT_A_TIME = 10_000
_PLACE = re.compile(r"\(byte (\d+)\)")


def read_json_lines(
    source: pa.NativeFile, wanted: Wanted, name: str, broken: BrokenRows | None = None
) -> pa.RecordBatchReader:
    """JSON lines as batches of the wanted columns; a missing one is null. Empty lines are passed over.

    Args:
        name: the file's, for messages.
        broken: where lines go that do not fit the schema, as objects, or that are no objects, as texts; none refuses the
            file. A last line that is not ended and cannot be read is refused: the file has been cut off there.

    Raises (when a batch is read):
        FileRefused: unreadable, truncated, unknown_column, missing_column, wrong_type, null_in_required, with the line's
            number.
    """
    return pa.RecordBatchReader.from_batches(
        wanted.schema, _batches(_lines(source, name), "line", wanted, name, broken)
    )


def read_json_array(
    source: pa.NativeFile, wanted: Wanted, name: str, broken: BrokenRows | None = None
) -> pa.RecordBatchReader:
    """The objects of a JSON array, which is held in memory whole. As `read_json_lines`, with items for lines."""
    return pa.RecordBatchReader.from_batches(
        wanted.schema, _batches(_items(source, name), "item", wanted, name, broken)
    )


class _Row(NamedTuple):
    number: int  # of its line or item
    values: dict[str, Any]


def _batches(
    texts: Iterable[bytes], unit: str, wanted: Wanted, name: str, broken: BrokenRows | None
) -> Iterator[pa.RecordBatch]:
    decode = _decoder(wanted)
    known = frozenset(wanted.schema.names)

    def broken_row(record: Any, number: int, error: FileRefused) -> BrokenRow:
        return numbered(record, error, number, name, unit)

    def read(number: int, text: bytes) -> Iterator[_Row]:
        try:
            yield _Row(number, decode(text))
        except FileRefused as error:
            row = broken_row(as_text(text), number, error)
            if broken is None or (unit == "line" and not text.endswith(b"\n")):
                raise FileRefused(row.reason, row.message) from error
            broken.add(row)

    def as_given(rows: list[_Row], error: FileRefused, _: int) -> BrokenRow:
        return broken_row(rows[0].values, rows[0].number, error)

    pairs = ((number, text) for number, text in enumerate(texts, start=1) if not text.isspace())
    while chunk := list(itertools.islice(pairs, ROWS_AT_A_TIME)):
        rows = [row for number, text in chunk for row in read(number, text)]
        given = set().union(*(row.values.keys() for row in rows))  # of the chunk, also for a part of it

        def convert(some: list[_Row], given: Set[str] = given) -> pa.RecordBatch:
            rows = [row.values for row in some]
            for row in rows:
                check_keys(row, wanted, known)
            return wanted.made(
                lambda field: wanted.decoded(field, [row.get(field.name) for row in rows], written=True),
                given,
                len(rows),
            )

        if rows:
            yield from sift(rows, convert, broken, as_given)


def _lines(source: pa.NativeFile, name: str) -> Iterator[bytes]:
    with read_errors(name):
        first = True
        for line in io.BufferedReader(decompressed(source), 1 << 20):
            yield line.removeprefix(BOM) if first else line
            first = False


def _items(source: pa.NativeFile, name: str) -> Iterator[bytes]:
    with read_errors(name):
        text = decompressed(source).read().removeprefix(BOM)
    try:
        items = msgspec.json.decode(text, type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = "truncated" if not text.rstrip().endswith(b"]") else "unreadable"
        raise FileRefused(reason, f"{name}: no JSON array{_where(error)}") from error
    yield from map(bytes, items)


def _where(error: Exception) -> str:
    """The place at which a text ceases to be JSON, where the reader says one."""
    if isinstance(error, RecursionError):
        return ": it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f": byte {error.start} is no UTF-8"
    place = _PLACE.search(str(error))
    return f" from byte {place[1]} on" if place else ": it ends too early, or holds a number that none can be"


def _decoder(wanted: Wanted) -> Any:
    """What makes a dict of a text of JSON."""
    exact = msgspec.json.Decoder(float_hook=Decimal)
    has_decimals = any(types.decimal_parts(leaf.type) is not None for leaf in statistics.leaves(wanted.document))
    quick = exact if has_decimals else msgspec.json.Decoder()

    def decode(text: bytes) -> dict[str, Any]:
        try:
            try:
                row = quick.decode(text)
            except msgspec.DecodeError:
                row = exact.decode(text)  # a number that is too large for a double is for its column to judge
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ArithmeticError) as error:
            raise FileRefused("unreadable", f"no JSON{_where(error)}") from error
        if not isinstance(row, dict):
            kind = type(row).__name__  # its value may be one that is not to be shown
            raise FileRefused("unreadable", f"no object, but a {kind}; give an object for each row")
        return row

    return decode
