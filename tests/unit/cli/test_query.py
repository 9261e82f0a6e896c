"""`lakeward sql` only reads."""

from __future__ import annotations

import pytest

from lakeward.cli.query import check_reading, without_spark
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


@pytest.mark.parametrize(
    "statement, scan",
    [
        ("SELECT * FROM a.b", "lakeward scan a.b --limit 100"),
        ("select id, name\nfrom a.b limit 5;", "lakeward scan a.b --columns id --columns name --limit 5"),
        ("SELECT * FROM a.b LIMIT 500", "lakeward scan a.b --limit 100"),
        (
            "SELECT id FROM a.b WHERE id > 5 AND name = 'x'",
            """lakeward scan a.b --columns id --filter 'id > 5 AND name = '"'"'x'"'"'' --limit 100""",
        ),
        ("SELECT * FROM a.b WHERE id IN (1, 2) LIMIT 7", "lakeward scan a.b --filter 'id IN (1, 2)' --limit 7"),
    ],
)
def test_a_plain_select_has_a_scan_that_needs_no_spark(statement: str, scan: str) -> None:
    assert without_spark(statement, 100) == scan


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT count(*) FROM a.b",
        "SELECT DISTINCT id FROM a.b",
        "SELECT id AS i FROM a.b",
        "SELECT 1 FROM a.b",
        "SELECT id FROM a.b.files",
        "SELECT id FROM a.b LIMIT 0",  # 0 is all to a scan
        "SELECT id FROM a.b, a.c",
        "SELECT id FROM a.b ORDER BY id",
        "SELECT id FROM a.b WHERE id > 1 ORDER BY id",
        "SELECT id FROM a.b WHERE id > 1 GROUP BY id",
        "SELECT id FROM a.b WHERE upper(name) = 'X'",
        'SELECT id FROM a.b WHERE name = "x"',
        "SELECT id FROM a.b WHERE name = 'a\\n'",
        "WITH t AS (SELECT 1) SELECT * FROM t",
        "SHOW TABLES IN a",
    ],
)
def test_any_other_statement_has_none(statement: str) -> None:
    assert without_spark(statement, 100) is None
