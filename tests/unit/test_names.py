from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.errors import InvalidName
from lakeward.names import MAX_NAME_LENGTH, TableIdentifier, parse_namespace, parse_table

levels = st.text(
    st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=MAX_NAME_LENGTH
).filter(lambda level: not level.isspace() and level not in (".", ".."))  # fmt: skip


@given(st.lists(levels, min_size=2, max_size=4))
def test_a_tuple_of_printable_parts_is_taken_as_it_is(parts: list[str]) -> None:
    assert parse_table(tuple(parts)) == TableIdentifier(tuple(parts[:-1]), parts[-1])
    assert parse_namespace(tuple(parts)) == tuple(parts)


def test_dots_split_a_text_and_not_a_tuple() -> None:
    assert parse_table("a.b.t") == TableIdentifier(("a", "b"), "t")
    assert parse_table(("a.b", "t.1")) == TableIdentifier(("a.b",), "t.1")


@pytest.mark.parametrize(
    "part", ["quo'te", 'dou"ble', "per%cent", "back`tick", "semi;colon", "naïve", "注文", "a b", "😀"]
)
def test_odd_but_printable_names_are_allowed(part: str) -> None:
    assert parse_table((part, part)).name == part


@pytest.mark.parametrize(
    "name",
    [("a", ".."), ("..", "t"), (".", "t"), ("a", "b", "."), "", ".", "a.", ".t", "a..t", "  .t", "a. ", ("a", ""), ("", "t"), ("a\x00", "t"), ("a", "t\n"), ("a\x1fb", "t"),
     ("a", "t\x7f"), ("a", "\ud800"), ("a", "t" * (MAX_NAME_LENGTH + 1)), ("a", 1), (None, "t"),
     TableIdentifier(("a\x1fb",), "t"), TableIdentifier((), "t"), TableIdentifier(("a",), "")],
)  # fmt: skip
def test_empty_control_surrogate_and_overlong_parts_are_refused(name: Any) -> None:
    with pytest.raises(InvalidName):
        parse_table(name)


@pytest.mark.parametrize("name", [None, 5, 1.5, b"a.t", {"a": "t"}])
def test_what_is_no_name_at_all_is_refused_as_a_name(name: Any) -> None:
    with pytest.raises(InvalidName):
        parse_table(name)
    with pytest.raises(InvalidName):
        parse_namespace(name)


def test_a_table_without_a_namespace_is_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidName, match=r"'orders' names no namespace; write 'namespace\.table'"):
        parse_table("orders")
    with pytest.raises(InvalidName, match=r"table 'orders' names no namespace"):
        parse_table(("orders",))  # as the command reads it
    with pytest.raises(InvalidName, match="empty"):
        parse_namespace(())


def test_a_refusal_names_the_value_but_not_all_of_an_endless_one() -> None:
    with pytest.raises(InvalidName, match=r"t\\n"):
        parse_table(("a", "t\n"))
    with pytest.raises(InvalidName) as refused:
        parse_table(("a", "x" * 100_000))
    assert len(str(refused.value)) < 200
