from __future__ import annotations

from datetime import datetime
from functools import cache

import sqlalchemy as sa

from lakeward.db import dialect
from lakeward.db.pipeline import Answer
from lakeward.db.prepared import Prepared, Row
from lakeward.db.schema import applied_batches, stream_positions
from lakeward.tables.records.files import AppendResult, Batch

_b = applied_batches.c
_p = stream_positions.c


ANSWER = Prepared(
    sa.select(_b.answer).where(
        _b.table_id == sa.bindparam("table_id"),
        _b.stream == sa.bindparam("stream"),
        _b.batch_id == sa.bindparam("batch_id"),
    )
)
_POSITION = Prepared(
    sa.select(_p.position, _p.batch_id).where(
        _p.table_id == sa.bindparam("table_id"), _p.stream == sa.bindparam("stream")
    )
)
_KEY = ("table_id", "stream", "batch_id")


@cache
def _upsert(dialect_name: str) -> Prepared:
    statement = dialect.insert_of(dialect_name, applied_batches)
    changed = ("start_position", "end_position", "answer", "applied_at")
    return Prepared(
        statement.on_conflict_do_update(
            index_elements=list(_KEY), set_={name: statement.excluded[name] for name in changed}
        )
    )


_FIRST = Prepared(stream_positions.insert())
_NEXT = Prepared(
    stream_positions.update()
    .where(_p.table_id == sa.bindparam("of_table"), _p.stream == sa.bindparam("of_stream"))
    .values({name: sa.bindparam(f"new_{name}") for name in ("position", "batch_id", "updated_at")})
)


def key(table_id: int, batch: Batch) -> Row:
    """What ANSWER goes by."""
    return {"table_id": table_id, "stream": batch.stream, "batch_id": batch.batch_id}


def send_answer(connection: sa.Connection, table_id: int, batch: Batch) -> Answer:
    """The first answer of an applied batch, as a document: `answer` of the row."""
    return ANSWER.send(connection, key(table_id, batch))


def set_answer(connection: sa.Connection, table_id: int, batch: Batch, result: AppendResult, now: datetime) -> None:
    """In place of an earlier one."""
    values = {"start_position": batch.start, "end_position": batch.end, "answer": result, "applied_at": now}
    _upsert(connection.dialect.name).send(connection, {**key(table_id, batch), **values})


def send_position(connection: sa.Connection, table_id: int, stream: str) -> Answer:
    """(position, batch_id) where the stream stands; no row before its first batch with an end."""
    return _POSITION.send(connection, {"table_id": table_id, "stream": stream})


def set_position(connection: sa.Connection, table_id: int, batch: Batch, now: datetime, *, is_first: bool) -> None:
    values = {"position": batch.end, "batch_id": batch.batch_id, "updated_at": now}
    if is_first:
        _FIRST.insert(connection, [{"table_id": table_id, "stream": batch.stream, **values}])
    else:
        new = {f"new_{name}": value for name, value in values.items()}
        _NEXT.send(connection, {"of_table": table_id, "of_stream": batch.stream, **new})
