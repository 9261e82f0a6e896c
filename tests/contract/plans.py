"""Reads from a statement's plan which tables it goes through from end to end, which indexes it uses, and whether it sorts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg

from lakeward.db import schema
from lakeward.db.database import Database

LAST_RESORTS = ("enable_seqscan", "enable_mergejoin", "enable_hashjoin")


class Plan(NamedTuple):
    scans: set[str]  # of the registry's tables; by an index that is read whole, too
    indexes: set[str]
    sorts: bool  # what it finds: an index would give it in order


Explain = Callable[[str, Any], Plan]


@contextmanager
def explaining(database: Database) -> Iterator[Explain]:
    """Yields what gives the plan of a statement of the driver's, with its parameters; nothing is executed."""
    with database.engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        connection.detach()  # what is set on it is nobody else's
        yield _sqlite(driver) if database.is_sqlite else _postgresql(driver)


def _sqlite(driver: Any) -> Explain:
    def explain(text: str, parameters: Any) -> Plan:
        steps = [str(row[3]) for row in driver.execute(f"EXPLAIN QUERY PLAN {text}", parameters or ())]
        scanned = {match[1] for step in steps if (match := re.match(r"SCAN (\w+)", step))}
        return Plan(
            scanned & set(schema.metadata.tables),
            set(re.findall(r"INDEX (\w+)", " ".join(steps))),
            any("TEMP B-TREE FOR ORDER BY" in step for step in steps),
        )

    return explain


def _postgresql(driver: Any) -> Explain:
    # With these as the last resort, one that is left means that no index serves: small tables are scanned, and joined
    # whole, because they are small.
    for way in LAST_RESORTS:
        driver.execute(f"SET {way} = off")

    def explain(text: str, parameters: Any) -> Plan:
        with driver.transaction(), psycopg.ClientCursor(driver) as cursor:
            cursor.execute(f"EXPLAIN (FORMAT JSON) {text}", parameters)
            answer = cursor.fetchone()
        assert answer is not None
        # Documents come as text on these connections.
        plan = json.loads(answer[0]) if isinstance(answer[0], str) else answer[0]
        steps = list(_steps(plan[0]["Plan"], ""))
        return Plan(
            {table for step, table in steps if _is_scan(step)} & set(schema.metadata.tables),
            {step["Index Name"] for step, _ in steps if "Index Name" in step},
            any(step["Node Type"] == "Sort" for step, _ in steps),
        )

    return explain


def _steps(node: dict[str, Any], table: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Each step of a plan, with the table that it reads: what looks into an index alone does not say so itself."""
    table = node.get("Relation Name", table)
    yield node, table
    for child in node.get("Plans", ()):
        yield from _steps(child, table)


def _is_scan(step: dict[str, Any]) -> bool:
    kind = step["Node Type"]
    return kind == "Seq Scan" or (
        kind in ("Index Scan", "Index Only Scan", "Bitmap Index Scan") and "Index Cond" not in step
    )
