"""The schema manager: filled, refreshed and emptied by events, and never older than what its caller could know."""

from __future__ import annotations

import contextlib
import copy
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lakeward import Lake
from lakeward.astha import Astha, AsthaConfig
from lakeward.astha.events import WATCHED, Event
from lakeward.components import SchemaManager, SchemaManagerConfig
from lakeward.db.database import Database
from lakeward.errors import (
    InvalidSetting,
    MetadataVersionNotFound,
    RegistryUnavailable,
    SubscriberRefused,
    TableAlreadyExists,
    TableNotFound,
)
from lakeward.registry import handle
from lakeward.retry import RetryConfig
from lakeward.tables.sql import tables as store
from tests.support.lakes import ROWS, make_table, open_lake
from tests.support.proxy import Proxy
from tests.support.registries import changes, last_sequence
from tests.support.waiting import until

pytestmark = pytest.mark.on("sqlite")

NAME = "sales.orders"


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path, durable=False) as opened:
        yield opened


@pytest.fixture
def manager(lake: Lake) -> SchemaManager:
    return SchemaManager(lake)


@pytest.fixture
def feed(lake: Lake, manager: SchemaManager) -> Feed:
    return Feed(lake, manager)


class Feed:
    """Hands the manager the feed's rows in order, each twice, as Astha may."""

    def __init__(self, lake: Lake, manager: SchemaManager) -> None:
        self._lake, self._manager = lake, manager
        self._seen = last_sequence(lake.registry)

    def deliver(self) -> None:
        for event in self.take():
            self._manager.on_event(event)
            self._manager.on_event(event)

    def take(self) -> list[Event[Any]]:
        subscribed = {str(name) for name in self._manager.get_subscribed_tables()}
        rows = changes(self._lake.registry, self._seen)
        self._seen = max([self._seen, *(row["sequence"] for row in rows)])
        return [
            Event(
                row["table_name"],
                row["operation"],
                msgspec.convert(row["data"], WATCHED[row["table_name"]].record),
                row["changed_at"],
                row["table_id"],
                row["sequence"],
            )
            for row in rows
            if row["table_name"] in subscribed
        ]


def by_hand(lake: Lake, *statements: str) -> None:
    """SQL that somebody types, in a transaction of somebody else's."""
    database = Database(lake.registry.database.url.render_as_string(hide_password=False))
    try:
        with database.transaction() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
    finally:
        database.close()


def columns(manager: SchemaManager, version: int | None = None) -> list[str]:
    return [field["name"] for field in manager.get_schema(NAME, version).schema["fields"]]


def is_hit(manager: SchemaManager, read: Callable[[], object]) -> bool:
    before = manager.get_cache_stats()
    read()
    after = manager.get_cache_stats()
    assert after.hits + after.misses > before.hits + before.misses
    return after.misses == before.misses


# Filled, refreshed, emptied -----------------------------------------------------------------------------------------------
def test_a_table_that_is_made_is_there_before_anybody_asks(lake: Lake, manager: SchemaManager, feed: Feed) -> None:
    make_table(lake)
    assert manager.get_cache_stats().cache_size == 0
    feed.deliver()
    assert manager.get_cache_stats().cache_size == 1
    assert is_hit(manager, lambda: manager.get_schema(NAME))
    assert columns(manager) == ["id", "name"]


def test_each_change_of_the_metadata_is_there_before_anybody_asks(
    lake: Lake, manager: SchemaManager, feed: Feed
) -> None:
    make_table(lake)
    changed: list[Callable[[], object]] = [
        lambda: lake.add_column(NAME, "city", "string"),
        lambda: lake.rename_column(NAME, "city", "town"),
        lambda: lake.move_column(NAME, "town", first=True),
        lambda: lake.drop_column(NAME, "town"),
        lambda: lake.set_properties(NAME, {"owner": "ann"}),
        lambda: lake.rollback_metadata(NAME, 2),
    ]
    for change in changed:
        change()
        feed.deliver()
        assert is_hit(manager, lambda: manager.get_schema(NAME))
        assert manager.get_schema(NAME) == lake.metadata(NAME)
    assert manager.get_schema(NAME).metadata_version == 7
    assert columns(manager) == ["id", "name", "city"]


def test_a_table_that_is_dropped_is_there_no_more_and_stays_away(
    lake: Lake, manager: SchemaManager, feed: Feed
) -> None:
    table = make_table(lake)
    lake.add_column(NAME, "city", "string")
    feed.deliver()
    assert manager.get_cache_stats().cache_size == 2
    lake.drop_table(NAME)
    feed.deliver()
    assert (manager.get_cache_stats().cache_size, manager.get_cache_stats().memory_usage) == (0, 0)
    with pytest.raises(TableNotFound):
        manager.get_schema(NAME)
    # Whoever holds its record may still ask; it is answered by the registry, and not remembered.
    assert manager.get_schema(table).metadata_version == 1
    assert manager.get_cache_stats().cache_size == 0
    lake.clean()
    feed.deliver()
    assert manager.get_cache_stats().cache_size == 0


def test_sql_typed_by_hand_fills_refreshes_and_empties_it(lake: Lake, manager: SchemaManager, feed: Feed) -> None:
    model = make_table(lake)
    feed.deliver()
    copied = "schema, spec_id, partition_by, sort_order_id, sort_by, properties, storage_engine, engine_config, format"
    by_hand(
        lake,
        "INSERT INTO tables (table_id, table_uuid, namespace_id, name, location, format, format_version, version, "
        "last_modified, last_column_id, last_partition_id, created_at) SELECT 77, 'by-hand', namespace_id, 'typed', '/x', "
        "format, format_version, 1, last_modified, last_column_id, last_partition_id, created_at FROM tables",
        f"INSERT INTO table_metadata (table_id, metadata_version, schema_version, {copied}, compression, change, "
        f"created_at) SELECT 77, 1, schema_version, {copied}, compression, change, created_at FROM table_metadata",
    )
    feed.deliver()
    assert is_hit(manager, lambda: manager.get_schema("sales.typed"))
    by_hand(
        lake,
        f"INSERT INTO table_metadata (table_id, metadata_version, schema_version, {copied}, compression, change, "
        f"created_at) SELECT 77, 2, schema_version, {copied}, 'snappy', change, created_at FROM table_metadata "
        "WHERE table_id = 77",
        "UPDATE tables SET version = 2 WHERE table_id = 77",
    )
    feed.deliver()
    assert is_hit(manager, lambda: manager.get_schema("sales.typed"))
    assert manager.get_schema("sales.typed").compression == "snappy"
    by_hand(lake, 'UPDATE table_metadata SET properties = \'{"owner": "ann"}\' WHERE table_id = 77')
    feed.deliver()
    assert is_hit(manager, lambda: manager.get_schema("sales.typed"))
    assert manager.get_schema("sales.typed").properties == {"owner": "ann"}
    assert manager.get_schema("sales.typed", 1).properties == {"owner": "ann"}
    by_hand(
        lake,
        "UPDATE tables SET version = 1 WHERE table_id = 77",
        "DELETE FROM table_metadata WHERE metadata_version = 2",
    )
    feed.deliver()
    assert manager.get_schema("sales.typed").metadata_version == 1
    with pytest.raises(MetadataVersionNotFound):
        manager.get_schema("sales.typed", 2)
    by_hand(lake, "DELETE FROM tables WHERE table_id = 77")
    feed.deliver()
    assert manager.get_cache_stats().cache_size == 1
    assert is_hit(manager, lambda: manager.get_schema(model))


def test_a_column_changed_by_hand_has_its_table_read_again(lake: Lake, manager: SchemaManager, feed: Feed) -> None:
    make_table(lake)
    feed.deliver()
    held = manager.get_schema(NAME)
    for statement in (
        "UPDATE table_columns SET doc = 'a number' WHERE name = 'id'",
        "DELETE FROM table_columns WHERE name = 'name'",
    ):
        by_hand(lake, statement)
        feed.deliver()
        assert is_hit(manager, lambda: manager.get_schema(NAME))
    assert manager.get_schema(NAME) == held
    assert manager.get_schema(NAME) is not held


def test_columns_that_came_with_their_version_cost_no_read(lake: Lake, manager: SchemaManager, feed: Feed) -> None:
    make_table(lake)
    events = feed.take()
    for event in events[:2]:
        manager.on_event(event)
    held = manager.get_schema(NAME)
    assert [event.table for event in events[2:]] == ["table_columns"] * 2
    for event in events[2:]:
        manager.on_event(event)
    assert manager.get_schema(NAME) is held


def test_changes_of_counters_alone_are_no_concern(lake: Lake, manager: SchemaManager, feed: Feed) -> None:
    make_table(lake)
    feed.deliver()
    held = manager.get_schema(NAME)
    lake.append(NAME, ROWS)
    feed.deliver()
    assert manager.get_schema(NAME) is held
    # Nor do they bring back what had to leave for tables that are asked for.
    lake.registry.schemas.clear()
    by_hand(lake, "UPDATE tables SET row_count = 7")
    feed.deliver()
    assert manager.get_cache_stats().cache_size == 0


def test_a_table_set_to_another_version_is_read_if_it_is_among_those_kept(
    lake: Lake, manager: SchemaManager, feed: Feed
) -> None:
    table = make_table(lake)
    lake.add_column(NAME, "city", "string")
    feed.deliver()
    lake.registry.schemas.forget(table.table_id, 1)
    by_hand(lake, "UPDATE tables SET version = 1")
    feed.deliver()
    assert lake.registry.schemas.holds(table.table_id, 1)
    assert columns(manager) == ["id", "name"]


@pytest.mark.parametrize("seed", range(3))
def test_after_any_changes_what_is_held_is_what_the_registry_says(
    lake: Lake, manager: SchemaManager, feed: Feed, seed: int
) -> None:
    """By the API and by hand, each event twice, in portions; now and then something is asked for, or a refresh comes."""
    chance = random.Random(seed)
    names = [f"sales.t{number}" for number in range(3)]

    def any_table() -> str:
        return chance.choice(names)

    def create(name: str) -> None:
        make_table(lake, name)

    def by_owner(name: str) -> None:
        table, version = lake.table(name).table_id, chance.randrange(1, 4)
        owner = f'SET properties = \'{{"by": "{chance.random()}"}}\''
        by_hand(lake, f"UPDATE table_metadata {owner} WHERE table_id = {table} AND metadata_version = {version}")

    changing: list[Callable[[str], object]] = [
        create,
        create,
        lake.drop_table,
        by_owner,
        by_owner,
        lambda name: lake.set_properties(name, {"by": str(chance.random())}),
        lambda name: lake.add_column(name, f"c{chance.randrange(10**6)}", "long"),
        lambda name: lake.rollback_metadata(name, 1),
        lambda name: lake.append(name, ROWS),
        manager.get_schema,
        manager.get_versions,
        lambda _: manager.on_refresh(),
        lambda _: lake.clean(),
        lambda _: feed.deliver(),
        lambda _: feed.deliver(),
    ]
    for _ in range(80):
        with contextlib.suppress(TableNotFound, TableAlreadyExists):
            chance.choice(changing)(any_table())
    for name in names:
        with contextlib.suppress(TableAlreadyExists):
            create(name)
    feed.deliver()
    held = [entry for entry, _ in lake.registry.schemas._entries.values()]
    live = {lake.table(name).table_id for name in names}
    assert held
    assert {version.table_id for version in held} <= live
    with lake.registry.database.read() as connection:
        for version in held:
            assert version == store.metadata_version(connection, version.table_id, version.metadata_version)


# Never older than what the caller knows -----------------------------------------------------------------------------------
def test_what_is_committed_is_served_before_any_event_has_come(lake: Lake, manager: SchemaManager) -> None:
    make_table(lake)
    assert columns(manager) == ["id", "name"]
    lake.add_column(NAME, "city", "string")
    assert columns(manager) == ["id", "name", "city"]
    assert columns(manager, 1) == ["id", "name"]
    assert [each.metadata_version for each in manager.get_versions(NAME)] == [1, 2]
    lake.drop_table(NAME)
    make_table(lake, schema={"other": "long"})
    assert columns(manager) == ["other"]
    assert [each.metadata_version for each in manager.get_versions(NAME)] == [1]


def test_a_record_gets_the_version_that_it_stood_at(lake: Lake, manager: SchemaManager) -> None:
    old = make_table(lake)
    lake.add_column(NAME, "city", "string")
    assert manager.get_schema(old).metadata_version == 1
    assert manager.get_schema(lake.table(NAME)).metadata_version == 2
    assert [each.metadata_version for each in manager.get_versions(old)] == [1, 2]


def test_a_version_of_a_transaction_that_is_rolled_back_is_never_served(lake: Lake, manager: SchemaManager) -> None:
    table = make_table(lake)
    registry = lake.registry
    version = msgspec.structs.replace(lake.metadata(NAME), metadata_version=2, properties={"never": "was"})
    with pytest.raises(InterruptedError), registry.database.transaction() as connection:
        store.insert_metadata(connection, version)
        store.update(connection, table.table_id, {"version": 2})
        assert registry.metadata_version(connection, table.table_id, 2) == version
        assert registry.metadata_versions(connection, table.table_id, 2)[-1] == version
        raise InterruptedError
    lake.set_properties(NAME, {"really": "is"})
    assert manager.get_schema(NAME).properties == {"really": "is"}
    assert lake.metadata(NAME, 2).properties == {"really": "is"}


def test_a_reader_of_an_old_state_does_not_bring_back_what_was_changed_by_hand(
    lake: Lake, manager: SchemaManager, feed: Feed
) -> None:
    table = make_table(lake)
    feed.deliver()
    lake.registry.schemas.clear()
    with lake.registry.database.read() as connection:
        assert store.metadata_version(connection, table.table_id, 1) is not None  # the transaction's state is fixed
        by_hand(lake, 'UPDATE table_metadata SET properties = \'{"owner": "ann"}\'')
        feed.deliver()
        lake.registry.schemas.clear()
        lake.registry.metadata_version(connection, table.table_id, 1)
    assert manager.get_schema(NAME).properties == {"owner": "ann"}


def test_an_alteration_goes_by_the_registry_where_memory_is_behind(lake: Lake, manager: SchemaManager) -> None:
    make_table(lake)
    manager.get_schema(NAME)
    by_hand(lake, 'UPDATE table_metadata SET properties = \'{"owner": "ann"}\'')
    assert lake.add_column(NAME, "city", "string").properties == {"owner": "ann"}


def test_readers_see_each_change_of_others_from_its_commit_on(lake: Lake, manager: SchemaManager) -> None:
    """Writers alter while readers read and events come late, in another thread, or not at all."""
    make_table(lake)
    feed = Feed(lake, manager)
    committed, done = 1, threading.Event()

    def alter() -> None:
        nonlocal committed
        try:
            for number in range(25):
                committed = lake.set_properties(NAME, {"n": str(number)}).metadata_version
        finally:
            done.set()

    def read() -> int:
        reads = 0
        while not done.is_set():
            known = committed
            found = manager.get_schema(NAME)
            assert found.metadata_version >= known
            assert found.properties == ({} if found.metadata_version == 1 else {"n": str(found.metadata_version - 2)})
            assert [each.metadata_version for each in manager.get_versions(NAME)][:known] == list(range(1, known + 1))
            reads += 1
        return reads

    def deliver() -> None:
        while not done.is_set():
            feed.deliver()

    with ThreadPoolExecutor(5) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        others = [pool.submit(deliver), pool.submit(alter)]
        assert all(reader.result() > 0 for reader in readers)
        for other in others:
            other.result()
    assert manager.get_schema(NAME).properties == {"n": "24"}


def test_what_is_served_cannot_be_changed_and_its_copy_can(lake: Lake, manager: SchemaManager) -> None:
    make_table(lake)
    found = manager.get_schema(NAME)
    with pytest.raises(TypeError, match="shared"):
        found.schema["fields"].append({})
    with pytest.raises(TypeError, match="shared"):
        found.properties["x"] = "y"
    copy.deepcopy(found.schema)["fields"].append({})
    assert columns(manager) == ["id", "name"]


# Bounds ---------------------------------------------------------------------------------------------------------------------
def test_it_is_bounded_by_entries_and_counts_what_had_to_leave(lake: Lake) -> None:
    manager = SchemaManager(lake, SchemaManagerConfig(max_entries=2))
    feed = Feed(lake, manager)
    for number in range(5):
        make_table(lake, f"sales.t{number}")
    for event in feed.take():
        manager.on_event(event)
    stats = manager.get_cache_stats()
    assert (stats.cache_size, stats.evictions) == (2, 3)
    assert [manager.get_schema(f"sales.t{number}").change for number in range(5)] == ["create"] * 5


def test_it_is_bounded_by_bytes_and_serves_what_does_not_fit(lake: Lake) -> None:
    manager = SchemaManager(lake, SchemaManagerConfig(max_bytes=20_000))
    make_table(lake, schema={f"c{i}": "long" for i in range(500)})
    for number in range(5):
        make_table(lake, f"sales.t{number}")
        manager.get_schema(f"sales.t{number}")
    before = manager.get_cache_stats()
    assert len(columns(manager)) == 500
    after = manager.get_cache_stats()
    assert 0 < after.memory_usage == before.memory_usage <= 20_000
    assert after.cache_size == before.cache_size > 1


def test_a_refresh_takes_the_newest_tables_as_many_as_fit(lake: Lake) -> None:
    made = [make_table(lake, f"sales.t{number}") for number in range(5)]
    lake.add_column("sales.t4", "city", "string")
    lake.drop_table("sales.t3")
    manager = SchemaManager(lake, SchemaManagerConfig(max_entries=3))
    manager.on_refresh()
    held = {(table.table_id, v) for table in made for v in (1, 2) if lake.registry.schemas.holds(table.table_id, v)}
    assert held == {(made[4].table_id, 2), (made[2].table_id, 1), (made[1].table_id, 1)}
    assert manager.get_cache_stats().evictions == 0


def test_the_settings_bound_it_where_nobody_says_more(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, durable=False, schema_cache_entries=1) as lake:
        for number in range(3):
            make_table(lake, f"sales.t{number}")
            lake.append(f"sales.t{number}", ROWS)
        assert lake.registry.schemas.stats().cache_size == 1


def test_limits_below_nothing_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="max_entries -1 is no"):
        SchemaManagerConfig(max_entries=-1)
    with pytest.raises(InvalidSetting, match="max_bytes -1 is no"):
        SchemaManagerConfig(max_bytes=-1)


def test_a_long_history_is_answered_whole_and_not_remembered(
    lake: Lake, manager: SchemaManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(lake)
    for number in range(5):
        lake.set_properties(NAME, {"n": str(number)})
    monkeypatch.setattr(handle, "VERSIONS_AT_ONCE", 4)
    lake.registry.schemas.clear()
    assert [each.metadata_version for each in manager.get_versions(NAME)] == [1, 2, 3, 4, 5, 6]
    assert manager.get_cache_stats().cache_size == 0
    monkeypatch.undo()
    manager.get_versions(NAME)
    assert manager.get_cache_stats().cache_size == 6
    assert is_hit(manager, lambda: manager.get_versions(NAME))


# Readers ------------------------------------------------------------------------------------------------------------------
def test_writers_scans_and_flushes_use_it(lake: Lake, manager: SchemaManager) -> None:
    table = make_table(lake, partition_by=["name"])
    manager.get_schema(NAME)
    reads: list[Callable[[], object]] = [
        lambda: lake.append(NAME, ROWS),
        lambda: lake.scan(NAME).read_all(),
        lambda: lake.flush(NAME),
        lambda: lake.metadata(NAME),
        lambda: lake.metadata_versions(NAME),
        lambda: lake.retire_partitions(NAME, [{"name": "n0"}]),
    ]
    for read in reads:
        assert is_hit(manager, read), read
    assert lake.registry.schemas.holds(table.table_id, 1)


# Failing ------------------------------------------------------------------------------------------------------------------
@pytest.fixture
def proxy(made_pg_url: str) -> Iterator[Proxy]:
    with Proxy(made_pg_url) as opened:
        yield opened


@pytest.fixture
def cut_off(proxy: Proxy, tmp_path: Path) -> Iterator[Lake]:
    """A lake whose registry can be cut off."""
    with open_lake(proxy.url, tmp_path, durable=False) as opened:
        yield opened


def test_while_it_is_unhealthy_reads_go_to_the_registry_and_are_right(
    cut_off: Lake, proxy: Proxy, made_pg_url: str, tmp_path: Path
) -> None:
    lake = cut_off
    manager = SchemaManager(lake, SchemaManagerConfig(retry=RetryConfig(max_retries=2, initial_delay=0.01)))
    feed = Feed(lake, manager)
    make_table(lake)
    feed.deliver()
    assert manager.on_health()
    lake.add_column(NAME, "city", "string")
    events = feed.take()
    added = next(event for event in events if event.table == "table_metadata")
    proxy.go_down()
    with pytest.raises(RegistryUnavailable):
        manager.on_event(added)
    with pytest.raises(RegistryUnavailable):
        manager.on_health()
    proxy.come_back()
    assert manager.on_health()  # it could handle events, but has not yet
    with open_lake(made_pg_url, tmp_path, durable=False) as other:
        by_hand(other, 'UPDATE table_metadata SET properties = \'{"owner": "ann"}\'')  # of this no event comes
    assert not is_hit(manager, lambda: manager.get_schema(NAME))
    assert manager.get_schema(NAME, 1).properties == {"owner": "ann"}
    assert lake.metadata(NAME, 1).properties == {"owner": "ann"}
    manager.on_event(added)  # again, as Astha does
    assert lake.registry.schemas.holds(added.table_id, 2)
    for event in events:
        manager.on_event(event)
    feed.deliver()
    assert is_hit(manager, lambda: manager.get_schema(NAME))
    assert manager.get_schema(NAME, 1).properties == {"owner": "ann"}


def test_a_refresh_that_fails_leaves_it_unhealthy_and_one_that_succeeds_heals_it(cut_off: Lake, proxy: Proxy) -> None:
    manager = SchemaManager(cut_off, SchemaManagerConfig(retry=RetryConfig(max_retries=1, initial_delay=0.01)))
    make_table(cut_off)
    proxy.go_down()
    with pytest.raises(RegistryUnavailable):
        manager.on_refresh()
    proxy.come_back()
    assert columns(manager) == ["id", "name"]
    assert manager.get_cache_stats().cache_size == 0
    manager.on_refresh()
    assert is_hit(manager, lambda: manager.get_schema(NAME))


def test_a_registry_that_comes_back_in_time_is_not_noticed(cut_off: Lake, proxy: Proxy) -> None:
    manager = SchemaManager(cut_off, SchemaManagerConfig(retry=RetryConfig(max_retries=3, initial_delay=0.1)))
    feed = Feed(cut_off, manager)
    make_table(cut_off)
    first = feed.take()[0]
    proxy.go_down()
    with ThreadPoolExecutor(1) as pool:
        handled = pool.submit(manager.on_event, first)
        until(lambda: cut_off.registry.schemas.is_suspended)
        proxy.come_back()
        handled.result(timeout=60)
    assert is_hit(manager, lambda: manager.get_schema(NAME))


def test_stopping_ends_the_wait_for_another_try(cut_off: Lake, proxy: Proxy) -> None:
    retry = RetryConfig(max_retries=3, initial_delay=3600, max_delay=3600)
    manager = SchemaManager(cut_off, SchemaManagerConfig(retry=retry))
    feed = Feed(cut_off, manager)
    make_table(cut_off)
    events = feed.take()
    proxy.go_down()
    with ThreadPoolExecutor(1) as pool:
        handled = pool.submit(lambda: manager.on_event(events[0]))
        until(lambda: cut_off.registry.schemas.is_suspended)
        manager.stop()
        with pytest.raises(RegistryUnavailable):
            handled.result(timeout=60)
    proxy.come_back()
    assert columns(manager) == ["id", "name"]
    assert is_hit(manager, lambda: manager.get_schema(NAME))


def test_the_waits_are_as_promised() -> None:
    retry = SchemaManagerConfig().retry
    assert (retry.max_retries, retry.initial_delay, retry.max_delay, retry.backoff_factor) == (3, 0.1, 5.0, 2.0)


# With Astha ---------------------------------------------------------------------------------------------------------------
def test_with_astha_it_is_filled_refreshed_and_emptied_by_itself(lake: Lake, manager: SchemaManager) -> None:
    before = make_table(lake, "sales.before")
    holds = lake.registry.schemas.holds
    astha = Astha(lake)
    manager.register_with_astha(astha)
    with pytest.raises(SubscriberRefused):
        manager.register_with_astha(astha)
    with astha:
        until(lambda: holds(before.table_id, 1))  # a start is a refresh
        table = make_table(lake)
        until(lambda: holds(table.table_id, 1))
        lake.add_column(NAME, "city", "string")
        until(lambda: holds(table.table_id, 2))
        by_hand(lake, 'UPDATE table_metadata SET properties = \'{"owner": "ann"}\' WHERE metadata_version = 2')
        until(lambda: is_hit(manager, lambda: manager.get_schema(NAME)) and manager.get_schema(NAME).properties != {})
        assert manager.get_schema(NAME).properties == {"owner": "ann"}
        lake.drop_table(NAME)
        until(lambda: not holds(table.table_id, 1) and not holds(table.table_id, 2))
        by_hand(lake, "DELETE FROM table_metadata WHERE metadata_version = 1")
        until(lambda: manager.get_cache_stats().cache_size == 0)
        status = {each.name: each for each in astha.status().components}["schema_manager"]
        assert (status.status, status.parked) == ("active", 0)


def test_with_astha_it_comes_back_after_the_registry_was_away(cut_off: Lake, proxy: Proxy) -> None:
    lake, often = cut_off, RetryConfig(max_retries=1, initial_delay=0.01)
    manager = SchemaManager(lake, SchemaManagerConfig(retry=often))
    config = AsthaConfig(health_interval=0.05, open_seconds=0.05, max_failures=1, lease_seconds=2.0, retry=often)
    astha = Astha(lake, config)
    manager.register_with_astha(astha)
    table = make_table(lake)
    with astha:
        until(lambda: lake.registry.schemas.holds(table.table_id, 1))
        proxy.go_down()
        until(lambda: lake.registry.schemas.is_suspended)
        proxy.come_back()
        lake.add_column(NAME, "city", "string")
        until(lambda: not lake.registry.schemas.is_suspended and lake.registry.schemas.holds(table.table_id, 2))
        assert is_hit(manager, lambda: manager.get_schema(NAME))
