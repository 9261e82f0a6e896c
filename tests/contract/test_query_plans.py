"""No query of the registry reads a table from end to end: each has an index, on both databases.

When all tests of this folder have run, the plan of every statement that they had the registry execute is judged by plan_rules.py,
and a function with SQL that none of them ran is named. Here is what those judges see, and what shows in no plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import sqlalchemy as sa

import lakeward
from lakeward.db import schema
from lakeward.db.database import Database
from lakeward.log.sql import segments
from lakeward.registry.sql import warehouses
from lakeward.tables.sql import tables
from tests.contract import big_registry, plan_rules, statements
from tests.contract.statements import Statement
from tests.support.postgres import PostgresServer


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def big(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """One for all tests of a kind of database: they change nothing."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            url = f"sqlite:///{tmp_path_factory.mktemp('plans') / 'registry.db'}"
        else:
            server: PostgresServer = request.getfixturevalue("postgres_server")
            url = server.create_database()
            stack.callback(server.drop_database, url)
        big_registry.make(url)
        database = stack.enter_context(closing(Database(url)))
        big_registry.analyze(database)
        yield database


def _of(database: Database, text: str, function: str = "tables.some") -> Statement:
    return Statement(database.url.get_backend_name(), text, (), {function})


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM table_files WHERE file_size = 3",
        "SELECT file_path FROM table_files ORDER BY file_path",
        "UPDATE tables SET version = 5 WHERE row_count = 7",
        "DELETE FROM pending_writes WHERE kind = 'flush'",
        "SELECT * FROM tables JOIN table_files ON table_files.file_name = tables.name WHERE tables.table_id = 1",
    ],
)
def test_a_scan_is_seen(big: Database, text: str) -> None:
    (fault,) = plan_rules.faults_of([_of(big, text)], big)
    assert fault.startswith("tables.some reads all of ") and fault.endswith(text)


def test_a_sort_of_what_has_an_order_is_seen(big: Database) -> None:
    text = "SELECT * FROM segments WHERE topic_id = 1 AND partition_id = 1 ORDER BY size_bytes LIMIT 1"
    assert plan_rules.faults_of([_of(big, text, "segments.page")], big) == [f"segments.page sorts: {text}"]
    assert plan_rules.faults_of([_of(big, text)], big) == []


def test_an_index_of_few_among_many_that_serves_nobody_is_seen(big: Database) -> None:
    index = "ix_table_files_pending"
    text = "SELECT count(*) FROM table_files WHERE table_id = 1 AND set_aside_reason IS NULL AND snapshot_id IS NULL"
    for more, is_fault in ((" AND file_type != 'json'", False), ("", True)):
        faults = plan_rules.partial_unused([_of(big, text + more, "files.count_pending")], big)
        assert (f"files.count_pending does not use {index}" in faults) == is_fault


def test_an_index_of_few_among_many_is_read_whole_for_those_alone_who_ask_for_all_of_it(big: Database) -> None:
    text = "SELECT id FROM dead_letter_queue WHERE status = 'processing' ORDER BY claimed_until LIMIT 5"
    assert plan_rules.faults_of([_of(big, text, "dead_letters.ids")], big) == []
    faults = plan_rules.faults_of([_of(big, text)], big)
    assert len(faults) == (0 if big.is_sqlite else 1)  # SQLite gives the state to the index as a condition


def test_what_is_executed_is_noted_with_the_functions_that_it_comes_from(database: Database) -> None:
    kind = database.url.get_backend_name()
    with database.read() as connection:
        connection.exec_driver_sql("SELECT 1 AS a_tests_own")
        warehouses.by_name(connection, "main")
        segments.page(connection, 1, 1)
    database.lookups.one(tables.LIVE_VERSION, {"table_id": 1})
    noted = {name: each.text for each in statements.noted() if each.database == kind for name in each.functions}
    assert "FROM warehouses" in noted["warehouses.by_name"]
    assert "FROM segments" in noted["segments.page"]
    assert "FROM tables" in noted["tables.LIVE_VERSION"]
    assert not any("a_tests_own" in each.text for each in statements.noted())


def test_a_function_that_no_test_runs_is_seen() -> None:
    known = plan_rules.functions_with_sql()
    assert {"tables.by_id", "segments.AT_OFFSET", "changes.after"} <= known
    noted = [
        Statement(database, "SELECT", (), known - plan_rules.ONLY[other] - {"tables.by_id"})
        for database, other in (("sqlite", "postgresql"), ("postgresql", "sqlite"))
    ]
    assert plan_rules.never_run(noted) == [
        "no test runs tables.by_id on sqlite",
        "no test runs tables.by_id on postgresql",
    ]


def test_sql_is_in_modules_named_sql_alone() -> None:
    source = Path(lakeward.__path__[0])
    found = [
        f"{path.relative_to(source)}:{number}"
        for path in source.rglob("*.py")
        if path.parent.name != "sql" and path.relative_to(source).parts[0] != "db"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"connection\.execute\(|exec_driver_sql\(|sa\.text\(|sa\.select\(", line)
    ]
    assert found == []


CONFLICTS = {"uq_error_log_failure_key_open"}  # what ON CONFLICT looks into, which no plan shows


def test_a_row_is_deleted_without_a_scan_for_what_refers_to_it() -> None:
    """Checks of foreign keys show in no plan: each needs an index that begins with its columns."""
    for table in schema.metadata.sorted_tables:
        # A partial index lacks rows, and serves only if these are the ones that refer to nothing.
        serving = [index for index in table.indexes if _is_whole(index) or _lacks_nulls_alone(index)]
        indexes = [[getattr(e, "name", "") for e in index.expressions] for index in serving]
        indexes += [[c.name for c in table.primary_key.columns]]
        indexes += [[c.name for c in u.columns] for u in table.constraints if isinstance(u, sa.UniqueConstraint)]
        for key in table.foreign_key_constraints:
            names = [column.name for column in key.columns]
            assert any(index[: len(names)] == names for index in indexes), (table.name, names)


def _is_whole(index: sa.Index) -> bool:
    return index.dialect_options["sqlite"]["where"] is None


def _lacks_nulls_alone(index: sa.Index) -> bool:
    (first, *_) = index.expressions
    return isinstance(first, sa.Column) and str(index.dialect_options["sqlite"]["where"]) == str(first.is_not(None))


def test_every_index_of_few_among_many_is_listed() -> None:
    partial = {index.name for table in schema.metadata.sorted_tables for index in table.indexes if not _is_whole(index)}
    assert partial == set(plan_rules.PARTIAL) | CONFLICTS
