"""Records the statements that run in a block, and reads from their plans which tables they scan from end to end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import sqlalchemy as sa

from lakeward.db import schema
from lakeward.db.database import Database

LAST_RESORTS = ("enable_seqscan", "enable_mergejoin", "enable_hashjoin")


@contextmanager
def explaining(database: Database) -> Iterator[set[str]]:
    """Explain every statement of the block before it runs. Yields a set that fills with 'table: statement' per scan."""
    found: set[str] = set()

    def note(connection: sa.Connection, statement: str, parameters: Any) -> None:
        scans = _sqlite_scans if database.is_sqlite else _postgresql_scans
        text = re.sub(r"\s+", " ", statement)
        found.update(f"{table}: {text}" for table in scans(connection, statement, parameters))

    with _before_each(database, note):
        yield found


@contextmanager
def recording_indexes(database: Database) -> Iterator[set[str]]:
    """Yields a set that fills with the names of the indexes that the statements of the block would read."""
    used: set[str] = set()

    def note(connection: sa.Connection, statement: str, parameters: Any) -> None:
        if database.is_sqlite:
            used.update(re.findall(r"INDEX (\w+)", " ".join(_sqlite_steps(connection, statement, parameters))))
        else:
            used.update(
                re.findall(r'"Index Name": "(\w+)"', json.dumps(_postgresql_plan(connection, statement, parameters)))
            )

    with _before_each(database, note):
        yield used


@contextmanager
def recording_sorts(database: Database) -> Iterator[set[str]]:
    """Yields a set that fills with the statements of the block that sort what they find: an index would give it in order."""
    sorting: set[str] = set()

    def note(connection: sa.Connection, statement: str, parameters: Any) -> None:
        if database.is_sqlite:
            steps = " ".join(_sqlite_steps(connection, statement, parameters))
            found = "TEMP B-TREE FOR ORDER BY" in steps
        else:
            found = '"Node Type": "Sort"' in json.dumps(_postgresql_plan(connection, statement, parameters))
        if found:
            sorting.add(statement)

    with _before_each(database, note):
        yield sorting


@contextmanager
def _before_each(database: Database, note: Callable[[sa.Connection, str, Any], None]) -> Iterator[None]:
    def listen(connection: sa.Connection, _: Any, statement: str, parameters: Any, __: Any, many: bool) -> None:
        if re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", statement):
            note(connection, statement, parameters[0] if many else parameters)

    sa.event.listen(database.engine, "before_cursor_execute", listen)
    try:
        yield
    finally:
        sa.event.remove(database.engine, "before_cursor_execute", listen)


def _sqlite_steps(connection: sa.Connection, statement: str, parameters: Any) -> list[str]:
    driver: Any = connection.connection.driver_connection
    return [row[3] for row in driver.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]


def _sqlite_scans(connection: sa.Connection, statement: str, parameters: Any) -> set[str]:
    # A scan by an index reads all of it, too.
    steps = _sqlite_steps(connection, statement, parameters)
    names = {match[1] for step in steps if (match := re.match(r"SCAN (\w+)", step))}
    return names & set(schema.metadata.tables)


def _postgresql_plan(connection: sa.Connection, statement: str, parameters: Any) -> dict[str, Any]:
    driver: Any = connection.connection.driver_connection
    # With these as the last resort, one that is left means that no index serves: small tables are scanned, and joined
    # whole, because they are small.
    with driver.transaction(), psycopg.ClientCursor(driver) as cursor:
        for way in LAST_RESORTS:
            cursor.execute(f"SET LOCAL {way} = off")
        cursor.execute(f"EXPLAIN (FORMAT JSON) {statement}", parameters)
        answer = cursor.fetchone()
        for way in LAST_RESORTS:
            cursor.execute(f"SET LOCAL {way} = on")
    assert answer is not None
    # Documents come as text on these connections.
    plan = json.loads(answer[0]) if isinstance(answer[0], str) else answer[0]
    root: dict[str, Any] = plan[0]["Plan"]
    return root


def _postgresql_scans(connection: sa.Connection, statement: str, parameters: Any) -> set[str]:
    return set(_scans(_postgresql_plan(connection, statement, parameters)))


def _scans(node: dict[str, Any]) -> Iterator[str]:
    kind = node["Node Type"]
    whole_index = kind in ("Index Scan", "Index Only Scan") and "Index Cond" not in node
    if kind == "Seq Scan" or whole_index:
        yield node["Relation Name"]
    if kind == "Bitmap Index Scan" and "Index Cond" not in node:
        yield node["Index Name"]
    for child in node.get("Plans", ()):
        yield from _scans(child)
