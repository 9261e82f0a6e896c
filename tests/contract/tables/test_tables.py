from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lakeward.db import lock_order, schema
from lakeward.errors import (
    InvalidInput,
    InvalidName,
    LakewardError,
    MetadataVersionNotFound,
    NamespaceNotFound,
    TableAlreadyExists,
    TableNotFound,
)
from lakeward.registry import Registry, intents
from lakeward.tables import evolution, namespaces, registration, snapshots, tables
from tests.support.registries import (
    NAME,
    assert_exact,
    changes,
    data_file,
    last_sequence,
    make_table,
    open_intents,
    register,
    rows_of,
    wait_for_lock,
)

ODD = ("a.b", "quo'te", 'dou"ble', "per%cent", "naïve 注文 😀", "a b", "back`tick", "x\\y", ":name", "a/../b", "?#[]*")


def test_a_drop_of_a_table_that_was_found_takes_no_other_one_of_its_name(registry: Registry) -> None:
    first = make_table(registry)
    tables.drop(registry, first)
    second = make_table(registry)
    with pytest.raises(TableNotFound):
        tables.drop(registry, first)
    assert tables.load(registry, NAME) == second
    moved = tables.rename(registry, NAME, "sales.moved")
    assert tables.drop(registry, second).table_id == moved.table_id


def test_a_table_is_found_again_as_it_was_made(registry: Registry) -> None:
    made = make_table(registry, properties={"owner": "Zoë"}, compression="snappy", partition_by=["name"])
    found, metadata = tables.load_with_metadata(registry, NAME)
    assert found == made
    assert tables.load_by_id(registry, made.table_id) == made
    assert (found.version, found.row_count, found.file_count, found.metadata_location) == (1, 0, 0, None)
    assert (metadata.compression, metadata.properties, metadata.change) == ("snappy", {"owner": "Zoë"}, "create")
    assert [field["name"] for field in metadata.partition_by["fields"]] == ["name"]
    assert found.location.startswith(registry.warehouse.location + "/sales/orders-")
    columns = sorted((row["position"], row["field_id"], row["name"]) for row in rows_of(registry, "table_columns"))
    assert columns == [(0, 1, "id"), (1, 2, "name")]


def test_odd_names_are_kept_exactly_and_their_locations_are_plain_and_apart(registry: Registry) -> None:
    made = [make_table(registry, (level, level)) for level in ODD]
    assert [tables.load(registry, (level, level)) for level in ODD] == made
    assert len({table.location for table in made}) == len(ODD)
    for table in made:
        rest = table.location.removeprefix(registry.warehouse.location)
        assert set(rest) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_/")
    with pytest.raises(TableNotFound):
        tables.load(registry, "a.b.a.b")


def test_a_name_that_is_taken_or_unknown_is_refused(registry: Registry) -> None:
    make_table(registry)
    with pytest.raises(TableAlreadyExists, match=r"Table already exists: sales\.orders"):
        make_table(registry)
    with pytest.raises(NamespaceNotFound, match="nowhere"):
        tables.rename(registry, NAME, "nowhere.orders")
    for act in (tables.load, tables.drop):
        with pytest.raises(TableNotFound, match=r"Table does not exist: sales\.none"):
            act(registry, "sales.none")
    with pytest.raises(InvalidName):
        tables.load(registry, "orders")
    with pytest.raises(TableNotFound, match="id 4711"):
        tables.load_by_id(registry, 4711)


def test_what_is_not_offered_is_refused_by_its_value(registry: Registry) -> None:
    wrong: list[tuple[str, Any]] = [
        ("format", "orc"), ("compression", "lzma"), ("format_version", 1), ("storage_engine", "ftp"),
        ("storage_engine", "s3"),
    ]  # fmt: skip
    for setting, value in wrong:
        with pytest.raises(InvalidInput, match=f"{setting}={value!r}"):
            make_table(registry, **{setting: value})
    assert rows_of(registry, "tables") == []


def test_a_secret_is_refused_and_reaches_no_column(registry: Registry) -> None:
    secrets: list[dict[str, Any]] = [
        {"secret_key": "SECRET"}, {"accessKey": "SECRET"}, {"s3.access-key-id": "SECRET"}, {"Password": "SECRET"},
        {"session_token": "SECRET"}, {"inner": {"credentials": "SECRET"}},
    ]  # fmt: skip
    namespaces.create(registry, "kept")
    make_table(registry, "kept.t")
    for secret in secrets:
        for act in (
            lambda secret=secret: make_table(registry, engine_config=secret),
            lambda secret=secret: make_table(registry, properties=secret),
            lambda secret=secret: evolution.set_properties(registry, "kept.t", secret),
            lambda secret=secret: namespaces.create(registry, "other", secret),
            lambda secret=secret: namespaces.set_properties(registry, "kept", secret),
        ):
            with pytest.raises(InvalidInput, match="looks like a secret") as refused:
                act()
            assert "SECRET" not in str(refused.value)
    for name in schema.metadata.tables:
        assert "SECRET" not in repr(rows_of(registry, name)), name
    make_table(registry, engine_config={"fsync": False})
    evolution.set_properties(registry, "kept.t", {"an-old-token": None})  # to take one out is allowed


def test_versions_of_metadata_are_asked_for_by_number(registry: Registry) -> None:
    table = make_table(registry)
    evolution.set_properties(registry, NAME, {"a": "1"})
    assert tables.metadata(registry, table, 1).properties == {}
    assert [version.metadata_version for version in tables.versions(registry, table)] == [1, 2]
    with pytest.raises(MetadataVersionNotFound, match="version 9"):
        tables.metadata(registry, table, 9)


def test_pages_give_each_table_once_in_order(registry: Registry) -> None:
    names = ["é", "z", "Z", "a", "ab", "a b", "_", "😀", "B", "a.b"]
    for name in names:
        make_table(registry, ("sales", name))
    found: list[str] = []
    while page := tables.list_tables(registry, "sales", after=found[-1] if found else "", limit=3):
        found += [table.name for table in page]
    assert found == sorted(names)
    with pytest.raises(NamespaceNotFound):
        tables.list_tables(registry, "nowhere")


def test_a_renamed_table_keeps_its_id_its_place_and_its_files(registry: Registry) -> None:
    table = make_table(registry)
    register(registry, table, [1, 2])
    namespaces.create(registry, "archive")
    renamed = tables.rename(registry, NAME, "archive.old")
    assert (renamed.table_uuid, renamed.location, renamed.row_count) == (table.table_uuid, table.location, 2)
    with pytest.raises(TableNotFound):
        tables.load(registry, NAME)
    make_table(registry, "sales.other")
    with pytest.raises(TableAlreadyExists):
        tables.rename(registry, "archive.old", "sales.other")
    assert tables.load(registry, "archive.old") == renamed


def test_a_name_used_again_means_nothing_old(registry: Registry) -> None:
    old = make_table(registry)
    register(registry, old, [1, 2])
    tables.rename(registry, NAME, "sales.renamed")
    new = make_table(registry)
    assert new.table_uuid != old.table_uuid
    assert new.location != old.location
    register(registry, new, [3])
    tables.drop(registry, NAME)
    assert tables.load(registry, "sales.renamed").row_count == 2
    assert [file.row_count for file in snapshots.list_files(registry, old)] == [2]
    assert [row["table_id"] for row in rows_of(registry, "retired_files")] == [new.table_id]


def test_a_dropped_table_s_files_wait_in_quarantine_and_its_name_is_free(registry: Registry) -> None:
    table = make_table(registry, partition_by=["name"])
    register(registry, table, [1, 2], [3], partition="x")
    register(registry, table, [1], partition="x", file_type="json")
    dropped = tables.drop(registry, NAME)
    assert dropped.table_id == table.table_id
    gone = tables.load_by_id(registry, table.table_id)
    assert gone.dropped_at is not None
    assert (gone.row_count, gone.total_size, gone.landing_file_count) == (0, 0, 0)
    assert_exact(registry, table)
    waiting = rows_of(registry, "retired_files")
    assert len(waiting) == 3
    assert all(row["expires_at"] > row["retired_at"] for row in waiting)
    assert rows_of(registry, "table_files") == rows_of(registry, "table_stats") == []
    assert len(rows_of(registry, "partition_metadata")) == 3  # a footer lives as long as its file
    assert make_table(registry).table_id != table.table_id


def test_a_purged_table_s_files_wait_for_nothing(registry: Registry) -> None:
    register(registry, make_table(registry), [1])
    tables.drop(registry, NAME, purge=True)
    (row,) = rows_of(registry, "retired_files")
    assert row["expires_at"] == row["retired_at"]


def test_a_write_under_way_fails_when_its_table_is_dropped(registry: Registry) -> None:
    table = make_table(registry)
    intent = intents.open_intent(registry, table)
    tables.drop(registry, NAME)
    with pytest.raises(TableNotFound, match="was dropped"):
        registration.register(registry, table, intent, [data_file(intent.prefix)])
    with pytest.raises(TableNotFound, match="was dropped"):
        intents.open_intent(registry, table)
    assert rows_of(registry, "table_files") == []
    assert open_intents(registry) == 1  # recovery sweeps its prefix


def test_threads_that_make_one_table_at_once_make_one(registry: Registry) -> None:
    namespaces.create(registry, "sales")

    def make(_: int) -> str:
        try:
            return make_table(registry).table_uuid
        except TableAlreadyExists:
            return ""

    with ThreadPoolExecutor(4) as pool:
        made = {uuid for uuid in pool.map(make, range(8)) if uuid}
    assert made == {tables.load(registry, NAME).table_uuid}


def outcome_of(act: Any, *arguments: Any) -> str:
    try:
        act(*arguments)
    except LakewardError as error:
        return error.code
    return "done"


def test_a_table_is_dropped_once_however_many_ask(registry: Registry) -> None:
    for _ in range(3):
        table = make_table(registry)
        register(registry, table, [1])
        with ThreadPoolExecutor(4) as pool:
            outcomes = sorted(pool.map(lambda _: outcome_of(tables.drop, registry, NAME), range(4)))
        assert outcomes == ["done", *["table_not_found"] * 3]


def test_a_table_gets_one_of_the_names_that_are_asked_for_at_once(registry: Registry) -> None:
    for number in range(3):
        make_table(registry)
        asked = [f"sales.n{number}_{i}" for i in range(4)]
        with ThreadPoolExecutor(4) as pool:
            outcomes = list(pool.map(lambda name: outcome_of(tables.rename, registry, NAME, name), asked))
        assert sorted(outcomes) == ["done", *["table_not_found"] * 3]
        tables.load(registry, asked[outcomes.index("done")])


@pytest.mark.on("postgresql")
@pytest.mark.parametrize("is_used_again", [False, True])
def test_what_waits_for_a_table_acts_on_what_has_its_name_afterwards(registry: Registry, is_used_again: bool) -> None:
    """A drop that waited for a rename would drop the renamed table, had it not looked again."""
    renamed, other = make_table(registry), make_table(registry, "sales.other")
    with ThreadPoolExecutor(1) as pool:
        with registry.database.transaction() as connection:
            lock_order.tables(connection, [renamed.table_id])
            dropping = pool.submit(tables.drop, registry, NAME)
            wait_for_lock(registry)
            connection.exec_driver_sql("UPDATE tables SET name = 'renamed' WHERE name = 'orders'")
            if is_used_again:
                connection.exec_driver_sql("UPDATE tables SET name = 'orders' WHERE name = 'other'")
        if is_used_again:
            assert dropping.result().table_id == other.table_id
        else:
            with pytest.raises(TableNotFound):
                dropping.result()
    assert tables.load(registry, "sales.renamed").dropped_at is None


def test_the_feed_has_each_change_of_a_table_once(registry: Registry) -> None:
    namespaces.create(registry, "sales")
    start = last_sequence(registry)
    table = make_table(registry)
    tables.rename(registry, NAME, "sales.renamed")
    tables.drop(registry, "sales.renamed")
    found = [(c["table_name"], c["operation"]) for c in changes(registry, start)]
    assert found == [
        ("tables", "INSERT"),
        ("table_metadata", "INSERT"),
        ("table_columns", "INSERT"),
        ("table_columns", "INSERT"),
        ("tables", "UPDATE"),
        ("tables", "UPDATE"),
    ]
    assert {c["table_id"] for c in changes(registry, start)} == {table.table_id}
    assert [c["data"]["name"] for c in changes(registry, start) if c["table_name"] == "tables"] == [
        "orders", "renamed", "renamed",
    ]  # fmt: skip
