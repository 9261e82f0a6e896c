"""Types as text are read again as the same types."""

from __future__ import annotations

import pytest

from lakeward.iceberg.type_text import text_of
from lakeward.iceberg.types import parse_text


@pytest.mark.parametrize(
    "text",
    [
        "long",
        "decimal(9, 2)",
        "fixed[16]",
        "timestamptz",
        "list<string not null>",
        "map<string, list<int>>",
        "map<int, long not null>",
        "struct<a: int not null, `b c`: struct<`d``e`: string>>",
    ],
)
def test_a_type_is_shown_as_it_is_written(text: str) -> None:
    assert text_of(parse_text(text)) == text
