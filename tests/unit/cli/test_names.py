"""Names of tables as they are typed on the command line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.cli.names import format_name, parse_name
from lakeward.errors import InvalidName


@pytest.mark.parametrize(
    "text, parts",
    [
        ("sales.orders", ("sales", "orders")),
        ("a.b.c", ("a", "b", "c")),
        ('"a.b"."c d"', ("a.b", "c d")),
        ("`a.b`.c", ("a.b", "c")),
        ('x."say ""hi"""', ("x", 'say "hi"')),
        ("na me.été", ("na me", "été")),
    ],
)
def test_parts_are_joined_by_dots_and_quotes_keep_a_dot_in_a_part(text: str, parts: tuple[str, ...]) -> None:
    assert parse_name(text) == parts


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", '"a', 'a."b', '"a"b', "`a"])
def test_what_cannot_be_read_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(InvalidName) as refused:
        parse_name(text)
    assert repr(text) in str(refused.value)


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4))
def test_every_name_that_is_shown_can_be_typed(parts: list[str]) -> None:
    assert parse_name(format_name(tuple(parts))) == tuple(parts)
