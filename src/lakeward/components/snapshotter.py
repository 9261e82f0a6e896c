"""The snapshotter: decides when what is pending becomes a snapshot, and lets old snapshots go.

It counts what waits in each table that has rules, by the events of the feed alone, and works in threads of its own. What it
counts is only a reason to look: a flush commits what the registry says, so a count that is off for a moment costs a look.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from datetime import datetime
from typing import TypeAlias

import msgspec

from lakeward.astha.events import (
    TABLE_FILES,
    TABLE_METADATA,
    TABLE_SNAPSHOTS,
    Event,
)
from lakeward.background import Worker
from lakeward.components.component import OwnComponent
from lakeward.components.snapshot_rules import SnapshotRules, rules_of
from lakeward.errors import InvalidInput, LeaseHeld, TableNotFound
from lakeward.logs import log, log_and_go_on
from lakeward.registry import HasRegistry, Registry
from lakeward.retry import RetryConfig
from lakeward.snapshots import expiry
from lakeward.snapshots.snapshot_commit import flush
from lakeward.tables import pending, tables
from lakeward.tables.pending import Waiting
from lakeward.tables.records.files import TableFile
from lakeward.tables.records.properties import MAX_SNAPSHOT_AGE
from lakeward.tables.records.tables import TableMetadata, TableSnapshot
from lakeward.validation import check_config

Record: TypeAlias = TableMetadata | TableFile | TableSnapshot

LOOK_AGAIN_SECONDS = 1.0  # at most so often a table's removals are read again
RETRY = RetryConfig(initial_delay=1.0, max_delay=60.0, jitter=0.0)  # of what has failed,
HELD_RETRY = RetryConfig(initial_delay=1.0, max_delay=5.0, jitter=0.0)  # and where somebody holds the table
IDLE_SECONDS = 60.0  # a clock may be set meanwhile


class SnapshotterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`default`: the rules of tables that have none of their own; None: a snapshot only for a query, or by hand.

    Raises InvalidSetting: a value that makes no sense.
    """

    default: SnapshotRules = SnapshotRules()
    threads: int = 2  # tables that are flushed at once
    expire_seconds: float = 3_600.0  # between two expiries of a table that says how old its snapshots get

    def __post_init__(self) -> None:
        check_config(self)


class _Table(msgspec.Struct):
    """What is known of a table that has rules, or whose snapshots expire by themselves."""

    table_id: int
    version: int  # of the metadata that the rules are from
    rules: SnapshotRules
    expires: bool
    coming: dict[int, Waiting] = {}
    leaving: dict[str, Waiting] = {}
    size: int = 0
    rows: int = 0
    oldest: datetime | None = None
    is_oldest_known: bool = True
    look_again: bool = False
    looked_at: float = 0.0
    waits_since: float | None = None  # by this machine's monotonic clock, when it was noticed that something waits
    expire_at: float = 0.0
    expire_failures: int = 0
    not_before: float = 0.0  # for all but expiry
    failures: int = 0
    is_busy: bool = False
    events: int = 0  # that have changed what waits

    def set_all(self, found: pending.AllWaiting) -> None:
        self._set(dict(found.coming), dict(found.leaving))
        self.look_again = False

    def merge(self, found: pending.AllWaiting, before: Collection[int]) -> None:
        """Take what was read while events came: what waited `before` it and was not found has been committed."""
        committed = set(before) - found.coming.keys()
        self._set({i: each for i, each in self.coming.items() if i not in committed}, dict(found.leaving))
        self.look_again = True

    def _set(self, coming: dict[int, Waiting], leaving: dict[str, Waiting]) -> None:
        self.coming, self.leaving = coming, leaving
        everything = [*coming.values(), *leaving.values()]
        self.size, self.rows = sum(each.size for each in everything), sum(each.rows for each in everything)
        self.is_oldest_known = False

    def add(self, file_id: int, file: Waiting) -> None:
        self.drop(file_id)
        self.coming[file_id] = file
        self.size += file.size
        self.rows += file.rows
        if self.is_oldest_known:
            self.oldest = file.since if self.oldest is None else min(self.oldest, file.since)

    def drop(self, file_id: int) -> None:
        gone = self.coming.pop(file_id, None)
        if gone is not None:
            self.size -= gone.size
            self.rows -= gone.rows
            self.is_oldest_known = False

    def since(self) -> datetime | None:
        """When the oldest of what waits was registered."""
        if not self.is_oldest_known:
            every = [*self.coming.values(), *self.leaving.values()]
            self.oldest = min((each.since for each in every), default=None)
            self.is_oldest_known = True
        return self.oldest

    def due_in(self, seconds: float, now: float, registry_now: float) -> float | None:
        """In how many seconds something will have waited for so long; None if nothing waits.

        A clock that was set back makes nothing wait for longer.
        """
        since = self.since()
        if since is None:
            self.waits_since = None
            return None
        if self.waits_since is None:
            self.waits_since = now
        return seconds + min(since.timestamp() - registry_now, self.waits_since - now)

    @property
    def is_full(self) -> bool:
        return self.rules.is_reached_by(len(self.coming) + len(self.leaving), self.size, self.rows)


class Counts(msgspec.Struct, frozen=True):
    """What waits in a table, as the snapshotter has counted it."""

    files: int
    bytes: int
    rows: int
    rules: SnapshotRules


class Snapshotter(OwnComponent[Record]):
    """A component of Astha. `start` its threads once it is registered; `on_refresh` takes the state from the registry."""

    name = "snapshotter"
    tables = (TABLE_METADATA, TABLE_FILES, TABLE_SNAPSHOTS)

    def __init__(self, lake: Registry | HasRegistry, config: SnapshotterConfig | None = None) -> None:
        super().__init__(lake)
        self._config = config or SnapshotterConfig()
        self._tables: dict[int, _Table] = {}
        self._clock_ahead = 0.0  # seconds by which the registry's clock is ahead of this machine's
        self._lock = threading.RLock()  # guards all of the above

    # What Astha calls -------------------------------------------------------------------------------------------------
    def on_event(self, event: Event[Record]) -> None:
        """Count what is pending anew; a table that reaches a limit is flushed by a thread of `start`."""
        if isinstance(event.data, TableFile):
            self._on_file(event.operation, event.data)
        elif isinstance(event.data, TableMetadata):
            self._on_metadata(event.operation, event.data)
        elif event.operation == "INSERT":
            with self._lock:
                table = self._tables.get(event.table_id)
                if table is not None and table.rules and table.leaving:
                    table.look_again = True
                    self._wake()

    def on_refresh(self) -> None:
        """Raises RegistryUnavailable."""
        with self._lock:
            here = time.time()
            self._clock_ahead = pending.now(self._registry).timestamp() - here
            before, self._tables = self._tables, {}
            for each in pending.table_properties(self._registry):
                self._track(each.table_id, each.version, each.properties, before.get(each.table_id))
            self._wake()

    # Its own ----------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start making snapshots. Without Astha, call `on_refresh` first."""
        self._worker = Worker("lakeward-snapshotter", self._step, threads=self._config.threads)
        self._worker.wake()

    def counts(self) -> dict[int, Counts]:
        """By table_id, what waits in the tables that have rules."""
        with self._lock:
            return {
                i: Counts(len(t.coming) + len(t.leaving), t.size, t.rows, t.rules)
                for i, t in self._tables.items()
                if t.rules
            }

    # Events -----------------------------------------------------------------------------------------------------------
    def _on_file(self, operation: str, file: TableFile) -> None:
        if file.file_type == "json":
            return
        with self._lock:
            table = self._tables.get(file.table_id)
            if table is None or not table.rules:
                return
            table.events += 1
            was_empty = not (table.coming or table.leaving)
            is_pending = file.snapshot_id is None and file.set_aside_reason is None
            if operation != "DELETE" and is_pending:
                table.add(file.file_id, Waiting(file.file_size, file.row_count, file.registered_at))
            else:
                table.drop(file.file_id)
                # A file of the current snapshot left: the registry says whether that waits for a snapshot. Or the last one
                # that waited did: the table may be gone.
                is_gone = operation == "DELETE"
                table.look_again |= is_gone and (file.snapshot_id is not None or not table.coming)
            if was_empty or table.look_again or table.is_full:
                self._wake()

    def _on_metadata(self, operation: str, metadata: TableMetadata) -> None:
        with self._lock:
            known = self._tables.get(metadata.table_id)
            if operation == "DELETE":
                if known is not None and not pending.is_here(self._registry, metadata.table_id):
                    del self._tables[metadata.table_id]
                return
            if known is not None and metadata.metadata_version < known.version:
                return
            if known is None:
                rules = self._rules(metadata.table_id, metadata.properties)
                is_to_know = rules or MAX_SNAPSHOT_AGE.name in metadata.properties
                if not is_to_know or not pending.is_here(self._registry, metadata.table_id):
                    return
            self._track(metadata.table_id, metadata.metadata_version, metadata.properties, known)
            self._wake()

    # State ------------------------------------------------------------------------------------------------------------
    def _rules(self, table_id: int, properties: dict[str, str]) -> SnapshotRules:
        try:
            return rules_of(properties, self._config.default)
        except InvalidInput as error:  # set by another engine, or by SQL
            log.warning("snapshot_rules_not_understood", table_id=table_id, error=str(error))
            return self._config.default

    def _track(self, table_id: int, version: int, properties: dict[str, str], before: _Table | None) -> None:
        """Take a table's rules, and read what waits in it. The lock is held."""
        rules = self._rules(table_id, properties)
        expires = MAX_SNAPSHOT_AGE.name in properties
        if not rules and not expires:
            self._tables.pop(table_id, None)
            return
        first = time.monotonic() + min(self._config.expire_seconds, IDLE_SECONDS)
        table = _Table(table_id, version, rules, expires, expire_at=first)
        if before is not None:
            table.expire_at = before.expire_at if before.expires else first
            table.expire_failures, table.waits_since = before.expire_failures, before.waits_since
            table.is_busy, table.not_before, table.failures = before.is_busy, before.not_before, before.failures
        if rules:
            try:
                table.set_all(pending.of_table(self._registry, table_id))
            except TableNotFound:  # dropped since
                self._tables.pop(table_id, None)
                return
        self._tables[table_id] = table

    # Work -------------------------------------------------------------------------------------------------------------
    def _step(self) -> float:
        with self._lock:
            table, what, wait = self._next()
            if table is None:
                return wait
            table.is_busy = True
        try:
            self._do(table.table_id, what)
        except TableNotFound:
            with self._lock:
                self._tables.pop(table.table_id, None)
        except Exception as error:  # this table waits, the others go on
            log_and_go_on(log, "snapshot_failed", error, table_id=table.table_id, work=what)
            self._done(table.table_id, what, HELD_RETRY if isinstance(error, LeaseHeld) else RETRY)
        else:
            self._done(table.table_id, what)
        return 0.0

    def _next(self) -> tuple[_Table | None, str, float]:
        """(a table that is due, what is to be done there, otherwise the seconds until one will be). The lock is held."""
        now, registry_now = time.monotonic(), time.time() + self._clock_ahead
        wait = IDLE_SECONDS
        for table in self._tables.values():
            if table.is_busy:
                continue
            found = self._due(table, now, registry_now)
            what, seconds = min(found, key=lambda each: each[1], default=("", wait))
            if seconds <= 0:
                return table, what, 0.0
            wait = min(wait, seconds)
        return None, "", wait

    def _due(self, table: _Table, now: float, registry_now: float) -> list[tuple[str, float]]:
        """What is to be done in a table, and in how many seconds."""
        found: list[tuple[str, float]] = []
        if table.is_full:
            found.append(("size", 0.0))
        if table.rules.seconds is not None:
            left = table.due_in(table.rules.seconds, now, registry_now)
            if left is not None:
                found.append(("time", left))
        if table.look_again:
            found.append(("look", table.looked_at + LOOK_AGAIN_SECONDS - now))
        found = [(what, max(seconds, table.not_before - now)) for what, seconds in found]
        if table.expires:
            found.append(("expire", table.expire_at - now))
        return found

    def _do(self, table_id: int, what: str) -> None:
        if what == "expire":
            expiry.expire(self._registry, tables.load_by_id(self._registry, table_id))
            return
        if what != "look":
            flush(self._registry, table_id, what, wait=0.0)  # a thread that waited would keep other tables waiting
            with self._lock:
                if (table := self._tables.get(table_id)) is not None:
                    table.waits_since = None
        self._look(table_id)

    def _look(self, table_id: int) -> None:
        """Count anew what waits in a table. Events go on meanwhile. Raises TableNotFound: it was dropped."""
        with self._lock:
            table = self._tables.get(table_id)
            if table is None:
                return
            events, before = table.events, set(table.coming)
        found = pending.of_table(self._registry, table_id)
        with self._lock:
            table.looked_at = time.monotonic()
            if table.events == events:
                table.set_all(found)
            else:
                table.merge(found, before)

    def _done(self, table_id: int, what: str, retry: RetryConfig | None = None) -> None:
        """After something was done, or has failed: then it is tried again after the waits of `retry`.

        An expiry that fails keeps nothing else waiting: what is pending is to become a snapshot all the same.
        """
        with self._lock:
            self._wake()
            if (table := self._tables.get(table_id)) is None:
                return
            table.is_busy, now = False, time.monotonic()
            failed = table.expire_failures if what == "expire" else table.failures
            failed = 0 if retry is None else failed + 1
            seconds = 0.0 if retry is None else retry.delay(failed)
            if what == "expire":
                table.expire_failures = failed
                table.expire_at = now + (seconds or self._config.expire_seconds)
            elif what != "look" or failed:
                table.failures, table.not_before = failed, now + seconds
