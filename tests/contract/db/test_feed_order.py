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

import msgspec
import sqlalchemy as sa

from lakeward.astha.feed import Place, Reader
from lakeward.astha.sql.changes import Change
from lakeward.db import lock_order, schema
from lakeward.db.database import Database
from tests.contract.db import processes, rows

TABLES = 3
WRITERS = 16
ROUNDS = 30


def _write(url: str, writer: int) -> None:
    """Transactions over one to three tables: with savepoints, some of them long, some rolled back."""
    chance = random.Random(writer)
    database = Database(url)
    for number in range(ROUNDS):
        try:
            with database.transaction() as connection:
                tables = chance.sample(range(1, TABLES + 1), chance.randint(1, TABLES))
                lock_order.tables(connection, tables)
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


def _data(change: Change) -> Any:
    return msgspec.json.decode(change.data)


def _expect_every_version_once_in_order(database: Database, met: list[Change]) -> None:
    versions: dict[int, list[int]] = defaultdict(list)
    for change in met:
        versions[change.table_id].append(_data(change)["version"])
    with database.read() as connection:
        last = {row.table_id: row.version for row in connection.execute(sa.select(schema.tables))}
    assert sum(last.values()) > WRITERS * ROUNDS
    assert versions == {table_id: list(range(1, version + 1)) for table_id, version in last.items()}


def _read(reader: Reader, position: Place) -> tuple[Place, list[Change]]:
    """All there is, in pages of odd sizes."""
    found: list[Change] = []
    while True:
        page = reader.read(position, 1 + len(found) % 7)
        position = page.after
        found += page.changes
        if page.is_last:
            return position, found


def test_a_reader_beside_writing_processes_meets_each_change_once_in_commit_order(database: Database) -> None:
    _make_tables(database)
    reader = Reader(database)
    position, met = reader.head(), []
    url = database.url.render_as_string(hide_password=False)
    writers = processes.start(_write, [(url, number) for number in range(WRITERS)])
    while processes.running(writers):
        position, found = _read(reader, position)
        met += found
        time.sleep(0.005)
    processes.expect_success(writers)
    assert met, "nothing was read beside the writers"
    position, found = _read(reader, position)
    _expect_every_version_once_in_order(database, met + found)
    assert _read(reader, position)[1] == []


def test_threads_that_share_a_database_write_in_commit_order(database: Database) -> None:
    _make_tables(database)
    failed: list[BaseException] = []

    def write() -> None:
        try:
            for _ in range(ROUNDS + 5):
                with database.transaction() as connection:
                    lock_order.tables(connection, [1])
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
    """Without a lock: rows of one table that do not collide, so that nothing but the trigger orders them."""
    _make_tables(database)
    with database.transaction() as connection:
        rows.insert(connection, "table_metadata")
    reader = Reader(database)
    position = reader.head()
    met: list[Change] = []
    url = database.url.render_as_string(hide_password=False)
    writers = processes.start(_insert_columns, [(url, number) for number in range(1, WRITERS + 1)])
    while processes.running(writers):
        position, found = _read(reader, position)
        met += found
    processes.expect_success(writers)
    met += _read(reader, position)[1]
    columns = [change for change in met if "field_id" in _data(change)]
    assert sorted(_data(change)["field_id"] for change in columns) == [
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
