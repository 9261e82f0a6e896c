"""Leases with fences: who may do a thing now, and a number that grows with each new owner (registry's clock)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

import msgspec
import sqlalchemy as sa

from lakeward import validation
from lakeward.background import Worker
from lakeward.db import dialect, lock_order
from lakeward.db.retry import retried
from lakeward.errors import LakewardError, LeaseHeld, LeaseLost
from lakeward.logs import log, log_and_go_on
from lakeward.registry import turns
from lakeward.registry.handle import Registry
from lakeward.registry.sql import leases
from lakeward.retry import steady, tried

POLL_SECONDS = 0.05
POLL = steady(POLL_SECONDS)
# It goes on while the machine is suspended, as the leases' times in the registry do; Linux's usual one stands still.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def clock() -> float:
    """Seconds, of this process's machine: what the times of `held`'s `good_until` are compared with."""
    return time.clock_gettime(CLOCK)


class Lease(msgspec.Struct, frozen=True):
    name: str
    owner: str
    fence: int
    expires_at: datetime
    seconds: float


def acquire(registry: Registry, name: str, *, seconds: float, wait: float = 0.0, locked: Sequence[int] = ()) -> Lease:
    """Take the lease, waiting up to `wait` seconds for its owner to let go. Those who wait get it in the order of asking.

    `locked`: ids of tables whose changes are not to fall together with the taking.

    Raises:
        LeaseHeld: somebody (this process too) still has it, or waits for it.
    """
    place: turns.Turn | None = None

    def wait_in_turn(_: LeaseHeld) -> None:
        nonlocal place
        if place is None:
            place = turns.join(registry, leases.wait_queue(name))

    try:
        return tried(
            lambda: _in_turn(registry, name, seconds, locked, place), LeaseHeld, POLL, seconds=wait, failed=wait_in_turn
        )
    finally:
        if place is not None:
            turns.leave(registry, place)


@retried
def _in_turn(registry: Registry, name: str, seconds: float, locked: Sequence[int], place: turns.Turn | None) -> Lease:
    """The lease. Raises LeaseHeld: somebody has it, or waits who came earlier."""
    with registry.database.transaction() as connection:
        lock_order.tables(connection, locked)
        first = turns.first(connection, leases.wait_queue(name))
        is_next = first is None or (place is not None and first == place.name)
        lease = _try(connection, registry, name, seconds) if is_next else "one of those who wait for it"
        if place is not None:
            turns.keep(connection, registry, place)
    if isinstance(lease, str):
        raise LeaseHeld(f"{name!r} is held by {lease}; try again later")
    return lease


def _try(connection: sa.Connection, registry: Registry, name: str, seconds: float) -> Lease | str:
    """The lease, or the name of who has it."""
    now = dialect.now(connection)
    until = now + timedelta(seconds=seconds)
    found = leases.load(connection, name, seconds)
    if found is None:
        if leases.insert(connection, name, registry.owner, until, seconds):
            return Lease(name, registry.owner, 1, until, seconds)
        found = leases.load(connection, name, seconds)
        assert found is not None
    if found.expires_at > now:
        # One that was set by a clock that was ahead would count for as long as that, though its owner may be dead. One who
        # lives renews it in time.
        if leases.is_impossible(found.expires_at, now, found.lease_ms, seconds):
            leases.shorten(connection, name, found.fence, leases.latest(now, found.lease_ms) or until)
        return str(found.owner)
    leases.set_owner(connection, name, registry.owner, found.fence + 1, until, seconds)
    return Lease(name, registry.owner, found.fence + 1, until, seconds)


@retried
def renew(registry: Registry, lease: Lease) -> Lease:
    """The lease, which now ends later. Raises LeaseLost: it ran out, or another owner has it."""
    with registry.database.transaction() as connection:
        leases.load(connection, lease.name, lease.seconds)
        now = dialect.now(connection)
        until = now + timedelta(seconds=lease.seconds)
        if not leases.renew(connection, lease.name, lease.fence, now, until):
            raise LeaseLost(f"the lease {lease.name!r} with fence {lease.fence} ran out; take it again")
    return msgspec.structs.replace(lease, expires_at=until)


@retried
def release(registry: Registry, lease: Lease) -> None:
    with registry.database.transaction() as connection:
        leases.release(connection, lease.name, lease.fence, dialect.now(connection))


def check(connection: sa.Connection, lease: Lease) -> None:
    """In the transaction of what the lease protects. Raises LeaseLost: the fence is no longer current, or it ran out."""
    found = leases.load(connection, lease.name, lease.seconds)
    if found is None or found.fence != lease.fence or found.expires_at <= dialect.now(connection):
        raise LeaseLost(f"the lease {lease.name!r} with fence {lease.fence} is not current; nothing was written")


def is_held(connection: sa.Connection, name: str) -> bool:
    """Whether somebody has it now. One that would run out later than it can by its length was set by a clock that was ahead."""
    found = leases.look(connection, name)
    if found is None:
        return False
    now = dialect.now(connection)
    return bool(now < found.expires_at) and not leases.is_impossible(found.expires_at, now, found.lease_ms)


@contextmanager
def held(
    registry: Registry,
    name: str,
    *,
    seconds: float,
    wait: float = 0.0,
    locked: Sequence[int] = (),
    good_until: Callable[[float], object] | None = None,
) -> Iterator[Lease]:
    """Hold the lease for a block, renewed in the background every third of its time.

    A renewal that fails is not reported here: `check` in the protected transaction is what counts.

    Args:
        good_until: told the moment of `clock` until which nobody else can have the lease, at each renewal. It goes on while a
            process is stopped or its machine suspended, so a process that wakes up sees at once that its time has passed.

    Raises:
        LeaseHeld: as `acquire`.
        InvalidInput: `seconds` is no length of time above 0, or thousands of years.
    """
    validation.span(seconds, "seconds", "seconds")
    pace = steady(seconds / 3)  # before the lease is taken: what refuses the time would leave it taken
    asked = clock()
    lease = acquire(registry, name, seconds=seconds, wait=wait, locked=locked)
    if good_until is not None:
        good_until(asked + seconds)

    def keep() -> float | None:
        asked = clock()
        try:
            renew(registry, lease)
        except LeaseLost:
            return None
        if good_until is not None:
            good_until(asked + seconds)
        return seconds / 3

    def failed(error: Exception) -> None:  # the next round tries again
        log_and_go_on(log, "lease_renewal_failed", error, lease=name)

    keeper = Worker(f"lakeward-lease-{name}", keep, retry=pace, failed=failed)
    try:
        keeper.wake(seconds / 3)
        yield lease
    finally:
        keeper.stop()
        _let_go(registry, lease)


def _let_go(registry: Registry, lease: Lease) -> None:
    """Release, if the registry answers: otherwise the lease runs out by itself, and what the block did stays its outcome."""
    try:
        release(registry, lease)
    except LakewardError as error:
        log.warning("lease_not_released", lease=lease.name, error=str(error), code=error.code)
