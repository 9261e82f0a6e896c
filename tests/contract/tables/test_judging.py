"""No change of a table, and no file that comes to it, makes what readers cannot use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakeward.errors import FileRefused, InvalidSchema
from lakeward.iceberg.schemas import schema_from
from lakeward.registry import Registry, intents
from lakeward.registry.sql import intents as intent_store
from lakeward.tables import evolution, registration, retirement, tables
from lakeward.tables.records.tables import Document
from tests.support.registries import NAME, data_file, make_table, open_intents, register


def schema_of(registry: Registry) -> Document:
    return tables.load_with_metadata(registry, NAME)[1].schema


def write_later(registry: Registry) -> Callable[[], Any]:
    """A write that is declared now; what it gives registers a file of it, under the schema and spec of now."""
    table, metadata = tables.load_with_metadata(registry, NAME)
    intent = intents.open_intent(registry, table)
    partition = 7 if metadata.partition_by["fields"] else None
    file = data_file(
        intent.prefix, [1], partition, schema_id=metadata.schema_version, spec_id=metadata.spec_id, partition_path="p=7"
    )
    return lambda: registration.register(registry, table, intent, [file])


def refused(registry: Registry, change: Callable[[], Any], match: str) -> None:
    """The change is refused, and makes no version."""
    before = tables.load_with_metadata(registry, NAME)
    with pytest.raises(InvalidSchema, match=match):
        change()
    assert tables.load_with_metadata(registry, NAME) == before


# Names ------------------------------------------------------------------------------------------------------------------
def test_a_column_never_has_the_name_of_a_partition_field_of_any_spec(registry: Registry) -> None:
    make_table(registry, columns={"id": "long", "ts": "timestamp", "v": "int"}, partition_by=["day(ts)"])
    for _ in range(2):
        refused(
            registry, lambda: evolution.add_column(registry, NAME, "ts_day", "int"), "'ts_day' has the name of a part"
        )
        refused(
            registry, lambda: evolution.rename_column(registry, NAME, "v", "ts_day"), "'ts_day' has the name of a part"
        )
        refused(
            registry, lambda: evolution.rename_column(registry, NAME, "ts", "ts_day"), "'ts_day' has the name of a part"
        )
        evolution.set_partition_spec(registry, NAME, [])  # the earlier spec is in the metadata for ever
    evolution.add_column(registry, NAME, "day", "int")


def test_a_rollback_brings_back_no_column_with_the_name_of_a_later_partition_field(registry: Registry) -> None:
    make_table(registry, columns={"ts": "timestamp", "ts_day": "int"})
    evolution.rename_column(registry, NAME, "ts_day", "other")
    evolution.set_partition_spec(registry, NAME, ["day(ts)"])
    refused(registry, lambda: evolution.rollback(registry, NAME, 1), "'ts_day' has the name of a partition field")


def test_the_name_of_a_partition_field_whose_column_is_gone_is_free(registry: Registry) -> None:
    make_table(registry, columns={"id": "long", "p": "int"}, partition_by=["p"])
    evolution.set_partition_spec(registry, NAME, [])
    evolution.drop_column(registry, NAME, "p")
    evolution.add_column(registry, NAME, "p", "string")
    assert [field["name"] for field in schema_of(registry)["fields"]] == ["id", "p"]


# Files that are there ---------------------------------------------------------------------------------------------------
def test_a_type_does_not_go_back_to_one_that_live_files_do_not_fit(registry: Registry) -> None:
    table = make_table(registry, columns={"id": "int", "name": "string"})
    register(registry, table, [1])
    evolution.widen_column(registry, NAME, "id", "long")
    evolution.rollback(registry, NAME, 1)  # nobody has written a long yet
    evolution.widen_column(registry, NAME, "id", "long")
    register(registry, tables.load(registry, NAME), [5_000_000_000], schema_id=1)
    refused(registry, lambda: evolution.rollback(registry, NAME, 1), "'id' is long there, and cannot be read as int")
    retire_all(registry)
    evolution.rollback(registry, NAME, 1)


def test_a_required_column_does_not_come_back_above_files_without_it(registry: Registry) -> None:
    table = make_table(registry, columns={"id": "long", "k": "long not null"})
    evolution.drop_column(registry, NAME, "k")
    register(registry, table, [2], schema_id=1)
    refused(registry, lambda: evolution.rollback(registry, NAME, 1), "'k' is required, and not there")


def test_a_column_that_files_are_partitioned_by_is_dropped_in_no_way(registry: Registry) -> None:
    make_table(registry, columns={"id": "long"})
    evolution.add_column(registry, NAME, "p", "int")
    evolution.set_partition_spec(registry, NAME, ["p"])
    register(registry, tables.load(registry, NAME), [1], partition=7, schema_id=1, spec_id=1)
    refused(registry, lambda: evolution.rollback(registry, NAME, 1), r"partitioned by p \(spec 1\)")
    evolution.set_partition_spec(registry, NAME, [])
    refused(registry, lambda: evolution.drop_column(registry, NAME, "p"), r"partitioned by p \(spec 1\)")


def test_files_that_were_set_aside_count_as_live_ones(registry: Registry) -> None:
    table = make_table(registry, columns={"id": "int", "name": "string"})
    evolution.widen_column(registry, NAME, "id", "long")
    register(registry, table, [1], schema_id=1)
    with registry.database.transaction() as connection:
        connection.exec_driver_sql("UPDATE table_files SET set_aside_reason = 'x'")
    refused(registry, lambda: evolution.rollback(registry, NAME, 1), "cannot be read as int")


def test_what_was_wrong_before_keeps_nobody_from_other_changes_and_from_mending_it(registry: Registry) -> None:
    make_table(registry, columns={"id": "long", "ts": "timestamp", "v": "int"}, partition_by=["day(ts)"])
    with registry.database.transaction() as connection:
        changed = "UPDATE table_metadata SET schema = replace({}, '\"v\"', '\"ts_day\"')"
        column = "schema" if registry.database.is_sqlite else "schema::text"
        connection.exec_driver_sql(changed.format(column) + ("" if registry.database.is_sqlite else "::json"))
    registry.schemas.clear()
    evolution.add_column(registry, NAME, "w", "int")
    evolution.rename_column(registry, NAME, "ts_day", "v")
    refused(registry, lambda: evolution.rename_column(registry, NAME, "v", "ts_day"), "'ts_day' has the name of a part")


def retire_all(registry: Registry) -> None:
    table = tables.load(registry, NAME)
    with registry.database.transaction() as connection:
        connection.exec_driver_sql("UPDATE table_files SET set_aside_reason = 'x'")
    retirement.retire_set_aside(registry, table)


# Writes that are under way ----------------------------------------------------------------------------------------------
def test_a_change_that_a_write_under_way_would_not_fit_waits_for_its_end(registry: Registry) -> None:
    make_table(registry, columns={"id": "long", "p": "int"}, partition_by=["p"])
    finish = write_later(registry)
    evolution.set_partition_spec(registry, NAME, [])
    evolution.add_column(registry, NAME, "more", "int")  # fits
    refused(registry, lambda: evolution.drop_column(registry, NAME, "p"), "a write of .* is under way")
    finish()
    refused(registry, lambda: evolution.drop_column(registry, NAME, "p"), "live files")
    retire_all(registry)
    evolution.drop_column(registry, NAME, "p")


def test_what_has_ended_or_gives_way_keeps_no_change_waiting(registry: Registry) -> None:
    table = make_table(registry, columns={"id": "long", "p": "int"}, partition_by=["p"])
    intents.abort(registry, intents.open_intent(registry, table))
    intents.open_intent(registry, table, gives_way=True)
    intents.open_intent(registry, table, "flush")
    evolution.set_partition_spec(registry, NAME, [])
    evolution.drop_column(registry, NAME, "p")


def test_a_write_that_missed_the_change_is_refused_when_it_registers_its_files(registry: Registry) -> None:
    """It was declared after the change, by the table as it had read it before."""
    make_table(registry, columns={"id": "long", "p": "int"}, partition_by=["p"])
    table, metadata = tables.load_with_metadata(registry, NAME)
    evolution.set_partition_spec(registry, NAME, [])
    evolution.drop_column(registry, NAME, "p")
    intent = intents.open_intent(registry, table)
    file = data_file(intent.prefix, [1], 7, schema_id=metadata.schema_version, spec_id=metadata.spec_id)
    with pytest.raises(FileRefused, match=r"has changed since the files were written.* partitioned by p") as caught:
        registration.register(registry, table, intent, [file])
    assert caught.value.reason == "schema_changed"
    assert tables.load(registry, NAME).file_count == 0
    assert open_intents(registry) == 1  # the caller gives it up
    with registry.database.read() as connection:
        assert intent_store.writing(connection, table.table_id, intent.lease_until) == [intent]


def test_a_file_of_a_schema_or_spec_that_the_table_has_not_is_refused(registry: Registry) -> None:
    table = make_table(registry)
    for schema_id, spec_id in ((5, 0), (0, 5)):
        with pytest.raises(FileRefused, match="the table has no schema"):
            register(registry, table, [1], schema_id=schema_id, spec_id=spec_id)


def test_files_of_an_earlier_schema_that_fits_are_registered(registry: Registry) -> None:
    make_table(registry, columns={"id": "int", "name": "string"})
    finish = write_later(registry)
    evolution.widen_column(registry, NAME, "id", "long")
    evolution.add_column(registry, NAME, "more", "struct<a: int not null>")
    evolution.rename_column(registry, NAME, "name", "label")
    finish()
    assert tables.load(registry, NAME).row_count == 1


def test_documents_given_by_hand_are_judged_when_a_table_is_made(registry: Registry) -> None:
    schema, last = schema_from({"id": "long", "ts": "timestamp"})
    day = {"source-id": 2, "field-id": 1000, "name": "id", "transform": "day"}
    make_table(registry, "sales.there")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"schema": schema, "partition_by": {"spec-id": 0, "fields": [day]}}, "'id' has the name of a partition field"),
        ({"schema": {**schema, "identifier-field-ids": [1]}}, "it is optional"),
        (
            {
                "schema": schema,
                "sort_by": {"order-id": 1, "fields": [{**day, "direction": "up", "null-order": "x"}]},
            },
            "'up'",
        ),
    ]
    for documents, match in cases:
        with pytest.raises(InvalidSchema, match=match):
            tables.create(registry, NAME, last_column_id=last, **documents)
