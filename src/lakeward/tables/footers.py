"""The footers of Parquet files: a cache in the registry that lives and dies with its files, and can be rebuilt."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import TypeVar

import msgspec
import pyarrow.parquet as pq
import sqlalchemy as sa

from lakeward.batching import batched
from lakeward.db import dialect, lock_order
from lakeward.db.retry import retried
from lakeward.errors import FileRefused, PartitionMetadataNotFound
from lakeward.registry.handle import Registry
from lakeward.storage.parquet_footers import decode_footer, encode_footer, read_footer
from lakeward.tables import pages
from lakeward.tables.choosing import Reader, wanted_files
from lakeward.tables.records.files import PartitionMetadata, RegisteredFile
from lakeward.tables.records.properties import FOOTERS
from lakeward.tables.records.tables import Table, TableMetadata
from lakeward.tables.sql import files, footers, retired
from lakeward.tables.tables import Which, find_which, table_of

DELETE_SECONDS = 0.02  # of one transaction that deletes: other writers wait about as long
DELETE_FIRST, DELETE_MOST = 500, 20_000  # paths a transaction, at first and at most
LOAD_BATCH = 1_000
REBUILD_BATCH = 200


class Plan(msgspec.Struct, frozen=True):
    """What a scan reads, as of one moment: the table, all versions of its metadata, the files, and their footers as stored.

    Footers are decoded when they are asked for (`loader`): a table may have more than memory should hold at once.
    """

    table: Table
    versions: list[TableMetadata]  # oldest first
    files: list[RegisteredFile]
    footers: dict[str, PartitionMetadata]


R = TypeVar("R", bound=Reader)


def load_partition_metadata(registry: Registry, path: str) -> pq.FileMetaData:
    """The footer of a file.

    One that cannot be decoded here, or was too large to be stored, is read from the object.

    Raises:
        PartitionMetadataNotFound: there is no row for the path.
        ObjectNotFound, StorageError: the object had to be read, and cannot be.
    """
    with registry.database.read() as connection:
        found = footers.load(connection, [path])
    if not found:
        raise PartitionMetadataNotFound(
            f"no footer is stored for {path}; `lakeward footers rebuild TABLE` reads those of a table again"
        )
    return _decoded(found[0]) or _read_again(registry, found[0])


def _decoded(row: PartitionMetadata) -> pq.FileMetaData | None:
    if row.metadata is None:
        return None
    try:
        return decode_footer(row.metadata)
    except FileRefused:  # written by another version: the object has the footer
        return None


def _read_again(registry: Registry, row: PartitionMetadata) -> pq.FileMetaData:
    """The object's own footer, which replaces the stored one if it fits."""
    footer = read_footer(registry.engine(row.file_path), row.file_path)
    data = encode_footer(footer)
    fits = len(data) <= registry.settings.footer_limit
    if fits or row.metadata is not None:
        _replace(registry, row.file_path, data if fits else None, len(data))
    return footer


@retried
def _replace(registry: Registry, path: str, data: bytes | None, size: int) -> None:
    with registry.database.transaction() as connection:
        footers.replace(connection, path, data, size)


def plan(registry: Registry, which: Which, prepare: Callable[[list[TableMetadata]], R]) -> tuple[Plan, R]:
    """The files that a reader wants, their footers, and the reader that `prepare` makes for the table's versions.

    One read transaction: whatever is retired, cleaned or dropped meanwhile, files and footers belong together.

    Raises:
        TableNotFound, InvalidName; and what `prepare` raises.
    """
    try:
        return _planned(registry, which, prepare, without_pages=False)
    except pages.PagesMissed:
        pages.make_if_possible(registry, table_of(registry, which).table_id)
        return _planned(registry, which, prepare, without_pages=True)


def _planned(
    registry: Registry, which: Which, prepare: Callable[[list[TableMetadata]], R], *, without_pages: bool
) -> tuple[Plan, R]:
    with registry.database.read() as connection:
        table = find_which(connection, registry, which)
        versions = registry.metadata_versions(connection, table.table_id, table.version)
        reader = prepare(versions)
        chosen = list(wanted_files(connection, table.table_id, reader, without_pages=without_pages))
        return _plan(connection, table, versions, chosen), reader


def plan_listed(
    registry: Registry,
    table: Table,
    paths: Collection[str],
    schema_id: int,
    prepare: Callable[[list[TableMetadata]], R],
) -> tuple[Plan, R] | None:
    """As `plan`, of files that a snapshot lists, live or in quarantine, under a schema; None where one is neither.

    Raises what `prepare` raises.
    """
    with registry.database.read() as connection:
        versions = registry.metadata_versions(connection, table.table_id, table.version)
        while versions[-1].schema_version != schema_id:
            versions = versions[:-1]
        reader = prepare(versions)
        listed = [file for part in batched(paths, LOAD_BATCH) for file in files.by_paths(connection, part)]
        gone = set(paths) - {file.file_path for file in listed}
        left = [row for part in batched(gone, LOAD_BATCH) for row in retired.by_paths(connection, part)]
        listed += [row.as_registered() for row in left if row.ended_at is None]
        if len(listed) != len(paths):
            return None
        listed.sort(key=lambda file: file.file_id)
        return _plan(connection, table, versions, [file for file in listed if reader.wants(file)]), reader


def _plan(connection: sa.Connection, table: Table, versions: list[TableMetadata], chosen: list[RegisteredFile]) -> Plan:
    paths = (file.file_path for file in chosen if file.file_type == "parquet")
    found = [row for part in batched(paths, LOAD_BATCH) for row in footers.load(connection, part)]
    return Plan(table, versions, chosen, {row.file_path: row for row in found})


def loader(registry: Registry, planned: Plan) -> Callable[[list[str]], dict[str, pq.FileMetaData | None]]:
    """What gives a scan the footers of a plan, some paths at a time; None where it must read the object's own.

    Where the table stores footers on first use, those that are missing are read from the objects, and stored.
    """
    stores_on_use = FOOTERS.of(planned.versions[-1].properties) == "on-first-use"

    def load(paths: list[str]) -> dict[str, pq.FileMetaData | None]:
        rows = {path: planned.footers.get(path) for path in paths}
        known = {path: None if row is None else _decoded(row) for path, row in rows.items()}
        missing = [path for path, row in rows.items() if row is None] if stores_on_use else []
        if not missing:
            return known
        engine = registry.engine(planned.table.location)
        read = {path: read_footer(engine, path) for path in missing}
        _store(registry, planned.table, {path: encode_footer(footer) for path, footer in read.items()})
        return {**known, **read}

    return load


def rebuild(registry: Registry, table: Table) -> int:
    """Read the footers of a table's live Parquet files again from the objects and store them; how many were.

    Raises:
        ObjectNotFound, StorageError: a file cannot be read; those before it are stored.
    """
    with registry.database.read() as connection:
        live = files.live_in_pages(connection, table.table_id, LOAD_BATCH)
        paths = [file.file_path for file in live if file.file_type == "parquet"]
    engine = registry.engine(table.location)
    for part in batched(paths, REBUILD_BATCH):
        read = {path: encode_footer(read_footer(engine, path)) for path in part}
        _store(registry, table, read)
    return len(paths)


@retried
def _store(registry: Registry, table: Table, read: Mapping[str, bytes]) -> None:
    with registry.database.transaction() as connection:
        lock_order.tables(connection, [table.table_id])
        now = dialect.now(connection)
        still = {file.file_path for file in files.by_paths(connection, read)}  # a file may have left meanwhile
        footers.delete(connection, still)
        kept = [(path, data) for path, data in read.items() if path in still]
        footers.insert(connection, table.table_id, kept, registry.settings.footer_limit, now)


def delete_partition_metadata_batch(registry: Registry, paths: Iterable[str]) -> int:
    """Delete the footers of any number of paths; how many there were.

    Each transaction takes as many as the one before says can be deleted in a moment, so that other writers hardly wait.
    """
    remaining = iter(paths)
    deleted, size = 0, DELETE_FIRST
    while part := list(islice(remaining, size)):
        gone, seconds = _delete_part(registry, part)
        deleted += gone
        size = max(1, min(int(size * min(DELETE_SECONDS / seconds, 4.0)), DELETE_MOST))
    return deleted


@retried
def _delete_part(registry: Registry, paths: list[str]) -> tuple[int, float]:
    """(how many there were, the seconds that it took)."""
    with registry.database.transaction() as connection:
        started = time.perf_counter()  # not before: waiting for others says nothing of the size
        deleted = footers.delete(connection, paths)
    return deleted, max(time.perf_counter() - started, 1e-6)
