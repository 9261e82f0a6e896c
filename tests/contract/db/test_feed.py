"""The feed has one row for each changed row of a watched table, whoever changed it, and none for what was undone."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

import msgspec
import psycopg
import pytest
import sqlalchemy as sa

from lakeward.db import dialect, schema
from lakeward.db.database import Database
from lakeward.errors import DatabaseError
from tests.contract.db import rows

TIME = "2026-01-02T03:04:05.000006Z"
KEYS = {name: [column.name for column in schema.metadata.tables[name].primary_key.columns] for name in schema.WATCHED}


def changes(connection: sa.Connection) -> list[Any]:
    c = schema.registry_changes.c
    return list(
        connection.execute(
            sa.select(c.sequence, c.table_name, c.operation, c.table_id, c.data, c.changed_at).order_by(c.sequence)
        )
    )


@pytest.fixture
def by_hand(database: Database) -> Any:
    """The driver's own connection, as a shell has it: no settings of ours, every statement its own transaction."""
    with database.transaction() as connection:
        rows.insert_all(connection)
        connection.exec_driver_sql("DELETE FROM registry_changes")
    if database.is_sqlite:
        with contextlib.closing(sqlite3.connect(str(database.url.database), isolation_level=None)) as raw:
            yield raw
    else:
        url = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(url, autocommit=True) as raw:
            yield raw


def test_each_changed_row_is_in_the_feed_once_in_order(database: Database) -> None:
    with database.transaction() as connection:
        rows.insert_all(connection)
        for name in schema.WATCHED:
            table = schema.metadata.tables[name]
            column = next(c for c in table.columns if c.name not in {*KEYS[name], "table_id"} and not c.foreign_keys)
            connection.execute(table.update().values({column.name: column}))
        for name in reversed(schema.WATCHED):
            if name != "tables":  # others still refer to it
                connection.execute(schema.metadata.tables[name].delete())
        found = [(each.table_name, each.operation) for each in changes(connection)]
    watched = [name for name in rows.VALID if name in schema.WATCHED]
    assert found == (
        [(name, "INSERT") for name in watched]
        + [(name, "UPDATE") for name in schema.WATCHED]
        + [(name, "DELETE") for name in reversed(schema.WATCHED) if name != "tables"]
    )


def test_statements_typed_by_hand_are_fed_row_by_row(database: Database, by_hand: Any) -> None:
    by_hand.execute(
        "INSERT INTO table_columns (table_id, field_id, position, name, type, required) VALUES "
        """(1, 2, 1, 'a', '"int"', FALSE), (1, 3, 2, 'b', '{"type": "list"}', TRUE)"""
    )
    by_hand.execute("UPDATE table_columns SET doc = 'x' WHERE field_id > 1")
    by_hand.execute("UPDATE table_columns SET doc = 'x' WHERE field_id > 100")
    by_hand.execute("DELETE FROM table_columns WHERE field_id = 3")
    with database.read() as connection:
        found = changes(connection)
    assert [(each.operation, each.data["field_id"], each.data["doc"], each.table_id) for each in found] == [
        ("INSERT", 2, None, 1),
        ("INSERT", 3, None, 1),
        ("UPDATE", 2, "x", 1),
        ("UPDATE", 3, "x", 1),
        ("DELETE", 3, "x", 1),
    ]
    assert found[1].data["type"] == {"type": "list"}


def test_rows_deleted_by_a_foreign_key_are_fed_too(database: Database) -> None:
    with database.transaction() as connection:
        rows.insert_up_to(connection, "table_metadata")
        connection.execute(schema.tables.delete())
        deleted = sorted(each.table_name for each in changes(connection) if each.operation == "DELETE")
    assert deleted == ["table_columns", "table_metadata", "tables"]


def test_what_was_rolled_back_is_not_in_the_feed(database: Database) -> None:
    with pytest.raises(ZeroDivisionError), database.transaction() as connection:
        rows.insert_all(connection)
        1 / 0
    with database.transaction() as connection:
        rows.insert_up_to(connection, "tables")
        with pytest.raises(ZeroDivisionError), connection.begin_nested():
            rows.insert(connection, "table_columns")
            1 / 0
        with connection.begin_nested():
            rows.insert(connection, "table_metadata")
    with database.read() as connection:
        assert [each.table_name for each in changes(connection)] == ["tables", "table_metadata"]


def test_a_statement_that_fails_leaves_nothing_in_the_feed(database: Database, by_hand: Any) -> None:
    with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError)):
        by_hand.execute("UPDATE tables SET row_count = -1")
    with database.read() as connection:
        assert changes(connection) == []


ODD = "quote ' double \" percent % backslash \\ snow ☃ 🦆 \u007f tab \t end"


def test_every_kind_of_value_survives(database: Database) -> None:
    big = 2**63 - 1
    with database.transaction() as connection:
        rows.insert_up_to(connection, "tables")
        rows.insert(connection, "table_columns", name=ODD, type={"a": [1, None, True, ODD], "b": 1e300}, doc=None)
        rows.insert(connection, "table_metadata", metadata_version=big, properties={ODD: ODD})
        rows.insert(connection, "table_files", snapshot_id=-(2**63), file_size=big, is_compressed=False)
        tables, columns, metadata, files = [each.data for each in changes(connection)]
    assert columns["name"] == ODD
    assert columns["type"] == {"a": [1, None, True, ODD], "b": 1e300}
    assert columns["doc"] is None
    assert columns["required"] is True
    assert metadata["metadata_version"] == big
    assert metadata["properties"] == {ODD: ODD}
    assert files["snapshot_id"] == -(2**63)
    assert files["file_size"] == big
    assert files["is_compressed"] is False
    assert tables["created_at"] == TIME
    assert tables["dropped_at"] is None


def test_the_row_is_whole_but_for_what_is_left_out(database: Database) -> None:
    with database.transaction() as connection:
        rows.insert_all(connection)
        for each in changes(connection):
            table = schema.metadata.tables[each.table_name]
            assert list(each.data) == [
                column.name for column in table.columns if column.name not in schema.WATCHED[each.table_name]
            ]
            for column, value in rows.VALID[each.table_name].items():
                if column in each.data:
                    plain = TIME if value == rows.TIME else value
                    assert each.data[column] == plain, (each.table_name, column)


def test_a_change_says_when_it_was_made_by_the_registrys_clock(database: Database) -> None:
    with database.transaction() as connection:
        before = dialect.now(connection)
        rows.insert_up_to(connection, "tables")
        after = dialect.now(connection)
        (change,) = changes(connection)
    # SQLite's own clock counts in milliseconds.
    assert before.replace(microsecond=before.microsecond // 1000 * 1000) <= change.changed_at <= after


def test_an_update_that_changes_no_value_is_a_change(database: Database, by_hand: Any) -> None:
    by_hand.execute("UPDATE tables SET name = name")
    with database.read() as connection:
        assert [each.operation for each in changes(connection)] == ["UPDATE"]


def test_numbers_are_not_given_again_after_the_feed_was_emptied(database: Database) -> None:
    with database.transaction() as connection:
        rows.insert_up_to(connection, "tables")
        last = changes(connection)[-1].sequence
    with database.transaction() as connection:
        connection.exec_driver_sql("DELETE FROM registry_changes")
    with database.transaction() as connection:
        rows.insert(connection, "table_columns")
        assert changes(connection)[0].sequence > last


@pytest.mark.parametrize("name", sorted(schema.WATCHED))
def test_a_row_keeps_its_key_for_life(database: Database, by_hand: Any, name: str) -> None:
    for column in {*KEYS[name], "table_id"}:
        value = "'other'" if isinstance(schema.metadata.tables[name].c[column].type, sa.Text) else "77"
        with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError), match="for life"):
            by_hand.execute(f"UPDATE {name} SET {column} = {value}")
    with database.read() as connection:
        assert changes(connection) == []


@pytest.mark.parametrize("name", sorted(schema.WATCHED))
def test_statements_that_a_trigger_cannot_see_are_refused(database: Database, by_hand: Any, name: str) -> None:
    if not database.is_sqlite:
        for statement in (f"TRUNCATE {name} CASCADE", "TRUNCATE warehouses CASCADE"):
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="use DELETE"):
                by_hand.execute(statement)
        return
    for recursive in (0, 1):
        by_hand.execute(f"PRAGMA recursive_triggers = {recursive}")
        for verb in ("REPLACE", "INSERT OR REPLACE", "INSERT OR IGNORE"):
            with pytest.raises(sqlite3.IntegrityError, match=r"UNIQUE constraint failed.*REPLACE"):
                by_hand.execute(f"{verb} INTO {name} SELECT * FROM {name}")
    with database.read() as connection:
        assert changes(connection) == []


@pytest.mark.on("sqlite")  # there are no other names on PostgreSQL
@pytest.mark.parametrize("other", ["rowid", "_rowid_", "oid"])
@pytest.mark.parametrize("name", [name for name, key in KEYS.items() if len(key) == 1])
def test_sqlite_refuses_a_change_of_a_key_under_its_other_names(
    database: Database, by_hand: Any, name: str, other: str
) -> None:
    for verb in ("UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE"):
        with pytest.raises(sqlite3.Error, match="for life"):
            by_hand.execute(f"{verb} {name} SET {other} = 77")
    with database.read() as connection:
        assert changes(connection) == []


@pytest.mark.on("sqlite")  # there is no REPLACE on PostgreSQL
def test_sqlite_refuses_to_replace_a_row_by_any_of_its_keys(database: Database, by_hand: Any) -> None:
    by_hand.execute(
        "INSERT INTO tables SELECT 2, 't-2', namespace_id, 'lines', '/2', format, format_version, version, 0, 0, 0, 0, 0, 0,"
        "0, last_modified, 1, 1, null, 0, null, created_at, null FROM tables"
    )
    for column, value in (("table_uuid", "'t-1'"), ("name", "'orders'"), ("location", "'/lake/sales/orders-1'")):
        with pytest.raises(sqlite3.IntegrityError, match=f"UNIQUE constraint failed: .*tables.{column}"):
            by_hand.execute(f"UPDATE OR REPLACE tables SET {column} = {value} WHERE table_id = 2")
    by_hand.execute(
        "INSERT INTO table_files SELECT 2, table_id, 'b', '/b', 1, file_type, 1, '/lake/x', partition_key, "
        "'', 1, null, 1, '{}', '[]', 0, 0, 0, created_at, created_at, created_at, null, null, null, null, null FROM table_files"
    )
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE constraint failed"):
        by_hand.execute(
            f"UPDATE OR REPLACE table_files SET file_path = '{rows.VALID['table_files']['file_path']}', content = 0, "
            "referenced_data_file = NULL WHERE file_id = 2"
        )
    with database.read() as connection:
        assert [each.operation for each in changes(connection)] == ["INSERT", "INSERT"]


def test_a_unique_key_may_be_written_with_its_own_value(database: Database, by_hand: Any) -> None:
    by_hand.execute("UPDATE tables SET name = name, location = location, table_uuid = table_uuid")
    by_hand.execute("UPDATE table_files SET file_path = file_path, content = content")
    with database.read() as connection:
        assert len(changes(connection)) == 2


def test_a_document_that_is_none_is_refused(database: Database, by_hand: Any) -> None:
    with pytest.raises((sqlite3.Error, psycopg.Error)):
        by_hand.execute("UPDATE table_columns SET type = '{broken'")
    with database.read() as connection:
        stored = connection.execute(sa.select(schema.table_columns.c.type)).scalar_one()
    assert msgspec.json.encode(stored) == b'"long"'


def test_a_refusal_reaches_the_caller_as_the_registrys_error(database: Database, by_hand: Any) -> None:
    with pytest.raises(DatabaseError, match="keeps its table_id for life"), database.transaction() as connection:
        connection.exec_driver_sql("UPDATE tables SET table_id = 5")
