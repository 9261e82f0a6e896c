"""Astha: pushes the registry's changes to the components that act on them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Literal, Self, TypeVar

import msgspec
import sqlalchemy as sa

from lakeward.astha import feed
from lakeward.astha.config import AsthaConfig
from lakeward.astha.delivery import Delivery
from lakeward.astha.entries import Task
from lakeward.astha.events import SUBSCRIPTIONS, Subscriber
from lakeward.astha.feed import Place
from lakeward.astha.health import Probe
from lakeward.astha.reasons import reason
from lakeward.astha.router import Lane, groups
from lakeward.astha.sql import cursors
from lakeward.astha.sql.changes import Change, Wanted
from lakeward.astha.status import AsthaStatus, component_status, lease_name
from lakeward.astha.watcher import Watcher
from lakeward.background import Worker
from lakeward.errors import LakewardError, LeaseHeld, LeaseLost, SubscriberRefused
from lakeward.logs import log, log_and_go_on
from lakeward.registry import HasRegistry, Registry, leases, registry_of
from lakeward.registry.leases import Lease
from lakeward.retry import steady

T = TypeVar("T")

SAVE_EVENTS = 1_000  # events after which cursors are stored, if `cursor_interval` has not passed before
SEEN_SECONDS = 10.0  # how often cursors are stored where nothing happens, to say that somebody is there
TRIM_SECONDS = 30.0
CHECK_SECONDS = 0.1


class Astha:
    """Reads the feed, and pushes each change to the components that subscribe to its table.

    Of all processes one Astha of a name is active; the others wait to take over. `register` first, then `start`.
    """

    def __init__(
        self,
        lake: Registry | HasRegistry,
        config: AsthaConfig | None = None,
        *,
        on_active: Callable[[bool], object] | None = None,
    ) -> None:
        """`on_active` is told whether this one is the active Astha, when that changes; it must return at once."""
        self.registry = registry_of(lake)
        self._on_active = on_active or (lambda _: None)
        self.config = config or AsthaConfig()
        self._lanes: dict[str, Lane] = {}
        self._deliveries: list[Delivery] = []
        self._worker: Worker | None = None
        self._watcher: Watcher | None = None
        self._saving = threading.Lock()  # from the look at where lanes stand until that is stored
        self._lease: Lease | None = None
        self._good_until = 0.0
        self.state: Literal["stopped", "standby", "active", "failed"] = "stopped"
        self.restarts = 0
        self.last_error: str | None = None

    # Before the start -------------------------------------------------------------------------------------------------
    def register(
        self,
        subscriber: Subscriber[T],
        *,
        operations: Iterable[str] | None = None,
        tables: Iterable[int] | None = None,
        fold: bool = False,
    ) -> None:
        """Have a component told of its tables' changes.

        Args:
            operations: only these of INSERT, UPDATE, DELETE.
            tables: only changes that concern these lakehouse tables, by table_id.
            fold: the component reads the table anew anyway: of a lakehouse table's waiting events the newest is enough.

        Raises:
            SubscriberRefused: the name is taken or unknown, the subscriptions are not the name's, or Astha has started.
        """
        name, asked = subscriber.name, frozenset(subscriber.get_subscribed_tables())
        if self._worker is not None:
            raise SubscriberRefused(f"{name!r} comes too late: register before start()")
        if name in self._lanes:
            raise SubscriberRefused(f"{name!r} is registered already; a name stands for one component")
        known = {**{key: frozenset(value) for key, value in self.config.subscriptions.items()}, **SUBSCRIPTIONS}
        if name not in known:
            raise SubscriberRefused(
                f"{name!r} is none of {', '.join(sorted(known))}; add it with AsthaConfig(subscriptions={{{name!r}: (...)}})"
            )
        if asked != known[name]:
            raise SubscriberRefused(
                f"{name!r} subscribes to {', '.join(sorted(asked)) or 'nothing'}, but its subscriptions are "
                f"{', '.join(sorted(known[name]))}"
            )
        chosen = None if operations is None else frozenset(operations)
        if chosen is not None and not chosen <= {"INSERT", "UPDATE", "DELETE"}:
            raise SubscriberRefused(f"operations={sorted(chosen)} must be of INSERT, UPDATE and DELETE")
        wanted = Wanted(asked, chosen, None if tables is None else frozenset(tables))
        self._lanes[name] = Lane(subscriber, wanted, self.config, folds=fold)

    # Running ----------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Begin in threads of its own: at once, or when the process that is active now has gone.

        Raises:
            SubscriberRefused: it has been started before.
        """
        if self._worker is not None:
            raise SubscriberRefused("this Astha has been started before; make another")
        self._deliveries = [
            Delivery(lane, is_current=self.is_current, hold=self._hold, park=self._park)
            for lane in self._lanes.values()
        ]
        self._worker = Worker("lakeward-astha", self._step, retry=self.config.retry, failed=self._failed)
        self.state = "standby"
        self._worker.wake()
        for delivery in self._deliveries:
            delivery.start()

    def stop(self) -> bool:
        """Finish what is in hand, store the cursors and let go.

        False if a component, or the registry, did not answer in `stop_timeout`: what is not stored comes again.
        """
        if self._worker is None or self.registry.database.is_forked:
            return True
        deadline = time.monotonic() + self.config.stop_timeout
        for delivery in self._deliveries:
            delivery.lane.stop()
        returned = [delivery.stop(deadline) for delivery in self._deliveries]
        self._worker.stop(0)
        if self._watcher is not None:
            self._watcher.wake()
        has_ended = self._worker.join(max(0.1, deadline - time.monotonic()))
        self.state = "stopped"
        return all(returned) and has_ended

    @property
    def _is_stopping(self) -> bool:
        return self._worker is None or self._worker.is_stopped

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def is_current(self) -> bool:
        """Whether this is the active Astha for certain: nobody else can have its lease yet."""
        return self._lease is not None and leases.clock() < self._good_until

    def check(self, connection: sa.Connection) -> None:
        """For components, in the transaction of what they write. Raises LeaseLost: another process is active now."""
        lease = self._lease
        if lease is None:
            raise LeaseLost(f"the Astha {self.config.name!r} of this process is not active; nothing was written")
        leases.check(connection, lease)

    def status(self) -> AsthaStatus:
        """What each component does now.

        While the registry does not answer, `parked` is what was parked since the start, and the lag what waits in memory.
        """
        try:
            with self.registry.database.read() as connection:
                parked = cursors.count_parked(connection, self.config.name)
                components = [component_status(*pair, connection, parked) for pair in self._watched()]
        except LakewardError:
            components = [component_status(*pair) for pair in self._watched()]
        return AsthaStatus(
            name=self.config.name,
            state=self.state,
            owner=self.registry.owner,
            restarts=self.restarts,
            last_error=self.last_error,
            components=components,
        )

    def _watched(self) -> list[tuple[Lane, Probe]]:
        return [(delivery.lane, delivery.probe) for delivery in self._deliveries]

    # The loop ---------------------------------------------------------------------------------------------------------
    def _step(self) -> float:
        try:
            self._lead()
        except LeaseHeld:
            self.state = "standby"
            return self.config.lease_seconds / 5
        except LeaseLost as error:
            log.warning("astha_lost_its_lease", astha=self.config.name, error=str(error))
        finally:
            self._lease, self._good_until = None, 0.0
        self.restarts += not self._is_stopping
        return 0.0

    def _failed(self, error: Exception) -> None:
        self.restarts += not self._is_stopping
        self.state, self.last_error = "failed", reason(error)
        is_ours = not isinstance(error, LakewardError)
        log.error("astha_failed", astha=self.config.name, error=self.last_error, exc_info=error if is_ours else None)

    def _lead(self) -> None:
        """Be the active one, until stopped or until the lease is lost. Raises LeaseHeld: another one is."""
        config, registry = self.config, self.registry
        with leases.held(
            registry, lease_name(config.name), seconds=config.lease_seconds, good_until=self._extend
        ) as lease:
            watcher = self._watcher = Watcher(registry)
            trimmer = Worker("lakeward-astha-trim", self._trim, retry=steady(TRIM_SECONDS), failed=_not_trimmed)
            try:
                self._begin(watcher, lease)
                self._lease = lease
                self.state = "active"
                self._on_active(True)
                trimmer.wake(TRIM_SECONDS)
                self._follow(watcher, lease)
            finally:
                trimmer.stop(0)
                self._on_active(False)
                watcher.close()

    def _extend(self, until: float) -> None:
        self._good_until = until

    def _begin(self, watcher: Watcher, lease: Lease) -> None:
        taken = feed.take_up(self.registry, lease, self.config.name, list(self._lanes))
        places = {cursor.subscriber: cursor.place for cursor in taken}
        for name, lane in self._lanes.items():
            place = places.get(name)
            if place is not None and not watcher.reader.knows(place):
                log.warning("registry_restored", astha=self.config.name, component=name)
                place = None
            lane.begin(place)

    def _follow(self, watcher: Watcher, lease: Lease) -> None:
        self._saved_at = self._save_again_at = 0.0
        self._saved_moves = -1
        checked = 0.0
        more = True
        while not self._is_stopping:
            if not self.is_current():
                raise LeaseLost(f"the lease of the Astha {self.config.name!r} ran out before it was renewed")
            # Not everything that changes here is a commit: a lane that has room again, a refresh that is over.
            told = watcher.wait(0.0 if more else self.config.poll_interval)
            if told or more or any(lane.takes_again() for lane in self._lanes.values()):
                more = self._read(watcher)
            now = time.monotonic()
            if now - checked >= CHECK_SECONDS:
                checked = now
                for lane in self._lanes.values():
                    lane.check(now)
            self._save_if_due(now, lease)
        self._save_all(lease)

    def _read(self, watcher: Watcher) -> bool:
        """Read once for each place where lanes stand; whether there is more."""
        more = False
        for place, lanes in groups(self._lanes.values()).items():
            read = watcher.read(place, self.config.batch_size)
            for lane in lanes:
                lane.put(read, place)
            more = more or not read.is_last
        return more

    def _trim(self) -> float:
        if self.is_current():
            feed.trim(self.registry)
        return TRIM_SECONDS

    # What deliveries ask for ------------------------------------------------------------------------------------------
    def _hold(self, lane: Lane, task: Task) -> Place:
        """Where the lane goes on after its refresh.

        Trimming heeds the stored places alone. So one is stored, and only then is looked where the feed ends: what was
        trimmed before lies before that end, and the refresh sees it.
        """
        watcher, lease = self._watcher, self._lease
        if watcher is None or lease is None:
            raise LeaseLost("not active any more; the refresh is for the one that is")
        with self._saving:
            lane.hold(task, watcher.reader.head())
            self._save(lease, [pair for pair in self._watched() if pair[0] is lane])
        return watcher.reader.head()

    def _save(self, lease: Lease, pairs: list[tuple[Lane, Probe]]) -> None:
        """Store where lanes stand, and what `lakeward astha status` shows. Raises LeaseLost. Under `_saving`."""
        progress = {
            lane.name: (lane.done_up_to(), msgspec.to_builtins(component_status(lane, probe))) for lane, probe in pairs
        }
        feed.save_cursors(self.registry, lease, self.config.name, progress)

    def _save_if_due(self, now: float, lease: Lease) -> None:
        moves = sum(lane.moves for lane in self._lanes.values())
        moved, waited = moves - self._saved_moves, now - self._saved_at
        is_due = (moved and waited >= self.config.cursor_interval) or moved >= SAVE_EVENTS or waited >= SEEN_SECONDS
        if is_due and now >= self._save_again_at and self._save_all(lease):
            self._saved_moves = moves

    def _save_all(self, lease: Lease) -> bool:
        """Whether they were stored. Raises LeaseLost."""
        try:
            with self._saving:
                self._save(lease, self._watched())
        except LeaseLost:
            raise
        except LakewardError as error:  # a full disk, a locked database: events go on, and come again if we die now
            log.warning("cursors_not_stored", astha=self.config.name, error=str(error), code=error.code)
            self._save_again_at = time.monotonic() + 1.0
            return False
        self._saved_at = time.monotonic()
        return True

    def _park(self, lane: Lane, change: Change, attempts: int, error: str) -> None:
        lease = self._lease
        if lease is None:
            raise LeaseLost("not active any more; the event stays where it is")
        feed.park(self.registry, lease, self.config.name, lane.name, change, attempts, error)


def _not_trimmed(error: Exception) -> None:
    """Such as for a full disk: the next round tries again."""
    log_and_go_on(log, "feed_not_trimmed", error)
