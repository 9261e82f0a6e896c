"""The feed of the registry's changes: where a reader stands, what comes next, and what nobody needs any more.

Source of the rule for PostgreSQL: a number is drawn before its transaction commits, so a reader that goes by numbers passes
over what commits late. It goes by the difference of two snapshots instead: everything that the new one sees and the old one
does not, by number. Within a lakehouse table the numbers rise in the order of commits (db/feed_triggers.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import sqlalchemy as sa

from lakeward.astha.sql import changes, cursors
from lakeward.astha.sql.changes import Change, Wanted
from lakeward.db import dialect, migrate
from lakeward.db.database import Database
from lakeward.db.retry import retried
from lakeward.errors import ParkedEventNotFound
from lakeward.registry import leases
from lakeward.registry.handle import Registry
from lakeward.registry.leases import Lease

C = TypeVar("C")

TRIM_BATCH = 5_000  # rows that one transaction deletes
COUNT_LIMIT = 100_000  # rows of the feed that are looked at to say how far behind somebody is


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """All changes before it have been met. Compare only places of one reader's way through the feed.

    On SQLite `sequence` says it all. On PostgreSQL everything that `old` sees has been met, and of what `target` sees besides,
    all up to `sequence`; without a target, only what `old` sees.
    """

    registry: str  # the registry's UUID
    sequence: int
    server: str = ""  # PostgreSQL's system identifier
    old: str = ""  # snapshots, as PostgreSQL writes them: xmin:xmax:running,running
    target: str = ""


class Page(NamedTuple, Generic[C]):
    """Some changes in the order in which to handle them, and where the reader stands after them."""

    changes: Sequence[C]
    within: Place  # between any two of them one stands here, with the former's number
    after: Place
    is_last: bool  # nothing more was there


def origin(connection: sa.Connection) -> tuple[str, str]:
    """(the registry's UUID, the server's id), as a place there has them."""
    return migrate.info(connection).registry_uuid, changes.server_id(connection)


class Reader:
    """Reads one registry's feed. Threads may share it."""

    def __init__(self, database: Database) -> None:
        """Raises RegistryUnavailable."""
        self._database = database
        with self._database.read() as connection:
            self._registry, self._server = origin(connection)

    def head(self) -> Place:
        """Where a reader stands that has met all there is."""
        if self._database.is_sqlite:
            return Place(self._registry, changes.last_given(self._database))
        return Place(self._registry, 0, self._server, changes.current_snapshot(self._database))

    def knows(self, place: Place) -> bool:
        """False for a place of another registry or server, such as one that was restored from a copy."""
        return (place.registry, place.server) == (self._registry, self._server)

    def read(self, place: Place, count: int) -> Page[Change]:
        """Up to `count` changes that come next.

        Raises:
            RegistryUnavailable.
        """
        if self._database.is_sqlite:
            found = changes.after(self._database, place.sequence, count)
            last = found[-1].sequence if found else place.sequence
            return Page(found, place, msgspec.structs.replace(place, sequence=last), len(found) < count)
        if not place.target:
            snapshot, first = changes.head(self._database, place.old)
            if first is None:
                return Page((), place, msgspec.structs.replace(place, old=snapshot), True)
            place = msgspec.structs.replace(place, target=snapshot, sequence=first - 1)
        found = changes.between(self._database, place.old, place.target, place.sequence, count)
        if len(found) == count:
            return Page(found, place, msgspec.structs.replace(place, sequence=found[-1].sequence), False)
        done = msgspec.structs.replace(place, old=place.target, target="", sequence=0)
        return Page(found, place, done, True)


class Behind(msgspec.Struct, frozen=True):
    """What of the feed comes after a place."""

    count: int
    oldest: datetime | None  # when the oldest of it was changed
    now: datetime  # by the registry's clock


def behind(connection: sa.Connection, place: Place, wanted: Wanted) -> Behind:
    """How many rows somebody who stands there has still to meet: of those that are committed, and of the next COUNT_LIMIT."""
    if dialect.is_sqlite(connection):
        found = changes.count_after(connection, place.sequence, wanted, COUNT_LIMIT)
    else:
        found = changes.count_between(connection, place.old, place.target, place.sequence, wanted, COUNT_LIMIT)
    return Behind(*found, dialect.now(connection))


# Cursors --------------------------------------------------------------------------------------------------------------
class Cursor(msgspec.Struct, frozen=True):
    astha: str
    subscriber: str
    place: Place | None  # None: its state is to come from the registry first
    state: dict[str, Any]
    seen_at: datetime


def load_cursors(connection: sa.Connection, astha: str | None = None) -> list[Cursor]:
    """Of one set of subscribers, or of all."""
    return [
        Cursor(row.astha, row.subscriber, msgspec.convert(row.position, Place | None), row.state, row.seen_at)
        for row in cursors.load_all(connection, astha)
    ]


@retried
def take_up(registry: Registry, lease: Lease, astha: str, subscribers: Sequence[str]) -> list[Cursor]:
    """Where these subscribers stand, as the one who looks after them from now on: their places are waited for again.

    Raises:
        LeaseLost: another process looks after them now.
    """
    with registry.database.transaction() as connection:
        leases.check(connection, lease)
        cursors.touch(connection, astha, subscribers, dialect.now(connection))
        # A copy of another server's feed has that one's transactions in it. By this server's count some are still to come:
        # then they would be read as new. Whoever was to read them stood at a place of the other server, and refreshes.
        changes.delete_foreign(connection)
        return load_cursors(connection, astha)


@retried
def save_cursors(
    registry: Registry,
    lease: Lease,
    astha: str,
    progress: Mapping[str, tuple[Place | None, Mapping[str, Any]]],
) -> None:
    """Keep where subscribers stand, and their state to show: by name, in one transaction.

    Raises:
        LeaseLost: another process looks after them now.
    """
    with registry.database.transaction() as connection:
        leases.check(connection, lease)
        now = dialect.now(connection)
        for subscriber in sorted(progress):
            place, state = progress[subscriber]
            document = None if place is None else msgspec.to_builtins(place)
            cursors.save(connection, astha, subscriber, document, state, now)


# Trimming -------------------------------------------------------------------------------------------------------------
def trim(registry: Registry, *, keep_seconds: float | None = None) -> int:
    """Delete what every subscriber has passed; where there is none, what is older than `keep_seconds`. How many rows went.

    A subscriber that was not seen for `keep_seconds` (default: the setting `feed_keep_seconds`) is waited for no longer: it
    will be told to refresh. Rows go in bounded transactions, so that writers need not wait for long.
    """
    keep = registry.settings.feed_keep_seconds if keep_seconds is None else keep_seconds
    total = 0
    while True:
        deleted = _trim_once(registry, keep)
        total += deleted
        if deleted < TRIM_BATCH:
            return total


@retried
def _trim_once(registry: Registry, keep_seconds: float) -> int:
    with registry.database.transaction() as connection:
        before = dialect.now(connection) - timedelta(seconds=keep_seconds)
        waited_for: list[Place] = []
        for cursor in load_cursors(connection):
            # Not if it has just come back.
            is_gone = cursor.seen_at < before and cursors.forget_place(
                connection, cursor.astha, cursor.subscriber, before
            )
            if cursor.place is not None and not is_gone:
                waited_for.append(cursor.place)
        if not waited_for:
            return changes.delete_older(connection, before, TRIM_BATCH)
        if dialect.is_sqlite(connection):
            return changes.delete_up_to(connection, min(each.sequence for each in waited_for), TRIM_BATCH)
        # Transactions before the oldest that any of the snapshots may not see: all of theirs have been met by everybody.
        oldest = min(int(each.old.partition(":")[0]) for each in waited_for)
        return changes.delete_before_xid(connection, oldest, TRIM_BATCH)


# Parked events --------------------------------------------------------------------------------------------------------
class ParkedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A row of parked_events."""

    parked_id: int
    astha: str
    subscriber: str
    sequence: int
    table_name: str
    operation: str
    table_id: int
    data: dict[str, Any]
    changed_at: datetime
    attempts: int
    error: str
    parked_at: datetime


@retried
def park(
    registry: Registry, lease: Lease, astha: str, subscriber: str, change: Change, attempts: int, error: str
) -> None:
    """Keep an event that failed in all tries. Raises LeaseLost."""
    with registry.database.transaction() as connection:
        leases.check(connection, lease)
        row = {
            name: getattr(change, name) for name in ("sequence", "table_name", "operation", "table_id", "changed_at")
        }
        row |= {"astha": astha, "subscriber": subscriber, "data": msgspec.json.decode(change.data)}
        cursors.park(connection, row | {"attempts": attempts, "error": error, "parked_at": dialect.now(connection)})


def list_parked(registry: Registry, astha: str | None = None) -> list[ParkedEvent]:
    """Oldest first."""
    with registry.database.read() as connection:
        return [ParkedEvent(**row._asdict()) for row in cursors.parked(connection, astha)]


@retried
def discard(registry: Registry, parked_id: int) -> None:
    """Let a parked event go: its subscriber refreshed when it was parked, so nothing depends on it.

    Raises:
        ParkedEventNotFound.
    """
    with registry.database.transaction() as connection:
        if not cursors.discard(connection, parked_id):
            raise ParkedEventNotFound(f"no parked event {parked_id}; `lakeward astha parked` lists them")
