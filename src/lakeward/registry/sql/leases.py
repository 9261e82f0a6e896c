from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from lakeward.db.dialect import MOST_DIGITS, begins, begins_then_digits, is_sqlite
from lakeward.db.schema import leases

OF_ONE = ("compact", "hold", "keep", "merge", "partition", "turn")  # kinds of leases that are of one table or topic
LEAST_IDLE_SECONDS = 1.0  # a busy machine makes a process wait, too
# Clocks are set back a little all the time, and a row may be newer than the time it is compared with.
SLACK = timedelta(seconds=5)

_c = leases.c
_SELECT = sa.select(_c.name, _c.owner, _c.fence, _c.expires_at, _c.lease_ms)


def latest(now: datetime, lease_ms: int | None, seconds: float | None = None) -> datetime | None:
    """When a lease of a length (`seconds` where none is kept) ends that begins now. None ends later, unless the clock was
    ahead when it was set. None where no length is known."""
    if lease_ms is not None:
        return now + timedelta(milliseconds=lease_ms)
    return None if seconds is None else now + timedelta(seconds=seconds)


def is_impossible(end: datetime, now: datetime, lease_ms: int | None, seconds: float | None = None) -> bool:
    """Whether a lease of a length ends later than one can that begins now: a clock that was ahead has set it."""
    last = latest(now, lease_ms, seconds)
    return last is not None and end > last + SLACK


def milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))


def look(connection: sa.Connection, name: str) -> Any:
    """(name, owner, fence, expires_at, lease_ms) or none, in a reading transaction too."""
    return connection.execute(_SELECT.where(_c.name == name)).one_or_none()


def load(connection: sa.Connection, name: str, seconds: float) -> Any:
    """As `look`, locked until the transaction ends.

    On PostgreSQL the server ends it after so many seconds without a statement: a process that is paused in it must not keep
    others from a lease that has run out.
    """
    query = _SELECT.where(_c.name == name).with_for_update(key_share=True)
    if not is_sqlite(connection):
        limit = sa.func.set_config(
            "idle_in_transaction_session_timeout", str(int(max(LEAST_IDLE_SECONDS, seconds) * 1000)), True
        )
        query = query.add_columns(limit.label("idle_timeout"))
    return connection.execute(query).one_or_none()


def insert(
    connection: sa.Connection, name: str, owner: str, expires_at: datetime, seconds: float | None = None
) -> bool:
    """The first lease of this name. False if another was quicker."""
    values = {"name": name, "owner": owner, "fence": 1, "expires_at": expires_at, "lease_ms": milliseconds(seconds)}
    try:
        with connection.begin_nested():
            connection.execute(leases.insert().values(values))
    except sa.exc.IntegrityError:
        return False
    return True


def set_owner(
    connection: sa.Connection, name: str, owner: str, fence: int, expires_at: datetime, seconds: float | None = None
) -> None:
    values = {"owner": owner, "fence": fence, "expires_at": expires_at, "lease_ms": milliseconds(seconds)}
    connection.execute(leases.update().where(_c.name == name).values(values))


def shorten(connection: sa.Connection, name: str, fence: int, expires_at: datetime) -> None:
    connection.execute(leases.update().where(_c.name == name, _c.fence == fence).values(expires_at=expires_at))


def renew(connection: sa.Connection, name: str, fence: int, now: datetime, expires_at: datetime) -> bool:
    change = leases.update().where(_c.name == name, _c.fence == fence, _c.expires_at > now)
    return connection.execute(change.values(expires_at=expires_at)).rowcount == 1


def release(connection: sa.Connection, name: str, fence: int, now: datetime) -> None:
    """Let it expire now. The row stays: fences never go back."""
    connection.execute(leases.update().where(_c.name == name, _c.fence == fence).values(expires_at=now))


def current(connection: sa.Connection, now: datetime) -> list[Any]:
    """(name, expires_at, lease_ms) of those that have not run out."""
    return list(connection.execute(sa.select(_c.name, _c.expires_at, _c.lease_ms).where(_c.expires_at > now)))


# Queues -----------------------------------------------------------------------------------------------------------------
def wait_queue(name: str) -> str:
    """The queue of those who wait for a lease: what the names of its places begin with."""
    return f"waits:{name}:"


def place_name(queue: str, number: int, unique: str) -> str:
    """The name of a place in a queue: in the order of the numbers, by whatever collation."""
    return f"{queue}{number:0{MOST_DIGITS}d}:{unique}"


def _places(queue: str) -> sa.ColumnElement[bool]:
    return begins_then_digits(_c.name, queue)


def _is_current(now: datetime, last: datetime) -> sa.ColumnElement[bool]:
    """`last`: when a lease ends that begins now; no place is kept for longer."""
    return sa.and_(_c.expires_at > now, _c.expires_at <= last + SLACK)


def first_place(connection: sa.Connection, queue: str, now: datetime, last: datetime) -> str | None:
    """The first of a queue's current places."""
    query = sa.select(_c.name).where(_places(queue), _is_current(now, last)).order_by(_c.name).limit(1)
    found: str | None = connection.execute(query).scalar_one_or_none()
    return found


def delete_place(connection: sa.Connection, name: str) -> None:
    """Its name is never used again: its fence is needed no more."""
    connection.execute(leases.delete().where(_c.name == name))


def delete_of(connection: sa.Connection, owner_uuid: str) -> None:
    """Those of a table or topic that is gone for good, whose UUID is in their names, and places in the queues for them: their
    fences are needed no more."""
    names = [f"{kind}:{owner_uuid}" for kind in OF_ONE]
    is_its = sa.or_(*(begins(_c.name, name) for each in names for name in (each, wait_queue(each))))
    connection.execute(leases.delete().where(_c.name.in_(sa.select(_c.name).where(is_its).with_for_update())))


def delete_expired_places(connection: sa.Connection, queue: str, now: datetime, last: datetime) -> None:
    found = sa.select(_c.name).where(_places(queue), sa.not_(_is_current(now, last)))
    connection.execute(leases.delete().where(_c.name.in_(found.with_for_update(skip_locked=True))))
