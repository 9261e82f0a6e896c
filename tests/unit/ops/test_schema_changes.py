"""What a schema's definition says, what differs between two, and what each change allows."""

from __future__ import annotations

from typing import Any

import pytest

from lakeward.errors import InvalidSchema
from lakeward.ops.records.schema_versions import EvolutionType, SchemaDefinition
from lakeward.ops.schema_changes import compatibility, diff, digest, guessed_renames, normal

ID = {"name": "id", "type": "bigint", "nullable": False, "primary_key": True}


def schema(*columns: dict[str, Any], keys: Any = (), indexes: Any = ()) -> SchemaDefinition:
    return normal(SchemaDefinition([ID, *columns], keys, indexes))


def column(name: str, type_: str = "text", **others: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **others}


def test_the_hash_is_of_what_is_said_and_not_of_how() -> None:
    one = schema(column("a"), column("b"), indexes=[{"name": "x", "columns": ["a"]}, {"name": "y", "columns": ["b"]}])
    same = normal(
        SchemaDefinition(
            [{"type": "text", "nullable": True, "name": "b"}, column("a", primary_key=False), {**ID}],
            ["id"],
            [{"columns": ("b",), "name": "y"}, {"columns": ["a"], "name": "x"}],
        )
    )
    assert digest(one) == digest(same)
    assert len(digest(one)) == 64
    others = [
        schema(column("a"), column("b")),
        schema(column("a", "varchar"), column("b")),
        schema(column("a", nullable=False), column("b")),
        schema(column("a", comment="x"), column("b")),
        normal(SchemaDefinition([{"name": "id", "type": "bigint", "nullable": False}, column("a"), column("b")])),
    ]
    assert len({digest(each) for each in [one, *others]}) == 6


@pytest.mark.parametrize(
    ("definition", "told"),
    [
        (SchemaDefinition([{"type": "text"}]), "has no name"),
        (SchemaDefinition([{"name": "a"}]), "has no type"),
        (SchemaDefinition([column("a"), column("a")]), "'a' is named twice"),
        (SchemaDefinition([column("a", nullable="yes")]), "give true or false"),
        (SchemaDefinition([column("a")], ["b"]), "'b' is no column"),
        (SchemaDefinition([ID, column("a")], ["a"]), "make them agree"),
        (SchemaDefinition([ID], [], [{"name": "x"}]), "has no columns"),
        (SchemaDefinition([ID], [], [{"name": "x", "columns": ["z"]}]), "is no column"),
        (SchemaDefinition(["id"]), "has no name"),  # type: ignore[list-item]
    ],
)
def test_a_definition_that_contradicts_itself_is_refused(definition: SchemaDefinition, told: str) -> None:
    with pytest.raises(InvalidSchema, match=told):
        normal(definition)


def test_every_difference_is_named() -> None:
    old = schema(
        column("a"),
        column("b"),
        column("c"),
        indexes=[{"name": "x", "columns": ["a"]}, {"name": "y", "columns": ["c"]}],
    )
    new = normal(
        SchemaDefinition(
            [{**ID, "primary_key": False}, column("aa"), column("c", "varchar(5)"), column("d")],
            ["aa"],
            [{"name": "x", "columns": ["aa"]}, {"name": "z", "columns": ["d"]}, {"name": "y", "columns": ["c", "d"]}],
        )
    )
    changes = diff(old, new, {"a": "aa"})
    assert {(change.type.value, change.name) for change in changes} == {
        ("rename_column", "a"),
        ("add_column", "d"),
        ("drop_column", "b"),
        ("modify_column", "c"),
        ("add_index", "z"),
        ("modify_index", "y"),
        ("change_primary_key", ""),
    }
    assert diff(new, new) == []
    assert [change.type for change in diff(None, new)] == [EvolutionType.CREATE]


def test_definitions_of_one_hash_have_no_difference_and_others_have_some() -> None:
    variants = [
        schema(),
        schema(column("a")),
        schema(column("a", "int")),
        schema(column("a", nullable=False)),
        schema(column("a"), indexes=[{"name": "x", "columns": ["a"]}]),
        schema(column("a"), indexes=[{"name": "x", "columns": ["a"], "unique": True}]),
        normal(SchemaDefinition([{**ID, "primary_key": False}, column("a")])),
    ]
    for one in variants:
        for other in variants:
            assert (digest(one) == digest(other)) == (diff(one, other) == [])


def test_renames_are_guessed_between_columns_that_are_alike() -> None:
    old, new = schema(column("a"), column("n", "int")), schema(column("m", "int"), column("b"))
    assert guessed_renames(old, new) == {"a": "b", "n": "m"}
    assert guessed_renames(old, schema(column("x", "date"))) == {}


@pytest.mark.parametrize("renamed", [{"id": "a"}, {"gone": "a"}, {"a": "gone"}, {"a": "id"}])
def test_a_rename_that_neither_version_shows_is_refused(renamed: dict[str, str]) -> None:
    with pytest.raises(InvalidSchema, match="cannot have been renamed"):
        diff(schema(column("a")), schema(column("b")), renamed)


@pytest.mark.parametrize(
    ("old", "new", "backward", "forward"),
    [
        ([], [column("a")], True, True),
        ([], [column("a", nullable=False)], False, True),
        ([], [column("a", nullable=False, default="x")], True, True),
        ([column("a")], [], True, True),
        ([column("a", nullable=False)], [], True, False),
        ([column("a", "int")], [column("a", "bigint")], True, False),
        ([column("a", "bigint")], [column("a", "integer")], False, True),
        ([column("a", "int4")], [column("a", "INTEGER")], True, True),
        ([column("a", "varchar(5)")], [column("a", "character varying(9)")], True, False),
        ([column("a", "varchar(5)")], [column("a", "text")], True, False),
        ([column("a", "varchar(5)")], [column("a", "varchar")], True, False),
        ([column("a", "float")], [column("a", "double precision")], True, False),
        ([column("a", "decimal(5,2)")], [column("a", "numeric(9, 2)")], True, False),
        ([column("a", "decimal(5,2)")], [column("a", "decimal(5,3)")], False, False),
        ([column("a", "int")], [column("a", "decimal(10)")], True, False),
        ([column("a", "int")], [column("a", "text")], False, False),
        ([column("a", "json[]")], [column("a", "xml")], False, False),
        ([column("a")], [column("a", nullable=False)], False, True),
        ([column("a", nullable=False)], [column("a")], True, False),
    ],
)
def test_what_a_change_allows(old: list[Any], new: list[Any], backward: bool, forward: bool) -> None:
    found = compatibility(diff(schema(*old), schema(*new)))
    assert (found.backward, found.forward, found.full) == (backward, forward, backward and forward)
    assert bool(found.reasons) != found.full


def test_renames_and_changes_of_the_key_allow_neither() -> None:
    rename = compatibility(diff(schema(column("a")), schema(column("b")), {"a": "b"}))
    key = compatibility(diff(schema(), normal(SchemaDefinition([{**ID, "primary_key": False}]))))
    index = compatibility(diff(schema(), schema(indexes=[{"name": "x", "columns": ["id"]}])))
    assert not rename.backward and not rename.forward and "called b now" in rename.reasons[0]
    assert not key.backward and not key.forward
    assert index.full
