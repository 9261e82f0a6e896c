"""Names in paths, and page tokens."""

from __future__ import annotations

from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.catalog.naming import decode_level, decode_namespace, decode_token, encode_token
from lakeward.errors import InvalidInput, InvalidName

LEVELS = st.text(
    st.characters(min_codepoint=32, exclude_characters="\x7f", exclude_categories=["Cs"]), min_size=1
).filter(lambda text: not text.isspace())


@given(st.lists(LEVELS, min_size=1, max_size=4))
def test_a_namespace_comes_back_from_python_s_and_from_java_s_encoding(levels: list[str]) -> None:
    assert decode_namespace("%1F".join(quote(level, safe="") for level in levels)) == tuple(levels)
    assert decode_namespace("%1F".join(quote_plus(level) for level in levels)) == tuple(levels)


def test_a_slash_or_a_percent_sign_in_a_name_stays_in_it() -> None:
    assert decode_level("a%2Fb%25c") == "a/b%c"


def test_bytes_that_are_not_utf_8_are_refused() -> None:
    with pytest.raises(InvalidInput, match="%FF"):
        decode_level("%FF")


@pytest.mark.parametrize("text", ["", "a%1F", "%1Fa", "a%1F%1Fb", "a%0Ab"])
def test_an_empty_level_or_a_control_character_is_refused(text: str) -> None:
    with pytest.raises(InvalidName):
        decode_namespace(text)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_a_page_token_gives_back_the_key_that_it_was_made_of(key: str) -> None:
    assert decode_token(encode_token(key)) == key


def test_the_empty_token_is_the_first_page() -> None:
    assert decode_token("") is None


@pytest.mark.parametrize("token", ["%%%", "a", "é", "_w==", "AA=="])
def test_a_token_of_another_server_is_refused(token: str) -> None:
    with pytest.raises(InvalidInput, match="page token"):
        decode_token(token)
