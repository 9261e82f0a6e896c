"""Locks on PostgreSQL: one order for all, a door for what the feed watches, and another try for what a deadlock has ended."""

from __future__ import annotations

import ast
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

import lakeward
from lakeward import Lake, MetadataStore, TopicConfig
from lakeward.db import lock_order, retry, schema, waits
from lakeward.db.schema import retired_files
from lakeward.errors import CommitUnknown, LakewardError, RegistryBusy, TransactionConflict
from lakeward.log import topics
from lakeward.log.sql import partitions as partition_store
from lakeward.log.sql import segments
from lakeward.log.sql import topics as topic_store
from lakeward.metadata import ErrorType, MetadataManager, OperationType
from lakeward.registry.sql import intents
from lakeward.tables.sql import files
from tests.support.lakes import make_table, open_lake
from tests.support.postgres import PostgresServer
from tests.support.waiting import until


@pytest.fixture
def lake(made_pg_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_pg_url, tmp_path) as opened:
        yield opened


def waits_for_nobody(connection: sa.Connection) -> None:
    """From now on a lock that somebody else has is an error."""
    connection.execute(sa.text("SET LOCAL lock_timeout = '1s'"))


# The order ----------------------------------------------------------------------------------------------------------------
def test_what_refers_to_a_locked_row_does_not_wait_for_it(lake: Lake) -> None:
    """Or an append that has locked its topic, and compaction, whose retired files refer to it, would wait for each other."""
    MetadataStore(lake).create_topic(TopicConfig("orders", 1))
    table = make_table(lake)
    topic = topics.load(lake.registry, "orders")
    database = lake.registry.database
    with database.transaction() as holding:
        lock_order.tables(holding, [table.table_id])
        topic_store.lock(holding, topic.topic_id)
        partition_store.lock(holding, topic.topic_id, [0])
        with database.transaction() as other:
            waits_for_nobody(other)
            now = topic.created_at
            common = {"file_size": 1, "reason": "r", "retired_at": now, "expires_at": now}
            of_topic = {"topic_id": topic.topic_id, "file_path": "f", "kind": "segment", **common}
            of_table = {"table_id": table.table_id, "file_path": "m", "kind": "manifest", **common}
            for row in (of_topic, of_table):
                other.execute(retired_files.insert(), row)


Lock = Callable[[sa.Connection], object]


@pytest.mark.parametrize(
    "taken",
    [
        pytest.param([lambda c: lock_order.tables(c, [2]), lambda c: lock_order.tables(c, [1])], id="tables"),
        pytest.param([lambda c: topic_store.lock(c, 1), lambda c: lock_order.tables(c, [1])], id="topic, table"),
        pytest.param(
            [lambda c: intents.take(c, "i"), lambda c: partition_store.lock(c, 1, [0])], id="intent, partition"
        ),
        pytest.param([lambda c: lock_order.tables(c, [1]), lambda c: lock_order.name(c, "n")], id="table, name"),
        pytest.param([lambda c: segments.delete(c, 1)], id="segments without their partition"),
    ],
)
def test_a_lock_out_of_order_is_found(lake: Lake, taken: list[Lock]) -> None:
    with pytest.raises(lock_order.LockOrderError), lake.registry.database.transaction() as connection:
        for take in taken:
            take(connection)


def test_a_savepoint_that_is_rolled_back_frees_what_was_locked_since(lake: Lake) -> None:
    table = make_table(lake)
    with lake.registry.database.transaction() as connection:
        savepoint = connection.begin_nested()
        intents.take(connection, "none")
        savepoint.rollback()
        lock_order.watched(connection, table.table_id)
        with connection.begin_nested():
            pass
        intents.take(connection, "none")


def test_a_change_of_a_watched_row_has_its_table_locked_whoever_makes_it(lake: Lake) -> None:
    table = make_table(lake)
    lake.append("sales.orders", [{"id": 1}])
    database = lake.registry.database
    (file,) = lake.files("sales.orders")
    with database.transaction() as connection:
        files.mark_set_aside(connection, table.table_id, file.file_id, "it is odd")  # no lock was taken before
        with pytest.raises(LakewardError), database.transaction() as other:
            waits_for_nobody(other)
            lock_order.tables(other, [table.table_id])


def test_every_table_that_the_feed_watches_is_behind_the_door() -> None:
    assert {name for name, guard in lock_order.GUARDED.items() if guard == "tables"} >= schema.WATCHED.keys() - {
        "tables"
    }
    assert set(lock_order.ORDER) - {"names"} <= schema.metadata.tables.keys()


# Another try --------------------------------------------------------------------------------------------------------------
def test_what_a_deadlock_has_ended_is_run_again(lake: Lake) -> None:
    """Two transactions in opposite order, as somebody's own SQL may be: the server ends one, which is done all the same."""
    names = ["a.t", "b.t"]
    ids = [lake.create_table(name, {"id": "long"}).table_id for name in names]
    met = threading.Barrier(2)
    runs: list[int] = []

    @retry.retried
    def lock(order: list[int]) -> None:
        runs.append(order[0])
        with lake.registry.database.transaction() as connection:
            for number, table_id in enumerate(order):
                connection.exec_driver_sql(f"UPDATE tables SET last_modified = now() WHERE table_id = {table_id}")
                if number == 0 and len(runs) <= 2:
                    met.wait(30)

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(lock, ids), pool.submit(lock, ids[::-1])]:
            future.result()
    assert len(runs) == 3


def test_a_callers_own_transaction_is_the_callers_to_run_again(lake: Lake) -> None:
    with MetadataManager(lake, enable_cleanup=False) as manager:
        tried: list[int] = []
        with pytest.raises(TransactionConflict) as caught, manager.transaction() as connection:
            tried.append(1)
            # As the server says it where two wait for each other.
            connection.exec_driver_sql("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40P01'; END $$")
        assert tried == [1]
        assert caught.value.status == 503


def test_every_transaction_of_the_registry_is_run_again() -> None:
    """Each function that opens one is decorated, opens it once and outside of loops, and is given no iterator."""
    exempt = {"_lead", "transaction", "joined"}  # the front's leader, a caller's own, and what opens one for a caller
    wrong: list[str] = []
    root = Path(lakeward.__file__).parent
    for path in root.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef) or function.name in exempt:
                continue
            opened = [each for each in _own_nodes(function) if _opens(each)]
            if not opened:
                continue
            where = f"{path.relative_to(root)}: {function.name}"
            arguments = [*function.args.args, *function.args.kwonlyargs]
            annotations = [ast.unparse(each.annotation) for each in arguments if each.annotation is not None]
            if not any(ast.unparse(each) == "retried" for each in function.decorator_list):
                wrong.append(f"{where} is not run again")
            if len(opened) > 1:
                wrong.append(f"{where} opens {len(opened)} transactions")
            if any(word in each for each in annotations for word in ("Iterable[", "Iterator[")):
                wrong.append(f"{where} is given an iterator, which is empty when it is run again")
            if any(
                isinstance(each, (ast.For, ast.While)) and any(map(_opens, ast.walk(each)))
                for each in _own_nodes(function)
            ):
                wrong.append(f"{where} opens transactions in a loop")
    assert wrong == []


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Without those of functions within."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef):
            waiting += ast.iter_child_nodes(node)


def _opens(node: ast.AST) -> bool:
    if not isinstance(node, ast.withitem) or not isinstance(node.context_expr, ast.Call):
        return False
    called = node.context_expr.func
    return (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) in (
        "transaction",
        "joined",
    )


# All at once --------------------------------------------------------------------------------------------------------------
SECONDS = 6.0


def test_everything_at_once_ends_without_a_deadlock(
    made_pg_url: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """Ingest, flushes, upkeep, audits and operations metadata, on the same tables and topic."""
    with (
        open_lake(made_pg_url, tmp_path, durable=False) as lake,
        MetadataManager(lake, enable_cleanup=False) as manager,
    ):
        names = ["n.a", "n.b"]
        for name in names:
            make_table(lake, name)
        store = MetadataStore(lake)
        store.create_topic(TopicConfig("orders", 2))
        ends = time.monotonic() + SECONDS
        failed: list[str] = []
        done: list[str] = []
        errors = [
            manager.log_error("s", ErrorType.DATA, "x", record_data={"a": n}, operation_type=OperationType.INSERT)
            for n in range(20)
        ]

        def again(work: Callable[[int], object]) -> None:
            number = 0
            while time.monotonic() < ends:
                try:
                    work(number)
                    done.append(getattr(work, "__name__", ""))
                except LakewardError as error:
                    if error.code not in ("lease_held", "status_conflict"):
                        failed.append(f"{getattr(work, '__name__', '')} {error.code}: {error}")
                        return
                number += 1

        def produce(number: int) -> None:
            producer = f"p{threading.get_ident()}"
            lake.log.append("orders", [str(number)], partition=number % 2, producer=(producer, number))

        def append(number: int) -> None:
            lake.append(names[number % 2], [{"id": number}], batch=(f"s{threading.get_ident()}", str(number)))

        def retire(number: int) -> None:
            lake.audit(names[number % 2], checksums=True)
            lake.clean()

        def commit(number: int) -> None:
            store.commit_offset("g", "orders", number % 2, 0)
            if number % 10 == 9:
                store.delete_consumer_group("g")

        def work_on_errors(number: int) -> None:
            manager.record_retry(errors[number % 20].id, False)
            for letter in manager.claim_dead_letters("w", 5):
                manager.resolve_dead_letter(letter.id, claim=letter.claim)

        def flush(number: int) -> None:
            lake.flush(names[number % 2])

        def remake(number: int) -> None:
            make_table(lake, "n.gone")
            lake.append("n.gone", [{"id": number}])
            lake.flush("n.gone")
            lake.drop_table("n.gone", purge=True)

        def compact(_: int) -> None:
            lake.log.compact_segments("orders")

        works = [produce, produce, append, append, retire, commit, work_on_errors, flush, remake, compact]
        with ThreadPoolExecutor(len(works)) as pool:
            list(pool.map(again, works))
        assert failed == []
        assert set(done) >= {"produce", "append", "retire", "commit", "flush", "remake", "compact"}
    assert deadlocks(postgres_server, made_pg_url) == 0


def deadlocks(server: PostgresServer, url: str) -> int:
    """How many the server has ended in a database; counted once its sessions are over."""
    name = sa.make_url(url).database
    with server.connect() as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
        until(lambda: connection.execute(query, [name]).fetchone() == (0,))
        found = connection.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = %s", [name]).fetchone()
    assert found is not None
    return int(found[0])


# Waits --------------------------------------------------------------------------------------------------------------------
def test_a_lock_that_somebody_holds_for_long_is_said_to_be_theirs_and_waited_for_within_a_limit(
    made_pg_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waits, "SAY_SECONDS", 0.1)
    monkeypatch.setattr(waits, "WAIT_SECONDS", 2.0)
    with open_lake(made_pg_url, tmp_path) as lake:
        table = make_table(lake)
        url = lake.registry.database.url.set(drivername="postgresql").render_as_string(hide_password=False)
        before = lake.append(table.identifier, [{"id": 1}]).rows
        with psycopg.connect(url, application_name="reporting") as holder:
            holder.execute("SELECT FROM tables WHERE table_id = %s FOR UPDATE", [table.table_id])
            who = rf"process {holder.info.backend_pid} of the server \(reporting, idle in transaction since 20\d\d-.*\)"
            with pytest.raises(RegistryBusy, match=rf"did not come in 2 s: {who} has it") as caught:
                lake.append(table.identifier, [{"id": 2}])
            assert not isinstance(caught.value, CommitUnknown)
            said = capsys.readouterr().out
            assert "writers_of_the_registry_wait" in said
            assert "reporting, idle in transaction" in said
            holder.rollback()
        assert before == lake.append(table.identifier, [{"id": 3}]).rows == 1
        assert sorted(lake.scan(table.identifier).read_all()["id"].to_pylist()) == [1, 3]
