"""Components for tests of Astha, and what it takes to watch them: conditions that are waited for, never fixed sleeps."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from lakeward.astha import SUBSCRIPTIONS, Astha, AsthaConfig, ComponentStatus, Event, RetryConfig, WatchedTable, feed
from lakeward.astha.events import WATCHED
from lakeward.astha.feed import Cursor
from lakeward.db import lock_order, schema
from lakeward.registry import Registry
from tests.contract.db import rows
from tests.support.waiting import until

Key = tuple[str, tuple[Any, ...]]


def quick(**changes: Any) -> AsthaConfig:
    """Settings for tests: every time is short, but for those that must not run out while a test is slow."""
    defaults: dict[str, Any] = {
        "poll_interval": 0.005,
        "health_interval": 0.05,
        "open_seconds": 0.1,
        "cursor_interval": 0.02,
        "retry": RetryConfig(max_retries=3, initial_delay=0.01, max_delay=0.02, jitter=0.0),
    }
    return AsthaConfig(**{**defaults, **changes})


class Recorder:
    """A component that notes what it is told, in order. `act` is called with each event, and may raise or wait."""

    version = "1"

    def __init__(self, name: str = "compactor", act: Callable[[Event[Any]], object] | None = None) -> None:
        self.name = name
        self.act = act
        self.events: list[Event[Any]] = []  # those that were handled
        self.refreshes = 0
        self.is_well: Callable[[], bool] = lambda: True
        self.refresh_act: Callable[[], object] = lambda: None
        self._lock = threading.Lock()
        self._inside: set[int] = set()
        self.clashes: list[str] = []  # what must not happen at once and did

    def get_subscribed_tables(self) -> Sequence[WatchedTable[Any]]:
        return [WATCHED[name] for name in sorted(SUBSCRIPTIONS[self.name])]

    def on_event(self, event: Event[Any]) -> None:
        with self._lock:
            if event.table_id in self._inside or -1 in self._inside:
                self.clashes.append(f"event {event.sequence} while {self._inside}")
            self._inside.add(event.table_id)
        try:
            if self.act is not None:
                self.act(event)
            with self._lock:
                self.events.append(event)
        finally:
            self._inside.discard(event.table_id)

    def on_health(self) -> bool:
        return self.is_well()

    def on_refresh(self) -> None:
        with self._lock:
            if self._inside:
                self.clashes.append(f"refresh while {self._inside}")
            self._inside.add(-1)
        try:
            self.refresh_act()
            self.refreshes += 1
        finally:
            self._inside.discard(-1)

    def sequences(self, table_id: int | None = None) -> list[int]:
        with self._lock:
            return [each.sequence for each in self.events if table_id in (None, each.table_id)]

    def by_table(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        for event in list(self.events):
            found[event.table_id].append(event.sequence)
        return dict(found)


class Mirror(Recorder):
    """A component whose state is the rows of its tables: after anything at all it must equal what a SELECT gives."""

    def __init__(self, registry: Registry, name: str = "snapshotter", act: Callable[..., object] | None = None) -> None:
        super().__init__(name, act)
        self.registry = registry
        self.rows: dict[Key, Any] = {}

    def on_event(self, event: Event[Any]) -> None:
        super().on_event(event)
        key = key_of(event.table, event.data)
        if event.operation == "DELETE":
            self.rows.pop(key, None)
        else:
            self.rows[key] = event.data

    def on_refresh(self) -> None:
        super().on_refresh()
        self.rows = registry_rows(self.registry, SUBSCRIPTIONS[self.name])

    def is_true(self) -> bool:
        """Whether it has what a fresh start would give it."""
        return self.rows == registry_rows(self.registry, SUBSCRIPTIONS[self.name])

    def expect_true(self) -> None:
        until(self.is_true, lambda: difference(self.rows, registry_rows(self.registry, SUBSCRIPTIONS[self.name])))
        assert self.clashes == []


def key_of(table: str, record: Any) -> Key:
    return table, tuple(getattr(record, column.name) for column in schema.metadata.tables[table].primary_key.columns)


def registry_rows(registry: Registry, tables: Iterable[str]) -> dict[Key, Any]:
    """Every row of these tables as its record, by key."""
    found: dict[Key, Any] = {}
    with registry.database.read() as connection:
        for name in tables:
            record: Any = WATCHED[name].record
            for row in connection.execute(sa.select(schema.metadata.tables[name])).mappings():
                made = record(**{field: row[field] for field in record.__struct_fields__})
                found[key_of(name, made)] = made
    return found


def difference(have: Mapping[Key, Any], want: Mapping[Key, Any]) -> str:
    keys = [key for key in {*have, *want} if have.get(key) != want.get(key)]
    return "; ".join(f"{key}: has {have.get(key)}, registry {want.get(key)}" for key in keys[:3])


def component(astha: Astha, name: str = "compactor") -> ComponentStatus:
    """What status() says of it."""
    return next(each for each in astha.status().components if each.name == name)


def touch(registry: Registry, table_id: int, times: int = 1, *, at_once: bool = False) -> None:
    """Change a row of table_stats and so make an event of this lakehouse table: in transactions of their own, or in one."""
    c = schema.table_stats.c
    change = schema.table_stats.update().where(c.table_id == table_id).values(row_count=c.row_count + 1)
    rounds = (1, times) if at_once else (times, 1)
    for _ in range(rounds[0]):
        with registry.database.transaction() as connection:
            lock_order.tables(connection, [table_id])
            for _ in range(rounds[1]):
                connection.execute(change)


def make_tables(registry: Registry, count: int = 1) -> list[int]:
    """Lakehouse tables of a row of each watched kind, made by SQL; their ids."""
    with registry.database.transaction() as connection:
        if connection.execute(sa.select(schema.namespaces.c.namespace_id)).first() is None:
            namespace = {"warehouse_id": registry.warehouse.warehouse_id}
            rows.insert(connection, "namespaces", **namespace)
        for number in range(1, count + 1):
            own = {"table_id": number}
            named = {"table_uuid": f"t-{number}", "name": f"n{number}", "location": f"/{number}"}
            rows.insert(connection, "tables", **own, **named)
            rows.insert(connection, "table_metadata", **own)
            rows.insert(connection, "table_columns", **own)
            rows.insert(connection, "table_files", **own, file_id=number, file_path=f"/{number}/a.parquet")
            rows.insert(connection, "table_stats", **own)
            rows.insert(connection, "table_snapshots", **own)
    return list(range(1, count + 1))


def flood(registry: Registry, table_id: int, count: int) -> None:
    """So many events of this lakehouse table at once: copies of one of its table_stats, in the feed alone."""
    copy = sa.text(
        "WITH RECURSIVE numbers(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < :count) "
        "INSERT INTO registry_changes (table_name, operation, table_id, data, changed_at) "
        "SELECT table_name, operation, table_id, data, changed_at FROM numbers, (SELECT * FROM registry_changes "
        "WHERE table_name = 'table_stats' AND table_id = :table_id ORDER BY sequence DESC LIMIT 1) AS one"
    )
    with registry.database.transaction() as connection:
        lock_order.tables(connection, [table_id])
        connection.execute(copy, {"count": count, "table_id": table_id})


def load_cursors(registry: Registry) -> list[Cursor]:
    with registry.database.read() as connection:
        return feed.load_cursors(connection)
