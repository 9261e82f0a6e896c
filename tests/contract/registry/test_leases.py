from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from lakeward.db import dialect, schema
from lakeward.db.dialect import begins
from lakeward.errors import InvalidInput, LakewardError, LeaseHeld, LeaseLost
from lakeward.maintenance import cleaner, recovery
from lakeward.registry import Registry, abandoned, intents, leases, turns
from lakeward.tables import snapshots, tables
from tests.support.registries import assert_exact, make_table, open_at, open_intents, register, rows_of
from tests.support.shell import invoke
from tests.support.waiting import until


def expire(registry: Registry, lease: leases.Lease) -> None:
    """Let a lease run out without waiting for it."""
    past = lease.expires_at - timedelta(days=1)
    with registry.database.transaction() as connection:
        connection.execute(schema.leases.update().where(schema.leases.c.name == lease.name).values(expires_at=past))


def test_a_lease_has_one_owner_until_it_is_let_go(made_url: str, tmp_path: Path) -> None:
    with open_at(made_url, tmp_path) as ours, open_at(made_url, tmp_path) as theirs:
        lease = leases.acquire(ours, "compact", seconds=30)
        for registry in (ours, theirs):
            with pytest.raises(LeaseHeld, match=f"'compact' is held by {ours.owner}"):
                leases.acquire(registry, "compact", seconds=30)
        assert leases.acquire(theirs, "another", seconds=30).fence == 1
        leases.release(ours, lease)
        assert leases.acquire(theirs, "compact", seconds=30).fence == lease.fence + 1


def test_a_fence_grows_with_each_owner_and_never_goes_back(registry: Registry) -> None:
    fences = []
    for _ in range(4):
        lease = leases.acquire(registry, "l", seconds=30)
        fences.append(lease.fence)
        leases.release(registry, lease)
    assert fences == [1, 2, 3, 4]


def test_whoever_waits_gets_the_lease_when_it_is_let_go(registry: Registry) -> None:
    lease = leases.acquire(registry, "l", seconds=30)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(leases.acquire, registry, "l", seconds=30, wait=30)
        time.sleep(0.1)
        assert not waiting.done()
        leases.release(registry, lease)
        assert waiting.result().fence == lease.fence + 1


def test_a_lease_is_renewed_by_its_owner_only_while_it_lasts(registry: Registry) -> None:
    lease = leases.acquire(registry, "l", seconds=30)
    assert leases.renew(registry, lease).expires_at > lease.expires_at
    expire(registry, lease)
    with pytest.raises(LeaseLost, match="fence 1 ran out"):
        leases.renew(registry, lease)
    leases.acquire(registry, "l", seconds=30)
    with pytest.raises(LeaseLost):
        leases.renew(registry, lease)


def test_an_old_owner_lets_go_of_nothing_that_another_has(registry: Registry) -> None:
    old = leases.acquire(registry, "l", seconds=30)
    expire(registry, old)
    leases.acquire(registry, "l", seconds=30)
    leases.release(registry, old)
    with pytest.raises(LeaseHeld):
        leases.acquire(registry, "l", seconds=30)


def test_an_old_owner_cannot_register_after_another_has_taken_over(registry: Registry) -> None:
    table = make_table(registry)
    old = leases.acquire(registry, "apply", seconds=30)
    register(registry, table, [1], lease=old)
    expire(registry, old)
    new = leases.acquire(registry, "apply", seconds=30)
    with pytest.raises(LeaseLost, match="nothing was written"):
        register(registry, table, [2], lease=old)
    register(registry, table, [3], lease=new)
    assert [file.row_count for file in snapshots.list_files(registry, table)] == [1, 1]
    assert_exact(registry, table)
    assert open_intents(registry) == 1  # of the refused write: its writer gives it up


def test_an_owner_whose_lease_has_run_out_cannot_register_though_nobody_has_taken_over(registry: Registry) -> None:
    table = make_table(registry)
    lease = leases.acquire(registry, "apply", seconds=30)
    expire(registry, lease)
    with pytest.raises(LeaseLost):
        register(registry, table, [1], lease=lease)
    leases.release(registry, lease)
    with pytest.raises(LeaseLost):
        register(registry, table, [1], lease=lease)
    assert rows_of(registry, "table_files") == []


def test_a_lease_that_never_was_protects_nothing(registry: Registry) -> None:
    table = make_table(registry)
    made_up = leases.Lease("never", "me", 1, leases.acquire(registry, "l", seconds=30).expires_at, 30)
    with pytest.raises(LeaseLost):
        register(registry, table, [1], lease=made_up)


def test_a_held_lease_outlives_its_time_and_is_free_after_the_block(registry: Registry) -> None:
    with leases.held(registry, "l", seconds=2) as lease:
        until(lambda: rows_of(registry, "leases")[0]["expires_at"] > lease.expires_at + timedelta(seconds=1))
        with registry.database.transaction() as connection:
            leases.check(connection, lease)
        with pytest.raises(LeaseHeld):
            leases.acquire(registry, "l", seconds=1)
    assert leases.acquire(registry, "l", seconds=1).fence == lease.fence + 1
    with registry.database.read() as connection:
        assert leases.is_held(connection, "l")
        assert not leases.is_held(connection, "other")


@pytest.mark.parametrize("seconds", [0, -1.0, 1e-7, 1.2e11, float("nan")])
def test_a_time_that_no_lease_has_is_refused_and_leaves_nothing_held(registry: Registry, seconds: float) -> None:
    with pytest.raises(InvalidInput), leases.held(registry, "l", seconds=seconds):
        pass
    leases.acquire(registry, "l", seconds=1)


def test_a_lease_of_centuries_is_held_and_let_go(registry: Registry) -> None:
    with leases.held(registry, "l", seconds=3e10), pytest.raises(LeaseHeld):
        leases.acquire(registry, "l", seconds=1)
    leases.acquire(registry, "l", seconds=1)


def test_an_error_of_the_block_stays_the_error_though_the_lease_was_lost(registry: Registry) -> None:
    with pytest.raises(KeyError), leases.held(registry, "l", seconds=30) as lease:
        expire(registry, lease)
        leases.acquire(registry, "l", seconds=30)
        raise KeyError("of the block")


def test_threads_that_ask_at_once_are_owners_one_after_the_other(registry: Registry) -> None:
    inside = threading.Lock()
    fences = []

    def work(_: int) -> None:
        with leases.held(registry, "l", seconds=30, wait=60) as lease:
            assert inside.acquire(blocking=False)
            fences.append(lease.fence)
            inside.release()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))
    assert fences == list(range(1, 9))


@pytest.mark.on("postgresql")
def test_nobody_takes_over_in_the_middle_of_a_registration(registry: Registry) -> None:
    """The fence is checked under a lock: a new owner waits until what the old one does has been committed."""
    lease = leases.acquire(registry, "l", seconds=0.2)
    with ThreadPoolExecutor(1) as pool:
        with registry.database.transaction() as connection:
            leases.check(connection, lease)
            taking = pool.submit(leases.acquire, registry, "l", seconds=30, wait=30)
            time.sleep(0.5)
            assert not taking.done()
            connection.execute(sa.text("SELECT 1"))
        assert taking.result().fence == lease.fence + 1


@pytest.mark.on("postgresql")
def test_a_transaction_that_is_paused_under_a_lease_keeps_nobody_from_it_for_much_longer(registry: Registry) -> None:
    """A paused process sends nothing: PostgreSQL then ends its transaction, and with it the lock on the lease's row."""
    lease = leases.acquire(registry, "flush:1", seconds=0.2)
    with pytest.raises(LakewardError), registry.database.transaction() as paused:
        leases.check(paused, lease)
        taken = leases.acquire(registry, "flush:1", seconds=60, wait=30)  # its own connection waits for the lock
        assert taken.fence == lease.fence + 1
        leases.check(paused, lease)


def test_who_asks_again_at_once_does_not_go_before_those_who_wait(registry: Registry) -> None:
    order: list[int] = []

    def places() -> int:
        with registry.database.read() as connection:
            count = sa.select(sa.func.count()).where(begins(schema.leases.c.name, "waits:l:"))
            return int(connection.execute(count).scalar_one())

    def wait(number: int) -> None:
        with leases.held(registry, "l", seconds=30, wait=60):
            order.append(number)

    lease = leases.acquire(registry, "l", seconds=60)
    threads = [threading.Thread(target=wait, args=(number,)) for number in range(4)]
    for number, thread in enumerate(threads):
        thread.start()
        until(lambda there=number + 1: places() == there)  # type: ignore[misc]
    leases.release(registry, lease)
    with pytest.raises(LeaseHeld, match="those who wait"):
        while not order:  # at once, and again, and again
            leases.release(registry, leases.acquire(registry, "l", seconds=60))
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3]
    assert places() == 0


# A clock that was ahead ------------------------------------------------------------------------------------------------
def set_ahead(registry: Registry, table: sa.Table, column: str) -> None:
    """As a process leaves them that dies while the registry's clock is two days ahead."""
    with registry.database.transaction() as connection:
        ahead = dialect.now(connection) + timedelta(days=2)
        connection.execute(table.update().values({column: ahead}))


def test_a_lease_that_a_clock_set_ahead_is_free_after_its_own_length(made_url: str, tmp_path: Path) -> None:
    with open_at(made_url, tmp_path) as ours, open_at(made_url, tmp_path) as theirs:
        lease = leases.acquire(ours, "compact", seconds=1)
        set_ahead(ours, schema.leases, "expires_at")
        with pytest.raises(LeaseHeld):
            leases.acquire(theirs, "compact", seconds=1)
        taken = leases.acquire(theirs, "compact", seconds=1, wait=30)
        assert taken.fence == lease.fence + 1


def test_doctor_names_what_a_clock_set_ahead_and_recovery_is_the_way_out(
    made_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEWARD_REGISTRY", made_url)
    monkeypatch.setenv("LAKEWARD_WAREHOUSE", str(tmp_path / "warehouse"))

    def told(*command: str) -> str:
        return invoke(*command).stdout

    with open_at(made_url, tmp_path) as registry:
        leases.acquire(registry, "compact", seconds=30)
        intent = intents.open_intent(registry, make_table(registry, "shop.orders"))
        assert json.loads(told("doctor", "--json"))["impossible_times"] == []
        set_ahead(registry, schema.leases, "expires_at")
        set_ahead(registry, schema.pending_writes, "lease_until")
    shown = told("doctor")
    assert "the lease 'compact' ends at" in shown and f"the lease of the write {intent.intent_id} ends at" in shown
    assert shown.count("later than it can: the clock was ahead") == 2 and "`lakeward recover`" in shown
    assert len(json.loads(told("doctor", "--json"))["impossible_times"]) == 2
    told("recover")
    assert not any("write" in time for time in json.loads(told("doctor", "--json"))["impossible_times"])


def test_an_owner_who_lives_keeps_its_lease_when_the_clock_is_set_back(made_url: str, tmp_path: Path) -> None:
    with open_at(made_url, tmp_path) as ours, open_at(made_url, tmp_path) as theirs:
        lease = leases.acquire(ours, "compact", seconds=60)
        set_ahead(ours, schema.leases, "expires_at")
        with pytest.raises(LeaseHeld):
            leases.acquire(theirs, "compact", seconds=60)
        assert leases.renew(ours, lease).expires_at - lease.expires_at < timedelta(minutes=5)


def test_a_hold_that_a_clock_set_ahead_holds_nothing(registry: Registry) -> None:
    leases.acquire(registry, "hold", seconds=60)
    with registry.database.read() as connection:
        assert leases.is_held(connection, "hold")
    set_ahead(registry, schema.leases, "expires_at")
    with registry.database.read() as connection:
        assert not leases.is_held(connection, "hold")


def test_a_clock_that_is_set_back_a_little_frees_no_lease_and_no_place(registry: Registry) -> None:
    """Nor does a row that is newer than the time it is compared with."""
    leases.acquire(registry, "hold", seconds=60)
    place = turns.join(registry, "turn:one:")
    with registry.database.transaction() as connection:
        later = schema.leases.c.name, dialect.now(connection) + timedelta(seconds=2)
        for name, length in (("hold", 60.0), (place.name, turns.LEASE_SECONDS)):
            end = later[1] + timedelta(seconds=length)
            connection.execute(schema.leases.update().where(later[0] == name).values(expires_at=end))
    assert turns.join(registry, "turn:one:") != place  # which deletes the places of those who died
    with registry.database.read() as connection:
        assert leases.is_held(connection, "hold")
        assert turns.first(connection, "turn:one:") == place.name


def test_one_who_died_in_a_queue_while_the_clock_was_ahead_keeps_nobody(made_url: str, tmp_path: Path) -> None:
    with open_at(made_url, tmp_path) as ours, open_at(made_url, tmp_path) as theirs:
        turns.join(ours, "waits:compact:")
        set_ahead(ours, schema.leases, "expires_at")
        assert leases.acquire(theirs, "compact", seconds=60).fence == 1


def test_intents_that_a_clock_set_ahead_are_recovered_after_their_own_length(registry: Registry) -> None:
    table = make_table(registry)
    living, dead = intents.open_intent(registry, table), intents.open_intent(registry, table)
    set_ahead(registry, schema.pending_writes, "lease_until")
    assert {text.split(" ends at")[0] for text in abandoned.impossible(registry.database)} == {
        f"the lease of the write {intent.intent_id}" for intent in (living, dead)
    }
    registry.let_go(dead.intent_id)
    assert recovery.recover(registry).intents == 0
    with registry.database.read() as connection:
        now = dialect.now(connection)
    assert abandoned.impossible(registry.database) == []
    limit = timedelta(seconds=registry.settings.lease_seconds)
    assert all(row["lease_until"] <= now + limit for row in rows_of(registry, "pending_writes"))
    assert {row["intent_id"] for row in rows_of(registry, "pending_writes")} == {living.intent_id, dead.intent_id}


def test_a_holder_s_own_clock_goes_on_while_its_machine_is_suspended(registry: Registry) -> None:
    """The registry's does, so the lease may be another's by the time at which the machine wakes up."""
    assert leases.CLOCK == time.CLOCK_BOOTTIME
    told: list[float] = []
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    with leases.held(registry, "a", seconds=30, good_until=told.append):
        pass
    assert before + 30 <= told[0] <= time.clock_gettime(time.CLOCK_BOOTTIME) + 30


def test_leases_of_a_table_and_a_topic_go_with_it_and_no_others(registry: Registry) -> None:
    table = make_table(registry)
    with leases.held(registry, f"hold:{table.table_uuid}", seconds=30):
        pass
    with (
        leases.held(registry, f"partition:{table.table_uuid}:0:1", seconds=30),
        leases.held(registry, "other", seconds=30),
    ):
        pass
    tables.drop(registry, str(table.identifier), purge=True)
    cleaner.clean(registry)
    assert [row["name"] for row in rows_of(registry, "leases")] == ["other"]
