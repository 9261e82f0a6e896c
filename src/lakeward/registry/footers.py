"""The footers of Parquet files: a cache in the registry that lives and dies with its files, and can be rebuilt."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

import msgspec
import pyarrow.parquet as pq
import sqlalchemy as sa

from lakeward.batching import batched
from lakeward.errors import FileRefused, PartitionMetadataNotFound
from lakeward.model.files import PartitionMetadata, RegisteredFile
from lakeward.model.tables import Table
from lakeward.registry.handle import Registry
from lakeward.registry.registration import FOOTERS_PROPERTY
from lakeward.registry.tables import metadata_in
from lakeward.storage.parquet_footers import decode_footer, encode_footer, read_footer
from lakeward.store import dialect, files, footers

DELETE_SECONDS = 0.04  # of one transaction that deletes: other writers wait about as long
DELETE_FIRST, DELETE_MOST = 500, 20_000  # paths a transaction, at first and at most
ON_FIRST_USE = "on-first-use"  # a value of the table's property `lakeward.footers`
LOAD_BATCH = 1_000
REBUILD_BATCH = 200


class Plan(msgspec.Struct, frozen=True):
    """The live files of a table and their footers as of one moment. No footer: it is not stored, read the object's own."""

    files: list[RegisteredFile]
    footers: dict[str, pq.FileMetaData]
    missing: frozenset[
        str
    ]  # Parquet files without a row: the table's property `lakeward.footers` wants none, or none yet


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


def load_many(
    registry: Registry, paths: Iterable[str], connection: sa.Connection | None = None
) -> dict[str, pq.FileMetaData | None]:
    """The stored footers of many files, by path; none for one that is not stored whole, or cannot be decoded here.

    A path without a row is left out. With `connection`, as of its transaction.
    """
    if connection is None:
        with registry.database.read() as opened:
            return load_many(registry, paths, opened)
    rows = [row for part in batched(paths, LOAD_BATCH) for row in footers.load(connection, part)]
    return {row.file_path: _decoded(row) for row in rows}


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
        with registry.database.transaction() as connection:
            footers.replace(connection, row.file_path, data if fits else None, len(data))
    return footer


def plan(registry: Registry, table: Table) -> Plan:
    """Files and footers in one read transaction: whatever is retired or cleaned meanwhile, they belong together."""
    with registry.database.read() as connection:
        live = files.live(connection, table.table_id)
        paths = [file.file_path for file in live if file.file_type == "parquet"]
        found = load_many(registry, paths, connection)
    whole = {path: footer for path, footer in found.items() if footer is not None}
    return Plan(live, whole, frozenset(paths) - found.keys())


def loader(registry: Registry, table: Table, planned: Plan) -> Callable[[list[str]], dict[str, pq.FileMetaData | None]]:
    """What gives a scan the footers of a plan, some paths at a time; none where it must read the object's own.

    Where the table stores footers on first use, those that are missing are read from the objects, and stored.
    """
    with registry.database.read() as connection:
        policy = metadata_in(connection, table).properties.get(FOOTERS_PROPERTY)

    def load(paths: list[str]) -> dict[str, pq.FileMetaData | None]:
        known: dict[str, pq.FileMetaData | None] = {path: planned.footers.get(path) for path in paths}
        new = [path for path in paths if path in planned.missing] if policy == ON_FIRST_USE else []
        if not new:
            return known
        engine = registry.engine(table.location)
        read = {path: read_footer(engine, path) for path in new}
        _store(registry, table, {path: encode_footer(footer) for path, footer in read.items()})
        return {**known, **read}

    return load


def rebuild(registry: Registry, table: Table) -> int:
    """Read the footers of a table's live Parquet files again from the objects and store them; how many were.

    Raises:
        ObjectNotFound, StorageError: a file cannot be read; those before it are stored.
    """
    with registry.database.read() as connection:
        live = files.live(connection, table.table_id)
    paths = [file.file_path for file in live if file.file_type == "parquet"]
    engine = registry.engine(table.location)
    for part in batched(paths, REBUILD_BATCH):
        read = {path: encode_footer(read_footer(engine, path)) for path in part}
        _store(registry, table, read)
    return len(paths)


def _store(registry: Registry, table: Table, read: Mapping[str, bytes]) -> None:
    limit = registry.settings.footer_limit
    with registry.database.transaction() as connection:
        dialect.lock_tables(connection, [table.table_id])
        now = dialect.now(connection)
        still = {file.file_path for file in files.by_paths(connection, read)}  # a file may have left meanwhile
        footers.delete(connection, still)
        rows = [
            {
                "file_path": path,
                "table_id": table.table_id,
                "metadata": data if len(data) <= limit else None,
                "metadata_size": len(data),
                "insert_time": now,
            }
            for path, data in read.items()
            if path in still
        ]
        if rows:
            footers.insert(connection, rows)


def delete_partition_metadata_batch(registry: Registry, paths: Iterable[str]) -> int:
    """Delete the footers of any number of paths; how many there were.

    Each transaction takes as many as the one before says can be deleted in a moment, so that other writers hardly wait.
    """
    remaining = iter(paths)
    deleted, size = 0, DELETE_FIRST
    while part := list(islice(remaining, size)):
        with registry.database.transaction() as connection:
            started = time.perf_counter()  # not before: waiting for others says nothing of the size
            deleted += footers.delete(connection, part)
        seconds = max(time.perf_counter() - started, 1e-6)
        size = max(1, min(int(size * min(DELETE_SECONDS / seconds, 4.0)), DELETE_MOST))
    return deleted
