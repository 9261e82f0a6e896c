"""Operations metadata with several processes: versions without gaps, positions with their data, claims that run out."""

from __future__ import annotations

import itertools
import os
import signal
import time

import pytest
import sqlalchemy as sa

from lakeward.metadata import DeadLetterFilter, MetadataManager, OperationType, SchemaDefinition
from tests.contract.db import processes

CONTEXT = processes.CONTEXT
ROUNDS = 200


def _register(url: str, process: int, ready: object) -> None:
    with MetadataManager(url, enable_cleanup=False) as manager:
        ready.wait()  # type: ignore[attr-defined]
        for number in range(ROUNDS):
            columns = [{"name": f"p{process}_{number}", "type": "int"}]
            manager.register_schema("shop", "orders", SchemaDefinition(columns))


@pytest.mark.slow
def test_two_processes_that_register_different_schemas_at_once_make_versions_without_gaps(made_url: str) -> None:
    ready = CONTEXT.Barrier(2)
    started = [CONTEXT.Process(target=_register, args=[made_url, number, ready]) for number in range(2)]
    for process in started:
        process.start()
    for process in started:
        process.join()
    assert [process.exitcode for process in started] == [0, 0]
    with MetadataManager(made_url, enable_cleanup=False) as manager:
        versions = manager.list_schema_versions("shop", "orders")
    assert [each.version for each in versions] == list(range(1, 2 * ROUNDS + 1))
    assert [each.previous_version for each in versions] == [None, *range(1, 2 * ROUNDS)]
    assert len({each.schema_hash for each in versions}) == 2 * ROUNDS
    for before, after in itertools.pairwise(versions):
        assert {change.type.value for change in after.changes} == {"add_column", "drop_column"}
        assert after.changes[1].name == before.schema_definition.columns[0]["name"], "it knows the one before it"


def _write(url: str, started: object) -> None:
    """Data and position, one transaction after another, until somebody kills it."""
    with MetadataManager(url, enable_cleanup=False) as manager:
        for number in range(1, 1_000_000):
            with manager.transaction() as connection:
                connection.exec_driver_sql(f"INSERT INTO theirs VALUES ({number})")
                manager.update_stream_position("shop", {"n": number}, connection=connection)
                connection.exec_driver_sql(f"INSERT INTO theirs VALUES ({-number})")
            started.set()  # type: ignore[attr-defined]


def test_a_kill_never_comes_between_data_and_position(made_url: str) -> None:
    with MetadataManager(made_url, enable_cleanup=False) as manager:
        with manager.transaction() as connection:
            connection.exec_driver_sql("CREATE TABLE theirs (n INTEGER)")
        for attempt in range(5):
            started = CONTEXT.Event()
            process = CONTEXT.Process(target=_write, args=[made_url, started])
            process.start()
            assert process.pid is not None
            assert started.wait(60)
            time.sleep(0.01 * attempt)  # into whatever it does then
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            _wait_for_its_end(manager)
            with manager.registry.database.read() as connection:
                rows = list(connection.exec_driver_sql("SELECT n FROM theirs").scalars())
            position = manager.get_stream_position("shop")
            assert position is not None
            assert (max(rows), sum(rows)) == (position["n"], 0)
            with manager.transaction() as connection:
                connection.exec_driver_sql("DELETE FROM theirs")


def _wait_for_its_end(manager: MetadataManager) -> None:
    """PostgreSQL may still be at the dead process's last statement."""
    database = manager.registry.database
    if database.is_sqlite:
        return
    others = sa.text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL "
        "AND pid <> pg_backend_pid()"
    )
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with database.read() as connection:
            if not connection.execute(others).scalar_one():
                return
        time.sleep(0.01)
    raise AssertionError("a transaction stays open")


def _claim(url: str, claimed: object) -> None:
    with MetadataManager(url, enable_cleanup=False) as manager:
        manager.claim_dead_letters("dead", lease_seconds=1)
        claimed.set()  # type: ignore[attr-defined]
        time.sleep(600)


def test_what_a_killed_worker_had_claimed_is_handed_out_again(made_url: str) -> None:
    with MetadataManager(made_url, enable_cleanup=False) as manager:
        letter = manager.add_to_dead_letter_queue("shop", "orders", OperationType.INSERT, {"id": 1})
        claimed = CONTEXT.Event()
        process = CONTEXT.Process(target=_claim, args=[made_url, claimed])
        process.start()
        assert claimed.wait(60)
        process.kill()
        process.join()
        deadline = time.monotonic() + 30
        found = manager.claim_dead_letters("other", chosen=DeadLetterFilter(schema_name="shop"))
        while not found and time.monotonic() < deadline:
            time.sleep(0.05)
            found = manager.claim_dead_letters("other")
        assert [each.id for each in found] == [letter.id]
        assert found[0].claim == 2
