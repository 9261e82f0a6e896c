"""The rules that the registry's tables keep by themselves, on both databases."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from lakeward.db import schema
from lakeward.db.database import Database
from lakeward.errors import DatabaseError, InvalidInput
from tests.contract.db import rows

FAR = 999  # an id that nothing has
OTHER: dict[str, dict[str, Any]] = {
    # What makes the valid row another one: every unique key changed.
    "warehouses": {"warehouse_id": 2, "warehouse_uuid": "w-2", "name": "two"},
    "namespaces": {"namespace_id": 2, "path": "hr"},
    "tables": {"table_id": 2, "table_uuid": "t-2", "name": "lines", "location": "/lake/sales/lines-2"},
    "table_columns": {"field_id": 2},
    "table_metadata": {"metadata_version": 2},
    "table_files": {"file_id": 2, "file_path": "/lake/b"},
    "table_stats": {"partition_key": '{"1000":1}'},
    "file_pages": {"last_file_id": 2},
    "table_snapshots": {"snapshot_id": 2, "sequence_number": 2},
    "partition_metadata": {"file_path": "/lake/b"},
    "pending_writes": {"intent_id": "i-2", "prefix": "/lake/i-2/"},
    "retired_files": {"retired_id": 2, "file_path": "/lake/c"},
    "topics": {"topic_id": 2, "topic_uuid": "o-2", "name": "lines", "location": "/lake/topics/lines-2"},
    "partitions": {"partition_id": 1},
    "segments": {"segment_id": 2, "base_offset": 100_000, "end_offset": 199_999},
    "consumer_groups": {"group_key": 2, "group_id": "g2"},
    "consumer_offsets": {"group_key": 2},
    "producer_batches": {"sequence": 2},
    "stream_plans": {"group_key": 2},
    "subscriber_cursors": {"subscriber": "snapshotter"},
    "parked_events": {"parked_id": 2, "sequence": 6},
    "orphan_sweeps": {"prefix": "/lake/i-3/"},
    "leases": {"name": "flush:2"},
    "upkeep": {"work": "other"},
    "applied_batches": {"batch_id": "2"},
    "stream_positions": {"stream": "s2"},
}
OTHER |= {
    "sync_runs": {"id": 2, "import_key": "k-2"},
    "sync_markers": {"id": 2, "marker_type": "batch"},
    "schema_registry": {"id": 2, "version": 2},
    "error_log": {"id": 2, "import_key": "k-2"},
    "dead_letter_queue": {"id": 2, "source_record_id": "2", "import_key": "k-2"},
}
DROPPED = {"namespace_id": None, "dropped_at": rows.TIME}


def _names_of(kind: type[sa.Constraint]) -> list[tuple[str, str]]:
    named = [
        (table.name, str(constraint.name))
        for table in schema.metadata.sorted_tables
        for constraint in {*table.constraints, *(each for column in table.columns for each in column.constraints)}
        if isinstance(constraint, kind)
    ]
    return sorted(named)


# For each check: values that it must refuse. A check that is added without a line here fails the test below.
CHECKS: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("tables", "format"): [{"format": "csv"}],
    ("tables", "format_version"): [{"format_version": 1}, {"format_version": 4}],
    ("tables", "dropped"): [{"namespace_id": None}, {"dropped_at": rows.TIME}],
    **{
        ("tables", name): [{name: -1}]
        for name in (
            *("row_count", "deleted_row_count", "total_size", "file_count"),
            *("landing_row_count", "landing_size", "landing_file_count"),
        )
    },
    ("table_columns", "field_id"): [{"field_id": 0}],
    ("table_columns", "required"): [],
    ("table_metadata", "storage_engine"): [{"storage_engine": "ftp"}],
    ("table_metadata", "format"): [{"format": "orc"}],
    ("table_metadata", "metadata_version"): [{"metadata_version": 0}],
    ("table_files", "file_type"): [{"file_type": "avro"}],
    ("table_files", "content"): [{"content": 3}, {"content": -1}],
    ("table_files", "is_compressed"): [],
    ("table_files", "set_aside"): [{"snapshot_id": 1, "set_aside_reason": "truncated"}],
    ("table_files", "file_size"): [{"file_size": -1}],
    ("table_files", "row_count"): [{"row_count": -1}],
    **{("table_stats", name): [{name: -1}] for name in ("row_count", "file_count", "total_size")},
    ("file_pages", "file_count"): [{"file_count": -1}],
    ("table_snapshots", "trigger"): [{"trigger": "chance"}],
    ("pending_writes", "kind"): [{"kind": "read"}],
    ("pending_writes", "owner"): [{"table_id": None}, {"topic_id": 1}],
    ("retired_files", "kind"): [{"kind": "footer"}],
    ("retired_files", "owner"): [{"table_id": None}, {"topic_id": 1}],
    ("topics", "partition_count"): [{"partition_count": 0}],
    ("topics", "retention_ms"): [{"retention_ms": -1}],
    ("partitions", "partition_id"): [{"partition_id": -1}],
    ("partitions", "log_start_offset"): [{"log_start_offset": -1}],
    ("partitions", "high_watermark"): [{"high_watermark": -1}, {"log_start_offset": 100_001}],
    ("segments", "base_offset"): [],  # negative ones are refused by the order of segments first
    ("segments", "end_offset"): [],
    ("segments", "record_count"): [{"record_count": 99_999}],
    ("segments", "s3_key"): [{"s3_key": None}],
    ("segments", "size_bytes"): [{"size_bytes": -1}],
    ("consumer_offsets", "committed_offset"): [{"committed_offset": -1}],
    ("leases", "fence"): [{"fence": 0}],
    ("upkeep", "keep_seconds"): [{"keep_seconds": -1}],
    ("sync_runs", "sync_mode"): [{"sync_mode": "slow"}],
    ("sync_runs", "status"): [],  # another status without its time is refused first
    ("sync_runs", "completed_at"): [{"completed_at": rows.TIME}, {"status": "failed"}],
    **{
        ("sync_runs", name): [{name: -1}]
        for name in (
            *("duration_ms", "records_processed", "records_inserted", "records_updated", "records_deleted"),
            "bytes_processed",
        )
    },
    ("sync_markers", "marker_type"): [{"marker_type": "slow"}],
    ("sync_markers", "table_name"): [{"table_name": ""}],
    ("schema_registry", "version"): [{"version": 0}],
    ("schema_registry", "evolution_type"): [{"evolution_type": "grow"}],
    ("error_log", "status"): [],
    ("error_log", "resolved_at"): [{"resolved_at": rows.TIME}, {"status": "resolved"}],
    ("error_log", "retry_count"): [{"retry_count": -1}],
    ("error_log", "max_retries"): [{"max_retries": -1}],
    ("dead_letter_queue", "status"): [],
    ("dead_letter_queue", "claimed_by"): [{"claimed_by": "w"}],
    ("dead_letter_queue", "claimed_until"): [{"claimed_until": rows.TIME}],
    ("dead_letter_queue", "resolved_at"): [{"resolved_at": rows.TIME}, {"status": "resolved"}],
    ("dead_letter_queue", "error_count"): [{"error_count": 0}],
    ("registry_info", "one_row"): [
        {"id": 2, "registry_uuid": "r", "schema_version": 1, "minimum_version": 1, "created_at": rows.TIME}
    ],
    ("parked_events", "operation"): [{"operation": "UPSERT"}],
    ("registry_changes", "operation"): [
        {"table_name": "tables", "operation": "UPSERT", "table_id": 1, "data": {}, "changed_at": rows.TIME}
    ],
}


def _refused(database: Database, table: str, values: dict[str, Any]) -> str:
    with pytest.raises(DatabaseError) as caught, database.transaction() as connection:
        connection.execute(schema.metadata.tables[table].insert().values(values))
    assert isinstance(caught.value.__cause__, sa.exc.IntegrityError), caught.value
    return str(caught.value)


@pytest.fixture
def filled(database: Database) -> Database:
    with database.transaction() as connection:
        rows.insert_all(connection)
    return database


def test_every_check_is_listed() -> None:
    named = {(table, name.removeprefix(f"ck_{table}_")) for table, name in _names_of(sa.CheckConstraint)}
    assert named == set(CHECKS)


def test_another_valid_row_of_every_table_is_accepted(filled: Database) -> None:
    for table, changes in OTHER.items():
        with filled.transaction() as connection:
            rows.insert(connection, table, **changes)


def test_every_check_refuses_what_it_should(filled: Database) -> None:
    for (table, name), refused in CHECKS.items():
        for changes in refused:
            values = rows.VALID.get(table, {}) | OTHER.get(table, {}) | changes
            message = _refused(filled, table, values)
            assert f"ck_{table}_{name}" in message, (table, changes, message)


def test_a_flag_is_nothing_but_true_or_false(filled: Database) -> None:
    for table, column in (("table_columns", "required"), ("table_files", "is_compressed")):
        with pytest.raises(DatabaseError), filled.transaction() as connection:
            connection.exec_driver_sql(f"UPDATE {table} SET {column} = 2")


def test_every_column_that_is_not_nullable_refuses_null(filled: Database) -> None:
    for name in rows.VALID:
        table = schema.metadata.tables[name]
        for column in table.columns:
            if not column.nullable and not column.primary_key:
                message = _refused(filled, name, rows.VALID[name] | OTHER[name] | {column.name: None})
                assert column.name in message, (name, column.name, message)


def test_every_unique_key_refuses_a_second_row(filled: Database) -> None:
    tried = 0
    for name in rows.VALID:
        table = schema.metadata.tables[name]
        keys = [[c.name for c in table.primary_key.columns]]
        keys += [[c.name for c in u.columns] for u in table.constraints if isinstance(u, sa.UniqueConstraint)]
        for key in keys:
            same = {column: rows.VALID[name][column] for column in key}
            # The other row, but for this key.
            others = {column: value for column, value in OTHER[name].items() if column not in key}
            _refused(filled, name, rows.VALID[name] | others | same)
            tried += 1
    assert tried > len(rows.VALID)
    _refused(filled, "table_files", rows.VALID["table_files"] | {"file_id": 2})


def test_a_path_may_hold_the_deletes_of_several_files_once_each(filled: Database) -> None:
    with filled.transaction() as connection:
        for number, referenced in enumerate(("/lake/x", "/lake/y"), 10):
            rows.insert(connection, "table_files", file_id=number, content=1, referenced_data_file=referenced)
    _refused(
        filled,
        "table_files",
        rows.VALID["table_files"] | {"file_id": 20, "content": 1, "referenced_data_file": "/lake/x"},
    )


def test_every_foreign_key_refuses_what_is_not_there(filled: Database) -> None:
    tried = 0
    for name in rows.VALID:
        for key in schema.metadata.tables[name].foreign_keys:
            _refused(filled, name, rows.VALID[name] | OTHER[name] | {key.parent.name: FAR})
            tried += 1
    assert tried >= 11


def test_what_others_refer_to_is_not_deleted(filled: Database) -> None:
    for statement in ("DELETE FROM warehouses", "DELETE FROM namespaces", "DELETE FROM tables"):
        with pytest.raises(DatabaseError), filled.transaction() as connection:
            connection.exec_driver_sql(statement)


def test_a_dropped_tables_name_is_free_again_and_its_location_is_not(filled: Database) -> None:
    with filled.transaction() as connection:
        connection.execute(schema.tables.update().values(DROPPED))
        rows.insert(connection, "tables", table_id=2, table_uuid="t-2", location="/lake/2")
        connection.execute(schema.tables.update().where(schema.tables.c.table_id == 2).values(DROPPED))
        rows.insert(connection, "tables", table_id=3, table_uuid="t-3", location="/lake/3")
    _refused(filled, "tables", rows.VALID["tables"] | {"table_id": 4, "table_uuid": "t-4", "name": "new"})


def test_an_id_is_never_given_twice(filled: Database) -> None:
    insert = schema.warehouses.insert().values(
        {key: value for key, value in (rows.VALID["warehouses"] | OTHER["warehouses"]).items() if key != "warehouse_id"}
    )
    if not filled.is_sqlite:
        with (
            filled.transaction() as connection
        ):  # the valid rows bring ids of their own, which the sequence has not seen
            connection.exec_driver_sql("SELECT setval(pg_get_serial_sequence('warehouses', 'warehouse_id'), 1)")
    with filled.transaction() as connection:
        first = connection.execute(insert).inserted_primary_key
        connection.exec_driver_sql("DELETE FROM warehouses WHERE name = 'two'")
        second = connection.execute(insert).inserted_primary_key
    assert first is not None
    assert second is not None
    assert second[0] > first[0]


def test_a_value_of_another_type_is_refused(filled: Database) -> None:
    for statement in (
        "UPDATE table_files SET file_size = 'big'",
        "UPDATE tables SET row_count = 'many'",
        "UPDATE leases SET fence = 'first'",
    ):
        with pytest.raises(InvalidInput, match="of another type"), filled.transaction() as connection:
            connection.exec_driver_sql(statement)


def test_every_value_comes_back_as_it_went_in(filled: Database) -> None:
    with filled.read() as connection:
        for name, values in rows.VALID.items():
            table = schema.metadata.tables[name]
            row = connection.execute(sa.select(table)).mappings().one()
            for column, value in values.items():
                expected = tuple(value) if column == "levels" else value
                assert row[column] == expected, (name, column)
                assert type(row[column]) is type(expected), (name, column)
