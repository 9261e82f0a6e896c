"""What Astha says of itself and of its components."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import sqlalchemy as sa

from lakeward.astha import feed
from lakeward.astha.feed import Cursor
from lakeward.astha.health import Probe
from lakeward.astha.router import Lane
from lakeward.astha.sql import cursors
from lakeward.astha.sql.changes import Wanted
from lakeward.registry import Registry, leases


class ComponentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One component, as its Astha sees it."""

    name: str
    version: str
    status: str  # active, degraded (it is tried again, or refreshes), error (its circuit is open)
    subscriptions: list[str]
    queue_length: int  # events that wait in memory
    lag_events: int  # events not handled yet: in memory, and of the next 100,000 rows of the feed
    lag_seconds: float  # age of the oldest of them
    delivered: int  # since the start, as are the next ones
    retried: int
    folded: int
    refreshes: int
    parked: int  # kept in the registry
    breaker: str  # closed | open | half_open
    reason: str | None  # why it is not closed, or why a refresh is due
    last_error: str | None
    last_health_check: datetime | None  # the last one that was answered
    operations: list[str] | None = None  # that it hears of; None: all
    table_ids: list[int] | None = None  # lakehouse tables that it hears of; None: all


class AsthaStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    state: str  # active | standby | failed | stopped
    owner: str  # this process, as leases name it
    restarts: int
    last_error: str | None
    components: list[ComponentStatus]


def component_status(
    lane: Lane, probe: Probe, connection: sa.Connection | None = None, parked: Mapping[str, int] = {}
) -> ComponentStatus:
    """With a connection the lag counts what the feed has, and `parked` how many events are kept, by component; without, what
    is in memory and was parked in this run."""
    now = time.time()
    counts, answered = lane.counts, probe.answered_at
    waiting = lane.waiting()
    events, seconds = waiting.length, _age(None if waiting.oldest is None else waiting.oldest.changed_at, now)
    if connection is not None and waiting.place is not None:
        found = feed.behind(connection, waiting.place, lane.wanted)
        oldest = found.oldest if waiting.oldest is None else waiting.oldest.changed_at
        events, seconds = events + found.count, _age(oldest, found.now.timestamp())
    checked = None if answered is None else datetime.fromtimestamp(now - (time.monotonic() - answered), UTC)
    return ComponentStatus(
        name=lane.name,
        version=lane.subscriber.version,
        status=lane.status(),
        subscriptions=sorted(map(str, lane.wanted.tables)),
        queue_length=lane.length,
        lag_events=events,
        lag_seconds=seconds,
        delivered=counts.delivered,
        retried=counts.retried,
        folded=counts.folded,
        refreshes=counts.refreshes,
        parked=counts.parked if connection is None else parked.get(lane.name, 0),
        breaker=lane.breaker.state,
        reason=lane.reason(),
        last_error=lane.last_error,
        last_health_check=checked,
        operations=None if lane.wanted.operations is None else sorted(lane.wanted.operations),
        table_ids=None if lane.wanted.table_ids is None else sorted(lane.wanted.table_ids),
    )


def _age(changed_at: datetime | None, now: float) -> float:
    return 0.0 if changed_at is None else max(0.0, round(now - changed_at.timestamp(), 3))


def load_status(registry: Registry, name: str | None = None) -> list[dict[str, Any]]:
    """What the active Asthas stored last of each component, from any process; `seen_at` says when.

    The lag is counted now. A component that no process runs now has the status 'dead', whatever was stored.
    """
    with registry.database.read() as connection:
        return load_status_in(connection, name)


def load_status_in(connection: sa.Connection, name: str | None = None) -> list[dict[str, Any]]:
    """As `load_status`, as of the connection's transaction."""
    found = feed.load_cursors(connection, name)
    asthas = {cursor.astha for cursor in found}
    parked = {astha: cursors.count_parked(connection, astha) for astha in asthas}
    led = {astha for astha in asthas if leases.is_held(connection, lease_name(astha))}
    here = feed.origin(connection)
    dead = {"status": "dead", "reason": "no process runs it; `lakeward serve` does"}
    return [
        {
            **cursor.state,
            **({} if cursor.astha in led else dead),
            "astha": cursor.astha,
            "seen_at": cursor.seen_at,
            **_stored_lag(connection, cursor, here),
            "parked": parked[cursor.astha].get(cursor.subscriber, 0),
        }
        for cursor in found
    ]


def _stored_lag(connection: sa.Connection, cursor: Cursor, here: tuple[str, str]) -> dict[str, Any]:
    """How far behind its stored cursor says that a component is, whether or not a process is active."""
    state, place = cursor.state, cursor.place
    if place is None or (place.registry, place.server) != here or "subscriptions" not in state:
        return {}
    wanted = Wanted(state["subscriptions"], state.get("operations"), state.get("table_ids"))
    found = feed.behind(connection, place, wanted)
    return {"lag_events": found.count, "lag_seconds": _age(found.oldest, found.now.timestamp())}


def lease_name(astha: str) -> str:
    """Whoever has this lease is the active one."""
    return f"astha:{astha}"
