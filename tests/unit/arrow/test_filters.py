from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import EqualTo
from pyiceberg.expressions.literals import StringLiteral

from lakeward.arrow.coerce import coerce
from lakeward.arrow.filters import Filter, bind_filter, parse_filter
from lakeward.errors import ColumnNotFound, InvalidFilter
from tests.unit.arrow.targets import schema_of
from tests.unit.arrow.test_write import EVERY_VALUE, EVERYTHING

EQUAL: Any = EqualTo  # pydantic hides the signature of its constructor
SCHEMA = {"a": "long", "s": "string", "d": "double", "my col": "int", "n": "struct<x: int>", "größe": "int"}
ROWS: list[dict[str, Any]] = [
    {"a": 1, "s": "it's", "d": 1.5, "my col": 1, "n": {"x": 1}, "größe": 1},
    {"a": 2, "s": "b", "d": math.nan, "my col": 2, "n": {"x": None}, "größe": 2},
    {"a": 3, "s": None, "d": None, "my col": None, "n": None, "größe": None},
    {"a": None, "s": "", "d": -math.inf},
]


def kept(source: Any) -> list[int]:
    schema = schema_of(SCHEMA)
    table = coerce(ROWS, schema).read_all().append_column("row", pa.array(range(len(ROWS))))
    found = parse_filter(source)
    assert found is not None
    rows: list[int] = table.filter(bind_filter(found, schema).arrow).column("row").to_pylist()
    return rows


@pytest.mark.parametrize(
    "text, rows",
    [
        ("a = 1", [0]),
        ("a != 1", [1, 2]),
        ("a <> 1 and a < 3", [1]),
        ("not a = 1", [1, 2]),
        ("a in (1, 3)", [0, 2]),
        ("a not in (1, 5)", [1, 2]),
        ("a between 2 and 3", [1, 2]),
        ("a is null or a >= 3", [2, 3]),
        ("not (a is null or a >= 3)", [0, 1]),
        ("s = 'it''s'", [0]),
        ("s like 'it%'", [0]),
        ("s not like 'it%'", [1, 3]),
        ("s is not null and s != ''", [0, 1]),
        ("d > 1", [0]),
        ("d <= 1.5", [0, 3]),
        ("not d > 1", [3]),
        ("d is nan", [1]),
        ("d is not nan", [0, 3]),
        ('"my col" = 2', [1]),
        ('"größe" = 2', [1]),
        ("n.x = 1", [0]),
        ("n.x is null", [1, 2, 3]),
        ("a = 1 or a = 2 and s = 'b'", [0, 1]),
        ("true", [0, 1, 2, 3]),
    ],
)
def test_text_means_what_it_means_in_sql(text: str, rows: list[int]) -> None:
    assert kept(text) == rows


@pytest.mark.parametrize("source", [EQUAL("a", 1), pc.field("a") == 1])
def test_expressions_of_other_libraries_are_taken(source: Any) -> None:
    assert kept(source) == [0]


@pytest.mark.parametrize("source", [None, "", "  "])
def test_nothing_is_no_filter(source: Any) -> None:
    assert parse_filter(source) is None


@pytest.mark.parametrize("source", ["a =", "a = 1 and", "a = 1; drop", "a like '%x'", "a in ()", "= 1", 5, ["a = 1"]])
def test_what_is_no_filter_is_refused(source: Any) -> None:
    with pytest.raises(InvalidFilter):
        parse_filter(source)


@pytest.mark.parametrize("source", ["b = 1", "A = 1", "n.y = 1", EQUAL("b", 1)])
def test_an_unknown_column_is_named(source: Any) -> None:
    found = parse_filter(source)
    assert found is not None
    with pytest.raises(ColumnNotFound, match=r"names column '(b|A|n\.y)'; the table has a, s"):
        bind_filter(found, schema_of(SCHEMA))


@pytest.mark.parametrize("source", ["a = 'x'", "d = 'x'", "a like 'x%'", pc.field("b") == 1, pc.field("a") == "x"])
def test_a_literal_that_does_not_fit_is_refused(source: Any) -> None:
    found = parse_filter(source)
    assert found is not None
    with pytest.raises(InvalidFilter):
        bind_filter(found, schema_of(SCHEMA))


@pytest.mark.parametrize(
    "text",
    [
        *("b = true", "i = -1", "l > 1", "d > 3.14", "dec = -1.25", "big > 1", "day = '1960-02-29'", "t > '10:00:00'"),
        *("ts < '1970-01-01T00:00:00'", "tz = '2024-01-01T00:00:00+00:00'", "st.a = 1", "st.b.c is null"),
        *("day in ('1960-02-29', '2024-01-01')", "u = '80000000-0000-0000-0000-000000000000'"),
        "u in ('80000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000')",
    ],
)
def test_literals_of_every_type_find_their_row(text: str) -> None:
    schema = schema_of(EVERYTHING)
    found = parse_filter(text)
    assert found is not None
    batch = coerce([EVERY_VALUE], schema).read_next_batch()
    assert batch.filter(bind_filter(found, schema).arrow).num_rows == 1


ODD = {
    "t": "string",
    "a.b": "int",
    'quo"te': "int",
    "dec": "decimal(9,2)",
    "tz": "timestamptz",
    "raw": "binary",
    "day": "date",
}
ODD_ROWS: list[dict[str, Any]] = [
    {"t": "a\tb", "a.b": 1, "dec": "1.50", "tz": "2024-01-31T10:00:00Z", "day": "2024-01-31"},
    {"t": "a        b", 'quo"te': 1, "dec": "-9999999.99", "raw": b"\x00\xff"},
    {"t": "back\\", "dec": "0", "day": "12024-01-31"},
    {"t": "line\nbreak", "day": "-0044-03-15"},
    {"t": "100%"},
]


@pytest.mark.parametrize(
    "text, rows",
    [
        ("t = 'a\tb'", [0]),
        ("t in ('a\tb', 'x')", [0]),
        ("t = 'back\\'", [2]),
        ("t like 'back\\%'", []),
        ("t like 'back\\\\%'", [2]),
        ("t like '100\\%'", [4]),
        ("t = 'line\nbreak'", [3]),
        ("t = 'line\nbreak'\n  or\n\tt = 'a\tb'", [0, 3]),
        ('"a.b" = 1', [0]),
        ('"quo""te" = 1', [1]),
        ("dec > -1e40", [0, 1, 2]),
        ("dec < -1e40", []),
        ("dec >= -9999999.99 and dec < 1E+2", [0, 1, 2]),
        ("1.5 = dec", [0]),
        ("tz = '2024-01-31T10:00:00Z'", [0]),
        ("tz = '2024-01-31 12:00+02:00'", [0]),
        ("tz >= '2024-01-31T10:00:00+00:00' and not tz > '2024-01-31T10:00:00.000001Z'", [0]),
        ("tz > '2024-01-31'", [0]),
        ("raw = '00ff'", [1]),
        ("day > '+9999-12-31'", [2]),
        ("day < '0000-01-01'", [3]),
        ("day not between '0000-01-01' and '9999-12-31'", [2, 3]),
        ("(" * 50 + "dec = 0" + ")" * 50, [2]),
        (" or ".join(["dec = 7"] * 3_000 + ["dec = 0"]), [2]),
    ],
)
def test_what_stands_in_quotes_is_meant_as_it_stands(text: str, rows: list[int]) -> None:
    schema = schema_of(ODD)
    given = [row | ({"day": "+" + row["day"]} if row.get("day", "").startswith("12024") else {}) for row in ODD_ROWS]
    table = coerce(given, schema).read_all().append_column("row", pa.array(range(len(given))))
    found = parse_filter(text)
    assert found is not None
    assert table.filter(bind_filter(found, schema).arrow).column("row").to_pylist() == rows


@pytest.mark.parametrize(
    "text, what",
    [
        ("a = 'x", 'at "\'x"'),
        ("a =", "ends where a number or a text in single quotes belongs"),
        ("a = 1 b", "'and' or 'or' belongs there, at 'b'"),
        ("a like '%x'", "'%' inside"),
        ("a is 5", "'null' or 'nan' belongs there, at '5'"),
        ("a = 1; drop", "cannot be read, at '; drop'"),
        ('"" = 1', "the name of a column"),
        ("a = 5x", "at '5x'"),
        ("(" * 200 + "a = 1" + ")" * 200, "deeper than 100 levels"),
        ("a = 'x'", "column 'a' of type long with 'x'"),
        ("day = 5", "column 'day' of type date with '5'"),
        ("day = '2024-01-31Z'", "column 'day' of type date with '2024-01-31Z'"),
        ("n = 1", "name a field in it"),
        ("a like 'x%'", "by 'like'; its type is long"),
        ("s = 5", "column 's' of type string with '5'"),
        ("zz = 5", "names column 'zz'"),
    ],
)
def test_a_refusal_says_where_and_why_in_words_of_its_own(text: str, what: str) -> None:
    with pytest.raises((InvalidFilter, ColumnNotFound)) as refused:
        found = parse_filter(text)
        assert found is not None
        bind_filter(found, schema_of(SCHEMA | {"day": "date"}))
    assert what in str(refused.value)
    for inner in ("Literal", "EqualTo", "Expected", "Reference", "Could not", "term="):
        assert inner not in str(refused.value)


def test_columns_of_nanoseconds_are_compared_too() -> None:
    schema = schema_of({"at": "timestamptz_ns"}, format_version=3)
    table = coerce([{"at": "2024-01-31T10:00:00.000000001Z"}, {"at": "2024-01-31T10:00:00Z"}], schema).read_all()
    found = parse_filter("at > '2024-01-31T10:00:00Z'")
    assert found is not None
    assert table.filter(bind_filter(found, schema).arrow).num_rows == 1


@settings(deadline=None)
@given(st.text() | st.text("ab.\"'\\%()=<>, \t\n"), st.text() | st.text("'\"\\%\t\n "))
def test_any_name_and_any_text_can_be_written(name: str, text: str) -> None:
    quoted = name.replace('"', '""')
    literal = text.replace("'", "''")
    if not name:
        return
    assert parse_filter(f"\"{quoted}\" = '{literal}'") == Filter(expression=EQUAL(name, StringLiteral(text)))


def test_an_expression_is_taken_over_a_column_that_holds_uuids_within() -> None:
    schema = schema_of({"us": "list<uuid>"})
    found = parse_filter(pc.field("us").is_null())
    assert found is not None and bind_filter(found, schema).columns == ("us",)


def test_a_filter_knows_the_columns_that_it_needs() -> None:
    schema = schema_of(SCHEMA)
    for source in ("a = 1 and n.x = 2", (pc.field("a") == 1) & (pc.field("n", "x") == 2)):
        found = parse_filter(source)
        assert found is not None
        assert set(bind_filter(found, schema).columns) >= {"a", "n"}
        assert "my col" not in bind_filter(found, schema).columns
