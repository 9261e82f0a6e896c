"""`lakeward sql` only reads."""

from __future__ import annotations

import pytest

from lakeward.cli.query import check_reading
from lakeward.errors import InvalidInput


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1",
        "  (select * from a.b)",
        "-- a comment\nSELECT 1",
        "/* insert */ select 'insert into x', \"a'b\" from `delete`",
        "WITH t AS (SELECT 1) SELECT * FROM t",
        "with t as (select 1), `insert` as (select ')') select * from `insert`",
        "SHOW TABLES IN a",
        "DESCRIBE a.b",
        "desc a.b",
        "EXPLAIN INSERT INTO a.b SELECT 1",
    ],
)
def test_what_reads_is_let_through(statement: str) -> None:
    check_reading(statement)


@pytest.mark.parametrize(
    "statement, word",
    [
        ("INSERT INTO a.b SELECT 1", "INSERT"),
        ("drop table a.b", "DROP"),
        ("/* SELECT */ delete from a.b", "DELETE"),
        ("-- SELECT\nCALL system.rewrite('a')", "CALL"),
        ("WITH t AS (SELECT 1) INSERT INTO a.b SELECT * FROM t", "INSERT"),
        ("with t as (select '(') merge into a using t on a.i = t.i when matched then delete", "MERGE"),
        ("FROM t INSERT INTO a SELECT *", "FROM"),
        ("BEGIN SELECT 1; END", "BEGIN"),
        ("SET spark.x = 1", "SET"),
        ("", "nothing"),
        ("-- SELECT 1", "nothing"),
    ],
)
def test_what_may_change_something_is_refused_by_its_word(statement: str, word: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_reading(statement)
    assert word in str(refused.value) and "only reads" in str(refused.value)
