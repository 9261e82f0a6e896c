"""Reading a table's registered files as Arrow, without Spark: pruned by statistics and stored footers.

Columns are found by field id, so that a renamed column reads old files, an added one is null (or its initial default) in
them, a dropped one is gone, and a widened one is cast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.arrow import json_read, statistics
from lakeward.arrow.casts import Cast, Defaults, Key, by_name, cast_plan, filled, matched
from lakeward.arrow.coerce import Wanted, defaults_of
from lakeward.arrow.target import arrow_schema
from lakeward.errors import ColumnNotFound, InvalidInput, ObjectNotFound, PartitionMetadataNotFound, StorageError
from lakeward.storage.engine import StorageEngine
from lakeward.tables.records.files import RegisteredFile
from lakeward.tables.records.tables import Document, TableMetadata

if TYPE_CHECKING:
    from lakeward.arrow.filters import BoundFilter
    from lakeward.arrow.pruning import Pruner

FOOTERS_AT_A_TIME = 64
BATCH_ROWS = 1 << 16

LoadFooters = Callable[[list[str]], Mapping[str, "pq.FileMetaData | None"]]


def prepare(versions: Sequence[TableMetadata], columns: Sequence[str] | None = None, filter: Any = None) -> Reading:
    """What is to be read of a table whose metadata has these versions, the last being the current one.

    Args:
        columns: top-level columns; all without.
        filter: see `parse_filter`.

    Raises:
        ColumnNotFound, InvalidFilter, InvalidInput.
    """
    schema = versions[-1].schema
    bound, pruner = None, None
    if filter is not None:  # a scan of everything needs no PyIceberg
        from lakeward.arrow.filters import bind_filter, parse_filter
        from lakeward.arrow.pruning import Pruner

        if (parsed := parse_filter(filter)) is not None:
            bound = bind_filter(parsed, schema)
            pruner = Pruner(bound, {version.spec_id: version.partition_by for version in versions})
    return Reading(
        schema=schema,
        schemas_by_id={version.schema_version: version.schema for version in versions},
        chosen=_chosen(schema, columns),
        bound=bound,
        pruner=pruner,
    )


def scan_files(
    reading: Reading, files: Sequence[RegisteredFile], load_footer: LoadFooters, engine: StorageEngine
) -> pa.RecordBatchReader:
    """Rows of files, as batches of the chosen columns.

    Files are opened one after the other as batches are asked for; files and row groups that the filter rules out are not.

    Args:
        load_footer: footers by path, for at most 64 paths at a time. Only where it gives none for a path is the footer read
            from the object.

    Raises:
        InvalidInput: a file of deletes, which only an engine applies.
        PartitionMetadataNotFound: load_footer knows nothing of a path, when its batch is read.
        ObjectNotFound, StorageError: when a file is read.
    """
    deletes = next((file for file in files if file.content != 0), None)
    if deletes is not None:
        raise InvalidInput(
            f"{deletes.file_path} holds deletes, which this reader does not apply; read the table with Spark or PyIceberg"
        )
    return pa.RecordBatchReader.from_batches(reading.chosen, _batches(files, load_footer, engine, reading))


@dataclass(frozen=True)
class Reading:
    """The columns and the filter of a scan, made ready for one table."""

    schema: Document
    schemas_by_id: Mapping[int, Document]
    chosen: pa.Schema
    bound: BoundFilter | None
    pruner: Pruner | None

    def wants(self, file: RegisteredFile) -> bool:
        """Whether a file may hold rows that the filter keeps, by its statistics and partition."""
        return self.pruner is None or self.pruner.may_match(
            file.statistics, file.row_count, file.partition, file.spec_id
        )

    @property
    def needed(self) -> pa.Schema:
        """The chosen columns, and those that only the filter needs."""
        names = self.chosen.names
        more = [name for name in (self.bound.columns if self.bound else ()) if name not in names]
        whole = arrow_schema(self.schema)
        return pa.schema([*self.chosen, *(whole.field(name) for name in more)])


def _chosen(schema: Document, columns: Sequence[str] | None) -> pa.Schema:
    whole = arrow_schema(schema)
    if columns is None:
        return whole
    if isinstance(columns, str) or not columns:
        raise InvalidInput(f"columns {columns!r} names none; give a list of names, or None for all")
    for name in columns:
        if name not in whole.names:
            raise ColumnNotFound(f"column {name!r} is not in the table; it has {', '.join(whole.names[:20])}")
    if len(set(columns)) < len(columns):
        raise InvalidInput(f"columns {list(columns)} name one twice; name each once")
    return pa.schema([whole.field(name) for name in columns])


# Files ------------------------------------------------------------------------------------------------------------------
def _batches(
    files: Sequence[RegisteredFile], load_footer: LoadFooters, engine: StorageEngine, reading: Reading
) -> Iterator[pa.RecordBatch]:
    kept = filter(reading.wants, files)
    while group := list(islice(kept, FOOTERS_AT_A_TIME)):
        paths = [file.file_path for file in group if file.file_type == "parquet"]
        footers = load_footer(paths) if paths else {}
        for file in group:
            for batch in _there(file, _file_batches(file, footers, engine, reading)):
                filtered = batch if reading.bound is None else batch.filter(reading.bound.arrow)
                if filtered.num_rows:
                    yield filtered.select(reading.chosen.names)


def _there(file: RegisteredFile, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A file's batches; one that is gone is told as what it is to who has named no file."""
    try:
        yield from batches
    except ObjectNotFound as error:
        raise ObjectNotFound(
            f"{file.file_path} is registered, but not there any more; `lakeward audit TABLE` lists all that its table lacks: "
            "bring them back from a backup, or take their partitions out"
        ) from error


def _file_batches(
    file: RegisteredFile, footers: Mapping[str, pq.FileMetaData | None], engine: StorageEngine, reading: Reading
) -> Iterator[pa.RecordBatch]:
    if file.file_type == "json":
        return _json_batches(file, engine, reading)
    if file.file_path not in footers:
        raise PartitionMetadataNotFound(
            f"no footer is stored for {file.file_path}; `lakeward footers rebuild TABLE` reads the table's footers again"
        )
    return _parquet_batches(file, footers[file.file_path], engine, reading)


def _json_batches(file: RegisteredFile, engine: StorageEngine, reading: Reading) -> Iterator[pa.RecordBatch]:
    written = reading.schemas_by_id[file.schema_id]
    plan = _plan(arrow_schema(written), reading)
    with engine.open_input(file.file_path) as source:
        for batch in json_read.read_json_lines(source, Wanted.of(written), file.file_path):
            yield _run(plan, batch, reading.needed)


def _parquet_batches(
    file: RegisteredFile, footer: pq.FileMetaData | None, engine: StorageEngine, reading: Reading
) -> Iterator[pa.RecordBatch]:
    with engine.open_input(file.file_path) as source:
        try:
            opened = pq.ParquetFile(source, metadata=footer, pre_buffer=engine.name != "local")
            groups = _row_groups(opened.metadata, reading.pruner)
            if groups:
                yield from _group_batches(opened, groups, reading)
        except (pa.ArrowException, OSError) as error:
            raise StorageError(
                f"cannot read {file.file_path}: it is damaged, or the storage broke off; try again, and "
                "`lakeward audit TABLE --checksums` says whether it is damaged"
            ) from error


def _row_groups(footer: pq.FileMetaData, pruner: Pruner | None) -> list[int]:
    return list(range(footer.num_row_groups)) if pruner is None else pruner.row_groups(footer)


def _group_batches(opened: pq.ParquetFile, groups: list[int], reading: Reading) -> Iterator[pa.RecordBatch]:
    have = opened.schema_arrow
    plan = _plan(have, reading)
    names = [have.field(index).name for index, _ in plan if index is not None]
    if not names:
        rows = sum(opened.metadata.row_group(group).num_rows for group in groups)
        yield _run(plan, pa.RecordBatch.from_struct_array(pa.nulls(rows, pa.struct([]))), reading.needed)
        return
    for batch in opened.iter_batches(batch_size=BATCH_ROWS, row_groups=groups, columns=names):
        indexes = {field.name: i for i, field in enumerate(batch.schema)}
        here = [(None if p is None else indexes[have.field(p).name], cast) for p, cast in plan]
        yield _run(here, batch, reading.needed)


# Columns by field id ----------------------------------------------------------------------------------------------------
_Plan = Sequence[tuple[int | None, Cast]]


def _plan(have: pa.Schema, reading: Reading) -> _Plan:
    # A file without any id was made by a program that knows names alone.
    key: Key = statistics.field_id if any(statistics.field_id(field) is not None for field in have) else by_name
    defaults = defaults_of(reading.schema, "initial-default")
    plan: list[tuple[int | None, Cast]] = []
    for index, field in zip(matched(have, reading.needed, key), reading.needed, strict=True):
        if index is None:
            plan.append((None, partial(_missing, field, defaults)))
        else:
            plan.append((index, cast_plan(have.field(index), field, key, field.name, "drop", defaults)))
    return plan


def _missing(field: pa.Field, defaults: Defaults, rows: pa.Array) -> pa.Array:
    return filled(field, len(rows), defaults)


def _run(plan: _Plan, batch: pa.RecordBatch, needed: pa.Schema) -> pa.RecordBatch:
    rows = pa.nulls(batch.num_rows)
    columns = [cast(rows if index is None else batch.column(index)) for index, cast in plan]
    return pa.RecordBatch.from_arrays(columns, schema=needed)
