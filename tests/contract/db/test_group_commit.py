"""Commits of many threads: one transaction for all that wait, each with the answer that it would have had alone."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from lakeward.db import dialect, lock_order
from lakeward.db.group_commit import GroupCommitLimits
from lakeward.errors import DatabaseError, FileRefused, IntentLost, TableNotFound
from lakeward.ops import runs
from lakeward.ops.records.operations import SyncMode, SyncStatus
from lakeward.ops.run_recorder import Recorder
from lakeward.registry import Registry, intents, leases
from lakeward.registry.sql import intents as intent_store
from lakeward.tables import registration, snapshots
from lakeward.tables.records.files import AppendResult, Batch, DataFile, Intent
from lakeward.tables.records.tables import Table
from lakeward.tables.sql import tables as table_store
from tests.support.registries import assert_exact, data_file, make_table, open_at, open_intents, register, rows_of
from tests.support.waiting import until

Work = Callable[[sa.Connection, dialect.Clock], Any]


@pytest.fixture
def postgresql(made_pg_url: str, tmp_path: Path) -> Iterator[Registry]:
    with open_at(made_pg_url, tmp_path) as opened:
        yield opened


@contextmanager
def held(registry: Registry, *held_tables: Table) -> Iterator[None]:
    """While the block runs, no registration of these tables (on SQLite: none at all) gets on."""
    with registry.database.transaction() as connection:
        lock_order.tables(connection, [table.table_id for table in held_tables])
        yield


def wait_for(registry: Registry, waiting: int) -> None:
    until(lambda: registry.group_commit.status().waiting == waiting)


def at_once(registry: Registry, table: Table, *works: Callable[[], Any]) -> list[Future[Any]]:
    """Start calls that each commit once, in this order; all of them wait before the first may go on."""
    with ThreadPoolExecutor(len(works)) as pool:
        with held(registry, table):
            before = registry.group_commit.status().waiting
            futures = []
            for number, work in enumerate(works, 1):
                futures.append(pool.submit(work))
                wait_for(registry, before + number)
        return futures


def declared(registry: Registry, table: Table, count: int) -> list[tuple[Intent, DataFile]]:
    opened = [intents.open_intent(registry, table) for _ in range(count)]
    return [(intent, data_file(intent.prefix, [number])) for number, intent in enumerate(opened)]


def registering(
    registry: Registry, table: Table, intent: Intent, *files: DataFile, **options: Any
) -> Callable[[], AppendResult]:
    return lambda: registration.register(registry, table, intent, files, **options)


def committing(registry: Registry, table: Table, work: Work) -> Callable[[], Any]:
    return lambda: registry.group_commit.commit(work, table_id=table.table_id)


def test_registrations_that_wait_go_in_one_transaction_in_the_order_in_which_they_came(registry: Registry) -> None:
    table = make_table(registry)
    made = declared(registry, table, 10)
    before = registry.group_commit.status().commits
    futures = at_once(registry, table, *(registering(registry, table, *each) for each in made))
    assert [future.result().files for future in futures] == [[file.path] for _, file in made]
    status = registry.group_commit.status()
    assert (status.groups, status.grouped, status.largest_group, status.run_again) == (1, 10, 10, 0)
    assert (status.commits - before, status.waiting, status.failures) == (10, 0, 0)
    found = snapshots.list_files(registry, table)
    assert [file.file_path for file in found] == [file.path for _, file in made]
    assert len({file.registered_at for file in found}) == 1
    assert open_intents(registry) == 0
    assert_exact(registry, table)


def test_a_thread_that_comes_alone_needs_no_savepoint_and_no_other_thread(registry: Registry) -> None:
    table = make_table(registry)
    ((intent, file),) = declared(registry, table, 1)
    seen: list[tuple[str, int]] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        seen.append((statement, threading.get_ident()))

    sa.event.listen(registry.database.engine, "before_cursor_execute", note)
    savepoints: list[str] = []
    sa.event.listen(registry.database.engine, "savepoint", lambda _connection, name: savepoints.append(name))
    registration.register(registry, table, intent, [file])
    assert {thread for _, thread in seen} == {threading.get_ident()}
    assert any("INTO table_files" in statement for statement, _ in seen)
    assert savepoints == []
    assert registry.group_commit.status().groups == 0


def test_a_member_has_waited_until_its_own_work_began(registry: Registry) -> None:
    """Those behind the leader come while it works."""
    table = make_table(registry)
    came, goes = threading.Event(), threading.Event()

    def lead(_connection: sa.Connection, clock: dialect.Clock) -> None:
        clock()
        came.set()
        assert goes.wait(60)

    before = registry.group_commit.status()
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(committing(registry, table, lead))
        assert came.wait(60)
        others = [pool.submit(committing(registry, table, lambda _, clock: clock())) for _ in range(3)]
        wait_for(registry, 4)
        goes.set()
        for each in (first, *others):
            each.result()
    after = registry.group_commit.status()
    assert after.largest_group == 4
    assert after.waited_seconds > before.waited_seconds


def test_members_that_fail_do_not_take_the_others_with_them(registry: Registry) -> None:
    table = make_table(registry)
    known = register(registry, table, [1, 2]).files[0]
    made = declared(registry, table, 5)
    recovered = made[1][0]
    with registry.database.transaction() as connection:
        now = dialect.now(connection)
        intent_store.mark_recovered(connection, recovered.intent_id, now, now)
    twice = data_file("", path=known)
    works = [registering(registry, table, *each) for each in made]
    works[3] = registering(registry, table, made[3][0], twice)
    futures = at_once(registry, table, *works)
    errors = [future.exception() for future in futures]
    assert [type(error) for error in errors] == [type(None), IntentLost, type(None), FileRefused, type(None)]
    assert (registry.group_commit.status().grouped, registry.group_commit.status().run_again) == (3, 2)
    assert {file.file_path for file in snapshots.list_files(registry, table)} == {
        known,
        *(made[number][1].path for number in (0, 2, 4)),
    }
    assert_exact(registry, table)


def test_two_members_with_one_file_are_one_registration_and_one_refusal(registry: Registry) -> None:
    table = make_table(registry)
    (first, file), (second, _) = declared(registry, table, 2)
    one, other = at_once(
        registry, table, registering(registry, table, first, file), registering(registry, table, second, file)
    )
    assert one.result().files == [file.path]
    assert isinstance(other.exception(), FileRefused)
    assert_exact(registry, table)


def test_one_batch_twice_in_a_group_is_applied_once(registry: Registry) -> None:
    table = make_table(registry)
    batch = Batch("s", "1", 0, 5)
    made = declared(registry, table, 2)
    one, other = at_once(registry, table, *(registering(registry, table, *each, batch=batch) for each in made))
    assert (one.result().replayed, other.result().replayed) == (False, True)
    assert one.result().files == other.result().files == [made[0][1].path]
    assert open_intents(registry) == 1  # that of the replay is its writer's to give up
    assert_exact(registry, table)


def test_nobody_is_answered_before_the_group_s_commit(registry: Registry) -> None:
    table = make_table(registry)
    made = declared(registry, table, 2)
    inside, go_on = threading.Event(), threading.Event()

    def wait(_connection: sa.Connection, _clock: dialect.Clock) -> None:
        inside.set()
        assert go_on.wait(30)

    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(
            at_once,
            registry,
            table,
            *(registering(registry, table, *each) for each in made),
            committing(registry, table, wait),
        )
        assert inside.wait(30)
        assert snapshots.list_files(registry, table) == []
        assert open_intents(registry) == 2
        assert not started.done()
        go_on.set()
        assert [future.exception() for future in started.result()] == [None, None, None]
    assert len(snapshots.list_files(registry, table)) == 2


def test_where_the_group_itself_fails_each_member_runs_again_alone(registry: Registry) -> None:
    """A member that ends the transaction under the others: what they had written is gone with it."""
    table = make_table(registry)
    made = declared(registry, table, 4)
    runs = []

    def end_it(connection: sa.Connection, _clock: dialect.Clock) -> str:
        runs.append(threading.get_ident())
        if len(runs) == 1:
            connection.exec_driver_sql("ROLLBACK")
        return "done"

    works = [registering(registry, table, *each) for each in made]
    futures = at_once(registry, table, *works[:2], committing(registry, table, end_it), *works[2:])
    assert [future.exception() for future in futures] == [None] * 5
    assert len(runs) == 2
    assert {file.file_path for file in snapshots.list_files(registry, table)} == {file.path for _, file in made}
    assert registry.group_commit.status().failures == 1
    assert_exact(registry, table)


def test_a_connection_that_is_lost_in_a_group_costs_nobody_its_commit(postgresql: Registry) -> None:
    registry = postgresql
    table = make_table(registry)
    made = declared(registry, table, 4)
    runs = []

    def lose(connection: sa.Connection, _clock: dialect.Clock) -> None:
        runs.append(1)
        if len(runs) == 1:
            connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")

    works = [registering(registry, table, *each) for each in made]
    futures = at_once(registry, table, *works[:2], committing(registry, table, lose), *works[2:])
    assert [future.exception() for future in futures] == [None] * 5
    assert len(snapshots.list_files(registry, table)) == 4
    assert_exact(registry, table)


def test_a_large_member_makes_a_group_small(registry: Registry) -> None:
    registry.group_commit.limits = GroupCommitLimits(files=5)
    table = make_table(registry)
    made = declared(registry, table, 4)
    extra = [data_file(made[1][0].prefix, [number]) for number in range(8)]
    works = [registering(registry, table, *each) for each in made]
    works[1] = registering(registry, table, *made[1], *extra)
    futures = at_once(registry, table, *works)
    assert [len(future.result().files) for future in futures] == [1, 9, 1, 1]
    assert registry.group_commit.status().largest_group == 2
    assert_exact(registry, table)


def test_more_than_there_is_room_for_wait_outside_and_all_come_through(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry.group_commit, "_room", threading.BoundedSemaphore(3))
    table = make_table(registry)
    made = declared(registry, table, 9)
    with ThreadPoolExecutor(9) as pool:
        with held(registry, table):
            futures = [pool.submit(registering(registry, table, *each)) for each in made]
            wait_for(registry, 3)
            time.sleep(0.05)
            assert registry.group_commit.status().waiting == 3
        assert sum(len(future.result().files) for future in futures) == 9
    assert registry.group_commit.status().largest_group <= 3
    assert_exact(registry, table)


def test_on_postgresql_a_table_that_is_locked_holds_up_no_other(postgresql: Registry) -> None:
    registry = postgresql
    slow, quick = make_table(registry, "sales.slow"), make_table(registry, "sales.quick")
    ((intent, file),) = declared(registry, slow, 1)
    with ThreadPoolExecutor(1) as pool:
        with held(registry, slow):
            waiting = pool.submit(registering(registry, slow, intent, file))
            wait_for(registry, 1)
            register(registry, quick, [1], [2])
            assert not waiting.done()
        waiting.result()
    assert_exact(registry, slow)
    assert_exact(registry, quick)


def test_registrations_that_join_a_run_share_a_transaction_where_nothing_else_can_hold_the_runs_row(
    registry: Registry,
) -> None:
    table = make_table(registry)
    run = runs.start(registry, "sales", SyncMode.BATCH)
    made = declared(registry, table, 4)
    works = [
        registering(registry, table, *each, run=Recorder(registry, "sales", SyncMode.BATCH, run=run)) for each in made
    ]
    if registry.database.is_sqlite:
        at_once(registry, table, *works)
    else:  # they do not come to the line
        with ThreadPoolExecutor(4) as pool:
            for future in [pool.submit(work) for work in works]:
                future.result()
    assert registry.group_commit.status().grouped == (4 if registry.database.is_sqlite else 0)
    assert runs.get(registry, run.id).records_inserted == 4
    assert_exact(registry, table)


def test_runs_that_are_written_with_their_registrations_share_its_transaction_and_fail_with_them(
    registry: Registry,
) -> None:
    table = make_table(registry)
    made = declared(registry, table, 4)
    made[2] = (made[2][0], made[1][1])  # a file that is registered already
    works = [
        registering(
            registry,
            table,
            *each,
            run=Recorder(registry, "sales", SyncMode.BATCH, at_once=True, source_info={"n": number}),
        )
        for number, each in enumerate(made)
    ]
    futures = at_once(registry, table, *works)
    assert isinstance(futures[2].exception(), FileRefused)
    assert (registry.group_commit.status().grouped, registry.group_commit.status().run_again) == (3, 1)
    found = {run.source_info["n"]: run for run in runs.list_runs(registry) if run.source_info is not None}
    assert found.keys() == {0, 1, 3}
    assert {(run.status, run.records_inserted) for run in found.values()} == {(SyncStatus.COMPLETED, 1)}


def test_a_table_that_is_dropped_before_the_group_s_turn_registers_nothing(registry: Registry) -> None:
    table = make_table(registry)
    made = declared(registry, table, 3)
    with ThreadPoolExecutor(3) as pool:
        with registry.database.transaction() as connection:
            lock_order.tables(connection, [table.table_id])
            futures = [pool.submit(registering(registry, table, *each)) for each in made]
            wait_for(registry, 3)
            now = dialect.now(connection)
            table_store.update(connection, table.table_id, {"dropped_at": now, "namespace_id": None})
        errors = [future.exception() for future in futures]
    assert [type(error) for error in errors] == [TableNotFound] * 3
    assert rows_of(registry, "table_files") == []


def test_work_that_removes_rows_goes_alone_and_where_rows_are_locked_work_under_a_lease_too(registry: Registry) -> None:
    table, is_sqlite = make_table(registry), registry.database.is_sqlite
    made = declared(registry, table, 3)
    threads: list[int] = []

    def remove(*_: object) -> int:
        threads.append(threading.get_ident())
        return 0

    with leases.held(registry, "l", seconds=60) as lease, ThreadPoolExecutor(3) as pool:
        with held(registry, table):
            removing = pool.submit(registering(registry, table, *made[0], removing=remove))
            leased = pool.submit(registering(registry, table, *made[1], lease=lease))
            plain = pool.submit(registering(registry, table, *made[2]))
            wait_for(registry, 2 if is_sqlite else 1)
        assert sum(len(future.result().files) for future in (removing, leased, plain)) == 3
    assert len(threads) == 1
    assert (registry.group_commit.status().groups, registry.group_commit.status().grouped) == (
        (1, 2) if is_sqlite else (0, 0)
    )
    assert_exact(registry, table)


class Interrupted(BaseException):
    pass


@pytest.mark.on("postgresql")
def test_what_interrupts_an_exchange_with_the_server_is_raised(registry: Registry) -> None:
    main = threading.main_thread().ident
    assert main is not None

    def is_asleep() -> bool:
        known = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = 'SELECT pg_sleep(3)'"
        with registry.database.read() as connection:  # a transaction sees what it saw first
            return bool(connection.exec_driver_sql(known).scalar_one())

    def interrupt() -> None:
        until(is_asleep)
        signal.pthread_kill(main, signal.SIGUSR1)

    def raise_it(*_: object) -> None:
        raise Interrupted

    old = signal.signal(signal.SIGUSR1, raise_it)
    try:
        with ThreadPoolExecutor(1) as pool:
            interrupting = pool.submit(interrupt)
            with pytest.raises(Interrupted), registry.database.transaction() as connection:
                connection.exec_driver_sql("SELECT pg_sleep(3)")
            interrupting.result()
    finally:
        signal.signal(signal.SIGUSR1, old)
    with registry.database.transaction() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1


@pytest.mark.parametrize("place", ["leader", "follower"])
def test_a_thread_that_is_interrupted_while_it_waits_holds_up_nobody(registry: Registry, place: str) -> None:
    table = make_table(registry)
    made = declared(registry, table, 3)
    main, runs = threading.main_thread().ident, []
    assert main is not None
    go_on = threading.Event()

    def interrupt() -> None:
        wait_for(registry, 3)
        signal.pthread_kill(main, signal.SIGUSR1)
        wait_for(registry, 2)
        go_on.set()

    def hold() -> None:
        with held(registry, table):
            holding.set()
            assert go_on.wait(30)

    def raise_it(*_: object) -> None:
        raise Interrupted

    holding = threading.Event()
    old = signal.signal(signal.SIGUSR1, raise_it)
    try:
        with ThreadPoolExecutor(5) as pool:
            pool.submit(hold)
            assert holding.wait(30)
            others: list[Future[Any]] = []
            if place == "follower":
                others += [pool.submit(registering(registry, table, *made[0]))]
                wait_for(registry, 1)

            def rest() -> None:
                for number in range(len(others), 2):
                    wait_for(registry, number + 1)
                    others.append(pool.submit(registering(registry, table, *made[number])))
                interrupt()

            resting = pool.submit(rest)
            with pytest.raises(Interrupted):
                committing(registry, table, lambda _, clock: runs.append(clock()))()
            resting.result()
            assert [future.exception() for future in others] == [None, None]
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert runs == []
    assert registry.group_commit.status().waiting == 0
    register(registry, table, [9])  # the line has no leader left over
    assert_exact(registry, table)


def test_an_error_of_the_database_in_a_group_is_its_member_s_alone(registry: Registry) -> None:
    table = make_table(registry)
    made = declared(registry, table, 2)

    def wrong(connection: sa.Connection, _clock: dialect.Clock) -> None:
        connection.exec_driver_sql("SELECT nothing FROM nowhere")

    works = [registering(registry, table, *each) for each in made]
    one, failed, other = at_once(registry, table, works[0], committing(registry, table, wrong), works[1])
    assert (one.exception(), other.exception()) == (None, None)
    assert isinstance(failed.exception(), DatabaseError)
    assert registry.group_commit.status().failures == 1
    assert_exact(registry, table)


def test_many_threads_at_once_lose_nothing_and_count_exactly(registry: Registry) -> None:
    tables_ = [make_table(registry, f"sales.t{number}") for number in range(2)]

    def write(number: int) -> list[str]:
        table = tables_[number % 2]
        return [path for count in range(15) for path in register(registry, table, [count]).files]

    with ThreadPoolExecutor(12) as pool:
        acknowledged = [path for paths in pool.map(write, range(12)) for path in paths]
    assert len(acknowledged) == 12 * 15
    found = {file.file_path for table in tables_ for file in snapshots.list_files(registry, table)}
    assert found == set(acknowledged)
    status = registry.group_commit.status()
    assert status.groups > 0 and status.waiting == 0 and status.run_again == 0
    assert open_intents(registry) == 0
    for table in tables_:
        assert_exact(registry, table)


def test_a_lease_renewal_passes_over_intents_that_a_registration_holds(postgresql: Registry) -> None:
    registry = postgresql
    table = make_table(registry)
    (first, _), (second, _) = declared(registry, table, 2)
    with registry.database.transaction() as holder:
        assert intent_store.take(holder, first.intent_id)
        with registry.database.transaction() as connection:
            until = dialect.now(connection)
            assert intent_store.renew(connection, [first.intent_id, second.intent_id], until) == 1
