from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import sqlalchemy as sa

from lakeward.db import lock_order
from lakeward.db.dialect import in_texts
from lakeward.db.prepared import Prepared
from lakeward.db.rows import columns, records
from lakeward.db.schema import partition_metadata
from lakeward.tables.records.files import PartitionMetadata

_c = partition_metadata.c
_INSERT = Prepared(partition_metadata.insert())
_SELECT = sa.select(*columns(partition_metadata, PartitionMetadata))


def insert(
    connection: sa.Connection, table_id: int, footers: Iterable[tuple[str, bytes]], limit: int, now: datetime
) -> None:
    """Of each path its footer; one that is longer than the limit leaves a row that says so."""
    rows = [
        {
            "file_path": path,
            "table_id": table_id,
            "metadata": footer if len(footer) <= limit else None,
            "metadata_size": len(footer),
            "insert_time": now,
        }
        for path, footer in footers
    ]
    if rows:
        _INSERT.insert(connection, rows)


def load(connection: sa.Connection, paths: Iterable[str]) -> list[PartitionMetadata]:
    return records(PartitionMetadata, connection.execute(_SELECT.where(in_texts(connection, _c.file_path, paths))))


def replace(connection: sa.Connection, path: str, metadata: bytes | None, size: int) -> None:
    change = partition_metadata.update().where(_c.file_path == path)
    connection.execute(change.values(metadata=metadata, metadata_size=size))


def delete(connection: sa.Connection, paths: Iterable[str]) -> int:
    chosen = in_texts(connection, _c.file_path, list(paths))
    lock_order.rows(connection, _c.file_path, chosen)
    return connection.execute(partition_metadata.delete().where(chosen)).rowcount


def delete_of_table(connection: sa.Connection, table_id: int) -> int:
    """Those of a table that is going for good, so that nobody else deletes some."""
    return connection.execute(partition_metadata.delete().where(_c.table_id == table_id)).rowcount
