"""Whether a Parquet file that somebody brings fits a table, and whether it can be taken as it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from lakeward.arrow import statistics
from lakeward.arrow.casts import Key, by_name
from lakeward.arrow.coerce import Plan, Wanted, schema_plan
from lakeward.arrow.nested import inner_fields, null_in_required
from lakeward.arrow.target import TableTarget
from lakeward.errors import FileRefused, LakewardError
from lakeward.iceberg import schemas
from lakeward.iceberg.types import walk
from lakeward.storage.engine import StorageEngine
from lakeward.tables.records.tables import Document

DAMAGED = (
    "its data cannot be read: a page of it is damaged, or of a kind that no reader here knows; write the file anew"
)


@dataclass(frozen=True)
class ParquetSource:
    """A Parquet file that fits. `fits_as_it_is`: it has the table's field ids, types and codec, and statistics, and all of its
    rows fit."""

    name: str
    location: str
    engine: StorageEngine
    metadata: pq.FileMetaData
    schema: pa.Schema
    plan: Plan
    fits_as_it_is: bool


def check(name: str, location: str, engine: StorageEngine, target: TableTarget, wanted: Wanted) -> ParquetSource:
    """Check a file against a table by its footer; of its data only required columns without null counts are read. Where the
    target takes rows that do not fit, nulls in those columns are left to whoever reads the rows.

    Raises:
        FileRefused: with the file's name: truncated, unreadable, wrong_format, unknown_column, missing_column, wrong_type,
            unknown_field_id or null_in_required.
    """
    metadata = read_footer(name, location, engine)
    try:
        schema = metadata.schema.to_arrow_schema()
        key = matching_key(schema, target.schema)
        plan = schema_plan(schema, wanted, key)
        with_nulls = _column_with_nulls(location, engine, metadata, schema, plan, wanted)
        if with_nulls is not None and target.broken is None:
            raise null_in_required(with_nulls)
    except (pa.ArrowException, OSError) as error:
        raise FileRefused("unreadable", f"{name}: {DAMAGED}") from error
    except FileRefused as error:
        raise FileRefused(error.reason, f"{name}: {error}") from error
    except LakewardError as error:
        raise FileRefused("wrong_type", f"{name}: {error}") from error
    fits = (
        with_nulls is None
        and not plan.strays
        and key is statistics.field_id
        and _same_types(schema, target.arrow_schema)
        and _has_codec(metadata, target.codec)
        and _has_statistics(metadata, schema, target.schema)
        and _has_what_is_written(schema, target.schema)
    )
    return ParquetSource(name, location, engine, metadata, schema, plan, fits)


def read_footer(name: str, location: str, engine: StorageEngine) -> pq.FileMetaData:
    """A file's own footer.

    Raises:
        FileRefused: truncated (the end is missing), wrong_format (encrypted) or unreadable.
    """
    with engine.open_input(location) as source:
        size = source.size()
        source.seek(max(size - 4, 0))
        end = source.read(4)
        source.seek(0)
        if source.read(4) == b"PARE" or end == b"PARE":
            raise FileRefused("wrong_format", f"{name} is an encrypted Parquet file; decrypt it before")
        if size < 12 or end != b"PAR1":
            raise FileRefused("truncated", f"{name} is a Parquet file whose end is missing; copy it again")
        source.seek(0)
        try:
            return pq.read_metadata(source)
        except (pa.ArrowException, OSError) as error:
            raise FileRefused(
                "unreadable", f"{name} has a footer that cannot be read; copy the file again, or write it anew"
            ) from error


# By field id or by name ---------------------------------------------------------------------------------------------------
def matching_key(schema: pa.Schema, table: Document) -> Key:
    """What a file's columns are matched by: field ids if all of them are the table's own, else names.

    Ids that other programs number by themselves can be the table's by chance. So where ids and names disagree, ids count
    only if the file's names are no names of the table (then columns were renamed since).

    Raises:
        FileRefused (unknown_field_id): a column's id and its name mean two different columns of the table.
    """
    have = dict(_ids((field.name, field) for field in schema))
    if not have or None in have.values():
        return by_name
    twice = next((i for i in have.values() if list(have.values()).count(i) > 1), None)
    if twice is not None:
        raise FileRefused(
            "unknown_field_id", f"two columns have the field id {twice}; write the file with one for each"
        )
    paths = {column.field_id: column.path for column in schemas.columns(table)}
    if any(field_id not in paths for field_id in have.values()):
        return by_name
    names = set(paths.values())
    for path, field_id in have.items():
        assert field_id is not None
        if paths[field_id] != path and path in names:
            raise FileRefused(
                "unknown_field_id",
                f"column {'.'.join(path)!r} has the field id {field_id}, which the table knows as {'.'.join(paths[field_id])!r}; "
                "write the file without field ids, or with the table's",
            )
    return statistics.field_id


def _ids(
    fields: Iterable[tuple[str, pa.Field]], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], int | None]]:
    """The field id of each field, at every depth, by its path."""
    for name, field in fields:
        path = (*above, name)
        yield path, statistics.field_id(field)
        yield from _ids(inner_fields(field.type), path)


# Nulls ------------------------------------------------------------------------------------------------------------------
def _column_with_nulls(
    location: str, engine: StorageEngine, metadata: pq.FileMetaData, schema: pa.Schema, plan: Plan, wanted: Wanted
) -> str | None:
    """The first required column that has nulls: by the footer, and where that does not say, by its data."""
    unknown: list[str] = []
    leaf_names = [field.name for field in schema for _ in statistics.leaf_field_ids([field])]
    for (index, _), field in zip(plan.columns, wanted.schema, strict=True):
        if index is None or field.nullable or not schema.field(index).nullable:
            continue
        name = schema.field(index).name
        count = None if pt.is_nested(field.type) else _null_count(metadata, leaf_names.index(name))
        if count:
            return str(field.name)
        if count is None:
            unknown.append(name)
    if unknown:
        with engine.open_input(location) as source:
            for batch in pq.ParquetFile(source, metadata=metadata).iter_batches(columns=unknown):
                for name in unknown:
                    if batch.column(batch.schema.get_field_index(name)).null_count:
                        return name
    return None


def _null_count(metadata: pq.FileMetaData, leaf: int) -> int | None:
    total = 0
    for group in range(metadata.num_row_groups):
        column = metadata.row_group(group).column(leaf)
        if not column.is_stats_set or not column.statistics.has_null_count:
            return None
        total += column.statistics.null_count
    return total


# As it is ---------------------------------------------------------------------------------------------------------------
def _same_types(schema: pa.Schema, target: pa.Schema) -> bool:
    by_id = {statistics.field_id(field): field for field in target}
    return all(_same(field, by_id[statistics.field_id(field)]) for field in schema)


def _same(field: pa.Field, target: pa.Field) -> bool:
    """Whether a column is stored exactly as the table would; a required one may not be optional inside structs and lists."""
    have, wanted = inner_fields(field.type), inner_fields(target.type)
    if not have and not wanted:
        return bool(field.type == target.type)
    if field.type.id != target.type.id:
        return False
    by_id = {statistics.field_id(inner): inner for _, inner in wanted}
    return len(have) == len(wanted) and all(
        statistics.field_id(inner) in by_id
        and (by_id[statistics.field_id(inner)].nullable or not inner.nullable)
        and _same(inner, by_id[statistics.field_id(inner)])
        for _, inner in have
    )


def _has_codec(metadata: pq.FileMetaData, codec: str) -> bool:
    # pyarrow writes LZ4 as LZ4_RAW and reads both as LZ4.
    wanted = {"none": "UNCOMPRESSED"}.get(codec, codec.upper())
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    return all(group.column(i).compression == wanted for group in groups for i in range(metadata.num_columns))


def _has_statistics(metadata: pq.FileMetaData, schema: pa.Schema, table: Document) -> bool:
    """Of all columns but uuids, which may have none, and no dictionary: see `arrow_write.columns_with_statistics`."""
    types = {leaf.field_id: leaf.type for leaf in statistics.leaves(table)}
    is_uuid = [field_id is not None and types.get(field_id) == "uuid" for field_id in statistics.leaf_field_ids(schema)]
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    return all(
        column.is_stats_set != uuid and not (uuid and column.has_dictionary_page)
        for group in groups
        for column, uuid in zip((group.column(i) for i in range(metadata.num_columns)), is_uuid, strict=True)
    )


def _has_what_is_written(schema: pa.Schema, table: Document) -> bool:
    """Whether the file has each field that a write fills in where it is missing, inside structs too: readers would have null, or
    what was the default when the field came.
    """
    have = set(statistics.leaf_field_ids(schema))
    return all(column.field.get("write-default") is None or column.field_id in have for column in walk(table))
