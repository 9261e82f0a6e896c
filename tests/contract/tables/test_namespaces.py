from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from lakeward.errors import InvalidName, LakewardError, NamespaceAlreadyExists, NamespaceNotEmpty, NamespaceNotFound
from lakeward.registry import Registry
from lakeward.tables import namespaces, tables
from tests.support.registries import make_table, wait_for_lock

ODD = ("a.b", "quo'te", 'dou"ble', "per%cent", "_under", "naïve 注文 😀", "a b", "back`tick", "x\\y", ":name", "?")

# SQLite lets one writer in at a time.
ONLY_POSTGRESQL = pytest.mark.on("postgresql")


def listed(registry: Registry, parent: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    return [found.levels for found in namespaces.list_namespaces(registry, parent)]


def test_a_namespace_is_found_again_with_exactly_its_properties(registry: Registry) -> None:
    made = namespaces.create(registry, "sales", {"owner": "Zoë", "": "%s", "k": ""})
    assert namespaces.load(registry, ("sales",)) == made
    assert made.properties == {"owner": "Zoë", "": "%s", "k": ""}
    assert namespaces.set_properties(registry, "sales", {"b": "2", "a": "1"}).properties == {"b": "2", "a": "1"}
    assert list(namespaces.load(registry, "sales").properties) == ["b", "a"]


def test_names_with_dots_quotes_percent_and_unicode_are_kept_apart(registry: Registry) -> None:
    for level in ODD:
        namespaces.create(registry, (level, "inner"))
    assert set(listed(registry)) == {(level, "inner") for level in ODD}
    assert namespaces.load(registry, ("a.b", "inner")).levels == ("a.b", "inner")
    with pytest.raises(NamespaceNotFound):
        namespaces.load(registry, ("a", "b", "inner"))


def test_a_wrong_name_is_refused_before_the_database_sees_it(registry: Registry) -> None:
    wrong: list[Any] = ["", "a..b", ("a", ""), ("a\x00",), ("a\nb",), ("\ud800",), "x" * 300, 7]
    for name in wrong:
        with pytest.raises(InvalidName):
            namespaces.create(registry, name)
    assert listed(registry) == []


def test_one_that_exists_is_refused_or_returned_as_it_is(registry: Registry) -> None:
    first = namespaces.create(registry, "sales", {"a": "1"})
    with pytest.raises(NamespaceAlreadyExists, match="sales"):
        namespaces.create(registry, "sales")
    assert namespaces.create(registry, "sales", {"a": "2"}, if_absent=True) == first


def test_an_unknown_one_is_named(registry: Registry) -> None:
    for act in (namespaces.load, namespaces.drop, namespaces.list_namespaces):
        with pytest.raises(NamespaceNotFound, match=r"Namespace does not exist: no\.where"):
            act(registry, "no.where")
    with pytest.raises(NamespaceNotFound):
        namespaces.set_properties(registry, "nowhere", {})


def test_all_depths_below_a_parent_are_listed_and_no_sibling_with_the_same_beginning(registry: Registry) -> None:
    for name in ["a", "a.x", "a.x.y", "ab", "a0.x"]:
        namespaces.create(registry, name)
    namespaces.create(registry, ("a ", "z"))
    assert listed(registry, ("a",)) == [("a", "x"), ("a", "x", "y")]
    assert listed(registry, ("a", "x")) == [("a", "x", "y")]
    assert listed(registry, ("ab",)) == []


def test_pages_give_each_namespace_once(registry: Registry) -> None:
    names = {("é",), ("z",), ("Z",), ("a",), ("a", "b"), ("ab",), ("a b",), ("_",), ("😀",), ("B",)}
    for name in names:
        namespaces.create(registry, name)
    found: list[tuple[str, ...]] = []
    while page := namespaces.list_namespaces(registry, after="\x1f".join(found[-1]) if found else "", limit=3):
        assert len(page) <= 3
        found += [each.levels for each in page]
    assert len(found) == len(names)
    assert set(found) == names


def test_one_that_holds_tables_or_namespaces_is_not_dropped(registry: Registry) -> None:
    make_table(registry, "a.b.t")
    namespaces.create(registry, "a")
    with pytest.raises(NamespaceNotEmpty, match="holds tables"):
        namespaces.drop(registry, "a.b")
    with pytest.raises(NamespaceNotEmpty, match="holds namespaces"):
        namespaces.drop(registry, "a")
    tables.drop(registry, "a.b.t")
    namespaces.drop(registry, "a.b")
    namespaces.drop(registry, "a")
    assert listed(registry) == []


def test_threads_that_make_one_at_once_make_one(registry: Registry) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: namespaces.create(registry, "sales", if_absent=True), range(8)))
    assert len({each.namespace_id for each in made}) == 1


def test_a_table_made_while_its_namespace_is_dropped_is_in_it_or_is_refused(registry: Registry) -> None:
    def drop() -> str:
        try:
            namespaces.drop(registry, "race")
        except LakewardError as error:
            return error.code
        return "dropped"

    def make() -> str:
        try:
            make_in_place(registry)
        except LakewardError as error:
            return error.code
        return "made"

    for _ in range(10):
        namespaces.create(registry, "race", if_absent=True)
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.submit(drop), pool.submit(make)
            outcome = (first.result(), second.result())
        assert outcome in {("dropped", "namespace_not_found"), ("namespace_not_empty", "made")}
        if outcome[1] == "made":
            tables.drop(registry, "race.t")


def make_in_place(registry: Registry) -> None:
    schema = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "a", "type": "int", "required": False}]}
    tables.create(registry, "race.t", schema=schema, last_column_id=1)


@ONLY_POSTGRESQL
def test_a_namespace_dropped_under_a_table_that_is_being_made_is_what_the_refusal_says(registry: Registry) -> None:
    """The two transactions are interleaved by hand."""
    namespaces.create(registry, "race")
    with ThreadPoolExecutor(1) as pool:
        with registry.database.transaction() as connection:
            connection.execute(sa.text("DELETE FROM namespaces"))
            making = pool.submit(make_in_place, registry)
            wait_for_lock(registry)
        with pytest.raises(NamespaceNotFound):
            making.result()


@ONLY_POSTGRESQL
def test_a_table_made_under_a_drop_keeps_its_namespace(registry: Registry) -> None:
    namespaces.create(registry, "race")
    with ThreadPoolExecutor(1) as pool:
        with registry.database.transaction() as connection:
            connection.execute(
                sa.text(
                    "INSERT INTO tables (table_uuid, namespace_id, name, location, format, format_version, version, "
                    "last_modified, last_column_id, last_partition_id, created_at) SELECT 'u', namespace_id, 't', '/t', "
                    "'parquet', 2, 1, now(), 1, 999, now() FROM namespaces"
                )
            )
            dropping = pool.submit(namespaces.drop, registry, "race")
            wait_for_lock(registry)
        with pytest.raises(NamespaceNotEmpty):
            dropping.result()


@ONLY_POSTGRESQL
def test_names_are_ordered_by_code_point_whatever_the_database_s_collation(registry: Registry) -> None:
    """Elsewhere a separator counts for nothing, and the range that a parent's children stand in would miss some."""
    with registry.database.read() as connection:
        collations = connection.exec_driver_sql(
            "SELECT table_name, column_name FROM information_schema.columns WHERE collation_name = 'C'"
        ).all()
    assert {("namespaces", "path"), ("tables", "name")} <= {tuple(row) for row in collations}
