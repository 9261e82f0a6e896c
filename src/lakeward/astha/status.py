"""What Astha says of itself and of its components."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from lakeward.astha import feed
from lakeward.astha.feed import Behind, Cursor, Place
from lakeward.astha.health import Probe
from lakeward.astha.router import Lane
from lakeward.astha.sql.changes import Wanted
from lakeward.registry import Registry


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
    lane: Lane, probe: Probe, parked: int | None, count: Callable[[Place], Behind] | None = None
) -> ComponentStatus:
    """`parked`: how many are kept; none leaves it at those of this run. `count`: of what the feed has; else memory alone."""
    now = time.time()
    counts, answered = lane.counts, probe.answered_at
    waiting = lane.waiting()
    events, seconds = waiting.length, _age(None if waiting.oldest is None else waiting.oldest.changed_at, now)
    if count is not None and waiting.place is not None:
        found = count(waiting.place)
        oldest = found.oldest if waiting.oldest is None else waiting.oldest.changed_at
        events, seconds = events + found.count, _age(oldest, found.now.timestamp())
    checked = None if answered is None else datetime.fromtimestamp(now - (time.monotonic() - answered), UTC)
    return ComponentStatus(
        name=lane.name,
        version=lane.subscriber.version,
        status=lane.status(),
        subscriptions=sorted(map(str, lane.tables)),
        queue_length=lane.length,
        lag_events=events,
        lag_seconds=seconds,
        delivered=counts.delivered,
        retried=counts.retried,
        folded=counts.folded,
        refreshes=counts.refreshes,
        parked=counts.parked if parked is None else parked,
        breaker=lane.breaker.state,
        reason=lane.reason(),
        last_error=lane.last_error,
        last_health_check=checked,
        operations=None if lane.filter.operations is None else sorted(lane.filter.operations),
        table_ids=None if lane.filter.tables is None else sorted(lane.filter.tables),
    )


def _age(changed_at: datetime | None, now: float) -> float:
    return 0.0 if changed_at is None else max(0.0, round(now - changed_at.timestamp(), 3))


def stored_lag(registry: Registry, cursor: Cursor) -> dict[str, Any]:
    """How far behind its stored cursor says that a component is, whether or not a process is active."""
    state, place = cursor.state, cursor.place
    if place is None or "subscriptions" not in state:
        return {}
    wanted = Wanted(state["subscriptions"], state.get("operations"), state.get("table_ids"))
    found = feed.behind(registry, place, wanted)
    return {"lag_events": found.count, "lag_seconds": _age(found.oldest, found.now.timestamp())}
