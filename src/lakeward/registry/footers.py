"""The footers of Parquet files: a cache in the registry that lives and dies with its files, and can be rebuilt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import pyarrow.parquet as pq

from lakeward.batching import batched
from lakeward.errors import FileRefused, PartitionMetadataNotFound
from lakeward.model.files import PartitionMetadata, RegisteredFile
from lakeward.model.tables import Table
from lakeward.registry.handle import Registry
from lakeward.storage.parquet_footers import decode_footer, encode_footer, read_footer
from lakeward.store import dialect, files, footers

DELETE_BATCH = 2_000  # paths a transaction: other writers wait no longer than one of these takes
LOAD_BATCH = 1_000
REBUILD_BATCH = 200


class Plan(msgspec.Struct, frozen=True):
    """The live files of a table and their footers as of one moment. No footer: it is not stored, read the object's own."""

    files: list[RegisteredFile]
    footers: dict[str, pq.FileMetaData]


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
    return _decoded(registry, found[0]) or _read_again(registry, path)


def _decoded(registry: Registry, row: PartitionMetadata) -> pq.FileMetaData | None:
    if row.metadata is None:
        return None
    try:
        return decode_footer(row.metadata)
    except FileRefused:  # written by another version: the object has the footer
        return None


def _read_again(registry: Registry, path: str) -> pq.FileMetaData:
    footer = read_footer(registry.engine(path), path)
    data = encode_footer(footer)
    with registry.database.transaction() as connection:
        footers.replace(connection, path, data if len(data) <= registry.settings.footer_limit else None, len(data))
    return footer


def plan(registry: Registry, table: Table) -> Plan:
    """Files and footers in one read transaction: whatever is retired or cleaned meanwhile, they belong together."""
    with registry.database.read() as connection:
        live = files.live(connection, table.table_id)
        paths = [file.file_path for file in live if file.file_type == "parquet"]
        rows = [row for part in batched(paths, LOAD_BATCH) for row in footers.load(connection, part)]
    decoded = ((row.file_path, _decoded(registry, row)) for row in rows)
    return Plan(live, {path: footer for path, footer in decoded if footer is not None})


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


def _store(registry: Registry, table: Table, read: dict[str, bytes]) -> None:
    limit = registry.settings.footer_limit
    with registry.database.transaction() as connection:
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


def delete_partition_metadata_batch(registry: Registry, paths: Iterable[str] | Sequence[str]) -> int:
    """Delete the footers of any number of paths, some thousands a transaction so that nobody waits long; how many."""
    deleted = 0
    for part in batched(paths, DELETE_BATCH):
        with registry.database.transaction() as connection:
            deleted += footers.delete(connection, part)
    return deleted
