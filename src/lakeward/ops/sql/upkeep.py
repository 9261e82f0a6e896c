from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lakeward.db import dialect
from lakeward.db.schema import upkeep

_c = upkeep.c


def load(connection: sa.Connection, work: str) -> sa.Row[Any, Any] | None:
    """(due_at, keep_seconds), either of which may be none."""
    return connection.execute(sa.select(_c.due_at, _c.keep_seconds).where(_c.work == work)).one_or_none()


def set_due(connection: sa.Connection, work: str, due_at: datetime) -> None:
    _set(connection, work, {"due_at": due_at})


def set_keep(connection: sa.Connection, work: str, seconds: int | None) -> None:
    _set(connection, work, {"keep_seconds": seconds})


def _set(connection: sa.Connection, work: str, values: dict[str, Any]) -> None:
    statement = dialect.insert(connection, upkeep).values(work=work, **values)
    connection.execute(statement.on_conflict_do_update(index_elements=["work"], set_=values))
