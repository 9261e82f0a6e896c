from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec
import sqlalchemy as sa

from lakeward.db import lock_order
from lakeward.db.dialect import in_integers
from lakeward.db.rows import columns, record, records
from lakeward.db.schema import table_snapshots
from lakeward.tables.records.tables import TableSnapshot

_c = table_snapshots.c
_SELECT = sa.select(*columns(table_snapshots, TableSnapshot))


def insert(connection: sa.Connection, snapshot: TableSnapshot) -> None:
    lock_order.watched(connection, snapshot.table_id)
    connection.execute(table_snapshots.insert(), msgspec.structs.asdict(snapshot))


def load(connection: sa.Connection, table_id: int, snapshot_id: int) -> TableSnapshot | None:
    query = _SELECT.where(_c.table_id == table_id, _c.snapshot_id == snapshot_id)
    return record(TableSnapshot, connection.execute(query).one_or_none())


def of_table(connection: sa.Connection, table_id: int) -> list[TableSnapshot]:
    """All, expired ones too, oldest first."""
    return records(
        TableSnapshot, connection.execute(_SELECT.where(_c.table_id == table_id).order_by(_c.sequence_number))
    )


def retained(connection: sa.Connection, table_id: int) -> list[TableSnapshot]:
    """The snapshots that the table's metadata file names, oldest first."""
    query = _SELECT.where(_c.table_id == table_id, _c.expired_at.is_(None)).order_by(_c.sequence_number)
    return records(TableSnapshot, connection.execute(query))


def mark_expired(
    connection: sa.Connection, table_id: int, now: datetime, snapshot_ids: Iterable[int] | None = None
) -> int:
    """The given snapshots (all, without) have left the metadata file."""
    lock_order.watched(connection, table_id)
    change = table_snapshots.update().where(_c.table_id == table_id, _c.expired_at.is_(None))
    if snapshot_ids is not None:
        change = change.where(in_integers(connection, _c.snapshot_id, snapshot_ids))
    return connection.execute(change.values(expired_at=now)).rowcount
