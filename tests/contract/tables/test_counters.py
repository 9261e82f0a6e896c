from __future__ import annotations

import struct
from typing import Any

import pytest

from lakeward.db import dialect, lock_order
from lakeward.errors import AuditFailed, DatabaseError
from lakeward.registry import Registry
from lakeward.tables import counters, evolution, snapshots, tables
from lakeward.tables.counters import rebuild_counters
from lakeward.tables.records.files import FileStatistics
from lakeward.tables.records.tables import ColumnStatistics, Table
from lakeward.tables.sql import files
from tests.support.registries import NAME, assert_exact, make_table, number, register, rows_of


def remove(registry: Registry, table: Table, *file_numbers: int) -> None:
    """Take live files out, by their places in the list."""
    live = snapshots.list_files(registry, table)
    leaving = [live[i] for i in file_numbers]
    schema = tables.metadata(registry, tables.load_by_id(registry, table.table_id)).schema
    with registry.database.transaction() as connection:
        lock_order.tables(connection, [table.table_id])
        files.delete(connection, table.table_id, [file.file_id for file in leaving])
        counters.remove(connection, table.table_id, schema, leaving, dialect.now(connection))


def column(registry: Registry, field_id: int = 1) -> ColumnStatistics:
    (row,) = rows_of(registry, "table_stats")
    found: ColumnStatistics = row["columns"][field_id]
    return found


def test_counters_follow_files_in_and_out(registry: Registry) -> None:
    table = make_table(registry, partition_by=["name"])
    register(registry, table, [1, 2], [3], partition="a")
    register(registry, table, [4], partition="b")
    register(registry, table, [5], partition="a", file_type="json")
    register(registry, table, [6], partition="c")
    found = tables.load(registry, NAME)
    assert (found.row_count, found.file_count, found.landing_row_count, found.landing_file_count) == (5, 4, 1, 1)
    assert len(rows_of(registry, "table_stats")) == 4
    assert_exact(registry, table)
    remove(registry, table, 0, 3)
    assert_exact(registry, table)
    assert (tables.load(registry, NAME).row_count, tables.load(registry, NAME).landing_row_count) == (3, 0)
    remove(registry, table, 0, 1, 2)
    assert_exact(registry, table)
    assert rows_of(registry, "table_stats") == []


def test_bounds_shrink_when_the_file_that_had_them_leaves(registry: Registry) -> None:
    table = make_table(registry)
    register(registry, table, [1, 9], [4, 5])
    assert (column(registry).lower, column(registry).upper) == (number(1), number(9))
    remove(registry, table, 0)
    assert (column(registry).lower, column(registry).upper, column(registry).value_count) == (number(4), number(5), 2)


def test_bounds_come_back_when_the_file_without_them_leaves(registry: Registry) -> None:
    table = make_table(registry)
    register(registry, table, [1, 9])
    register(registry, table, [2], statistics=FileStatistics(value_counts={1: 1}, null_counts={1: 0}))
    assert (column(registry).lower, column(registry).bounded) == (None, False)
    remove(registry, table, 1)
    assert (column(registry).lower, column(registry).bounded) == (number(1), True)


def with_doubles(*values: float) -> dict[str, Any]:
    bounded = [value for value in values if value == value]  # not NaN
    packed = [struct.pack("<d", value) for value in bounded]
    return {
        "statistics": FileStatistics(
            value_counts={1: len(values)},
            null_counts={1: 0},
            nan_counts={1: len(values) - len(bounded)},
            lower={1: min(zip(bounded, packed, strict=True))[1]} if packed else {},
            upper={1: max(zip(bounded, packed, strict=True))[1]} if packed else {},
        )
    }


def test_nans_and_infinities_are_counted_and_kept_out_of_and_in_bounds(registry: Registry) -> None:
    table = make_table(registry, columns={"x": "double"})
    inf, nan = float("inf"), float("nan")
    for values in ([1.5, nan], [nan, nan], [-inf], [inf, 2.0]):
        register(registry, table, list(range(len(values))), **with_doubles(*values))
    found = column(registry)
    assert (found.value_count, found.nan_count, found.bounded) == (7, 3, True)
    assert (found.lower, found.upper) == (struct.pack("<d", -inf), struct.pack("<d", inf))
    assert_exact(registry, table)


def test_bounds_of_a_widened_column_compare_with_those_from_before(registry: Registry) -> None:
    table = make_table(registry, columns={"x": "int"})

    def with_bound(value: int, size: int) -> dict[str, Any]:
        bound = value.to_bytes(size, "little", signed=True)
        return {
            "statistics": FileStatistics(value_counts={1: 1}, null_counts={1: 0}, lower={1: bound}, upper={1: bound})
        }

    register(registry, table, [1], **with_bound(-7, 4))
    evolution.widen_column(registry, NAME, "x", "long")
    register(registry, table, [1], **with_bound(2**40, 8))
    found = column(registry)
    assert found.lower is not None
    assert found.upper is not None
    assert int.from_bytes(found.lower, "little", signed=True) == -7
    assert int.from_bytes(found.upper, "little", signed=True) == 2**40


def test_counters_are_sixty_four_bit(registry: Registry) -> None:
    table = make_table(registry)
    huge: dict[str, Any] = {"row_count": 3_000_000_000, "size": 5_000_000_000_000}
    register(registry, table, [1], [2], **huge)
    found = tables.load(registry, NAME)
    assert (found.row_count, found.total_size) == (6_000_000_000, 10_000_000_000_000)
    assert_exact(registry, table)


def test_a_recount_repairs_what_sql_by_hand_has_spoilt(registry: Registry) -> None:
    table = make_table(registry, partition_by=["name"])
    register(registry, table, [1, 2], partition="a")
    register(registry, table, [3], partition="b", file_type="json")
    with registry.database.transaction() as connection:
        connection.exec_driver_sql("UPDATE tables SET row_count = 99, landing_size = 1")
        connection.exec_driver_sql("DELETE FROM table_stats")
    with pytest.raises(AssertionError):
        assert_exact(registry, table)
    assert rebuild_counters(registry, table, row_count=2, file_size=120).row_count == 2
    assert_exact(registry, table)
    with pytest.raises(AuditFailed, match="2 rows in its live files, not 3"):
        rebuild_counters(registry, table, row_count=3)


def test_the_database_refuses_a_counter_below_zero(registry: Registry) -> None:
    table = make_table(registry)
    register(registry, table, [1])
    live = snapshots.list_files(registry, table)
    schema = tables.metadata(registry, table).schema
    with pytest.raises(DatabaseError, match=r"(?i)check constraint"), registry.database.transaction() as connection:
        for _ in range(2):
            counters.remove(connection, table.table_id, schema, live, dialect.now(connection))
    assert_exact(registry, table)


def test_files_of_two_specs_are_counted_apart(registry: Registry) -> None:
    table = make_table(registry)
    register(registry, table, [1])
    evolution.set_partition_spec(registry, NAME, ["bucket(4, id)"])
    register(registry, tables.load(registry, NAME), [2], partition=3, spec_id=1)
    assert {row["spec_id"] for row in rows_of(registry, "table_stats")} == {0, 1}
    assert_exact(registry, table)
