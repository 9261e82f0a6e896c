"""Files that exist already, Parquet, JSON or CSV, taken into a table. The originals are read and never touched.

All files are checked before the first one is copied: a refusal leaves nothing half done. A Parquet file that could have
been written by this table's own writer is copied byte for byte; any other one is rewritten.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.arrow import csv_read, json_lines, json_read, parquet_check, splitting, statistics, text_files
from lakeward.arrow.broken_rows import BrokenRow, BrokenRows, numbered, record_of, sift
from lakeward.arrow.coerce import Wanted, checked_values, run
from lakeward.arrow.file_writer import HashingOutput, Part, partition_terms, write_files
from lakeward.arrow.parquet_check import DAMAGED, ParquetSource
from lakeward.arrow.target import TableTarget
from lakeward.arrow.write import ParquetSink
from lakeward.errors import FileRefused, ObjectNotFound
from lakeward.storage.engine import CHUNK_SIZE, StorageEngine
from lakeward.storage.engines import engine_for, engine_name
from lakeward.storage.locations import LOCAL_SCHEME, S3_SCHEME
from lakeward.storage.parquet_footers import encode_footer
from lakeward.tables.records.files import DataFile, PartitionValues, partition_key, shown_path
from lakeward.tables.records.properties import REDACTED_COLUMNS

_PARQUET_MAGIC = (b"PAR1", b"PARE")
_LINES_ENDINGS = (".jsonl", ".ndjson")
_COMPRESSED_ENDINGS = (".gz", ".gzip", ".zst", ".zstd")


# (open file, the columns that are wanted, the file's name, where broken rows go) -> batches
ReadText = Callable[[pa.NativeFile, Wanted, str, BrokenRows | None], Iterable[pa.RecordBatch]]


@dataclass(frozen=True)
class TextSource:
    """A file of JSON or CSV whose every row has been checked."""

    name: str
    location: str
    engine: StorageEngine
    read: ReadText


def import_files(target: TableTarget, paths: Iterable[str | os.PathLike[str]]) -> list[DataFile]:
    """Copy or rewrite files into the intent's prefix, as files of the table. Nothing is registered.

    `paths`: local paths, or 's3://' locations, which are read with the table's own settings if it stands on S3 too. Columns
    are matched by field id if the file carries the table's ids, else by name; values are taken by the rule of `accepted`.
    JSON is told from its first character or its name, CSV by its name (.csv, .tsv). Rewritten files are merged, split by
    partition and sorted like any write. Files without rows give none.

    Rows that do not fit go to `target.broken`, if there is one; a Parquet file with such rows is rewritten. Columns none of
    whose values could fit, or that are missing and must not, refuse the file.

    Raises:
        FileRefused: with the file and the column or line: not_found, unreadable, truncated, wrong_format, unknown_column,
            missing_column, wrong_type, unknown_field_id, null_in_required, or changed (while it was read).
        StorageError: a file could not be read or written.
    """
    wanted = Wanted.of(
        target.schema,
        partition_terms(target),
        judges=target.broken is not None,
        properties=target.metadata.properties,
    )
    places = [(shown_path(path), *located(target.engine, os.fspath(path))) for path in paths]
    versions = [_version(location, engine) for _, location, engine in places]
    sources = [_source(target, *where, wanted) for where in places]
    as_parquet = target.metadata.format != "json"
    files: list[DataFile] = []
    rewritten: list[ParquetSource | TextSource] = []
    for source in sources:
        partition = _single_partition(target, source) if as_parquet and isinstance(source, ParquetSource) else None
        if partition is None or not isinstance(source, ParquetSource):
            rewritten.append(source)
        elif source.metadata.num_rows:
            copied = _copy(target, source, partition)
            if copied is None:
                rewritten.append(source)
            else:
                files.append(copied)
    sink = ParquetSink if as_parquet else json_lines.JsonSink
    files += write_files(target, _batches(target, rewritten, wanted), sink)
    for source, was in zip(sources, versions, strict=True):
        if _version(source.location, source.engine) != was:
            raise FileRefused("changed", f"{source.name} was changed while it was read; append it once it is complete")
    return files


# Checks -----------------------------------------------------------------------------------------------------------------
def _source(
    target: TableTarget, path: str, location: str, engine: StorageEngine, wanted: Wanted
) -> ParquetSource | TextSource:
    """A Parquet file is checked by its footer; a text, when it is read: what was written until then is the intent's to undo."""
    read = _reader_of_text(path, location, engine, quotes=not REDACTED_COLUMNS.of(target.metadata.properties))
    if read is None:
        return parquet_check.check(path, location, engine, target, wanted)
    return TextSource(path, location, engine, read)


def located(own: StorageEngine, path: str) -> tuple[str, StorageEngine]:
    """The location of a file that a person names, and what reads it: the table's own engine, or one of another kind.

    Raises:
        FileRefused: wrong_format, a folder, a pipe or the like.
    """
    location = path if path.startswith((LOCAL_SCHEME, S3_SCHEME)) else LOCAL_SCHEME + os.path.abspath(path)
    engine = own if engine_name(location) == own.name else engine_for(location)
    if engine.name == "local":
        local = location.removeprefix(LOCAL_SCHEME)
        if os.path.isdir(local):
            raise FileRefused("wrong_format", f"{path or 'an empty path'} is a folder; name the files in it")
        if os.path.exists(local) and not os.path.isfile(local):  # a pipe would be waited for
            raise FileRefused("wrong_format", f"{path} is no regular file; write what comes from it to one")
    return location, engine


def _version(location: str, engine: StorageEngine) -> tuple[int, datetime] | None:
    """What tells that a file is still the same one; None if it is not there."""
    try:
        return engine.size(location), engine.modified(location)
    except ObjectNotFound:
        return None


def _reader_of_text(path: str, location: str, engine: StorageEngine, *, quotes: bool = True) -> ReadText | None:
    """What reads a file by its first character or its name; None for Parquet. `quotes`: a refusal may show how it begins.

    Raises:
        FileRefused: not_found, truncated (an empty file) or wrong_format.
    """
    try:
        with engine.open_input(location) as source:
            start = source.read(4)
            if start in _PARQUET_MAGIC:
                return None
            head = _head(source)
    except ObjectNotFound as error:
        raise FileRefused("not_found", f"{path}: there is no such file; check the path") from error
    name = location.lower()
    for ending in _COMPRESSED_ENDINGS:
        name = name.removesuffix(ending)
    if name.endswith(".csv"):
        return csv_read.read_csv
    if name.endswith(".tsv"):
        return partial(csv_read.read_csv, delimiter="\t")
    if head.startswith(b"[") and not name.endswith(_LINES_ENDINGS):
        return json_read.read_json_array
    if head.startswith(b"{") or name.endswith((".json", *_LINES_ENDINGS)):
        return json_read.read_json_lines
    if not start:
        raise FileRefused("truncated", f"{path} is empty; a Parquet file without rows has a footer all the same")
    seen = f" It begins with {head.decode(errors='replace').splitlines()[0]!r}" if quotes and head else ""
    raise FileRefused(
        "wrong_format",
        f"{path} is neither Parquet nor JSON, nor CSV by its name (.csv, .tsv) or by --format csv, which is for standard input "
        f"and pipes; convert it, rename it, or say its format.{seen}",
    )


def _head(source: pa.NativeFile) -> bytes:
    """The first characters of a text, whatever it is compressed with."""
    try:
        return bytes(text_files.decompressed(source).read(64)).lstrip(text_files.BOM + b" \t\r\n")
    except (pa.ArrowException, OSError):
        return b""  # who reads it says what is wrong


# Copies -----------------------------------------------------------------------------------------------------------------
def _single_partition(target: TableTarget, source: ParquetSource) -> PartitionValues | None:
    """The one partition that all rows are in, if the file can be taken byte for byte; None if it must be rewritten."""
    if not source.fits_as_it_is:
        return None
    spec_terms = splitting.terms(target.spec["fields"], target.schema)
    if not spec_terms or not source.metadata.num_rows:
        return {}
    columns = sorted({term.source.path[0] for term in spec_terms})
    found: dict[str, PartitionValues] = {}
    with source.engine.open_input(source.location) as opened:
        file = pq.ParquetFile(opened, metadata=source.metadata)
        ids = {field["name"]: field["id"] for field in target.schema["fields"]}
        names = {statistics.field_id(field): field.name for field in source.schema}
        for batch in file.iter_batches(columns=[names[ids[column]] for column in columns]):
            try:
                checked_values(batch)
                renamed = batch.rename_columns([_current(target, field) for field in batch.schema])
                splitting.check_held(renamed, spec_terms)
            except FileRefused:
                return None  # for its rows to be refused one by one
            for values, _ in splitting.split(renamed, spec_terms):
                found[partition_key(values)] = values
            if len(found) > 1:
                return None
    return next(iter(found.values()))


def _current(target: TableTarget, field: pa.Field) -> str:
    """The name that the table has for a file's column, by field id."""
    wanted = statistics.field_id(field)
    name: str = next((f["name"] for f in target.schema["fields"] if f["id"] == wanted), field.name)
    return name


def _copy(target: TableTarget, source: ParquetSource, partition: PartitionValues) -> DataFile | None:
    """None: some of its values are damaged, and it must be rewritten without those rows."""
    location = target.next_location("parquet")
    with source.engine.open_input(source.location) as opened, target.engine.open_output(location) as output:
        hashing = HashingOutput(output)
        while chunk := opened.read(CHUNK_SIZE):
            hashing.write(chunk)
    try:
        _check_pages(target.engine, location, source.name)
    except FileRefused as error:
        if target.broken is None or error.reason != "wrong_type":
            raise
        target.engine.delete([location], below=target.location)
        return None
    part = Part.of(target, partition)
    return DataFile(
        path=location,
        size=hashing.tell(),
        row_count=source.metadata.num_rows,
        schema_id=target.schema["schema-id"],
        spec_id=target.spec["spec-id"],
        partition=partition,
        partition_path=part.path,
        statistics=statistics.from_footer(source.metadata, target.schema),
        split_offsets=statistics.split_offsets(source.metadata),
        checksum=hashing.checksum,
        is_compressed=target.is_compressed,
        footer=encode_footer(source.metadata),
    )


def _check_pages(engine: StorageEngine, location: str, name: str) -> None:
    """Read every page once: a footer says nothing of them, and one damaged page or text would make the table unreadable.

    Raises:
        FileRefused: unreadable (a page), or wrong_type (a value).
    """
    with engine.open_input(location) as opened:
        try:
            for batch in pq.ParquetFile(opened, page_checksum_verification=True).iter_batches():
                checked_values(batch)
        except FileRefused as error:
            raise FileRefused(error.reason, f"{name}: {error}") from error
        except (pa.ArrowException, OSError) as error:
            raise FileRefused("unreadable", f"{name}: {DAMAGED}") from error


# Rewriting --------------------------------------------------------------------------------------------------------------
def _batches(
    target: TableTarget, sources: Sequence[ParquetSource | TextSource], wanted: Wanted
) -> Iterator[pa.RecordBatch]:
    for source in sources:
        if isinstance(source, TextSource):
            with source.engine.open_input(source.location) as opened:
                yield from source.read(opened, wanted, source.name, target.broken)
        else:
            yield from _parquet_batches(source, wanted, target.broken)


def _parquet_batches(source: ParquetSource, wanted: Wanted, broken: BrokenRows | None) -> Iterator[pa.RecordBatch]:
    def as_given(some: pa.RecordBatch, error: FileRefused, number: int) -> BrokenRow:
        return numbered(record_of(some), error, number, source.name)

    first = 1  # the number of the batch's first row
    with source.engine.open_input(source.location) as opened:
        file = pq.ParquetFile(opened, metadata=source.metadata)
        try:
            for batch in file.iter_batches():
                yield from sift(batch, lambda some: run(source.plan, some, wanted), broken, as_given, first)
                first += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise FileRefused("unreadable", f"{source.name}: {DAMAGED}") from error
