from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lakeward.db.prepared import Prepared
from lakeward.db.schema import producer_batches

_c = producer_batches.c
_ANSWER = Prepared(
    sa.select(_c.answer).where(
        _c.topic_id == sa.bindparam("topic_id"),
        _c.producer == sa.bindparam("producer"),
        _c.sequence == sa.bindparam("sequence"),
    )
)
_INSERT = Prepared(producer_batches.insert())


def answer(connection: sa.Connection, topic_id: int, producer: str, sequence: int) -> Any:
    """What the append was answered; None if there was no such append."""
    row = _ANSWER.one(connection, {"topic_id": topic_id, "producer": producer, "sequence": sequence})
    return None if row is None else row["answer"]


def insert(connection: sa.Connection, topic_id: int, producer: str, sequence: int, answer: Any, now: datetime) -> None:
    row = {"topic_id": topic_id, "producer": producer, "sequence": sequence, "answer": answer, "created_at": now}
    _INSERT.run(connection, row)


def delete_of_topic(connection: sa.Connection, topic_id: int) -> None:
    connection.execute(producer_batches.delete().where(_c.topic_id == topic_id))
