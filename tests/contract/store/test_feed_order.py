"""Many writers at once: the feed's order within a table is the order of commits, and a reader meets each change once.

Each writer takes the table's next number from the table itself (`tables.version`, which it raises under the row's
lock), so the numbers say in which order the transactions committed.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from typing import Any

import sqlalchemy as sa

from lakeward.store import dialect, schema
from lakeward.store.database import Database
from tests.contract.store import feed_reader, processes, rows

TABLES = 3
WRITERS = 8
ROUNDS = 30


def _write(url: str, writer: int) -> None:
    """Transactions over one to three tables: with savepoints, some of them long, some rolled back."""
    chance = random.Random(writer)
    database = Database(url)
    for number in range(ROUNDS):
        try:
            with database.transaction() as connection:
                tables = chance.sample(range(1, TABLES + 1), chance.randint(1, TABLES))
                dialect.lock_tables(connection, tables)
                for table_id in sorted(tables):
                    _raise_version(connection, table_id)
                    undone = connection.begin_nested()
                    _raise_version(connection, table_id)
                    undone.rollback()
                    with connection.begin_nested():
                        _raise_version(connection, table_id)
                if number % 10 == 0:
                    time.sleep(0.02)
                if chance.random() < 0.2:
                    raise _GivenUp
        except _GivenUp:
            pass
    database.close()


class _GivenUp(Exception):
    pass


def _raise_version(connection: sa.Connection, table_id: int) -> None:
    tables = schema.tables
    connection.execute(tables.update().where(tables.c.table_id == table_id).values(version=tables.c.version + 1))


def _make_tables(database: Database) -> None:
    with database.transaction() as connection:
        rows.insert_up_to(connection, "namespaces")
        for number in range(1, TABLES + 1):
            rows.insert(
                connection,
                "tables",
                table_id=number,
                table_uuid=f"t-{number}",
                name=f"n{number}",
                location=f"/{number}",
                version=0,
            )
        connection.exec_driver_sql("DELETE FROM registry_changes")


def _expect_every_version_once_in_order(database: Database, met: list[Any]) -> None:
    versions: dict[int, list[int]] = defaultdict(list)
    for change in met:
        versions[change.table_id].append(change.data["version"])
    with database.read() as connection:
        last = {row.table_id: row.version for row in connection.execute(sa.select(schema.tables))}
    assert sum(last.values()) > WRITERS * ROUNDS
    assert versions == {table_id: list(range(1, version + 1)) for table_id, version in last.items()}


def _read(database: Database, position: Any) -> tuple[Any, list[Any]]:
    c = schema.registry_changes.c
    with database.read() as connection:
        if not database.is_sqlite:
            return feed_reader.read_since(connection, position)
        found = list(
            connection.execute(
                sa.select(c.sequence, c.table_id, c.data).where(c.sequence > position).order_by(c.sequence)
            )
        )
    return (found[-1].sequence if found else position), found


def _start(database: Database) -> Any:
    if database.is_sqlite:
        return 0
    with database.read() as connection:
        return feed_reader.position(connection)


def test_a_reader_beside_writing_processes_meets_each_change_once_in_commit_order(database: Database) -> None:
    _make_tables(database)
    position, met = _start(database), []
    url = database.url.render_as_string(hide_password=False)
    writers = processes.start(_write, [(url, number) for number in range(WRITERS)])
    while processes.running(writers):
        position, found = _read(database, position)
        met += found
        time.sleep(0.005)
    processes.expect_success(writers)
    position, found = _read(database, position)
    _expect_every_version_once_in_order(database, met + found)
    assert _read(database, position)[1] == []


def test_threads_that_share_a_database_write_in_commit_order(database: Database) -> None:
    _make_tables(database)
    failed: list[BaseException] = []

    def write() -> None:
        try:
            for _ in range(ROUNDS + 5):
                with database.transaction() as connection:
                    dialect.lock_tables(connection, [1])
                    _raise_version(connection, 1)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write) for _ in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    c = schema.registry_changes.c
    with database.read() as connection:
        met = list(connection.execute(sa.select(c.table_id, c.data).order_by(c.sequence)))
    assert [change.data["version"] for change in met] == list(range(1, WRITERS * (ROUNDS + 5) + 1))


def test_writers_of_sql_typed_by_hand_are_put_in_order_by_the_triggers_alone(database: Database) -> None:
    """Without lock_tables: rows of one table that do not collide, so that nothing but the trigger orders them."""
    _make_tables(database)
    with database.transaction() as connection:
        rows.insert(connection, "table_metadata")
    position = _start(database)
    met: list[Any] = []
    url = database.url.render_as_string(hide_password=False)
    writers = processes.start(_insert_columns, [(url, number) for number in range(1, WRITERS + 1)])
    while processes.running(writers):
        position, found = _read(database, position)
        met += found
    processes.expect_success(writers)
    met += _read(database, position)[1]
    columns = [change for change in met if "field_id" in change.data]
    assert sorted(change.data["field_id"] for change in columns) == [
        writer * 1000 + number for writer in range(1, WRITERS + 1) for number in range(ROUNDS)
    ]
    # What a reader meets later has a higher number: no change slips in behind it.
    assert [change.sequence for change in columns] == sorted(change.sequence for change in columns)


def _insert_columns(url: str, writer: int) -> None:
    database = Database(url)
    for number in range(ROUNDS):
        with database.transaction() as connection:
            rows.insert(connection, "table_columns", field_id=writer * 1000 + number)
            time.sleep(0.001 * (number % 5))
    database.close()
