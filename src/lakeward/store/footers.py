from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from lakeward.model.files import PartitionMetadata
from lakeward.store import locks
from lakeward.store.dialect import in_texts
from lakeward.store.prepared import Prepared
from lakeward.store.records import columns, records
from lakeward.store.schema import partition_metadata

_c = partition_metadata.c
_INSERT = Prepared(partition_metadata.insert())
_SELECT = sa.select(*columns(partition_metadata, PartitionMetadata))


def insert(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    _INSERT.insert(connection, rows)


def load(connection: sa.Connection, paths: Iterable[str]) -> list[PartitionMetadata]:
    return records(PartitionMetadata, connection.execute(_SELECT.where(in_texts(connection, _c.file_path, paths))))


def replace(connection: sa.Connection, path: str, metadata: bytes | None, size: int) -> None:
    change = partition_metadata.update().where(_c.file_path == path)
    connection.execute(change.values(metadata=metadata, metadata_size=size))


def delete(connection: sa.Connection, paths: Iterable[str]) -> int:
    chosen = in_texts(connection, _c.file_path, list(paths))
    locks.rows(connection, _c.file_path, chosen)
    return connection.execute(partition_metadata.delete().where(chosen)).rowcount


def delete_of_table(connection: sa.Connection, table_id: int) -> int:
    """Those of a table that is going for good, so that nobody else deletes some."""
    return connection.execute(partition_metadata.delete().where(_c.table_id == table_id)).rowcount
