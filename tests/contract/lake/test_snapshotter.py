"""The snapshotter: rules of tables, counts by events that equal a fresh start, snapshots and expiry by themselves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from lakeward import Lake
from lakeward.astha import Astha, AsthaConfig
from lakeward.astha.events import WATCHED, Event
from lakeward.components.snapshot_rules import SnapshotRules
from lakeward.components.snapshotter import Counts, Snapshotter, SnapshotterConfig
from lakeward.db import schema
from lakeward.errors import InvalidInput, InvalidSetting
from tests.support.lakes import ROWS, make_table, open_lake
from tests.support.registries import changes, last_sequence
from tests.support.waiting import until

pytestmark = pytest.mark.on("sqlite")

NAME = "sales.orders"
FILES = "lakeward.snapshot.every-files"
SECONDS = "lakeward.snapshot.every-seconds"


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path, durable=False) as opened:
        yield opened


@pytest.fixture
def started() -> Iterator[Callable[..., Snapshotter]]:
    """Starts snapshotters, and stops them at the end."""
    made: list[Snapshotter] = []

    def start(lake: Lake, **config: Any) -> Snapshotter:
        snapshotter = Snapshotter(lake, SnapshotterConfig(**config))
        snapshotter.on_refresh()
        snapshotter.start()
        made.append(snapshotter)
        return snapshotter

    yield start
    for each in made:
        each.stop()


class Feed:
    """Hands a component the feed's rows in order, each twice, as Astha may."""

    def __init__(self, lake: Lake, snapshotter: Snapshotter) -> None:
        self._lake, self._snapshotter = lake, snapshotter
        self._seen = last_sequence(lake.registry)

    def deliver(self) -> None:
        subscribed = {str(name) for name in self._snapshotter.get_subscribed_tables()}
        for row in changes(self._lake.registry, self._seen):
            self._seen = row["sequence"]
            if row["table_name"] not in subscribed:
                continue
            data: Any = msgspec.convert(row["data"], WATCHED[row["table_name"]].record, strict=False)
            event = Event(row["table_name"], row["operation"], data, row["changed_at"], row["table_id"], self._seen)
            self._snapshotter.on_event(event)
            self._snapshotter.on_event(event)


def fresh(lake: Lake, **config: Any) -> dict[int, Counts]:
    snapshotter = Snapshotter(lake, SnapshotterConfig(**config))
    snapshotter.on_refresh()
    return snapshotter.counts()


def triggers(lake: Lake) -> list[str]:
    return [snapshot.trigger for snapshot in lake.snapshots(NAME)]


def test_so_many_files_become_a_snapshot(lake: Lake, started: Callable[..., Snapshotter]) -> None:
    make_table(lake, NAME, properties={FILES: "3"})
    feed = Feed(lake, started(lake))
    for _ in range(2):
        lake.append(NAME, ROWS)
        feed.deliver()
    assert triggers(lake) == []
    lake.append(NAME, ROWS)
    feed.deliver()
    until(lambda: triggers(lake) == ["size"])


@pytest.mark.parametrize("rule", ["every-rows", "every-bytes"])
def test_so_many_rows_or_bytes_become_a_snapshot(lake: Lake, started: Callable[..., Snapshotter], rule: str) -> None:
    make_table(lake, NAME)
    lake.append(NAME, ROWS)
    (file,) = lake.files(NAME)
    limit = file.row_count + 1 if rule == "every-rows" else file.file_size + 1
    lake.set_properties(NAME, {f"lakeward.snapshot.{rule}": str(limit)})
    feed = Feed(lake, started(lake))
    assert triggers(lake) == []
    lake.append(NAME, ROWS)
    feed.deliver()
    until(lambda: triggers(lake) == ["size"])


def test_what_waits_so_long_becomes_a_snapshot(lake: Lake, started: Callable[..., Snapshotter]) -> None:
    make_table(lake, NAME, properties={SECONDS: "0.2"})
    feed = Feed(lake, started(lake))
    lake.append(NAME, ROWS)
    feed.deliver()
    until(lambda: triggers(lake) == ["time"])


def test_what_waits_at_the_start_is_counted_from_the_registry(lake: Lake, started: Callable[..., Snapshotter]) -> None:
    make_table(lake, NAME, properties={SECONDS: "0.2"})
    lake.append(NAME, ROWS)
    started(lake)
    until(lambda: triggers(lake) == ["time"])


def test_a_removal_alone_becomes_a_snapshot(lake: Lake, started: Callable[..., Snapshotter]) -> None:
    make_table(lake, NAME, properties={SECONDS: "0.2"}, partition_by=["name"])
    lake.append(NAME, ROWS)
    lake.flush(NAME)
    feed = Feed(lake, started(lake))
    lake.retire_partitions(NAME, [{"name": "n0"}])
    feed.deliver()
    until(lambda: len(triggers(lake)) == 2)
    assert lake.snapshots(NAME)[-1].operation == "delete"


def test_tables_without_rules_wait_for_a_query_unless_the_server_has_some(
    lake: Lake, started: Callable[..., Snapshotter]
) -> None:
    make_table(lake, NAME)
    make_table(lake, "sales.on_query", properties={"lakeward.snapshot.mode": "on-query"})
    assert fresh(lake) == {}
    rules = SnapshotRules(files=1)
    assert list(fresh(lake, default=rules)) == [lake.table(NAME).table_id]
    started(lake, default=rules)
    lake.append("sales.on_query", ROWS)
    lake.append(NAME, ROWS)
    snapshotter = started(lake, default=rules)
    until(lambda: triggers(lake) == ["size"])
    snapshotter.stop()
    assert lake.snapshots("sales.on_query") == []


def test_rules_that_change_hold_at_once(lake: Lake, started: Callable[..., Snapshotter]) -> None:
    make_table(lake, NAME)
    lake.append(NAME, ROWS)
    snapshotter = started(lake)
    feed = Feed(lake, snapshotter)
    lake.set_properties(NAME, {FILES: "1"})
    feed.deliver()
    until(lambda: triggers(lake) == ["size"])
    lake.set_properties(NAME, {FILES: None})
    feed.deliver()
    assert snapshotter.counts() == {}


def test_counts_by_events_equal_a_fresh_start(lake: Lake) -> None:
    table = make_table(lake, NAME, properties={FILES: "1000"}, partition_by=["name"])
    snapshotter = Snapshotter(lake)
    snapshotter.on_refresh()
    feed = Feed(lake, snapshotter)
    steps: list[Callable[[], object]] = [
        lambda: lake.append(NAME, ROWS),
        lambda: lake.retire_partitions(NAME, [{"name": "n0"}]),  # that was pending only
        lambda: lake.flush(NAME),
        lambda: lake.append(NAME, ROWS),
        lambda: lake.flush(NAME),
        lambda: lake.append(NAME, ROWS[:1]),
    ]
    for step in steps:
        step()
        feed.deliver()
        assert snapshotter.counts() == fresh(lake)
    assert snapshotter.counts()[table.table_id].files == 1


def test_counts_are_right_again_after_removals_while_it_runs(lake: Lake, started: Callable[..., Snapshotter]) -> None:
    make_table(lake, NAME, properties={FILES: "1000"}, partition_by=["name"])
    lake.append(NAME, ROWS)
    first = lake.flush(NAME).snapshot_id
    assert first is not None
    snapshotter = started(lake)
    feed = Feed(lake, snapshotter)
    lake.retire_partitions(NAME, [{"name": "n0"}])
    lake.append(NAME, ROWS)
    feed.deliver()
    until(lambda: snapshotter.counts() == fresh(lake))
    assert next(iter(snapshotter.counts().values())).files == 4
    lake.rollback(NAME, first)
    feed.deliver()
    until(lambda: snapshotter.counts() == fresh(lake))


def test_a_held_table_delays_no_other_and_gets_its_snapshot_when_it_is_let_go(
    made_url: str, tmp_path: Path, started: Callable[..., Snapshotter]
) -> None:
    with open_lake(made_url, tmp_path, durable=False, hold_timeout_seconds=0.1) as lake:
        make_table(lake, NAME, properties={FILES: "1"})
        make_table(lake, "sales.held", properties={FILES: "1"})
        with lake.hold("sales.held"):
            snapshotter = started(lake)
            feed = Feed(lake, snapshotter)
            lake.append("sales.held", ROWS)
            lake.append(NAME, ROWS)
            feed.deliver()
            until(lambda: triggers(lake) == ["size"])
            assert lake.snapshots("sales.held") == []
        until(lambda: len(lake.snapshots("sales.held")) == 1)
        snapshotter.stop()


def test_however_many_tables_are_held_no_other_waits_for_them(
    made_url: str, tmp_path: Path, started: Callable[..., Snapshotter]
) -> None:
    held = ["sales.held", "sales.held_too"]
    with open_lake(made_url, tmp_path, durable=False, hold_timeout_seconds=600) as lake:
        for name in (*held, NAME):
            make_table(lake, name, properties={FILES: "1"})
        with lake.hold(held[0]), lake.hold(held[1]):
            snapshotter = started(lake, threads=1)
            feed = Feed(lake, snapshotter)
            for name in (*held, NAME):
                lake.append(name, ROWS)
                feed.deliver()
            until(lambda: triggers(lake) == ["size"])
            assert [lake.snapshots(name) for name in held] == [[], []]
        until(lambda: all(len(lake.snapshots(name)) == 1 for name in held))
        snapshotter.stop()


def test_an_expiry_that_always_fails_keeps_no_row_from_its_snapshot(
    lake: Lake, started: Callable[..., Snapshotter]
) -> None:
    make_table(lake, NAME, properties={FILES: "1", "history.expire.max-snapshot-age-ms": "0"})
    m = schema.table_metadata
    by_hand = {FILES: "1", "history.expire.max-snapshot-age-ms": "a day"}
    with lake.registry.database.transaction() as connection:
        connection.execute(m.update().values(properties=by_hand))
    snapshotter = started(lake, expire_seconds=0.01)
    feed = Feed(lake, snapshotter)
    until(lambda: snapshotter._tables[1].expire_failures > 0)
    expected: list[str] = []
    for _ in range(3):
        lake.append(NAME, ROWS)
        feed.deliver()
        expected.append("size")
        until(lambda: triggers(lake) == expected)


def test_what_was_registered_before_the_clock_was_set_back_waits_no_longer_than_its_time(
    lake: Lake, started: Callable[..., Snapshotter]
) -> None:
    make_table(lake, NAME, properties={SECONDS: "0.2"})
    lake.append(NAME, ROWS)
    files = schema.table_files
    with lake.registry.database.transaction() as connection:
        later = connection.execute(sa.select(files.c.registered_at)).scalar_one() + timedelta(hours=1)
        connection.execute(files.update().values(registered_at=later))
    started(lake)
    until(lambda: triggers(lake) == ["time"])


@pytest.mark.parametrize("committed", [True, False])
def test_a_table_that_is_dropped_is_forgotten_by_its_events(
    lake: Lake, started: Callable[..., Snapshotter], committed: bool
) -> None:
    make_table(lake, NAME, properties={FILES: "100"})
    lake.append(NAME, ROWS)
    if committed:
        lake.flush(NAME)
    snapshotter = started(lake)
    feed = Feed(lake, snapshotter)
    lake.drop_table(NAME)
    feed.deliver()
    until(lambda: snapshotter.counts() == fresh(lake) == {})


def test_a_table_without_files_is_forgotten_when_it_is_cleaned_away(
    lake: Lake, started: Callable[..., Snapshotter]
) -> None:
    make_table(lake, NAME, properties={FILES: "100"})
    feed = Feed(lake, snapshotter := started(lake))
    lake.drop_table(NAME, purge=True)
    feed.deliver()
    assert snapshotter.counts() == fresh(lake) == {}


def test_a_dropped_table_is_forgotten(lake: Lake, started: Callable[..., Snapshotter]) -> None:
    make_table(lake, NAME, properties={SECONDS: "0.2"})
    snapshotter = started(lake)
    lake.append(NAME, ROWS)
    feed = Feed(lake, snapshotter)
    lake.drop_table(NAME)
    feed.deliver()
    snapshotter.on_refresh()
    assert snapshotter.counts() == {}
    assert snapshotter.on_health()


def test_snapshots_expire_by_themselves_where_the_table_says_how_old_they_get(
    lake: Lake, started: Callable[..., Snapshotter]
) -> None:
    make_table(lake, NAME, properties={"history.expire.max-snapshot-age-ms": "0"})
    make_table(lake, "sales.kept")
    for name in (NAME, "sales.kept"):
        for _ in range(3):
            lake.append(name, ROWS)
            lake.flush(name)
    started(lake, expire_seconds=0.1)
    until(lambda: len(lake.snapshots(NAME)) == 1)
    assert len(lake.snapshots("sales.kept")) == 3


def test_properties_that_cannot_be_meant_are_refused_where_they_are_set(lake: Lake) -> None:
    make_table(lake, NAME)
    for properties in ({FILES: "many"}, {"history.expire.max-snapshot-age-ms": "5 days"}):
        with pytest.raises(InvalidInput, match=next(iter(properties))):
            lake.set_properties(NAME, properties)
        with pytest.raises(InvalidInput):
            make_table(lake, "sales.other", properties=properties)
    with pytest.raises(InvalidSetting):
        SnapshotterConfig(threads=0)


def test_astha_keeps_its_counts_and_it_makes_the_snapshots(lake: Lake, started: Callable[..., Snapshotter]) -> None:
    make_table(lake, NAME, properties={FILES: "3"})
    make_table(lake, "sales.later")
    snapshotter = started(lake)
    astha = Astha(lake, AsthaConfig())
    snapshotter.register_with_astha(astha)
    with astha:
        for _ in range(7):
            lake.append(NAME, ROWS)
        until(lambda: lake.table(NAME).row_count - rows_in_snapshots(lake) < 3 * len(ROWS))
        lake.append("sales.later", ROWS)
        lake.set_properties("sales.later", {SECONDS: "0.1"})
        until(lambda: len(lake.snapshots("sales.later")) == 1)
        until(lambda: snapshotter.counts() == fresh(lake))
    assert set(triggers(lake)) == {"size"}


def rows_in_snapshots(lake: Lake) -> int:
    found = lake.snapshots(NAME)
    return int(found[-1].summary["total-records"]) if found else 0


def test_it_is_healthy_until_a_thread_dies_and_stops_at_once(lake: Lake, started: Callable[..., Snapshotter]) -> None:
    snapshotter = started(lake)
    assert snapshotter.on_health()
    snapshotter.stop()
    assert not [t for t in threading.enumerate() if t.name.startswith("lakeward-snapshotter")]
