"""SQL of whose folder an object is in: a table's or a topic's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa

from lakeward.db.schema import tables, topics


class Owner(NamedTuple):
    kind: str  # table or topic
    is_live: bool


def owner_of(connection: sa.Connection, folders: Sequence[str]) -> Owner | None:
    """The table or topic whose folder is one of these; folders of two never stand in one another."""
    of_table = sa.select(sa.literal("table"), tables.c.dropped_at.is_(None)).where(tables.c.location.in_(folders))
    of_topic = sa.select(sa.literal("topic"), topics.c.deleted_at.is_(None)).where(topics.c.location.in_(folders))
    row = connection.execute(of_table.union_all(of_topic)).first()
    return None if row is None else Owner(row[0], bool(row[1]))
