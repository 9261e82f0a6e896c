"""Queues in the registry: whoever has lost a race waits for a turn, and nobody who comes later goes first.

A place in a queue is a lease whose name ends in the time at which it was taken. What crashed in a queue is passed over once its
lease has run out.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import msgspec
import sqlalchemy as sa

from lakeward.db import dialect
from lakeward.db.retry import retried
from lakeward.errors import LakewardError, LeaseHeld
from lakeward.logs import log
from lakeward.registry.handle import Registry
from lakeward.registry.sql import leases
from lakeward.retry import steady, tried
from lakeward.tables.records.tables import Table

LEASE_SECONDS = 15.0  # a commit that takes longer may lose again
WAIT_SECONDS = 60.0
POLL = steady(0.01)


class Turn(msgspec.Struct, frozen=True):
    """A place in a queue. Places are in the order of the registry's time."""

    name: str


def queue_of(table: Table) -> str:
    """The queue of those who commit metadata of a table: what the names of its places begin with."""
    return f"turn:{table.table_uuid}:"


@contextmanager
def queued(registry: Registry, table: Table) -> Iterator[Turn]:
    """Queue at a table's metadata, wait until all who came before are done, and have the turn for the block.

    Raises:
        LeaseHeld: those before took longer than a minute.
    """
    turn = join(registry, queue_of(table))
    try:
        _wait(registry, table, turn)
        yield turn
    finally:
        leave(registry, turn)


def first(connection: sa.Connection, queue: str) -> str | None:
    """The name of the first place; None where nobody queues."""
    now = dialect.now(connection)
    return leases.first_place(connection, queue, now, now + timedelta(seconds=LEASE_SECONDS))


@retried
def join(registry: Registry, queue: str) -> Turn:
    """Take the last place of a queue."""
    with registry.database.transaction() as connection:
        now = dialect.now(connection)
        until = now + timedelta(seconds=LEASE_SECONDS)
        leases.delete_expired_places(connection, queue, now, until)  # of those who died in it
        turn = Turn(leases.place_name(queue, int(now.timestamp() * 1_000_000), uuid.uuid4().hex))
        leases.insert(connection, turn.name, registry.owner, until, LEASE_SECONDS)
    return turn


def keep(connection: sa.Connection, registry: Registry, turn: Turn) -> None:
    """Its lease starts anew."""
    until = dialect.now(connection) + timedelta(seconds=LEASE_SECONDS)
    leases.set_owner(connection, turn.name, registry.owner, 1, until, LEASE_SECONDS)


@retried
def _keep(registry: Registry, turn: Turn) -> None:
    with registry.database.transaction() as connection:
        keep(connection, registry, turn)


def leave(registry: Registry, turn: Turn) -> None:
    """Give a place up; where the registry does not answer, it ends with its lease."""
    try:
        _leave(registry, turn)
    except LakewardError as error:
        log.warning("place_not_left", lease=turn.name, error=str(error), code=error.code)


@retried
def _leave(registry: Registry, turn: Turn) -> None:
    with registry.database.transaction() as connection:
        leases.delete_place(connection, turn.name)


def _wait(registry: Registry, table: Table, turn: Turn) -> None:
    """Until the turn is on; its lease starts anew then, and is kept meanwhile."""
    keep_at = time.monotonic() + LEASE_SECONDS / 3

    def look() -> None:
        nonlocal keep_at
        with registry.database.read() as connection:
            is_on = first(connection, queue_of(table)) in (turn.name, None)
        if is_on or time.monotonic() >= keep_at:
            _keep(registry, turn)
            keep_at = time.monotonic() + LEASE_SECONDS / 3
        if not is_on:
            raise LeaseHeld(
                f"{table.identifier}: others have been committing its metadata for {WAIT_SECONDS:.0f} s; try again later"
            )

    tried(look, LeaseHeld, POLL, seconds=WAIT_SECONDS)
