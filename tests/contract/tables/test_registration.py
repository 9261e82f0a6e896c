from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from lakeward.db import dialect
from lakeward.errors import DatabaseError, FileRefused, IntentLost, TableNotFound
from lakeward.registry import Registry, intents
from lakeward.registry.sql import intents as intent_store
from lakeward.tables import evolution, registration, snapshots, tables
from lakeward.tables.records.files import FileStatistics
from lakeward.tables.records.properties import FOOTERS
from tests.support.registries import (
    NAME,
    assert_exact,
    changes,
    data_file,
    last_sequence,
    make_table,
    number,
    open_intents,
    register,
    rows_of,
)


def test_a_registration_writes_all_that_belongs_to_it_and_takes_the_intent(registry: Registry) -> None:
    table = make_table(registry, partition_by=["name"])
    result = register(registry, table, [5, 7], [1], partition="a", checksum="sha256:00")
    assert (result.rows, result.bytes, result.replayed, result.table_uuid) == (3, 230, False, table.table_uuid)
    assert set(result.seconds) == {"register"}
    first, second = snapshots.list_files(registry, table)
    assert [first.file_path, second.file_path] == result.files
    assert (first.row_count, first.partition, first.checksum) == (2, {1000: "a"}, "sha256:00")
    assert (first.snapshot_id, first.registered_at) == (None, second.registered_at)
    assert first.statistics.lower == {1: number(5)}
    assert {row["file_path"]: row["metadata"] for row in rows_of(registry, "partition_metadata")} == dict.fromkeys(
        result.files, b"footer"
    )
    assert open_intents(registry) == 0
    assert tables.load(registry, NAME).row_count == 3
    assert_exact(registry, table)


def test_an_intent_registers_once(registry: Registry) -> None:
    table = make_table(registry)
    intent = intents.open_intent(registry, table)
    registration.register(registry, table, intent, [data_file(intent.prefix)])
    with pytest.raises(IntentLost, match="nothing was registered"):
        registration.register(registry, table, intent, [data_file(intent.prefix)])
    assert tables.load(registry, NAME).file_count == 1


def test_an_intent_that_recovery_has_taken_registers_nothing(registry: Registry) -> None:
    table = make_table(registry)
    intent = intents.open_intent(registry, table)
    with registry.database.transaction() as connection:
        now = dialect.now(connection)
        assert intent_store.mark_recovered(connection, intent.intent_id, now, now)
    with pytest.raises(IntentLost, match="recovery has taken it"):
        registration.register(registry, table, intent, [data_file(intent.prefix)])
    assert rows_of(registry, "table_files") == []


def test_an_intent_of_another_table_is_refused(registry: Registry) -> None:
    table, other = make_table(registry), make_table(registry, "sales.other")
    intent = intents.open_intent(registry, other)
    with pytest.raises(IntentLost, match="another table"):
        registration.register(registry, table, intent, [data_file(intent.prefix)])


def test_a_file_that_is_registered_already_is_refused_and_with_it_all_others(registry: Registry) -> None:
    table, other = make_table(registry), make_table(registry, "sales.other")
    (path,) = register(registry, table, [1]).files
    for into in (table, other):
        intent = intents.open_intent(registry, into)
        files = [data_file(intent.prefix), data_file(intent.prefix, path=path)]
        with pytest.raises(FileRefused) as refused:
            registration.register(registry, into, intent, files)
        assert refused.value.reason == "already_registered"
        with registry.database.read() as connection:
            assert intents.is_open(connection, intent)
    assert tables.load(registry, NAME).file_count == 1
    assert tables.load(registry, "sales.other").file_count == 0


def test_what_the_database_refuses_leaves_nothing_behind(registry: Registry) -> None:
    table = make_table(registry)
    intent = intents.open_intent(registry, table)
    start = last_sequence(registry)
    with pytest.raises(DatabaseError):
        registration.register(
            registry, table, intent, [data_file(intent.prefix), data_file(intent.prefix, file_type="orc")]
        )
    for name in ("table_files", "table_stats", "partition_metadata"):
        assert rows_of(registry, name) == []
    assert changes(registry, start) == []
    assert_exact(registry, table)
    with registry.database.read() as connection:
        assert intents.is_open(connection, intent)


def test_a_write_without_files_changes_no_counter(registry: Registry) -> None:
    table = make_table(registry)
    start = last_sequence(registry)
    assert register(registry, table).rows == 0
    assert open_intents(registry) == 0
    assert changes(registry, start) == []


def test_a_table_that_was_dropped_is_named(registry: Registry) -> None:
    table = make_table(registry)
    intent = intents.open_intent(registry, table)
    tables.drop(registry, NAME)
    with pytest.raises(TableNotFound, match=r"sales\.orders"):
        registration.register(registry, table, intent, [data_file(intent.prefix)])


def test_a_footer_larger_than_the_limit_is_not_stored_and_its_row_says_so(registry: Registry) -> None:
    table = make_table(registry)
    limit = registry.settings.footer_limit
    (fits,) = register(registry, table, [1], footer=b"x" * limit).files
    (large,) = register(registry, table, [1], footer=b"x" * (limit + 1)).files
    found = {row["file_path"]: row for row in rows_of(registry, "partition_metadata")}
    assert found[fits]["metadata"] == b"x" * limit
    assert (found[large]["metadata"], found[large]["metadata_size"]) == (None, limit + 1)


def test_footers_are_left_out_where_the_table_says_so(registry: Registry) -> None:
    table = make_table(registry, properties={FOOTERS.name: "never"})
    register(registry, table, [1])
    register(registry, table, [1], file_type="json", footer=None)
    assert rows_of(registry, "partition_metadata") == []
    evolution.set_properties(registry, NAME, {FOOTERS.name: "always"})
    register(registry, table, [1])
    assert len(rows_of(registry, "partition_metadata")) == 1


def test_the_feed_has_each_change_once_without_statistics_and_footers(registry: Registry) -> None:
    table = make_table(registry)
    start = last_sequence(registry)
    register(registry, table, [1], [2])
    register(registry, table, [3])
    found = changes(registry, start)
    assert [(c["table_name"], c["operation"]) for c in found] == [
        ("tables", "UPDATE"), ("table_files", "INSERT"), ("table_files", "INSERT"), ("table_stats", "INSERT"),
        ("tables", "UPDATE"), ("table_files", "INSERT"), ("table_stats", "UPDATE"),
    ]  # fmt: skip
    assert [c["data"]["row_count"] for c in found if c["table_name"] == "tables"] == [2, 3]
    assert not any({"statistics", "split_offsets", "columns"} & set(c["data"]) for c in found)


def test_two_thousand_columns_have_statistics(registry: Registry) -> None:
    table = make_table(registry, columns={f"c{i}": "long" for i in range(2000)})
    ids = range(1, 2001)
    statistics = FileStatistics(
        value_counts=dict.fromkeys(ids, 2),
        null_counts=dict.fromkeys(ids, 0),
        lower={i: number(-i) for i in ids},
        upper={i: number(i) for i in ids},
    )
    register(registry, table, [1, 2], statistics=statistics)
    register(
        registry, table, [1, 2], statistics=msgspec.structs.replace(statistics, upper=dict.fromkeys(ids, number(5000)))
    )
    (row,) = rows_of(registry, "table_stats")
    assert (row["columns"][2000].lower, row["columns"][1].upper) == (number(-2000), number(5000))
    assert_exact(registry, table)


def test_many_files_in_one_registration(registry: Registry) -> None:
    table = make_table(registry, partition_by=["name"])
    intent = intents.open_intent(registry, table)
    files = [data_file(intent.prefix, [i], f"p{i % 7}") for i in range(1500)]
    registration.register(registry, table, intent, files)
    assert tables.load(registry, NAME).file_count == 1500
    assert len(rows_of(registry, "table_stats")) == 7
    assert_exact(registry, table)


def test_threads_that_register_at_once_are_all_counted(registry: Registry) -> None:
    made = [make_table(registry, f"sales.t{i}", partition_by=["name"]) for i in range(2)]

    def work(number: int) -> None:
        register(registry, made[number % 2], [number], [number + 1], partition=f"p{number % 3}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(40)))
    for table in made:
        assert tables.load_by_id(registry, table.table_id).row_count == 40
        assert_exact(registry, table)
