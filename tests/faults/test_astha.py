"""Astha's processes killed, paused, doubled; its registry locked, restarted, full: no event is lost, no state is wrong."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from lakeward.astha import Astha, feed
from lakeward.db import waits
from lakeward.errors import LakewardError
from lakeward.registry import Registry, leases
from tests.contract.db import processes
from tests.faults import astha_process, fleet_process
from tests.support import postgres
from tests.support.asthas import Mirror, component, make_tables, quick, touch
from tests.support.lakes import make_table, open_lake
from tests.support.registries import changes, open_at
from tests.support.waiting import until


@pytest.fixture
def registry(made_url: str, tmp_path: Path) -> Iterator[Registry]:
    with open_at(made_url, tmp_path) as opened:
        make_tables(opened, 3)
        serial = "INTEGER PRIMARY KEY" if opened.database.is_sqlite else "BIGSERIAL PRIMARY KEY"
        with opened.database.transaction() as connection:
            connection.exec_driver_sql(
                f"CREATE TABLE acted (id {serial}, sequence BIGINT, table_id BIGINT, pid BIGINT)"
            )
        yield opened


class Child:
    """A process that runs `work(url, folder, ...)` with its output and input at this end of a socket."""

    def __init__(self, work: Callable[..., None], url: str, folder: Path, *mode: str) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            [self.process] = processes.start(_with_standard_streams, [(theirs, work, url, folder, *mode)])
        self._stream = ours.makefile("rw")
        ours.close()  # it is open as long as the stream is
        assert self.process.pid is not None
        self.pid = self.process.pid
        self._lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            for line in self._stream:
                self._lines.append(line.strip())

    def said(self) -> list[str]:
        return list(self._lines)

    def waits_until(self, condition: Callable[[list[str]], object]) -> None:
        until(lambda: condition(self.said()), self.told, seconds=60)

    def told(self) -> str:
        return "\n".join(self.said()[-30:])

    def expect_right_state(self) -> None:
        before = self.said().count("right")
        self._stream.write("state\n")
        self._stream.flush()
        self.waits_until(lambda said: said.count("right") > before)

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def is_ready(self, said: list[str]) -> bool:
        return "active" in said and "refreshed" in said

    def end(self) -> None:
        self.process.kill()
        self.process.join()


def _with_standard_streams(stream: socket.socket, work: Callable[..., None], *arguments: Any) -> None:
    """In the child: what it and its log print goes to its parent, whose words are its standard input."""
    for number in range(3):
        os.dup2(stream.fileno(), number)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    work(*arguments)


@pytest.fixture
def child(registry: Registry, made_url: str, tmp_path: Path) -> Iterator[Callable[[str], Child]]:
    started: list[Child] = []

    def begin(mode: str) -> Child:
        started.append(Child(astha_process.run, made_url, tmp_path, mode))
        return started[-1]

    yield begin
    for each in started:
        each.end()


def acted(registry: Registry) -> list[tuple[int, int, int]]:
    """(sequence, table_id, pid), in the order in which it was done."""
    with registry.database.read() as connection:
        return [
            tuple(row) for row in connection.execute(sa.text("SELECT sequence, table_id, pid FROM acted ORDER BY id"))
        ]


def expect_all_in_order(registry: Registry, wanted: list[int]) -> None:
    """Each event was handled; within a table in order, but that some came once more."""
    done = acted(registry)
    assert {sequence for sequence, _, _ in done} == set(wanted)
    for table in {table_id for _, table_id, _ in done}:
        firsts = list(dict.fromkeys(sequence for sequence, table_id, _ in done if table_id == table))
        assert firsts == sorted(firsts)


def numbers(registry: Registry, after: int) -> list[int]:
    return [row["sequence"] for row in changes(registry, after) if row["table_name"] == "table_stats"]


def test_killed_between_delivery_and_cursor_it_goes_on_from_the_cursor(
    registry: Registry, child: Callable[[str], Child]
) -> None:
    """Each process dies right after it has handled an event; the last one lives. Trimming runs all the while."""
    with _keeping(registry):
        last = changes(registry)[-1]["sequence"]
        for _ in range(2):
            dying = child("killed")
            dying.waits_until(dying.is_ready)
            for table_id in (1, 2, 3):
                touch(registry, table_id, 20)
            dying.process.join(60)
            assert dying.process.exitcode == -signal.SIGKILL
        survivor = child("run")
        wanted = numbers(registry, last)
        assert len(wanted) == 120
        until(lambda: {sequence for sequence, _, _ in acted(registry)} >= set(wanted), survivor.told, seconds=60)
        expect_all_in_order(registry, wanted)
        survivor.expect_right_state()
        assert len({pid for _, _, pid in acted(registry)}) == 3


@contextlib.contextmanager
def _keeping(registry: Registry) -> Iterator[None]:
    """A subscriber of another set stands at the feed's beginning, so that nothing is trimmed."""
    with leases.held(registry, "astha:keeper", seconds=600) as lease:
        head = feed.Reader(registry.database).head()
        feed.save_cursors(registry, lease, "keeper", {"compactor": (head, {})})
        yield


def test_of_two_one_is_active_and_the_other_takes_over_when_it_is_killed(
    registry: Registry, child: Callable[[str], Child]
) -> None:
    with _keeping(registry):
        last = changes(registry)[-1]["sequence"]
        first = child("run")
        first.waits_until(first.is_ready)
        second = child("run")
        second.waits_until(lambda said: "standby" in said)
        touch(registry, 1, 10)
        until(lambda: len(acted(registry)) == 10)
        assert {pid for _, _, pid in acted(registry)} == {first.pid}
        first.send(signal.SIGKILL)
        touch(registry, 2, 10)
        second.waits_until(second.is_ready)
        until(lambda: len({s for s, _, _ in acted(registry)}) == 20, second.told)
        expect_all_in_order(registry, numbers(registry, last))
        second.expect_right_state()


def test_one_that_was_paused_past_its_lease_does_nothing_once_another_has_started(
    registry: Registry, child: Callable[[str], Child], tmp_path: Path
) -> None:
    """It is paused inside on_event, before it writes."""
    with _keeping(registry):
        last = changes(registry)[-1]["sequence"]
        paused = child("wait")
        paused.waits_until(paused.is_ready)
        touch(registry, 1, 5)
        paused.waits_until(lambda said: any(line.startswith("in hand") for line in said))
        _pause_outside_of_transactions(paused, registry)
        other = child("run")
        other.waits_until(other.is_ready)
        until(lambda: len(acted(registry)) == 5, other.told)
        (tmp_path / "go").touch()
        paused.send(signal.SIGCONT)
        paused.waits_until(lambda said: any(line.startswith("refused") for line in said))
        paused.waits_until(lambda said: said.count("standby") >= 1)
        touch(registry, 1, 5)
        until(lambda: len({s for s, _, _ in acted(registry)}) == 10, other.told)
        assert {pid for _, _, pid in acted(registry)} == {other.pid}
        expect_all_in_order(registry, numbers(registry, last))
        other.expect_right_state()


def test_a_components_own_threads_stop_where_the_lease_was_lost_and_start_again_at_the_take_over(
    made_url: str, tmp_path: Path
) -> None:
    name = "sales.orders"
    started: list[Child] = []

    def begin(state: str) -> Child:
        started.append(Child(fleet_process.run, made_url, tmp_path))
        started[-1].waits_until(lambda said: state in said)
        return started[-1]

    with open_lake(made_url, tmp_path) as lake:
        make_table(lake, name, properties={"lakeward.snapshot.every-rows": "1"})

        def expect_snapshot() -> None:
            before = len(lake.snapshots(name))
            lake.append(name, [{"id": 1, "name": "a"}])
            until(lambda: len(lake.snapshots(name)) > before, lambda: [each.told() for each in started])

        try:
            paused = begin("active 2")
            expect_snapshot()
            other = begin("standby 0")
            _pause_outside_of_transactions(paused, lake.registry)
            other.waits_until(lambda said: "active 2" in said)
            expect_snapshot()
            paused.send(signal.SIGCONT)
            paused.waits_until(lambda said: said[-1] == "standby 0")
            other.send(signal.SIGKILL)
            paused.waits_until(lambda said: said[-1] == "active 2")
            expect_snapshot()
        finally:
            for each in started:
                each.end()


def _pause_outside_of_transactions(paused: Child, registry: Registry) -> None:
    """On SQLite nobody writes while a process is paused inside a transaction. PostgreSQL ends that one's transaction."""
    while True:
        paused.send(signal.SIGSTOP)
        if not registry.database.is_sqlite:
            return
        with registry.database.idle_turn() as is_idle:
            if is_idle:
                return
        paused.send(signal.SIGCONT)


# The registry is locked -----------------------------------------------------------------------------------------------
@contextlib.contextmanager
def locked(url: str) -> Iterator[None]:
    """Nobody else can write: neither events nor leases nor cursors."""
    parts = sa.make_url(url)
    if parts.get_backend_name() == "sqlite":
        with contextlib.closing(sqlite3.connect(str(parts.database), isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute("ROLLBACK")
        return
    plain = parts.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain) as connection:
        connection.execute("LOCK TABLE leases, subscriber_cursors, registry_changes IN ACCESS EXCLUSIVE MODE")
        yield
        connection.rollback()


def _goes_on_after_a_lock(registry: Registry, url: str, hold: Callable[[Astha], object], lease_seconds: float) -> None:
    mirrors = [Mirror(registry, "compactor"), Mirror(registry, "snapshotter")]
    astha = Astha(registry, quick(lease_seconds=lease_seconds))
    for mirror in mirrors:
        astha.register(mirror)
    with astha:
        until(lambda: all(mirror.refreshes for mirror in mirrors))
        touch(registry, 1, 20)
        writer = threading.Thread(target=touch, args=(registry, 2, 20))
        with locked(url):
            writer.start()
            hold(astha)
        writer.join(60)
        until(lambda: astha.status().state == "active", astha.status, seconds=60)
        touch(registry, 3, 20)
        for mirror in mirrors:
            mirror.expect_true()
            until(lambda mirror=mirror: component(astha, mirror.name).reason is None)  # type: ignore[misc]


def test_a_registry_that_is_locked_past_the_lease_costs_no_event(registry: Registry, made_url: str) -> None:
    _goes_on_after_a_lock(registry, made_url, lambda astha: until(lambda: not astha.is_current()), 1.0)


def test_a_registry_that_is_locked_for_several_leases_costs_no_event(registry: Registry, made_url: str) -> None:
    """Until those that wait have said for whom, and beyond."""
    _goes_on_after_a_lock(registry, made_url, lambda _: threading.Event().wait(waits.SAY_SECONDS + 2), 2.0)


# The registry's server or disk ----------------------------------------------------------------------------------------
def test_postgresql_restarted_under_load_costs_no_event(tmp_path: Path) -> None:
    with postgres.restartable_server() as (server, restart):
        url = server.create_database()
        with open_at(url, tmp_path) as registry:
            make_tables(registry, 2)
            mirrors = [Mirror(registry, "compactor"), Mirror(registry, "snapshotter")]
            astha = Astha(registry, quick(lease_seconds=2.0))
            for mirror in mirrors:
                astha.register(mirror)
            stopping = threading.Event()
            writers = [threading.Thread(target=_write, args=(registry, each, stopping)) for each in (1, 2)]
            with astha:
                until(lambda: all(mirror.refreshes for mirror in mirrors))
                for writer in writers:
                    writer.start()
                for _ in range(2):
                    handled = len(mirrors[0].events)
                    until(lambda handled=handled: len(mirrors[0].events) > handled + 20, astha.status)  # type: ignore[misc]
                    restart()
                    until(lambda: astha.status().state == "active", astha.status, seconds=60)
                stopping.set()
                for writer in writers:
                    writer.join(60)
                for mirror in mirrors:
                    mirror.expect_true()
                    until(lambda mirror=mirror: component(astha, mirror.name).reason is None)  # type: ignore[misc]


def _write(registry: Registry, table_id: int, stopping: threading.Event) -> None:
    while not stopping.is_set():
        with contextlib.suppress(LakewardError):
            touch(registry, table_id)


@pytest.mark.on("sqlite")  # on PostgreSQL the server writes
def test_a_disk_that_is_full_while_the_feed_is_trimmed_costs_no_event(
    registry: Registry, child: Callable[[str], Child], made_url: str
) -> None:
    """The process may not write to any file for a while: no trimming, no cursor, no renewal of its lease."""
    process = child("run")
    process.waits_until(process.is_ready)
    touch(registry, 1, 10)
    until(lambda: len(acted(registry)) == 10, process.told)
    _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, hard))
    touch(registry, 2, 10)
    process.waits_until(lambda said: any("feed_not_trimmed" in line for line in said))
    process.waits_until(lambda said: any("cursors_not_stored" in line or "astha_failed" in line for line in said))
    touch(registry, 3, 10)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    process.expect_right_state()
    touch(registry, 1, 10)
    process.expect_right_state()
    until(lambda: len(changes(registry)) == 0, process.told)  # trimmed again
