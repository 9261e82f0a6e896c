from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lakeward.db import dialect
from lakeward.db.schema import applied_batches, stream_positions
from lakeward.tables.records.files import AppendResult, Batch

_b = applied_batches.c
_p = stream_positions.c


def answer(connection: sa.Connection, table_id: int, batch: Batch) -> Any | None:
    """The first answer of an applied batch, as a document."""
    query = sa.select(_b.answer).where(
        _b.table_id == table_id, _b.stream == batch.stream, _b.batch_id == batch.batch_id
    )
    return connection.execute(query).scalar_one_or_none()


def set_answer(connection: sa.Connection, table_id: int, batch: Batch, result: AppendResult, now: datetime) -> None:
    """In place of an earlier one."""
    key = {"table_id": table_id, "stream": batch.stream, "batch_id": batch.batch_id}
    values = {"start_position": batch.start, "end_position": batch.end, "answer": result, "applied_at": now}
    statement = dialect.insert(connection, applied_batches).values(**key, **values)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=list(key), set_={name: statement.excluded[name] for name in values}
        )
    )


def position(connection: sa.Connection, table_id: int, stream: str) -> sa.Row[Any, Any] | None:
    """(position, batch_id) where the stream stands; None before its first batch with an end."""
    return connection.execute(
        sa.select(_p.position, _p.batch_id).where(_p.table_id == table_id, _p.stream == stream)
    ).one_or_none()


def set_position(connection: sa.Connection, table_id: int, batch: Batch, now: datetime) -> None:
    values = {"position": batch.end, "batch_id": batch.batch_id, "updated_at": now}
    change = stream_positions.update().where(_p.table_id == table_id, _p.stream == batch.stream).values(values)
    if connection.execute(change).rowcount == 0:
        connection.execute(stream_positions.insert().values(table_id=table_id, stream=batch.stream, **values))
