"""How far each subscriber has come in the feed, and the events that failed in all tries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lakeward.db.conditions import equal
from lakeward.db.schema import parked_events, subscriber_cursors

_c = subscriber_cursors.c
_p = parked_events.c


def load_all(connection: sa.Connection, astha: str | None = None) -> list[sa.Row[Any]]:
    """(astha, subscriber, position, state, seen_at), of one set or all, by name."""
    query = sa.select(_c.astha, _c.subscriber, _c.position, _c.state, _c.seen_at).where(equal(_c.astha, astha))
    return list(connection.execute(query.order_by(_c.astha, _c.subscriber)))


def save(
    connection: sa.Connection, astha: str, subscriber: str, position: Any, state: Mapping[str, Any], now: datetime
) -> None:
    values = {"position": position, "state": state, "seen_at": now}
    is_it = sa.and_(_c.astha == astha, _c.subscriber == subscriber)
    if connection.execute(subscriber_cursors.update().where(is_it).values(values)).rowcount == 0:
        connection.execute(subscriber_cursors.insert().values(astha=astha, subscriber=subscriber, **values))


def touch(connection: sa.Connection, astha: str, subscribers: Sequence[str], now: datetime) -> None:
    """They are seen now."""
    for subscriber in sorted(subscribers):
        is_it = sa.and_(_c.astha == astha, _c.subscriber == subscriber)
        connection.execute(subscriber_cursors.update().where(is_it).values(seen_at=now))


def forget_place(connection: sa.Connection, astha: str, subscriber: str, before: datetime) -> bool:
    """It takes its state from the registry at its next start, and holds the feed no more. False if it was seen since."""
    is_it = sa.and_(_c.astha == astha, _c.subscriber == subscriber, _c.seen_at < before)
    return connection.execute(subscriber_cursors.update().where(is_it).values(position=sa.null())).rowcount == 1


def park(connection: sa.Connection, row: Mapping[str, Any]) -> bool:
    """Keep an event; false if it is kept already."""
    is_kept = sa.select(_p.parked_id).where(
        _p.astha == row["astha"], _p.subscriber == row["subscriber"], _p.sequence == row["sequence"]
    )
    if connection.execute(is_kept).first() is not None:
        return False
    connection.execute(parked_events.insert().values(row))
    return True


def parked(connection: sa.Connection, astha: str | None = None) -> list[sa.Row[Any]]:
    """Rows of parked_events, oldest first."""
    return list(connection.execute(sa.select(parked_events).where(equal(_p.astha, astha)).order_by(_p.parked_id)))


def discard(connection: sa.Connection, parked_id: int) -> bool:
    return connection.execute(parked_events.delete().where(_p.parked_id == parked_id)).rowcount == 1


def count_parked(connection: sa.Connection, astha: str) -> dict[str, int]:
    """How many by subscriber."""
    query = sa.select(_p.subscriber, sa.func.count()).where(_p.astha == astha).group_by(_p.subscriber)
    return {name: int(count) for name, count in connection.execute(query)}
