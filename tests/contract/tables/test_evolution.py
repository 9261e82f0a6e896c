from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from lakeward.errors import ColumnNotFound, InvalidSchema, MetadataVersionNotFound, TableNotFound
from lakeward.registry import Registry
from lakeward.tables import evolution, retirement, tables
from tests.support.registries import NAME, assert_exact, changes, last_sequence, make_table, register, rows_of


def columns(registry: Registry) -> dict[str, int]:
    """Name -> field id, in the order of the current schema."""
    _, metadata = tables.load_with_metadata(registry, NAME)
    return {field["name"]: field["id"] for field in metadata.schema["fields"]}


def table_columns(registry: Registry) -> dict[str, int]:
    rows = sorted(rows_of(registry, "table_columns"), key=lambda row: int(row["position"]))
    return {row["name"]: row["field_id"] for row in rows}


def test_each_change_is_a_version_of_its_own_and_table_columns_follow(registry: Registry) -> None:
    table = make_table(registry, columns={"id": "int", "name": "string"})
    evolution.add_column(registry, NAME, "price", "decimal(9,2)", "what it costs")
    evolution.rename_column(registry, NAME, "name", "label")
    evolution.widen_column(registry, NAME, "id", "long")
    evolution.move_column(registry, NAME, "price", first=True)
    evolution.drop_column(registry, NAME, "label")
    evolution.set_properties(registry, NAME, {"a": "1", "b": "2"})
    evolution.set_properties(registry, NAME, {"a": None})
    versions = tables.versions(registry, table)
    assert [version.change for version in versions] == [
        "create", "add_column", "rename_column", "widen_column", "move_column", "drop_column", "set_properties",
        "set_properties",
    ]  # fmt: skip
    assert [version.metadata_version for version in versions] == list(range(1, 9))
    assert columns(registry) == table_columns(registry) == {"price": 3, "id": 1}
    assert versions[-1].properties == {"b": "2"}
    by_name = {row["name"]: row for row in rows_of(registry, "table_columns")}
    assert (by_name["id"]["type"], by_name["price"]["doc"]) == ("long", "what it costs")
    assert tables.load(registry, NAME).version == 8


def test_a_field_id_is_never_given_twice(registry: Registry) -> None:
    make_table(registry)
    for _ in range(3):
        evolution.add_column(registry, NAME, "extra", "int")
        evolution.drop_column(registry, NAME, "extra")
    evolution.add_column(registry, NAME, "inner", "struct<a:int,b:int>")
    evolution.rollback(registry, NAME, 1)
    evolution.add_column(registry, NAME, "extra", "int")
    assert columns(registry) == {"id": 1, "name": 2, "extra": 9}
    assert tables.load(registry, NAME).last_column_id == 9


def test_equal_schemas_share_an_id_and_others_get_the_next(registry: Registry) -> None:
    table = make_table(registry)
    evolution.add_column(registry, NAME, "extra", "int")
    evolution.set_properties(registry, NAME, {"a": "1"})
    evolution.rollback(registry, NAME, 1)
    evolution.add_column(registry, NAME, "extra", "int")
    assert [version.schema_version for version in tables.versions(registry, table)] == [0, 1, 1, 0, 2]
    assert all(version.schema["schema-id"] == version.schema_version for version in tables.versions(registry, table))


def test_a_rollback_brings_back_all_that_a_version_was(registry: Registry) -> None:
    make_table(registry, properties={"a": "1"})
    evolution.set_properties(registry, NAME, {"a": "2", "b": "3"})
    evolution.drop_column(registry, NAME, "name")
    rolled = evolution.rollback(registry, NAME, 1)
    assert (rolled.metadata_version, rolled.properties, rolled.change) == (4, {"a": "1"}, "rollback to 1")
    assert columns(registry) == table_columns(registry) == {"id": 1, "name": 2}
    with pytest.raises(MetadataVersionNotFound, match="version 5"):
        evolution.rollback(registry, NAME, 5)


def test_specs_and_orders_are_versions_whose_ids_are_never_given_to_another(registry: Registry) -> None:
    table = make_table(registry, partition_by=["name"])
    evolution.set_partition_spec(registry, NAME, ["bucket(4, id)"])
    evolution.set_sort_order(registry, NAME, ["id desc"])
    evolution.set_partition_spec(registry, NAME, ["name"])
    evolution.rollback(registry, NAME, 2)
    evolution.set_partition_spec(registry, NAME, ["truncate(2, name)", "name"])
    evolution.set_sort_order(registry, NAME, [])
    versions = tables.versions(registry, table)
    assert [v.spec_id for v in versions] == [0, 1, 1, 0, 1, 2]
    assert [v.sort_order_id for v in versions] == [0, 0, 1, 1, 0, 0]
    assert all(v.spec_id == v.partition_by["spec-id"] and v.sort_order_id == v.sort_by["order-id"] for v in versions)
    assert [f["field-id"] for f in versions[-1].partition_by["fields"]] == [1002, 1000]
    assert tables.load(registry, NAME).last_partition_id == 1002


def test_a_spec_or_order_that_is_current_makes_no_version(registry: Registry) -> None:
    make_table(registry, partition_by=["name"])
    start = last_sequence(registry)
    evolution.set_partition_spec(registry, NAME, ["name"])
    evolution.set_sort_order(registry, NAME, [])
    assert changes(registry, start) == []


def test_a_spec_or_order_that_does_not_fit_changes_nothing(registry: Registry) -> None:
    make_table(registry, partition_by=["name"])
    start = last_sequence(registry)
    with pytest.raises(InvalidSchema, match="day"):
        evolution.set_partition_spec(registry, NAME, ["day(name)"])
    with pytest.raises(ColumnNotFound, match="nothing_such"):
        evolution.set_sort_order(registry, NAME, ["nothing_such"])
    assert changes(registry, start) == []


def test_a_column_is_dropped_once_no_current_spec_or_order_uses_it(registry: Registry) -> None:
    make_table(registry, partition_by=["name"])
    evolution.set_sort_order(registry, NAME, ["name"])
    with pytest.raises(InvalidSchema, match="partition"):
        evolution.drop_column(registry, NAME, "name")
    evolution.set_partition_spec(registry, NAME, [])
    with pytest.raises(InvalidSchema, match="sort order"):
        evolution.drop_column(registry, NAME, "name")
    evolution.set_sort_order(registry, NAME, [])
    evolution.drop_column(registry, NAME, "name")
    assert columns(registry) == {"id": 1}


def test_a_column_that_files_are_still_partitioned_by_cannot_be_dropped(registry: Registry) -> None:
    table = make_table(registry, partition_by=["name"])
    register(registry, table, (1,), partition="a")
    evolution.set_partition_spec(registry, NAME, ["bucket(2, id)"])
    with pytest.raises(InvalidSchema, match=r"partitioned by name \(spec 0\).*rewrite them"):
        evolution.drop_column(registry, NAME, "name")
    retirement.retire_expired_partitions(registry, table, timedelta(days=-1))
    evolution.drop_column(registry, NAME, "name")
    assert columns(registry) == {"id": 1}


def test_statistics_are_kept_for_each_partition_of_each_spec(registry: Registry) -> None:
    table = make_table(registry, partition_by=["name"])
    register(registry, table, (1, 2), partition="a")
    evolution.set_partition_spec(registry, NAME, [])
    register(registry, table, (3,), spec_id=1)
    register(registry, table, (4,), partition="a")  # a writer that began before the change
    found = {(r["spec_id"], r["partition_key"]): r["row_count"] for r in rows_of(registry, "table_stats")}
    assert found == {(0, '{"1000":"a"}'): 3, (1, "{}"): 1}
    assert_exact(registry, table)


def test_a_change_that_changes_nothing_makes_no_version_and_no_feed_row(registry: Registry) -> None:
    make_table(registry, properties={"a": "1"})
    start = last_sequence(registry)
    evolution.set_properties(registry, NAME, {"a": "1", "never": None})
    evolution.widen_column(registry, NAME, "id", "long")
    assert tables.load(registry, NAME).version == 1
    assert changes(registry, start) == []


def test_a_refused_change_leaves_the_table_as_it_was(registry: Registry) -> None:
    make_table(registry, partition_by=["name"])
    before = tables.load_with_metadata(registry, NAME)
    with pytest.raises(InvalidSchema, match="partition uses it"):
        evolution.drop_column(registry, NAME, "name")
    with pytest.raises(InvalidSchema, match="cannot become"):
        evolution.widen_column(registry, NAME, "id", "int")
    with pytest.raises(InvalidSchema):
        evolution.add_column(registry, NAME, "id", "int")
    with pytest.raises(InvalidSchema):
        evolution.add_column(registry, NAME, "odd", "enum")
    with pytest.raises(ColumnNotFound, match="nome"):
        evolution.rename_column(registry, NAME, "nome", "x")
    with pytest.raises(TableNotFound):
        evolution.add_column(registry, "sales.none", "x", "int")
    assert tables.load_with_metadata(registry, NAME) == before


def test_columns_of_odd_names_are_changed_by_their_tuples(registry: Registry) -> None:
    odd = ["a.b", "quo'te", 'dou"ble', "per%cent", "naïve 注文", "a b", "back`tick"]
    make_table(registry, columns={"id": "int"})
    for name in odd:
        evolution.add_column(registry, NAME, (name,), "struct<x:int>")
        evolution.add_column(registry, NAME, (name, "z"), "int")
        evolution.rename_column(registry, NAME, (name,), name + "!")
    assert list(columns(registry)) == list(table_columns(registry)) == ["id", *(name + "!" for name in odd)]


def test_two_thousand_columns_are_kept_and_changed(registry: Registry) -> None:
    make_table(registry, columns={f"c{i}": "int" for i in range(2000)})
    evolution.rename_column(registry, NAME, "c1999", "last")
    evolution.move_column(registry, NAME, "last", first=True)
    assert list(columns(registry)) == ["last", *(f"c{i}" for i in range(1999))]
    assert table_columns(registry) == columns(registry)


def test_threads_that_change_one_table_at_once_all_do(registry: Registry) -> None:
    table = make_table(registry)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: evolution.add_column(registry, NAME, f"c{i}", "int"), range(8)))
    assert [v.metadata_version for v in tables.versions(registry, table)] == list(range(1, 10))
    assert sorted(columns(registry)) == ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "id", "name"]
    assert sorted(columns(registry).values()) == list(range(1, 11))


def test_the_feed_tells_the_columns_that_changed_and_no_others(registry: Registry) -> None:
    make_table(registry)
    start = last_sequence(registry)
    evolution.rename_column(registry, NAME, "name", "label")
    found = [(c["table_name"], c["operation"]) for c in changes(registry, start)]
    assert found == [("table_metadata", "INSERT"), ("table_columns", "UPDATE"), ("tables", "UPDATE")]
