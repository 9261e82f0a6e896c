"""Versions of schemas: a new one only for a change, numbered without gaps whoever registers. On both databases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from lakeward.errors import InvalidInput, InvalidSchema, SchemaVersionNotFound
from lakeward.ops import schema_versions
from lakeward.ops.records.schema_versions import EvolutionType, SchemaDefinition
from lakeward.registry import Registry
from tests.support import registries
from tests.support.registries import rows_of

ID = {"name": "id", "type": "bigint", "nullable": False, "primary_key": True}
EMAIL = {"name": "email", "type": "text"}
PHONE = {"name": "phone", "type": "text"}
V1 = SchemaDefinition([ID])
V2 = SchemaDefinition([ID, EMAIL, PHONE], indexes=[{"name": "by_email", "columns": ["email"]}])


def register(registry: Registry, definition: SchemaDefinition, *rest: Any, **options: Any) -> Any:
    return schema_versions.register(registry, "shop", "customers", definition, *rest, **options)


def test_a_version_is_made_only_where_something_has_changed(registry: Registry) -> None:
    first = register(registry, V1, EvolutionType.CREATE)
    assert (first.version, first.previous_version, first.evolution_type) == (1, None, EvolutionType.CREATE)
    assert register(registry, SchemaDefinition([ID], ["id"])) == first
    second = register(registry, V2, EvolutionType.ADD_COLUMN, source_position={"lsn": "0/5"}, iceberg_schema_id=1)
    assert (second.version, second.previous_version) == (2, 1)
    assert [change.type.value for change in second.changes] == ["add_column", "add_column", "add_index"]
    assert register(registry, V2, EvolutionType.CREATE) == second, "nothing changed, so nothing is judged"
    assert schema_versions.get(registry, "shop", "customers") == second
    assert schema_versions.get(registry, "shop", "customers", 1) == first
    assert schema_versions.list_versions(registry, "shop", "customers") == [first, second]
    assert second.schema_definition.columns[1] == {**EMAIL, "nullable": True, "primary_key": False}
    third = register(registry, V1)
    assert (third.version, third.evolution_type) == (3, EvolutionType.DROP_COLUMN)
    assert third.schema_hash == first.schema_hash
    assert schema_versions.list_tables(registry) == [("shop", "customers", 3)]


def test_the_type_that_is_given_must_be_one_of_the_changes(registry: Registry) -> None:
    with pytest.raises(InvalidSchema, match="'add_column' is none of the first version: create"):
        register(registry, V1, EvolutionType.ADD_COLUMN)
    register(registry, V1)
    with pytest.raises(InvalidSchema, match="none of the changes since version 1: add_column, add_index"):
        register(registry, V2, EvolutionType.DROP_COLUMN)
    with pytest.raises(InvalidInput, match="'grow' is none of create, add_column"):
        register(registry, V2, "grow")
    assert register(registry, V2, EvolutionType.ADD_INDEX).evolution_type == EvolutionType.ADD_INDEX
    assert len(rows_of(registry, "schema_registry")) == 2


def test_a_renamed_column_is_told_or_guessed_and_remembered(registry: Registry) -> None:
    register(registry, SchemaDefinition([ID, EMAIL]))
    renamed = register(registry, SchemaDefinition([ID, {**EMAIL, "name": "mail"}]), EvolutionType.RENAME_COLUMN)
    assert [(each.type.value, each.before, each.after) for each in renamed.changes] == [
        ("rename_column", "email", "mail")
    ]
    assert schema_versions.diff(registry, "shop", "customers", 1, 2) == renamed.changes
    again = register(registry, SchemaDefinition([ID, {**EMAIL, "name": "post"}]), renamed={"mail": "post"})
    assert again.evolution_type == EvolutionType.RENAME_COLUMN


def test_what_was_registered_elsewhere_is_seen_at_once(registry: Registry, made_url: str, tmp_path: Path) -> None:
    with registries.open_at(made_url, tmp_path) as other:
        register(registry, V1)
        assert schema_versions.get(other, "shop", "customers") == schema_versions.get(registry, "shop", "customers")
        register(other, V2)
        assert schema_versions.load(registry, "shop", "customers").version == 2
        assert register(registry, V1).version == 3
        assert register(other, V1).version == 3


def test_a_version_commits_with_the_callers_transaction_or_not_at_all(registry: Registry) -> None:
    with pytest.raises(ZeroDivisionError), registry.database.transaction() as connection:
        register(registry, V1, connection=connection)
        raise ZeroDivisionError
    assert schema_versions.get(registry, "shop", "customers") is None
    assert register(registry, V1).version == 1


def test_a_version_is_tied_to_iceberg_and_to_the_source(registry: Registry) -> None:
    register(registry, V1, source_position={"lsn": "0/1"})
    schema_versions.tie(registry, "shop", "customers", 1, iceberg_schema_id=4)
    found = schema_versions.load(registry, "shop", "customers", 1)
    assert (found.iceberg_schema_id, found.source_position) == (4, {"lsn": "0/1"})


def test_compatibility_is_told_before_a_version_is_made(registry: Registry) -> None:
    register(registry, V1)
    assert schema_versions.check(registry, "shop", "customers", V2).full
    refused = schema_versions.check(registry, "shop", "customers", SchemaDefinition([ID, {**EMAIL, "nullable": False}]))
    assert not refused.backward and refused.forward
    assert refused.reasons == ["backward: the new column email may not be null and has no default: old rows lack it"]
    assert len(rows_of(registry, "schema_registry")) == 1


def test_what_a_caller_does_with_a_version_or_its_definition_changes_nothing(registry: Registry) -> None:
    column = {"name": "id", "type": "enum", "values": ["a"]}
    register(registry, SchemaDefinition([column]), source_position={"lsn": "0/1"})
    column["values"] += ["b"]  # type: ignore[operator]
    for _ in range(2):
        found = schema_versions.load(registry, "shop", "customers")
        documents: list[Any] = [found.schema_definition.columns[0], found.source_position]
        for document in documents:
            with pytest.raises(TypeError, match="cannot be changed"):
                document["name"] = "hidden"
        with pytest.raises(TypeError, match="cannot be changed"):
            found.changes.clear()
        assert (found.schema_definition.columns[0]["values"], found.source_position) == (["a"], {"lsn": "0/1"})
    column["values"] = ["a"]
    assert register(registry, SchemaDefinition([column])).version == 1


def test_a_registry_that_is_made_anew_at_the_same_address_has_versions_of_its_own(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'registry.db'}"
    for name in ("customers", "people"):
        for file in tmp_path.glob("registry.db*"):
            file.unlink()
        with registries.open_at(url, tmp_path / name) as opened:
            schema_versions.register(opened, "shop", name, V1)
            assert schema_versions.load(opened, "shop", name).table_name == name


def test_a_text_as_a_source_position_comes_back_through_the_callers_connection(registry: Registry) -> None:
    for number, position in enumerate(("0/16B3748", "123", '{"a": 1}', {"n": 1.5, "raw": b"x"}, None)):
        with sa.create_engine(registry.database.url).begin() as connection:
            made = schema_versions.register(
                registry, "shop", f"t{number}", V1, source_position=position, connection=connection
            )
        assert made.source_position == position
        assert schema_versions.load(registry, "shop", f"t{number}").source_position == position


def test_what_is_unknown_is_named(registry: Registry) -> None:
    assert schema_versions.get(registry, "shop", "customers") is None
    assert schema_versions.list_versions(registry, "shop", "customers") == []
    for call in (
        lambda: schema_versions.load(registry, "shop", "customers", 3),
        lambda: schema_versions.check(registry, "shop", "customers", V1),
        lambda: schema_versions.tie(registry, "shop", "customers", 1, iceberg_schema_id=1),
        lambda: schema_versions.diff(registry, "shop", "customers", 1, 2),
    ):
        with pytest.raises(SchemaVersionNotFound, match=r"shop\.customers"):
            call()
