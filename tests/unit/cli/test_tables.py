"""Columns as `lakeward create --schema` takes them."""

from __future__ import annotations

import pytest

from lakeward.cli.tables import parse_columns
from lakeward.errors import InvalidInput


def test_columns_are_split_at_commas_outside_of_brackets_and_quotes() -> None:
    text = 'id long, price decimal(9,2), tags map<string, list<int>>, "unit, price" double, `at` timestamptz'
    assert parse_columns(text) == {
        "id": "long",
        "price": "decimal(9,2)",
        "tags": "map<string, list<int>>",
        "unit, price": "double",
        "at": "timestamptz",
    }


@pytest.mark.parametrize(
    "text, part", [("id", "'id'"), ("id long,", "''"), ("a long, a int", "'a' twice"), ('"a"', '"a"')]
)
def test_what_is_no_column_is_refused_with_its_value(text: str, part: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_columns(text)
    assert part in str(refused.value)
