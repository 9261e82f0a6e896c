"""The queries of the guide answer on the database that they are written for, whatever is in the tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lakeward.db import schema
from lakeward.metadata import ErrorType, MetadataManager, OperationType, SchemaDefinition, SyncMode
from tests.support.registries import rows_of

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "operations-metadata.md"


def _queries(number: int) -> dict[str, str]:
    """The queries of one of the guide's blocks, by what they are said to find."""
    block = re.findall(r"```sql\n(.*?)```", GUIDE.read_text(), re.DOTALL)[number]
    return dict(re.findall(r"-- (.*?)\n(.*?);", block, re.DOTALL))


@pytest.fixture
def manager(made_url: str) -> Iterator[MetadataManager]:
    with MetadataManager(made_url) as opened:
        done, _ = (opened.start_sync_run("shop", SyncMode.BATCH) for _ in range(2))
        opened.complete_sync_run(done.id)
        for table in ("moved", "still"):
            opened.update_stream_position("shop", {"lsn": 1}, table)
        for message in ("older", "newer"):
            opened.log_error("shop", ErrorType.DATA, message)
        for record in ({"id": 5}, {"id": "x", "more": "a\0b"}, {"id": "\ud800"}, "a text"):
            opened.add_to_dead_letter_queue("shop", "orders", OperationType.INSERT, record)
        opened.register_schema("shop", "customers", SchemaDefinition([{"name": "id", "type": "int"}]))
        with opened.transaction() as connection:
            c = schema.sync_markers.c
            earlier = opened.get_active_markers()[0].last_updated - timedelta(hours=1, minutes=1)
            change = schema.sync_markers.update().where(c.table_name == "still")
            connection.execute(change.values(last_updated=earlier))
            old = opened.get_sync_run(done.id).started_at - timedelta(hours=25)
            connection.execute(schema.sync_runs.update().where(schema.sync_runs.c.id == done.id).values(started_at=old))
        yield opened


def _found(manager: MetadataManager) -> dict[str, list[Any]]:
    is_sqlite = manager.registry.database.is_sqlite
    with manager.registry.database.read() as connection:
        return {
            name.split(",")[0]: list(connection.exec_driver_sql(query.replace("%", "%%") if not is_sqlite else query))
            for name, query in _queries(1 if is_sqlite else 0).items()
        }


def test_each_query_finds_what_it_says(manager: MetadataManager) -> None:
    found = _found(manager)
    assert len(found) == 7
    (running,) = found["What runs"]
    assert running[1:3] == ("shop", "batch")
    assert [(row[1], row[2]) for row in found["Runs of the last day"]] == [("running", 1)]
    assert [row[1] for row in found["Positions that have not moved for an hour"]] == ["still"]
    (error,) = found["Errors by type"]
    assert (error[2], error[-1]) == (2, "newer")
    assert [tuple(row) for row in found["What waits"]] == [("shop", "orders", "pending", 4, 1)]
    records = [str(row[1]) for row in found["A field of the records that wait"]]
    assert records[0] == "5" and len(records) == len(rows_of(manager.registry, "dead_letter_queue"))
    assert [row[:2] for row in found["How a table's schema grew"]] == [(1, "create")]
