"""The Iceberg updater: metadata files follow the tables' metadata, and manifests stay few, by events or by a refresh."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

import lakeward
from lakeward import Lake
from lakeward.astha import Astha, feed
from lakeward.astha.watcher import decode
from lakeward.components import iceberg_updater
from lakeward.components.iceberg_updater import IcebergUpdater, IcebergUpdaterConfig
from lakeward.errors import StorageError
from lakeward.snapshots import manifest_merging, snapshot_commit
from lakeward.tables import evolution
from tests.support.lakes import ROWS, assert_nothing_left_over, make_table, open_lake
from tests.support.waiting import until

pytestmark = pytest.mark.on("sqlite")

NAME = "sales.orders"
FEW = {"commit.manifest.min-count-to-merge": "3"}


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path) as opened:
        yield opened


class Feed:
    """The events that have come since it was made, given to an updater as Astha gives them."""

    def __init__(self, lake: Lake) -> None:
        self._reader = feed.Reader(lake.registry.database)
        self._at = self._reader.head()

    def give(self, updater: IcebergUpdater) -> None:
        subscribed = set(updater.get_subscribed_tables())
        while True:
            page = self._reader.read(self._at, 1000)
            for change in page.changes:
                event = decode(change)
                if event is not None and event.table in subscribed and event.operation != "DELETE":
                    updater.on_event(event)
            self._at = page.after
            if page.is_last:
                return


def shown(lake: Lake) -> StaticTable:
    """The table as an engine sees it that comes now and does not go through the catalog."""
    location = lake.table(NAME).metadata_location
    assert location is not None
    return StaticTable.from_metadata(location)


def manifests(lake: Lake) -> int:
    read = shown(lake)
    snapshot = read.current_snapshot()
    assert snapshot is not None
    return len(snapshot.manifests(read.io))


def commits(lake: Lake, count: int) -> None:
    for _ in range(count):
        lake.append(NAME, ROWS)
        lake.flush(NAME)


def test_each_change_of_a_table_is_in_its_metadata_file_before_any_query(lake: Lake) -> None:
    updater, events = IcebergUpdater(lake), Feed(lake)
    make_table(lake, NAME)
    events.give(updater)
    assert shown(lake).schema().column_names == ["id", "name"]
    lake.add_column(NAME, "price", "int")
    lake.rename_column(NAME, "name", "label")
    lake.widen_column(NAME, "price", "long")
    lake.move_column(NAME, "price", first=True)
    lake.set_partition_spec(NAME, ["bucket(4, id)"])
    lake.set_sort_order(NAME, ["id desc"])
    lake.set_properties(NAME, {"a": "1"})
    events.give(updater)
    read = shown(lake)
    assert [(f.name, f.field_id, str(f.field_type)) for f in read.schema().fields] == [
        ("price", 3, "long"),
        ("id", 1, "long"),
        ("label", 2, "string"),
    ]
    assert [f.name for f in read.spec().fields] == ["id_bucket"]
    assert (read.sort_order().order_id, read.properties["a"]) == (1, "1")
    lake.drop_column(NAME, "label")
    lake.set_partition_spec(NAME, [])
    events.give(updater)
    assert shown(lake).schema().column_names == ["price", "id"]
    assert shown(lake).spec().is_unpartitioned()
    assert lake.table(NAME).iceberg_version == lake.table(NAME).version
    assert lake.snapshots(NAME) == []
    assert updater.counts().metadata_files == 3, "one file shows all the versions that were there when it was written"
    assert_nothing_left_over(lake, NAME)


def test_pending_files_stay_pending_when_the_metadata_is_written(lake: Lake) -> None:
    make_table(lake, NAME)
    updater, events = IcebergUpdater(lake), Feed(lake)
    lake.append(NAME, ROWS)
    lake.add_column(NAME, "extra", "string")
    events.give(updater)
    assert "extra" in shown(lake).schema().column_names
    assert [file.snapshot_id for file in lake.files(NAME)] == [None]
    assert updater.merge_waiting() == 1, "for the properties may have changed"
    assert updater.counts().merges == 0


def test_an_event_that_comes_twice_or_of_a_table_that_is_gone_does_nothing(lake: Lake) -> None:
    updater, events, again = IcebergUpdater(lake), Feed(lake), Feed(lake)
    make_table(lake, NAME)
    commits(lake, 1)
    events.give(updater)
    location = lake.table(NAME).metadata_location
    again.give(updater)
    assert lake.table(NAME).metadata_location == location
    late = Feed(lake)
    lake.add_column(NAME, "extra", "string")
    lake.drop_table(NAME, purge=True)
    late.give(updater)
    updater.merge_waiting()
    assert updater.counts().failures == 0


def test_manifests_are_merged_once_commits_have_made_many(lake: Lake) -> None:
    make_table(lake, NAME, properties=FEW)
    updater, events = IcebergUpdater(lake), Feed(lake)
    for _ in range(2):
        commits(lake, 1)
        events.give(updater)
        updater.merge_waiting()
    assert (updater.counts().merges, manifests(lake)) == (0, 2)
    commits(lake, 1)
    events.give(updater)
    updater.merge_waiting()
    counts = updater.counts()
    assert (counts.merges, counts.replaced, counts.created, manifests(lake)) == (1, 3, 1, 1)
    assert len(shown(lake).scan().to_arrow()) == 3 * len(ROWS)
    assert_nothing_left_over(lake, NAME)


def test_a_table_is_looked_at_again_only_when_there_may_be_enough(lake: Lake) -> None:
    make_table(lake, NAME, properties={"commit.manifest.min-count-to-merge": "5"})
    updater, events = IcebergUpdater(lake), Feed(lake)
    looks = []
    for _ in range(5):
        commits(lake, 1)
        events.give(updater)
        looks.append(updater.merge_waiting())
    assert looks == [1, 0, 0, 0, 1]
    assert updater.counts().merges == 1
    lake.set_properties(NAME, {"commit.manifest.min-count-to-merge": "2"})
    commits(lake, 1)
    events.give(updater)
    updater.merge_waiting()
    assert updater.counts().merges == 1, "the merged one and a small one are of two tiers"


def test_a_refresh_takes_all_from_the_registry(lake: Lake) -> None:
    make_table(lake, NAME, properties=FEW)
    commits(lake, 3)
    lake.add_column(NAME, "extra", "string")
    make_table(lake, "sales.others")
    make_table(lake, "sales.gone")
    lake.drop_table("sales.gone")
    updater = IcebergUpdater(lake)
    updater.on_refresh()
    assert "extra" in shown(lake).schema().column_names
    assert lake.table("sales.others").metadata_location is not None
    assert updater.merge_waiting() == 1
    assert manifests(lake) == 1
    location = lake.table(NAME).metadata_location
    updater.on_refresh()
    updater.merge_waiting()
    assert lake.table(NAME).metadata_location == location


def test_tables_of_another_warehouse_are_left_to_its_own_updater(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path) as lake:
        elsewhere = lakeward.connect(made_url, tmp_path / "elsewhere", warehouse_name="other")
        with elsewhere:
            updater, events = IcebergUpdater(lake), Feed(lake)
            make_table(elsewhere, NAME)
            events.give(updater)
            updater.on_refresh()
            assert elsewhere.table(NAME).metadata_location is None


def test_a_table_that_cannot_be_written_fails_its_event_and_keeps_no_other_from_its_metadata(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    updater, events = IcebergUpdater(lake), Feed(lake)
    bad = make_table(lake, NAME)
    make_table(lake, "sales.others")
    real = snapshot_commit.flush

    def failing(registry: lakeward.registry.Registry, table_id: int, *, files: bool) -> object:
        if table_id == bad.table_id:
            raise StorageError("no room")
        return real(registry, table_id, files=files)

    monkeypatch.setattr(iceberg_updater, "flush", failing)
    with pytest.raises(StorageError):
        events.give(updater)
    with pytest.raises(StorageError):
        updater.on_refresh()
    assert lake.table("sales.others").metadata_location is not None


def test_metadata_that_is_none_stops_neither_the_thread_that_merges_nor_a_refresh(lake: Lake) -> None:
    for name in (NAME, "sales.others"):
        make_table(lake, name, properties=FEW)
        for _ in range(3):
            lake.append(name, ROWS)
            lake.flush(name)
    broken = lake.table(NAME)
    assert broken.metadata_location is not None
    lake.registry.engine(broken.location).write(broken.metadata_location, b"{}")
    updater, events = IcebergUpdater(lake), Feed(lake)
    updater.start()
    try:
        updater._look(broken.table_id)
        until(lambda: updater.counts().failures > 0)
        updater._look(lake.table("sales.others").table_id)
        until(lambda: updater.counts().merges == 1)
        assert updater.on_health()
    finally:
        updater.stop()
    for name in (NAME, "sales.others"):
        lake.add_column(name, "extra", "string")
    with pytest.raises(KeyError):
        updater.on_refresh()
    assert lake.table("sales.others").iceberg_version == lake.table("sales.others").version
    with pytest.raises(KeyError):
        events.give(updater)


def test_of_tables_that_are_gone_it_keeps_no_note_for_ever(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_updater, "ENOUGH_KEPT", 2)
    updater, events = IcebergUpdater(lake), Feed(lake)
    for number in range(4):
        make_table(lake, f"sales.t{number}")
        events.give(updater)
        updater.merge_waiting()
        lake.drop_table(f"sales.t{number}")
    assert len(updater._enough) == 2
    updater.on_refresh()
    assert updater._enough == {}


def test_a_merge_that_failed_is_tried_again_and_a_bad_property_waits_for_a_better_one(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(lake, NAME, properties=FEW)
    updater, events = IcebergUpdater(lake), Feed(lake)
    commits(lake, 3)
    real = manifest_merging.merge_manifests

    def failing(*_: object) -> object:
        raise StorageError("no room")

    monkeypatch.setattr(iceberg_updater, "merge_manifests", failing)
    events.give(updater)
    assert updater.merge_waiting() == updater.merge_waiting() == 1
    assert updater.counts().failures == 2
    monkeypatch.setattr(iceberg_updater, "merge_manifests", real)
    with monkeypatch.context() as unchecked:  # by SQL typed by hand, say
        unchecked.setattr(evolution, "check_properties", lambda _: None)
        lake.set_properties(NAME, {"commit.manifest.min-count-to-merge": "few"})
    events.give(updater)
    assert (updater.merge_waiting(), updater.merge_waiting()) == (1, 0)
    lake.set_properties(NAME, FEW)
    events.give(updater)
    assert updater.merge_waiting() == 1
    assert (updater.counts().merges, manifests(lake)) == (1, 1)


def test_merges_can_be_left_to_others(lake: Lake) -> None:
    make_table(lake, NAME, properties=FEW)
    commits(lake, 3)
    updater = IcebergUpdater(lake, IcebergUpdaterConfig(merges=False))
    updater.on_refresh()
    assert updater.merge_waiting() == 0


def test_under_astha_it_keeps_up_with_a_table_that_is_written(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, durable=False) as lake:
        updater, astha = IcebergUpdater(lake), Astha(lake)
        updater.register_with_astha(astha)
        updater.start()
        try:
            with astha:
                make_table(lake, NAME, properties=FEW)
                until(lambda: lake.table(NAME).metadata_location is not None, seconds=60)
                commits(lake, 9)
                lake.add_column(NAME, "extra", "string")
                until(lambda: "extra" in shown(lake).schema().column_names, seconds=60)
                until(lambda: manifests(lake) < 5, seconds=60)
                assert updater.on_health()
                status = {each.name: each for each in astha.status().components}["iceberg_updater"]
                assert (status.parked, status.breaker) == (0, "closed")
        finally:
            updater.stop()
        assert len(shown(lake).scan().to_arrow()) == 9 * len(ROWS)
        assert_nothing_left_over(lake, NAME)
