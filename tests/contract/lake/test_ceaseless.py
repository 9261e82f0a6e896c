"""Commits of a table's metadata while others never rest: each ends after a bounded number of tries."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pyiceberg.table import StaticTable

from lakeward import Lake
from lakeward.db import schema
from lakeward.db.dialect import begins
from lakeward.errors import LeaseHeld
from lakeward.lake.storage_manager import StorageManager
from lakeward.registry import intents, turns
from lakeward.snapshots import conflicts, manifest_merging, snapshot_commit
from lakeward.snapshots.conflicts import FREE_TRIES
from lakeward.tables import snapshots
from lakeward.tables.records.properties import MANIFEST_COUNT
from lakeward.tables.records.tables import Table
from lakeward.tables.snapshots import Conflict
from tests.support.compacting import swapped
from tests.support.lakes import ROWS, assert_nothing_left_over, make_table, open_lake
from tests.support.waiting import until

NAME = "sales.orders"


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path) as opened:
        yield opened


def seen_by_iceberg(lake: Lake) -> list[int]:
    scanned = StaticTable.from_metadata(lake.table(NAME).metadata_location or "").scan()
    return sorted(scanned.to_arrow()["id"].to_pylist())


class Rivals:
    """Whoever is quicker: does something before each commit but its own, until it is refused."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rival: Callable[[], object]) -> None:
        self.tries = 0
        self._real = snapshots.commit
        self._rival = rival
        self._is_at_it = False
        monkeypatch.setattr(snapshots, "commit", self._commit)

    def _commit(self, *arguments: Any, **named: Any) -> None:
        if not self._is_at_it:
            self.tries += 1
            self._is_at_it = True
            try:
                self._rival()
            finally:
                self._is_at_it = False
        self._real(*arguments, **named)

    def commit_metadata(self, lake: Lake, table: Table) -> None:
        """As a process elsewhere does: a new metadata file, without files or snapshots."""
        state = snapshots.pending(lake.registry, table.table_id, with_files=False)
        try:
            with intents.declared(lake.registry, table, "flush") as intent:
                self._real(
                    lake.registry, state.table, intent, snapshot_commit.build(lake.registry, state, intent), "manual"
                )
        except Conflict:
            pass


def test_a_load_behind_a_swap_commits_once_however_fast_appends_follow(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(lake, NAME)
    lake.append(NAME, ROWS)
    lake.append(NAME, ROWS)
    lake.flush(NAME)
    swapped(lake, NAME)
    lake.append(NAME, [{"id": 100, "name": "before"}])
    appended: list[int] = []

    def append() -> None:
        appended.append(101 + len(appended))
        lake.append(NAME, [{"id": appended[-1], "name": "meanwhile"}])

    rivals = Rivals(monkeypatch, append)
    before = lake.table(NAME).metadata_location
    flushed = snapshot_commit.flush(lake.registry, table.table_id, "query")
    assert rivals.tries == 1
    assert flushed.files == 2 and flushed.removed == 2
    assert [snapshot.operation for snapshot in lake.snapshots(NAME)] == ["append", "append", "replace"]
    assert len({snapshot.metadata_location for snapshot in lake.snapshots(NAME)}) == 2
    assert seen_by_iceberg(lake) == sorted([row["id"] for row in ROWS] * 2 + [100])
    assert lake.table(NAME).metadata_location != before
    assert snapshots.count_pending(lake.registry, table) == len(appended) == 1


def test_a_flush_wins_in_turn_though_another_commits_before_each_of_its_tries(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(lake, NAME)
    lake.append(NAME, ROWS)
    rivals = Rivals(monkeypatch, lambda: rivals.commit_metadata(lake, table))
    assert snapshot_commit.flush(lake.registry, table.table_id, "query").files == 1
    assert rivals.tries == FREE_TRIES + 1
    assert_nothing_left_over(lake, NAME)


def test_a_change_of_metadata_wins_in_turn(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(lake, NAME)
    lake.append(NAME, ROWS)
    snapshot_id = lake.flush(NAME).snapshot_id
    assert snapshot_id is not None
    rivals = Rivals(monkeypatch, lambda: rivals.commit_metadata(lake, table))
    lake.create_tag(NAME, "kept", snapshot_id)
    assert rivals.tries == FREE_TRIES + 1
    assert "kept" in [ref.name for ref in lake.refs(NAME)]


def test_a_merge_of_manifests_wins_in_turn(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(lake, NAME, properties={MANIFEST_COUNT.name: "2"})
    for _ in range(2):
        lake.append(NAME, ROWS)
        lake.flush(NAME)
    rivals = Rivals(monkeypatch, lambda: rivals.commit_metadata(lake, table))
    merged = manifest_merging.merge_manifests(lake.registry, table.table_id)
    assert (merged.replaced, merged.conflicts) == (2, FREE_TRIES)
    assert_nothing_left_over(lake, NAME)


def test_a_rollback_wins_in_turn_and_flushes_in_the_same_turn(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(lake, NAME)
    lake.append(NAME, ROWS)
    first = lake.flush(NAME).snapshot_id
    lake.append(NAME, ROWS)
    assert first is not None
    lake.flush(NAME)
    rivals = Rivals(monkeypatch, lambda: rivals.commit_metadata(lake, table))
    assert lake.rollback(NAME, first).snapshot_id == first
    assert seen_by_iceberg(lake) == [row["id"] for row in ROWS]
    assert_nothing_left_over(lake, NAME)


def test_files_that_are_replaced_before_each_try_keep_no_flush_from_its_end(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In turn, the snapshot has what was there when the flush looked; the next one takes it out."""
    table = make_table(lake, NAME, partition_by=["name"])
    storage = StorageManager(lake)
    number = 0

    def replace() -> None:
        nonlocal number
        number += 1
        storage.insert_partition("sales", "orders", {"name": "a"}, [{"id": number, "name": "a"}])

    replace()
    rivals = Rivals(monkeypatch, replace)
    assert snapshot_commit.flush(lake.registry, table.table_id, "query").files == 1
    assert rivals.tries == FREE_TRIES + 1
    assert seen_by_iceberg(lake) == [number - 1]
    monkeypatch.undo()
    lake.flush(NAME)
    assert seen_by_iceberg(lake) == [number] == lake.scan(NAME).read_all()["id"].to_pylist()
    assert [snapshot.operation for snapshot in lake.snapshots(NAME)] == ["append", "overwrite"]
    first, last = lake.snapshots(NAME)
    assert lake.rollback(NAME, first.snapshot_id).files_back == 1  # with the numbers that it has in the snapshot
    assert lake.rollback(NAME, last.snapshot_id).files_back == 1
    lake.clean()
    assert_nothing_left_over(lake, NAME)


def test_an_interrupt_of_who_makes_a_shared_flush_is_no_interrupt_of_the_others(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(lake, NAME)
    lake.append(NAME, ROWS)
    flight, is_ours = snapshot_commit.board(lake.registry, snapshots.goal(lake.registry, table.table_id), "query")
    shared, is_theirs_too = snapshot_commit.board(lake.registry, flight.goal, "query")
    assert is_ours and not is_theirs_too and shared is flight

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(snapshot_commit, "committed", interrupt)
        with pytest.raises(KeyboardInterrupt):
            flight.fly()
    assert isinstance(shared.result.exception(timeout=0), LeaseHeld)  # upon which a flush, or a load, asks again
    assert snapshot_commit.flush(lake.registry, table.table_id, "query").files == 1


def test_turns_are_given_in_the_order_of_the_queue_and_leave_no_row(lake: Lake) -> None:
    table = make_table(lake, NAME)
    order: list[int] = []

    def queue(number: int) -> None:
        with turns.queued(lake.registry, table):
            order.append(number)

    def waiting() -> int:
        with lake.registry.database.read() as connection:
            count = sa.select(sa.func.count()).where(begins(schema.leases.c.name, "turn:"))
            return int(connection.execute(count).scalar_one())

    threads = [threading.Thread(target=queue, args=(number,)) for number in range(4)]
    with turns.queued(lake.registry, table):
        for number, thread in enumerate(threads):
            thread.start()
            until(lambda there=number + 2: waiting() == there)  # type: ignore[misc]
        assert order == []
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3]
    assert waiting() == 0


def test_a_queue_whose_first_has_died_goes_on(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(lake, NAME)
    lake.append(NAME, ROWS)
    monkeypatch.setattr(turns, "LEASE_SECONDS", 0.5)
    turns.join(lake.registry, turns.queue_of(table))  # and never heard of again
    assert snapshot_commit.flush(lake.registry, table.table_id, "query").files == 1


def test_while_somebody_has_the_turn_others_wait_for_theirs(lake: Lake) -> None:
    table = make_table(lake, NAME)
    lake.append(NAME, ROWS)
    done = threading.Event()

    def load() -> None:
        snapshot_commit.flush(lake.registry, table.table_id, "query")
        done.set()

    with turns.queued(lake.registry, table):
        loading = threading.Thread(target=load)
        loading.start()
        assert not done.wait(0.5)
        assert lake.snapshots(NAME) == []
    loading.join()
    assert len(lake.snapshots(NAME)) == 1


def test_loads_at_once_share_a_flush(lake: Lake) -> None:
    table = make_table(lake, NAME)
    lake.append(NAME, ROWS)
    results: list[snapshot_commit.FlushResult] = []

    def load() -> None:
        results.append(snapshot_commit.flush(lake.registry, table.table_id, "query"))

    threads = [threading.Thread(target=load) for _ in range(20)]
    goal = snapshots.goal(lake.registry, table.table_id)
    with snapshot_commit.metadata_lock(lake.registry, table.table_id):  # as a commit that is under way has it
        for thread in threads:
            thread.start()
        at = snapshot_commit._at(lake.registry, table.table_id)
        until(lambda: len(at.lock._waiting) == 1)
        flight, is_ours = snapshot_commit.board(lake.registry, goal, "query")
        assert not is_ours
    for thread in threads:
        thread.join()
    assert len({result.metadata_location for result in results}) == 1
    assert len(lake.snapshots(NAME)) == 1
    assert flight.result.result().files == 1


@pytest.mark.parametrize("how", ["compacted", "replaced"])
def test_a_load_that_waited_while_what_it_saw_pending_left_the_table_serves_no_older_view(lake: Lake, how: str) -> None:
    table = make_table(lake, NAME, partition_by=["name"])
    lake.append(NAME, [{"id": 1, "name": "a"}])
    lake.flush(NAME)
    lake.append(NAME, [{"id": 2, "name": "a"}])
    lake.append(NAME, [{"id": 3, "name": "a"}])
    at = snapshot_commit._at(lake.registry, table.table_id)
    loading = threading.Thread(target=snapshot_commit.flush, args=(lake.registry, table.table_id, "query"))
    with snapshot_commit.metadata_lock(lake.registry, table.table_id):
        loading.start()
        until(lambda: len(at.lock._waiting) == 1)
        if how == "compacted":
            swapped(lake, NAME, [file for file in lake.files(NAME) if file.snapshot_id is None])
        else:
            StorageManager(lake).insert_partition("sales", "orders", {"name": "a"}, [{"id": 4, "name": "a"}])
    loading.join()
    assert seen_by_iceberg(lake) == ([1, 2, 3] if how == "compacted" else [4])


def test_a_forked_child_does_not_wait_for_what_its_parent_holds(lake: Lake) -> None:
    table = make_table(lake, NAME)
    with snapshot_commit.metadata_lock(lake.registry, table.table_id):
        child = os.fork()
        if child == 0:
            with snapshot_commit.metadata_lock(lake.registry, table.table_id):
                os._exit(7)
        ended: list[int] = []
        try:
            until(lambda: ended.extend(os.waitpid(child, os.WNOHANG)) or ended[-2:] != [0, 0])  # type: ignore[func-returns-value]
        except AssertionError:
            os.kill(child, signal.SIGKILL)
            raise
    assert os.waitstatus_to_exitcode(ended[-1]) == 7


def test_a_flush_that_fails_fails_all_who_share_it_and_the_next_one_goes_on(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(lake, NAME)
    lake.append(NAME, ROWS)
    goal = snapshots.goal(lake.registry, table.table_id)
    flight, is_ours = snapshot_commit.board(lake.registry, goal, "query")
    other, is_others = snapshot_commit.board(lake.registry, goal, "query")
    assert is_ours and not is_others

    def fails(*_: object) -> None:
        raise OSError("no storage")

    monkeypatch.setattr(snapshot_commit, "build", fails)
    flight.fly()
    for each in (flight, other):
        with pytest.raises(OSError, match="no storage"):
            each.result.result()
    monkeypatch.undo()
    assert snapshot_commit.flush(lake.registry, table.table_id, "query").files == 1


def test_a_hold_ends_a_load_at_its_time_and_costs_no_turn(lake: Lake) -> None:
    table = make_table(lake, NAME)
    lake.append(NAME, ROWS)
    with lake.hold(NAME), pytest.raises(LeaseHeld):
        snapshot_commit.flush(lake.registry, table.table_id, "query", wait=0.2)
    assert conflicts.FREE_TRIES > 1
    assert snapshot_commit.flush(lake.registry, table.table_id, "query").files == 1
