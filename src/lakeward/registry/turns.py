"""Turns at a table's metadata: who has lost races queues, and while somebody queues, nobody else commits.

A turn is a lease whose name says its place in the queue. What crashed in the queue is passed over once its lease has run out.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import msgspec
import sqlalchemy as sa

from lakeward.errors import LeaseHeld
from lakeward.model.tables import Table
from lakeward.registry.handle import Registry
from lakeward.store import dialect, leases

LEASE_SECONDS = 15.0  # a commit that takes longer may lose again
WAIT_SECONDS = 60.0
POLL_SECONDS = 0.01


class Turn(msgspec.Struct, frozen=True):
    """A place in the queue of a table. Places are given in order of the registry's time."""

    name: str


def _queue(table: Table) -> str:
    return f"turn:{table.table_uuid}:"


@contextmanager
def queued(registry: Registry, table: Table) -> Iterator[Turn]:
    """Queue, wait until all who came before are done, and have the turn for the block.

    Raises:
        LeaseHeld: those before took longer than a minute.
    """
    turn = _join(registry, table)
    try:
        _wait(registry, table, turn)
        yield turn
    finally:
        with registry.database.transaction() as connection:
            leases.delete(connection, [turn.name])


def first(connection: sa.Connection, table: Table) -> str | None:
    """The name of the turn that is on; none where nobody queues."""
    return leases.first_of(connection, _queue(table), dialect.now(connection))


def _join(registry: Registry, table: Table) -> Turn:
    with registry.database.transaction() as connection:
        now = dialect.now(connection)
        leases.delete_expired(connection, _queue(table), now)  # of those who died in the queue
        turn = Turn(f"{_queue(table)}{int(now.timestamp() * 1_000_000):020d}:{uuid.uuid4().hex}")
        leases.insert(connection, turn.name, registry.owner, now + timedelta(seconds=LEASE_SECONDS))
    return turn


def _wait(registry: Registry, table: Table, turn: Turn) -> None:
    """Until the turn is on; its lease starts anew then, and is kept meanwhile."""
    deadline = time.monotonic() + WAIT_SECONDS
    renew_at = time.monotonic() + LEASE_SECONDS / 3
    while True:
        with registry.database.read() as connection:
            is_on = first(connection, table) in (turn.name, None)
        now = time.monotonic()
        if is_on or now >= renew_at:
            with registry.database.transaction() as connection:
                until = dialect.now(connection) + timedelta(seconds=LEASE_SECONDS)
                leases.set_owner(connection, turn.name, registry.owner, 1, until)
            renew_at = now + LEASE_SECONDS / 3
        if is_on:
            return
        if now >= deadline:
            raise LeaseHeld(
                f"{table.identifier}: others have been committing its metadata for {WAIT_SECONDS:.0f} s; try again later"
            )
        time.sleep(POLL_SECONDS)
