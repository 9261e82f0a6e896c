"""What waits for a snapshot, as the snapshotter counts it: sizes alone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from lakeward.db import dialect
from lakeward.errors import TableNotFound
from lakeward.registry.handle import Registry
from lakeward.tables.sql import files, retired, tables

PAGE = 500


class TableProperties(msgspec.Struct, frozen=True):
    table_id: int
    version: int
    properties: dict[str, str]


class Waiting(msgspec.Struct, frozen=True):
    """A file that is to enter, or one that is to leave, with the next snapshot of its table."""

    size: int  # bytes
    rows: int
    since: datetime


class AllWaiting(msgspec.Struct, frozen=True):
    """All of one table as of one moment: by file_id the files to enter, by path those to leave."""

    coming: dict[int, Waiting]
    leaving: dict[str, Waiting]


def table_properties(registry: Registry) -> Iterator[TableProperties]:
    """Of each table of this handle's warehouse, a page at a time."""
    after = 0
    while True:
        with registry.database.read() as connection:
            page = tables.current_properties(connection, after, PAGE)
        for table_id, location, version, properties in page:
            if location.startswith(registry.below):
                yield TableProperties(table_id, version, properties)
        if len(page) < PAGE:
            return
        after = page[-1].table_id


def is_here(registry: Registry, table_id: int) -> bool:
    """Whether a table is of this handle's warehouse, and not dropped."""
    with registry.database.read() as connection:
        found = tables.by_id(connection, table_id)
    return found is not None and found.dropped_at is None and found.location.startswith(registry.below)


def of_table(registry: Registry, table_id: int) -> AllWaiting:
    """What of a table waits for a snapshot. Raises TableNotFound: it was dropped."""
    with registry.database.read() as connection:
        if tables.live_version(connection, table_id) is None:
            raise TableNotFound(f"Table does not exist: table {table_id} was dropped")
        coming = files.pending_sizes(connection, table_id)
        leaving = retired.removals_pending(connection, table_id)
    return AllWaiting(
        {file_id: Waiting(size, rows, since) for file_id, size, rows, since in coming},
        {
            file.file_path: Waiting(file.file_size, (file.record or {}).get("row_count", 0), file.retired_at)
            for file in leaving
        },
    )


def now(registry: Registry) -> datetime:
    """The registry's clock."""
    with registry.database.read() as connection:
        return dialect.now(connection)
