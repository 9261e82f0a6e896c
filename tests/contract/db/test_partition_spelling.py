"""Registries in which one partition has two spellings, from before there was one: the migration makes them one."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from lakeward.db import migrate, schema
from lakeward.db.database import Database
from lakeward.iceberg.partitions import canonical_partition, partition_path
from lakeward.tables import counters
from lakeward.tables.records.files import FileStatistics, partition_key, partition_values
from lakeward.tables.sql import files, stats

TIME, LATER = "2026-01-02T03:04:05.000006Z", "2026-02-02T03:04:05.000006Z"
FIELDS = [(1, "b", "binary"), (2, "f", "float"), (3, "x", "fixed[2]"), (4, "s", "string"), (5, "id", "long")]
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": i, "name": name, "type": type_, "required": False} for i, name, type_ in FIELDS],
}
SPEC = {
    "spec-id": 0,
    "fields": [
        {"source-id": 1, "field-id": 1000, "transform": "identity", "name": "b"},
        {"source-id": 2, "field-id": 1001, "transform": "identity", "name": "f"},
        {"source-id": 3, "field-id": 1002, "transform": "identity", "name": "x"},
        {"source-id": 1, "field-id": 1003, "transform": "truncate[1]", "name": "b_trunc"},
        {"source-id": 4, "field-id": 1004, "transform": "identity", "name": "s"},
    ],
}
A_TENTH = struct.unpack("<f", struct.pack("<f", 0.1))[0]
BY_ARROW = {1000: "abcd", 1001: A_TENTH, 1002: "00ff", 1003: "ab", 1004: "AB"}
BY_SPARK = {1000: "ABCD", 1001: 0.1, 1002: "00FF", 1003: "AB", 1004: "AB"}
ONLY_SPARK = {1000: "EF", 1001: "NaN", 1002: None, 1003: "EF", 1004: "ünï/x=1"}


@pytest.fixture(params=["0001", "0007"])
def old(registry_url: str, request: pytest.FixtureRequest) -> Iterator[Database]:
    """A registry of the first revision, and of the last before."""
    database = Database(registry_url)
    with database.transaction() as connection:
        migrate.run_history(connection, migrate.LOCATION, request.param)
        insert(
            connection, "warehouses", warehouse_id=1, warehouse_uuid="w", name="main", location="/l", created_at=TIME
        )
        insert(
            connection,
            "namespaces",
            namespace_id=1,
            warehouse_id=1,
            levels='["n"]',
            path="n",
            properties="{}",
            created_at=TIME,
        )
        counts = {"version": 1, "row_count": 0, "total_size": 0, "file_count": 0, "last_modified": TIME}
        insert(connection, "tables", table_id=1, table_uuid="t", namespace_id=1, name="t", location="/l/t", format="parquet",
               format_version=2, last_column_id=5, last_partition_id=1004, created_at=TIME, **counts)  # fmt: skip
        insert(connection, "table_metadata", table_id=1, metadata_version=1, schema_version=0, schema=text(SCHEMA), spec_id=0,
               partition_by=text(SPEC), sort_order_id=0, sort_by='{"order-id":0,"fields":[]}', properties="{}",
               storage_engine="local", engine_config="{}", format="parquet", compression="zstd", change="create",
               created_at=TIME)  # fmt: skip
    yield database
    database.close()


def text(document: Any) -> str:
    return msgspec.json.encode(document).decode()


def insert(connection: sa.Connection, table: str, **row: Any) -> None:
    names = ", ".join(row)
    shown = ", ".join("NULL" if v is None else f"'{v}'" if isinstance(v, str) else str(v) for v in row.values())
    statement = f"INSERT INTO {table} ({names}) VALUES ({shown})"
    connection.exec_driver_sql(statement if connection.dialect.name == "sqlite" else statement.replace("%", "%%"))


def path_of(partition: dict[int, Any]) -> str:
    """As it was made before: as the values were given."""
    canonical = canonical_partition(SCHEMA, SPEC, partition)
    return partition_path(SCHEMA, SPEC, canonical).replace(str(A_TENTH), str(partition[1001]))


def add_file(
    connection: sa.Connection,
    number: int,
    partition: dict[int, Any],
    low: int,
    high: int,
    aside: str | None = None,
    time: str = TIME,
) -> None:
    statistics = FileStatistics(
        value_counts={5: 10, 2: 10},
        nan_counts={2: 10 if partition[1001] == "NaN" else 0},
        lower={5: struct.pack("<q", low)},
        upper={5: struct.pack("<q", high)},
    )
    insert(connection, "table_files", file_id=number, table_id=1, file_name="f", file_path=f"/l/t/{number}", file_size=100,
           file_type="parquet", partition_key=partition_key(partition), partition_path=path_of(partition), row_count=10,
           statistics=text(msgspec.to_builtins(statistics, str_keys=True)), split_offsets="[4]", schema_id=0, spec_id=0,
           sort_order_id=0, created_at=TIME, modified_at=TIME, registered_at=time, set_aside_reason=aside,
           is_compressed=1 if connection.dialect.name == "sqlite" else "1")  # fmt: skip


def add_stats(connection: sa.Connection, partition: dict[int, Any], time: str, files_: int) -> None:
    insert(connection, "table_stats", table_id=1, spec_id=0, partition_key=partition_key(partition), file_type="parquet",
           partition_path=path_of(partition), row_count=10 * files_, file_count=files_, total_size=100 * files_,
           last_modified=time, columns="{}")  # fmt: skip


def test_two_spellings_of_a_partition_become_one(old: Database) -> None:
    with old.transaction() as connection:
        for number, (partition, low, high) in enumerate(
            ((BY_ARROW, -5, 3), (BY_SPARK, -300, 2), (BY_SPARK, 0, 70_000), (ONLY_SPARK, 1, 1)), 1
        ):
            add_file(connection, number, partition, low, high)
        add_file(connection, 9, BY_SPARK, -9_999, 9_999, aside="damaged")
        add_stats(connection, BY_ARROW, TIME, 1)
        add_stats(connection, BY_SPARK, LATER, 2)
        add_stats(connection, ONLY_SPARK, TIME, 1)
        record = {"file_id": 7, "spec_id": 0, "schema_id": 0, "partition_key": partition_key(BY_SPARK),
                  "partition_path": path_of(BY_SPARK), "row_count": 2**60}  # fmt: skip
        for number, kept in enumerate((text(record), '{"file_id":8}', None), 1):
            insert(connection, "retired_files", retired_id=number, table_id=1, file_path=f"/l/t/r{number}", file_size=1,
                   kind="data", reason="r", retired_at=TIME, expires_at=TIME, record=kept)  # fmt: skip

    migrate.create_or_upgrade(old)

    one, other = (canonical_partition(SCHEMA, SPEC, each) for each in (BY_ARROW, ONLY_SPARK))
    assert one == BY_ARROW
    with old.read() as connection:
        found = files.by_paths(connection, [f"/l/t/{number}" for number in (1, 2, 3, 4, 9)])
        assert [file.partition for file in sorted(found, key=lambda f: f.file_id)] == [one, one, one, other, one]
        for file in found:
            assert file.partition_key == partition_key(canonical_partition(SCHEMA, SPEC, file.partition))
            assert file.partition_path == partition_path(SCHEMA, SPEC, file.partition)
        rows = {row.partition_key: row for row in stats.of_table(connection, 1)}
        retired = connection.execute(
            sa.select(schema.retired_files.c.record).order_by(schema.retired_files.c.retired_id)
        ).scalars()
        assert list(retired) == [
            {**record, "partition_key": partition_key(one), "partition_path": partition_path(SCHEMA, SPEC, one)},
            {"file_id": 8},
            None,
        ]
    assert rows.keys() == {partition_key(one), partition_key(other)}
    merged = rows[partition_key(one)]
    assert (merged.row_count, merged.file_count, merged.total_size) == (30, 3, 300)
    assert merged.last_modified.isoformat() == LATER.replace("Z", "+00:00")
    assert merged.columns[5].lower == struct.pack("<q", -300) and merged.columns[5].upper == struct.pack("<q", 70_000)
    assert partition_values(rows[partition_key(other)].partition_key)[1001] == "NaN"


def test_the_statistics_are_those_that_the_registry_counts_itself(old: Database) -> None:
    with old.transaction() as connection:
        for number, partition in enumerate((BY_ARROW, BY_SPARK, ONLY_SPARK), 1):
            add_file(connection, number, partition, -number, number)
            add_stats(connection, partition, TIME, 1)
    migrate.create_or_upgrade(old)
    with old.transaction() as connection:
        migrated = stats.of_table(connection, 1)
        live = files.by_paths(connection, [f"/l/t/{number}" for number in (1, 2, 3)])
        for row in migrated:
            stats.delete(connection, row)
        counters.add(connection, 1, SCHEMA, live, migrated[0].last_modified)
        assert stats.of_table(connection, 1) == migrated


def test_files_without_statistics_are_counted(old: Database) -> None:
    with old.transaction() as connection:
        add_file(connection, 1, BY_ARROW, -5, 3)
        add_file(connection, 2, BY_SPARK, -300, 2, time=LATER)
        add_file(connection, 3, ONLY_SPARK, 1, 1)
    migrate.create_or_upgrade(old)
    with old.read() as connection:
        rows = {partition_values(row.partition_key)[1004]: row for row in stats.of_table(connection, 1)}
    assert {key: (row.row_count, row.file_count) for key, row in rows.items()} == {"AB": (20, 2), "ünï/x=1": (10, 1)}
    assert rows["AB"].last_modified.isoformat() == LATER.replace("Z", "+00:00")
    assert rows["ünï/x=1"].last_modified.isoformat() == TIME.replace("Z", "+00:00")


def test_every_retired_file_is_spelled_anew_however_many(old: Database) -> None:
    count = 2_500
    record = {"file_id": 7, "spec_id": 0, "schema_id": 0, "partition_key": partition_key(BY_SPARK),
              "partition_path": path_of(BY_SPARK)}  # fmt: skip
    with old.transaction() as connection:
        rows = [
            {"retired_id": number, "table_id": 1, "file_path": f"/l/t/r{number}", "file_size": 1, "kind": "data",
             "reason": "r", "retired_at": datetime.fromisoformat(TIME), "expires_at": datetime.fromisoformat(TIME), "record": record}
            for number in range(1, count + 1)
        ]  # fmt: skip
        connection.execute(sa.insert(schema.retired_files), rows)
    migrate.create_or_upgrade(old)
    one = canonical_partition(SCHEMA, SPEC, BY_SPARK)
    with old.read() as connection:
        keys = connection.execute(sa.select(schema.retired_files.c.record)).scalars().all()
    assert {each["partition_key"] for each in keys} == {partition_key(one)} and len(keys) == count


def test_tables_without_such_values_are_left_alone(old: Database) -> None:
    plain = {"spec-id": 0, "fields": [{"source-id": 4, "field-id": 1000, "transform": "identity", "name": "s"}]}
    with old.transaction() as connection:
        connection.execute(sa.update(schema.table_metadata).values(partition_by=plain))
        add_file(connection, 1, {**BY_SPARK, 1000: "ABCD"}, 0, 1)
        before = connection.exec_driver_sql("SELECT * FROM table_files").mappings().all()
    migrate.create_or_upgrade(old)
    with old.read() as connection:
        assert connection.exec_driver_sql("SELECT * FROM table_files").mappings().all() == before
