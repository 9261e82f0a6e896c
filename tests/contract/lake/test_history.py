"""Tags, branches, expiry and rollback of a table, judged by PyIceberg."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyiceberg.table import StaticTable

from lakeward import Lake, StorageManager
from lakeward.errors import (
    InvalidInput,
    InvalidName,
    LeaseHeld,
    RefAlreadyExists,
    RefNotFound,
    SnapshotNotFound,
)
from lakeward.registry import leases
from lakeward.snapshots import rollback
from lakeward.snapshots.snapshot_commit import flush
from lakeward.tables import snapshots
from lakeward.tables.sql import files, footers, retired
from tests.contract.db import processes
from tests.support.lakes import assert_nothing_left_over, make_table, objects, open_lake
from tests.support.registries import assert_exact
from tests.support.waiting import until

pytestmark = pytest.mark.on("sqlite")

NAME = "sales.orders"


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path, durable=False) as opened:
        make_table(opened, NAME, partition_by=["name"])
        yield opened


def read(lake: Lake) -> StaticTable:
    """The table as an Iceberg reader sees it in its current metadata file."""
    location = lake.table(NAME).metadata_location
    assert location is not None
    return StaticTable.from_metadata(location)


def seen(lake: Lake, snapshot_id: int | None = None) -> list[int]:
    return sorted(read(lake).scan(snapshot_id=snapshot_id).to_arrow()["id"].to_pylist())


def registered(lake: Lake) -> list[int]:
    return sorted(lake.scan(NAME).read_all()["id"].to_pylist())


def add(lake: Lake, *ids: int, name: str = "a") -> int:
    """Append a row for each id and make a snapshot of it."""
    lake.append(NAME, [{"id": i, "name": name} for i in ids])
    made = lake.flush(NAME).snapshot_id
    assert made is not None
    return made


def drop(lake: Lake, name: str) -> int:
    lake.retire_partitions(NAME, [{"name": name}])
    made = lake.flush(NAME).snapshot_id
    assert made is not None
    return made


def ids_of(lake: Lake, **options: Any) -> list[int]:
    return [snapshot.snapshot_id for snapshot in lake.snapshots(NAME, **options)]


def assert_true(lake: Lake) -> None:
    """Registry, metadata file and files say the same, and nothing is left over."""
    named = {snapshot.snapshot_id for snapshot in read(lake).metadata.snapshots}
    assert named == set(ids_of(lake))
    for snapshot in lake.snapshots(NAME, expired=True):
        assert (snapshot.expired_at is None) == (snapshot.snapshot_id in named)
    assert_exact(lake.registry, lake.table(NAME))
    assert seen(lake) == registered(lake)
    assert_nothing_left_over(lake, NAME)


# Tags and branches ----------------------------------------------------------------------------------------------------
def test_a_tag_is_read_by_its_name_after_the_table_has_moved_on(lake: Lake) -> None:
    first = add(lake, 1, 2)
    made = lake.create_tag(NAME, "day-1")
    assert (made.snapshot_id, made.type) == (first, "tag")
    add(lake, 3)
    table = read(lake)
    found = table.snapshot_by_name("day-1")
    assert found is not None and found.snapshot_id == first
    assert seen(lake, found.snapshot_id) == [1, 2]
    assert [ref.name for ref in lake.refs(NAME)] == ["day-1", "main"]


def test_a_tag_of_now_holds_what_was_pending(lake: Lake) -> None:
    lake.append(NAME, [{"id": 1, "name": "a"}])
    tag = lake.create_tag(NAME, "now")
    assert seen(lake, tag.snapshot_id) == [1]


def test_a_branch_has_ages_and_a_count_of_its_own(lake: Lake) -> None:
    add(lake, 1)
    day = timedelta(days=1)
    lake.create_branch(NAME, "audit", max_age=30 * day, keep=3, max_snapshot_age=2 * day)
    ref = read(lake).metadata.refs["audit"]
    assert (ref.snapshot_ref_type, ref.min_snapshots_to_keep) == ("branch", 3)
    assert (ref.max_ref_age_ms, ref.max_snapshot_age_ms) == (30 * 86_400_000, 2 * 86_400_000)


def test_a_name_is_taken_once_moved_on_request_and_dropped(lake: Lake) -> None:
    first, second = add(lake, 1), add(lake, 2)
    lake.create_tag(NAME, "t", first)
    before = lake.table(NAME).metadata_location
    assert lake.create_tag(NAME, "t", first).snapshot_id == first  # the answer was lost, say
    assert lake.table(NAME).metadata_location == before
    with pytest.raises(RefAlreadyExists, match="'t'"):
        lake.create_tag(NAME, "t", second)
    assert lake.create_tag(NAME, "t", second, replace=True).snapshot_id == second
    with pytest.raises(RefNotFound, match="is a tag"):
        lake.drop_branch(NAME, "t")
    assert lake.drop_tag(NAME, "t").snapshot_id == second
    with pytest.raises(RefNotFound, match="it has main"):
        lake.drop_tag(NAME, "t")
    assert_true(lake)


def test_what_cannot_be_a_name_is_refused(lake: Lake) -> None:
    with pytest.raises(SnapshotNotFound, match="no snapshot yet"):
        lake.create_tag(NAME, "t")
    first = add(lake, 1)
    with pytest.raises(SnapshotNotFound, match="no snapshot 7"):
        lake.create_tag(NAME, "t", 7)
    for name in ("", "main", "123"):
        with pytest.raises(InvalidName):
            lake.create_branch(NAME, name, first)
    with pytest.raises(InvalidName, match="every table has"):
        lake.drop_branch(NAME, "main")
    with pytest.raises(InvalidInput, match="keep of branch 'b': 0 is no whole number"):
        lake.create_branch(NAME, "b", keep=0)
    with pytest.raises(InvalidInput, match=f"of branch 'b': {2**40} is no whole number from 1 to 2,147,483,647"):
        lake.create_branch(NAME, "b", keep=2**40)  # more than Iceberg's Java library reads


# Expiry ---------------------------------------------------------------------------------------------------------------
def test_expired_snapshots_are_marked_and_what_only_they_reached_is_deleted(lake: Lake) -> None:
    table = lake.table(NAME)
    add(lake, 1, name="gone")
    add(lake, 2, name="stays")
    last = drop(lake, "gone")
    assert lake.clean().footers == 0  # the first two snapshots reach the file
    expired = lake.expire_snapshots(NAME, timedelta(0))
    assert (len(expired.snapshots), expired.retained) == (2, 1)
    assert ids_of(lake) == [last]
    marked = {s.snapshot_id: s.expired_at is not None for s in lake.snapshots(NAME, expired=True)}
    assert marked == {**dict.fromkeys(expired.snapshots, True), last: False}
    assert lake.clean().footers == 1
    assert_true(lake)
    kept = {info for info in objects(lake, table) if "/data/" in info}
    assert kept == {file.file_path for file in lake.files(NAME)}


def test_a_snapshot_with_a_tag_outlives_expiry_and_clean_up_until_the_tag_is_dropped(lake: Lake) -> None:
    first = add(lake, 1, name="gone")
    lake.create_tag(NAME, "keep", first)
    add(lake, 2, name="b")
    drop(lake, "gone")
    lake.expire_snapshots(NAME, timedelta(0))
    lake.clean()
    assert seen(lake, first) == [1]
    assert first in ids_of(lake)
    lake.drop_tag(NAME, "keep")
    assert lake.expire_snapshots(NAME, timedelta(0)).snapshots == [first]
    assert lake.clean().footers == 1
    assert_true(lake)


def test_a_count_of_numpys_is_taken_as_a_number(lake: Lake) -> None:
    add(lake, 1)
    lake.flush(NAME)
    assert lake.create_branch(NAME, "b", keep=np.int64(3)).min_snapshots_to_keep == 3  # type: ignore[arg-type]
    assert [ref.min_snapshots_to_keep for ref in lake.refs(NAME) if ref.name == "b"] == [3]


def test_a_branch_keeps_as_many_of_its_snapshots_as_it_says(lake: Lake) -> None:
    made = [add(lake, i) for i in range(6)]
    lake.create_branch(NAME, "b", made[3], keep=2)
    lake.expire_snapshots(NAME, timedelta(0))
    assert ids_of(lake) == [made[2], made[3], made[5]]
    lake.clean()
    assert seen(lake, made[2]) == [0, 1, 2]
    assert_true(lake)


def test_the_tables_properties_say_what_expires(lake: Lake) -> None:
    made = [add(lake, i) for i in range(5)]
    assert lake.expire_snapshots(NAME).snapshots == []  # younger than five days
    lake.set_properties(NAME, {"history.expire.max-snapshot-age-ms": "0", "history.expire.min-snapshots-to-keep": "2"})
    assert lake.expire_snapshots(NAME, dry_run=True).snapshots == made[:3]
    assert ids_of(lake) == made
    assert lake.expire_snapshots(NAME).snapshots == made[:3]
    assert ids_of(lake) == made[3:]


def test_a_name_that_is_too_old_goes_and_its_snapshot_with_it(lake: Lake) -> None:
    first = add(lake, 1)
    lake.create_tag(NAME, "short", first, max_age=timedelta(milliseconds=1))
    lake.create_tag(NAME, "long", first, max_age=timedelta(days=1))
    add(lake, 2)
    assert lake.expire_snapshots(NAME, timedelta(0)).refs == ["short"]
    assert first in ids_of(lake)
    assert [ref.name for ref in lake.refs(NAME)] == ["long", "main"]


def test_an_expiry_that_cannot_be_meant_is_refused(lake: Lake) -> None:
    add(lake, 1)
    with pytest.raises(InvalidInput, match="no zone"):
        lake.expire_snapshots(NAME, datetime(2026, 1, 1))
    with pytest.raises(InvalidInput, match="keep=0: the newest snapshot always stays"):
        lake.expire_snapshots(NAME, keep=0)
    assert lake.expire_snapshots(NAME, datetime.now(UTC)).retained == 1


def test_what_an_expired_snapshot_alone_reached_stays_readable_as_long_as_its_manifests(
    made_url: str, tmp_path: Path
) -> None:
    with open_lake(made_url, tmp_path, metadata_quarantine_seconds=3600) as lake:
        make_table(lake, NAME, partition_by=["name"])
        add(lake, 1, name="gone")
        before = lake.table(NAME).metadata_location
        assert before is not None
        drop(lake, "gone")
        lake.expire_snapshots(NAME, timedelta(0))
        assert lake.clean().files == 0
        assert StaticTable.from_metadata(before).scan().to_arrow()["id"].to_pylist() == [1]


def test_snapshots_that_the_table_asks_to_keep_are_not_trimmed(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, durable=False, keep_snapshots=2) as lake:
        make_table(lake, NAME, properties={"history.expire.min-snapshots-to-keep": "4"})
        for i in range(6):
            add(lake, i)
        assert len(ids_of(lake)) == 4


# Rollback -------------------------------------------------------------------------------------------------------------
def test_a_rollback_takes_out_what_was_added_and_brings_back_what_had_left(lake: Lake) -> None:
    first = add(lake, 1, 2, name="old")
    add(lake, 3, name="new")
    last = drop(lake, "old")
    result = lake.rollback(NAME, first)
    assert (result.snapshot_id, result.previous_snapshot_id) == (first, last)
    assert (result.files_back, result.files_retired) == (1, 1)
    assert seen(lake) == registered(lake) == [1, 2]
    assert lake.table(NAME).current_snapshot_id == first
    assert lake.table(NAME).row_count == 2
    assert_true(lake)
    add(lake, 4)
    assert seen(lake) == [1, 2, 4]
    assert_true(lake)


def test_a_file_that_came_back_has_its_row_and_footer_as_before(lake: Lake) -> None:
    first = add(lake, 1, name="old")
    (before,) = lake.files(NAME)
    drop(lake, "old")
    lake.rollback(NAME, first)
    assert lake.files(NAME) == [before]
    with lake.registry.database.read() as connection:
        assert len(footers.load(connection, [before.file_path])) == 1
        assert [r for r in retired.of_table(connection, before.table_id) if r.kind == "data"] == []
        assert files.count_pending(connection, before.table_id) == 0


def test_what_was_pending_is_in_a_snapshot_to_which_the_table_can_go_forward(lake: Lake) -> None:
    first = add(lake, 1)
    lake.append(NAME, [{"id": 2, "name": "b"}])
    result = lake.rollback(NAME, first)
    assert registered(lake) == [1]
    assert lake.rollback(NAME, result.previous_snapshot_id).snapshot_id == result.previous_snapshot_id
    assert seen(lake) == registered(lake) == [1, 2]
    assert_true(lake)


def test_after_a_rollback_expiry_and_clean_up_the_table_and_its_tags_are_whole(lake: Lake) -> None:
    """Manifests and files that a later snapshot had replaced are in use again, whatever becomes of that snapshot."""
    add(lake, 1, name="a")
    second = add(lake, 2, name="b")
    third = drop(lake, "a")
    lake.create_tag(NAME, "third", third)
    lake.rollback(NAME, second)
    add(lake, 3, name="c")
    lake.expire_snapshots(NAME, timedelta(0))
    lake.clean()
    assert seen(lake) == registered(lake) == [1, 2, 3]
    assert seen(lake, third) == [2]
    assert_true(lake)
    lake.rollback(NAME, "third")
    lake.expire_snapshots(NAME, timedelta(0))
    lake.clean()
    assert seen(lake) == registered(lake) == [2]
    assert_true(lake)


def test_a_rollback_to_where_the_table_stands_changes_nothing(lake: Lake) -> None:
    first = add(lake, 1)
    before = lake.table(NAME)
    assert lake.rollback(NAME, first).files_retired == 0
    assert lake.table(NAME) == before


def test_a_snapshot_that_is_not_there_is_no_place_to_go_back_to(lake: Lake) -> None:
    first = add(lake, 1)
    add(lake, 2)
    lake.expire_snapshots(NAME, timedelta(0))
    with pytest.raises(SnapshotNotFound, match="expired"):
        lake.rollback(NAME, first)
    with pytest.raises(RefNotFound):
        lake.rollback(NAME, "nothing")
    assert registered(lake) == [1, 2]


def test_a_held_table_is_not_rolled_back(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, durable=False, hold_timeout_seconds=0.1) as lake:
        make_table(lake, NAME)
        first = add(lake, 1)
        add(lake, 2)
        with lake.hold(NAME), pytest.raises(LeaseHeld):
            lake.rollback(NAME, first)
        assert registered(lake) == [1, 2]


def test_a_rollback_wins_against_writers_and_flushes_that_never_rest_and_each_row_is_in_one_of_the_two(
    lake: Lake,
) -> None:
    first = add(lake, 0)
    numbers, appended, is_over = itertools.count(1), list[int](), threading.Event()

    def write() -> None:
        while not is_over.is_set():
            number = next(numbers)
            lake.append(NAME, [{"id": number, "name": "a"}])
            appended.append(number)

    def make_snapshots() -> None:
        while not is_over.is_set():
            lake.flush(NAME)

    def wait_for_appends(count: int) -> None:
        so_far = len(appended)
        until(lambda: len(appended) >= so_far + count)

    with ThreadPoolExecutor(4) as threads:
        others = [threads.submit(work) for work in (write, write, write, make_snapshots)]
        try:
            for _ in range(3):  # each a rollback of what has come since
                wait_for_appends(5)
                result = lake.rollback(NAME, first)
                before = seen(lake, result.previous_snapshot_id)
                wait_for_appends(2)
        finally:
            is_over.set()
        for other in others:
            other.result()
    lake.flush(NAME)
    live = registered(lake)
    assert 0 in live and 0 in before
    assert set(live) & set(before) == {0}
    assert len(live) == len(set(live)) and len(before) == len(set(before))
    out = {row for each in ids_of(lake) for row in seen(lake, each)}
    assert out >= {0, *appended}
    assert_true(lake)


def append_and_flush_for_ever(url: str, folder: Path, number: int, parent: Connection) -> None:
    with open_lake(url, folder, durable=False) as lake:
        while True:
            lake.append(NAME, [{"id": number, "name": "a"}])
            parent.send(number)
            number += 1
            lake.flush(NAME)


@pytest.mark.on("sqlite", "postgresql")
def test_a_rollback_wins_against_other_processes_that_append_and_flush_without_rest(
    lake: Lake, made_url: str, tmp_path: Path
) -> None:
    first = add(lake, 0)
    acknowledged: list[int] = []

    def read(said: Connection) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                acknowledged.append(said.recv())

    pipes = [processes.CONTEXT.Pipe(duplex=False) for _ in range(3)]
    work = [(made_url, tmp_path, n * 10**6, theirs) for n, (_, theirs) in enumerate(pipes, 1)]
    writers = processes.start(append_and_flush_for_ever, work)
    for _, theirs in pipes:
        theirs.close()
    readers = [threading.Thread(target=read, args=(ours,)) for ours, _ in pipes]
    try:
        for reader in readers:
            reader.start()
        until(lambda: {number // 10**6 for number in acknowledged} == {1, 2, 3}, seconds=100)  # processes start slowly
        result = lake.rollback(NAME, first)
        so_far = len(acknowledged)
        until(lambda: len(acknowledged) >= so_far + 5)
        assert all(writer.is_alive() for writer in writers)
    finally:
        for writer in writers:
            writer.kill()
            writer.join()
        for reader in readers:
            reader.join()
    lake.flush(NAME)
    live, before = registered(lake), seen(lake, result.previous_snapshot_id)
    assert len(live) == len(set(live)) and len(before) == len(set(before))
    assert set(live) & set(before) == {0}
    assert {*live, *before} >= set(acknowledged)
    assert seen(lake) == live
    assert_exact(lake.registry, lake.table(NAME))


def during(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """Have something happen once while a rollback has looked, and not committed."""
    real = rollback._differences
    todo = [meanwhile]

    def look(*args: Any) -> Any:
        found = real(*args)
        if todo:
            todo.pop()()
        return found

    monkeypatch.setattr(rollback, "_differences", look)


def test_what_is_appended_while_a_table_goes_back_is_on_top_of_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    first = add(lake, 1)
    add(lake, 2)
    during(monkeypatch, lambda: lake.append(NAME, [{"id": 3, "name": "a"}]))
    result = lake.rollback(NAME, first)
    assert (result.files_retired, result.files_on_top) == (1, 1)
    assert registered(lake) == [1, 3]
    assert seen(lake, result.previous_snapshot_id) == [1, 2]
    lake.flush(NAME)
    assert_true(lake)


def test_a_flush_that_comes_while_a_table_goes_back_waits_for_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    first = add(lake, 1)
    add(lake, 2)
    with ThreadPoolExecutor(1) as threads:
        flushed = []

        def meanwhile() -> None:
            lake.append(NAME, [{"id": 3, "name": "a"}])
            flushed.append(threads.submit(lake.flush, NAME))

        during(monkeypatch, meanwhile)
        result = lake.rollback(NAME, first)
        assert flushed[0].result().files == 1
    assert seen(lake) == registered(lake) == [1, 3]
    assert read(lake).metadata.snapshots[-1].parent_snapshot_id == result.snapshot_id
    assert_true(lake)


def test_what_leaves_while_a_table_goes_back_leaves_the_snapshot_before(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise what replaces a partition would come on top of what it has replaced."""
    first = add(lake, 1)
    add(lake, 2)

    def replace() -> None:
        lake.retire_partitions(NAME, [{"name": "a"}])
        lake.append(NAME, [{"id": 3, "name": "a"}])

    during(monkeypatch, replace)
    result = lake.rollback(NAME, first)
    assert registered(lake) == [1]
    assert seen(lake, result.previous_snapshot_id) == [3]
    assert_true(lake)


def test_what_replaces_partitions_without_rest_waits_at_last_for_a_table_that_goes_back(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = add(lake, 1)
    add(lake, 2)
    real, table, looks = rollback._differences, lake.table(NAME), list[Future[object]]()

    def is_kept() -> bool:
        with lake.registry.database.read() as connection:
            return leases.is_held(connection, snapshots.keep_name(table))

    def replace(number: int) -> object:
        rows = [{"id": number, "name": "a"}]
        return StorageManager(lake).insert_partition("sales", "orders", {"name": "a"}, rows)

    with ThreadPoolExecutor(2) as threads:

        def look(*args: Any) -> Any:
            found = real(*args)
            looks.append(threads.submit(replace, 100 + len(looks)))
            until(lambda: looks[-1].done() or is_kept())
            return found

        monkeypatch.setattr(rollback, "_differences", look)
        result = lake.rollback(NAME, first)
        for each in looks:
            each.result()
    assert len(looks) == 2
    assert seen(lake, result.previous_snapshot_id) == [100]
    assert registered(lake) == [101]
    lake.flush(NAME)
    assert_true(lake)


def test_the_snapshot_that_a_table_goes_back_to_is_not_trimmed_by_the_one_of_what_is_pending(
    made_url: str, tmp_path: Path
) -> None:
    with open_lake(made_url, tmp_path, durable=False, keep_snapshots=2) as lake:
        make_table(lake, NAME, partition_by=["name"])
        first = add(lake, 1)
        add(lake, 2)
        lake.append(NAME, [{"id": 3, "name": "a"}])
        lake.rollback(NAME, first)
        assert registered(lake) == [1]
        assert_true(lake)


def test_nothing_expires_while_a_table_goes_back(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    first = add(lake, 1)
    add(lake, 2)

    def flush_and_expire(*args: Any, **options: Any) -> None:
        flush(*args, **options)
        with pytest.raises(LeaseHeld, match="rollback"):
            lake.expire_snapshots(NAME, timedelta(0))

    monkeypatch.setattr(rollback, "flush", flush_and_expire)
    lake.rollback(NAME, first)
    assert registered(lake) == [1]
    assert_true(lake)


def test_the_ids_of_rows_come_back_too(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, durable=False) as lake:
        make_table(lake, NAME, partition_by=["name"], format_version=3)
        add(lake, 1, name="a")
        second = add(lake, 2, name="b")
        drop(lake, "a")
        lake.rollback(NAME, second)
        add(lake, 3, name="c")
        assert sorted(file.first_row_id or 0 for file in lake.files(NAME)) == [0, 1, 2]
