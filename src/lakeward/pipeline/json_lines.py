"""JSON lines: what tables of format 'json' are written as, and what people bring. One object a line, UTF-8.

Values are written as Iceberg's single values in JSON (see `json_values`), columns by name. Files are compressed with zstd or
gzip or not at all; what a file is compressed with is seen from its first bytes, not from its name.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Sequence, Set
from decimal import Decimal
from functools import partial
from typing import Any, NoReturn

import msgspec
import pyarrow as pa

from lakeward.errors import FileRefused, InvalidSetting
from lakeward.iceberg import types
from lakeward.model.files import DataFile, FileStatistics
from lakeward.model.tables import Document
from lakeward.pipeline import json_values, statistics
from lakeward.pipeline.broken_rows import BrokenRow, BrokenRows, sift
from lakeward.pipeline.conform import Wanted, check_names, conform, null_in_required, write_defaults
from lakeward.pipeline.file_writer import HashingOutput, Part, partition_sources, write_files
from lakeward.pipeline.target import WriteTarget, arrow_schema

ROWS_AT_A_TIME = 10_000
CODECS: dict[str, str | None] = {"zstd": "zstd", "gzip": "gzip", "none": None, "uncompressed": None}
_EXTENSIONS = {"zstd": "json.zst", "gzip": "json.gz", None: "json"}
_MAGIC = {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip"}


def write_json_lines(target: WriteTarget, data: Any) -> list[DataFile]:
    """Write data (see `conform`) as JSON lines below the intent's prefix; no rows, no file. Nothing is registered.

    Rows that do not fit go to `target.broken`, if there is one.

    Raises:
        FileRefused, InvalidInput: see `conform`.
        InvalidSetting: a compression that JSON lines do not have.
        StorageError: a file could not be written.
    """
    json_codec(target.metadata.compression)
    rows = conform(data, target.schema, partition_sources(target), target.broken)
    return write_files(target, rows, JsonSink)


def json_codec(compression: str) -> str | None:
    """pyarrow's name of a table's compression, none for none.

    Raises:
        InvalidSetting: naming those that JSON lines have.
    """
    try:
        return CODECS[compression.lower()]
    except KeyError:
        raise InvalidSetting(f"compression {compression!r} is not for JSON lines; use zstd, gzip or none") from None


class JsonSink:
    """One file of JSON lines."""

    def __init__(self, target: WriteTarget, part: Part) -> None:
        self._target, self._part = target, part
        self._codec = json_codec(target.metadata.compression)
        self._location = target.next_location(_EXTENSIONS[self._codec])
        self._leaves = [leaf for leaf in statistics.leaves(target.schema) if not leaf.repeated]
        self._rows = 0
        self._nulls: dict[int, int] = {}
        self._nans: dict[int, int] = {}
        self._output: HashingOutput | None = None
        self._stream: Any = None

    @property
    def size(self) -> int:
        return 0 if self._output is None else self._output.tell()

    def write(self, table: pa.Table) -> None:
        if self._output is None:
            self._output = HashingOutput(self._target.engine.open_output(self._location))
            sink = pa.PythonFile(self._output, mode="w")
            self._stream = sink if self._codec is None else pa.CompressedOutputStream(sink, self._codec)
        for batch in table.to_batches(max_chunksize=ROWS_AT_A_TIME):
            self._stream.write(encode_lines(batch, self._target.schema))
            self._count(batch)

    def finish(self, last: pa.Table | None) -> DataFile:
        if last is not None:
            self.write(last)
        assert self._output is not None, "a file without rows"
        self._stream.close()
        self._output.output.close()
        target = self._target
        return DataFile(
            path=self._location,
            size=self._output.tell(),
            row_count=self._rows,
            file_type="json",
            schema_id=target.schema["schema-id"],
            spec_id=target.spec["spec-id"],
            partition=self._part.values,
            partition_path=self._part.path,
            statistics=FileStatistics(
                value_counts={leaf.field_id: self._rows for leaf in self._leaves},
                null_counts=self._nulls,
                nan_counts=self._nans,
            ),
            checksum=self._output.checksum,
            is_compressed=self._codec is not None,
        )

    def abort(self) -> None:
        if self._output is not None:
            self._output.abort()

    def _count(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        statistics.add_counts(self._nans, statistics.nan_counts(batch, self._leaves))
        nulls = {leaf.field_id: statistics.leaf_array(batch, leaf).null_count for leaf in self._leaves}
        statistics.add_counts(self._nulls, nulls)


def encode_lines(batch: pa.RecordBatch, schema: Document) -> bytes:
    """A batch of the schema's Arrow schema as JSON lines, each ended by a newline."""
    names = [field["name"] for field in schema["fields"]]
    columns = [json_values.encode(batch.column(i), field["type"]) for i, field in enumerate(schema["fields"])]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return msgspec.json.Encoder().encode_lines(rows)


# Reading ----------------------------------------------------------------------------------------------------------------
Row = tuple[int, dict[str, Any]]  # a line's number and its object


def read_json_lines(
    source: pa.NativeFile, schema: Document, name: str, must: Sequence[str] = (), broken: BrokenRows | None = None
) -> pa.RecordBatchReader:
    """JSON lines as batches of the schema's Arrow schema; a missing column is null. Empty lines are passed over.

    Args:
        name: the file's, for messages.
        must: columns that may not be missing in all lines of a batch though they are optional.
        broken: where lines go that do not fit the schema, as objects, or that are no objects, as texts; none refuses the
            file. A last line that is not ended and cannot be read is refused: the file has been cut off there.

    Raises (when a batch is read):
        FileRefused: unreadable, unknown_column, missing_column, wrong_type, null_in_required, with the line's number.
    """
    wanted = Wanted(arrow_schema(schema), frozenset(must), write_defaults(schema))
    return pa.RecordBatchReader.from_batches(wanted.schema, _batches(source, schema, name, wanted, broken))


def _batches(
    source: pa.NativeFile, schema: Document, name: str, wanted: Wanted, broken: BrokenRows | None
) -> Iterator[pa.RecordBatch]:
    decoder = msgspec.json.Decoder(float_hook=Decimal if _has_decimals(schema) else None)
    lines = enumerate(_lines(source, name), start=1)

    def as_given(rows: list[Row], error: FileRefused) -> BrokenRow:
        number, row = rows[0]
        return BrokenRow(row, error.reason, str(error), {"file": name, "line": number})

    while chunk := list(itertools.islice(lines, ROWS_AT_A_TIME)):
        rows = list(_rows(decoder, chunk, name, broken))
        given = set().union(*(row.keys() for _, row in rows))  # of the chunk, also for a part of it
        convert = partial(_batch, schema=schema, name=name, wanted=wanted, given=given)
        if rows:
            yield from sift(rows, convert, broken, as_given)


def _lines(source: pa.NativeFile, name: str) -> Iterator[bytes]:
    try:
        first = True
        for line in io.BufferedReader(_decompressed(source), 1 << 20):
            yield line.removeprefix(b"\xef\xbb\xbf") if first else line
            first = False
    except (pa.ArrowException, OSError) as error:
        raise FileRefused("truncated", f"{name}: its compressed data ends or breaks in the middle: {error}") from error


def _decompressed(source: pa.NativeFile) -> Any:
    start = source.read(4)
    source.seek(0)
    codec = next((codec for magic, codec in _MAGIC.items() if start.startswith(magic)), None)
    return source if codec is None else pa.CompressedInputStream(source, codec)


def _has_decimals(schema: Document) -> bool:
    return any(types.decimal_parts(leaf.type) is not None for leaf in statistics.leaves(schema))


def _rows(decoder: Any, chunk: list[tuple[int, bytes]], name: str, broken: BrokenRows | None) -> Iterator[Row]:
    for number, line in chunk:
        if line.isspace():
            continue
        try:
            yield number, _row(decoder, line, number, name)
        except FileRefused as error:
            if broken is None or not line.endswith(b"\n"):
                raise
            broken.add(BrokenRow(_as_text(line), error.reason, str(error), {"file": name, "line": number}))


def _as_text(line: bytes) -> str | bytes:
    kept = line.rstrip(b"\r\n")
    try:
        return kept.decode()
    except UnicodeDecodeError:
        return kept


def _row(decoder: Any, line: bytes, number: int, name: str) -> dict[str, Any]:
    try:
        row = decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FileRefused("unreadable", f"{name}, line {number}: no JSON: {error}") from error
    if not isinstance(row, dict):
        kind = type(row).__name__  # its value may be one that is not to be shown
        raise FileRefused("unreadable", f"{name}, line {number}: no object, but a {kind}; give an object a line")
    return row


def _batch(rows: list[Row], schema: Document, name: str, wanted: Wanted, given: Set[str]) -> pa.RecordBatch:
    known = set(wanted.schema.names)
    for number, row in rows:
        if not row.keys() <= known:
            with _Line(name, number):
                check_names(list(row), wanted.schema.names)
    columns = [_column(rows, field, name, wanted, given) for field in schema["fields"]]
    return pa.RecordBatch.from_arrays(columns, schema=wanted.schema)


def _column(rows: list[Row], field: Document, name: str, wanted: Wanted, given: Set[str]) -> pa.Array:
    """`given`: the columns that any line of the chunk has, of which `rows` may be a part."""
    column = field["name"]
    target = wanted.schema.field(column)
    if column not in given:
        with _Line(name, rows[0][0]):
            wanted.check_missing(target)
        return wanted.filled(target, len(rows))
    values = [row.get(column) for _, row in rows]
    try:
        array = json_values.decode(values, field["type"], column)
    except FileRefused as error:
        _raise_at_line(rows, field, name, error)
    if array.null_count and not target.nullable:
        number = next(number for number, row in rows if row.get(column) is None)
        with _Line(name, number):
            raise null_in_required(column, array.null_count)
    return array


def _raise_at_line(rows: list[Row], field: Document, name: str, error: FileRefused) -> NoReturn:
    for number, row in rows:
        with _Line(name, number):
            json_values.decode([row.get(field["name"])], field["type"], field["name"])
    raise FileRefused(error.reason, f"{name}: {error}") from error


class _Line:
    """Adds the file and the line to a refusal."""

    def __init__(self, name: str, number: int) -> None:
        self._name, self._number = name, number

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, FileRefused):
            raise FileRefused(error.reason, f"{self._name}, line {self._number}: {error}") from error
