from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lakeward.store.dialect import begins, is_sqlite
from lakeward.store.schema import leases

LEAST_IDLE_SECONDS = 1.0  # a busy machine makes a process wait, too

_c = leases.c


_SELECT = sa.select(_c.name, _c.owner, _c.fence, _c.expires_at)


def look(connection: sa.Connection, name: str) -> sa.Row[Any, Any, Any, Any] | None:
    """(name, owner, fence, expires_at), in a reading transaction too."""
    return connection.execute(_SELECT.where(_c.name == name)).one_or_none()


def load(connection: sa.Connection, name: str, seconds: float) -> sa.Row[Any, Any, Any, Any] | None:
    """As `look`, locked until the transaction ends.

    On PostgreSQL the server ends it after so many seconds without a statement: a process that is paused in it must not keep
    others from a lease that has run out.
    """
    query = _SELECT.where(_c.name == name).with_for_update()
    if not is_sqlite(connection):
        limit = sa.func.set_config(
            "idle_in_transaction_session_timeout", str(int(max(LEAST_IDLE_SECONDS, seconds) * 1000)), True
        )
        query = query.add_columns(limit.label("idle_timeout"))
    return connection.execute(query).one_or_none()


def insert(connection: sa.Connection, name: str, owner: str, expires_at: datetime) -> bool:
    """The first lease of this name. False if another was quicker."""
    try:
        with connection.begin_nested():
            connection.execute(leases.insert().values(name=name, owner=owner, fence=1, expires_at=expires_at))
    except sa.exc.IntegrityError:
        return False
    return True


def set_owner(connection: sa.Connection, name: str, owner: str, fence: int, expires_at: datetime) -> None:
    connection.execute(leases.update().where(_c.name == name).values(owner=owner, fence=fence, expires_at=expires_at))


def renew(connection: sa.Connection, name: str, fence: int, now: datetime, expires_at: datetime) -> bool:
    change = leases.update().where(_c.name == name, _c.fence == fence, _c.expires_at > now)
    return connection.execute(change.values(expires_at=expires_at)).rowcount == 1


def release(connection: sa.Connection, name: str, fence: int, now: datetime) -> None:
    """Let it expire now. The row stays: fences never go back."""
    connection.execute(leases.update().where(_c.name == name, _c.fence == fence).values(expires_at=now))


def first_of(connection: sa.Connection, start: str, now: datetime) -> str | None:
    """The least name among the current leases whose names begin with `start`."""
    query = sa.select(sa.func.min(_c.name)).where(begins(_c.name, start), _c.expires_at > now)
    found: str | None = connection.execute(query).scalar_one()
    return found


def delete(connection: sa.Connection, names: Sequence[str]) -> None:
    """For leases whose names are never used again: their fences are needed no more."""
    connection.execute(leases.delete().where(_c.name.in_(names)))


def delete_expired(connection: sa.Connection, start: str, now: datetime) -> None:
    """As `delete`, those that have run out of all whose names begin with `start`."""
    connection.execute(leases.delete().where(begins(_c.name, start), _c.expires_at <= now))
