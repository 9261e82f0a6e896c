"""Astha's settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lakeward.astha.events import SUBSCRIPTIONS, WATCHED
from lakeward.errors import InvalidSetting
from lakeward.retry import RetryConfig
from lakeward.validation import check_config


@dataclass(frozen=True, slots=True)
class AsthaConfig:
    """Every setting and its default. Durations are in seconds."""

    name: str = "lakeward"  # of the set of components: one Astha of a name is active at a time
    batch_size: int = 1_000  # rows of the feed that one read takes; events are delivered one by one
    poll_interval: float = 0.025  # between two looks for other processes' commits; thrice that after 10 s without
    event_timeout: float = 60.0  # an on_event that takes longer: the component is unresponsive, and refreshes later
    refresh_timeout: float = 300.0  # an on_refresh that takes longer: as an on_event
    drain_timeout: float = 300.0  # a queue that is not emptied for so long is dropped, and the component refreshes
    stop_timeout: float = 10.0  # how long `stop` waits for what is in hand
    health_interval: float = 5.0  # between two on_health of a component
    health_timeout: float = 2.0  # an on_health that takes longer counts as a failure
    stale_after: float = 30.0  # without an answer for so long a component counts as unhealthy
    max_failures: int = 5  # failed health checks in a row that open a component's circuit
    open_seconds: float = 5.0  # how long a circuit stays open before one probe
    queue_limit: int = 10_000  # events that wait for one component
    workers: int = 2  # threads of a component: lakehouse tables that it handles at the same time
    cursor_interval: float = 0.1  # how often cursors are stored, or after every 1,000 events
    lease_seconds: float = 10.0  # another process takes over this long after the active one has died
    retry: RetryConfig = field(default_factory=RetryConfig)
    subscriptions: Mapping[str, Iterable[str]] = field(default_factory=dict)  # rows added to the fixed table

    def __post_init__(self) -> None:
        check_config(self)
        for name, tables in self.subscriptions.items():
            if name in SUBSCRIPTIONS:
                raise InvalidSetting(f"subscriptions: those of {name!r} are fixed; add yours under another name")
            if not set(tables) or not set(tables) <= set(WATCHED):
                raise InvalidSetting(
                    f"subscriptions: {name!r} has {sorted(tables)}; give some of {', '.join(sorted(WATCHED))}"
                )
