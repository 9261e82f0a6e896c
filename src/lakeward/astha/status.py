"""What Astha says of itself and of its components."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import msgspec

from lakeward.astha.health import Probe
from lakeward.astha.router import Lane


class ComponentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One component, as its Astha sees it."""

    name: str
    version: str
    status: str  # active, degraded (it is tried again, or refreshes), error (its circuit is open)
    subscriptions: list[str]
    queue_length: int  # events that wait in memory
    lag_events: int  # events that wait in memory; those that a full queue leaves in the feed are not counted
    lag_seconds: float  # age of the oldest waiting event
    delivered: int  # since the start, as are the next ones
    retried: int
    folded: int
    refreshes: int
    parked: int  # kept in the registry
    breaker: str  # closed | open | half_open
    reason: str | None  # why it is not closed, or why a refresh is due
    last_error: str | None
    last_health_check: datetime | None  # the last one that was answered


class AsthaStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    state: str  # active | standby | failed | stopped
    owner: str  # this process, as leases name it
    restarts: int
    last_error: str | None
    components: list[ComponentStatus]


def component_status(lane: Lane, probe: Probe, parked: int | None) -> ComponentStatus:
    """`parked`: how many are kept; none leaves it at those of this run."""
    now = time.time()
    counts, answered = lane.counts, probe.answered_at
    oldest = lane.oldest()
    checked = None if answered is None else datetime.fromtimestamp(now - (time.monotonic() - answered), UTC)
    return ComponentStatus(
        name=lane.name,
        version=lane.subscriber.version,
        status=lane.status(),
        subscriptions=sorted(map(str, lane.tables)),
        queue_length=lane.length,
        lag_events=0 if oldest is None else lane.length,
        lag_seconds=0.0 if oldest is None else max(0.0, round(now - oldest.changed_at.timestamp(), 3)),
        delivered=counts.delivered,
        retried=counts.retried,
        folded=counts.folded,
        refreshes=counts.refreshes,
        parked=counts.parked if parked is None else parked,
        breaker=lane.breaker.state,
        reason=lane.reason(),
        last_error=lane.last_error,
        last_health_check=checked,
    )
