"""Whoever changes errors and dead letters locks them in one order: none waits for one that waits for it. On PostgreSQL (on
SQLite one writer has the whole database)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from lakeward.db import schema
from lakeward.ops import dead_letters, error_log, retention
from lakeward.ops.records.operations import DeadLetterFilter, DeadLetterStatus, ErrorStatus, ErrorType, OperationType
from lakeward.registry import Registry
from tests.support import registries


@pytest.fixture
def registry(made_pg_url: str, tmp_path: Path) -> Iterator[Registry]:
    with registries.open_at(made_pg_url, tmp_path) as opened:
        yield opened


def _error(registry: Registry) -> int:
    return error_log.log(registry, "shop", ErrorType.DATA, "bad", record_data={"id": 1}, max_retries=1).id


def _letter(registry: Registry, error_id: int | None) -> int:
    return dead_letters.add(registry, "shop", "t", OperationType.INSERT, {"id": 1}, error_log_id=error_id).id


def _lock(connection: sa.Connection, table: sa.Table, row_id: int) -> None:
    connection.execute(sa.select(table.c.id).where(table.c.id == row_id).with_for_update()).one()


def _between(
    registry: Registry, first: tuple[sa.Table, int], then: tuple[sa.Table, int], call: Callable[[], object]
) -> None:
    """Hold the lock of one row until `call` waits for it, and then take another's."""
    outcome: list[object] = []
    thread = threading.Thread(target=lambda: outcome.append(call()))
    with registry.database.transaction() as connection:
        _lock(connection, *first)
        thread.start()
        registries.wait_for_lock(registry)
        _lock(connection, *then)
    thread.join()
    assert len(outcome) == 1, "the call was refused"


def test_errors_are_locked_by_their_ids_whatever_the_order_of_their_dead_letters(registry: Registry) -> None:
    low, high = _error(registry), _error(registry)
    _letter(registry, high)
    _letter(registry, low)
    _between(
        registry,
        (schema.error_log, low),
        (schema.error_log, high),
        lambda: dead_letters.end_all(registry, DeadLetterStatus.DISCARDED, DeadLetterFilter(schema_name="shop")),
    )
    assert {error_log.get(registry, each).status for each in (low, high)} == {ErrorStatus.IGNORED}


def test_the_last_retry_locks_the_dead_letter_before_its_error(registry: Registry) -> None:
    error = _error(registry)
    letter = _letter(registry, error)
    _between(
        registry,
        (schema.dead_letter_queue, letter),
        (schema.error_log, error),
        lambda: error_log.record_retry(registry, error),
    )
    assert dead_letters.get(registry, letter).error_count == 2


def test_clean_up_leaves_what_another_is_at(registry: Registry) -> None:
    letters = [_letter(registry, None) for _ in range(2)]
    errors = [_error(registry) for _ in range(2)]
    dead_letters.end_all(registry, DeadLetterStatus.RESOLVED, DeadLetterFilter())
    for each in errors:
        error_log.end(registry, ErrorStatus.RESOLVED, each)
    long_ago = datetime.fromisoformat("2020-01-01T00:00:00Z")
    with registry.database.transaction() as connection:
        for table in (schema.dead_letter_queue, schema.error_log):
            connection.execute(table.update().values(resolved_at=long_ago))
    with registry.database.transaction() as connection:
        _lock(connection, schema.dead_letter_queue, letters[0])
        _lock(connection, schema.error_log, errors[0])
        counts = retention.cleanup(registry)
    assert (counts["dead_letter_queue"], counts["error_log"]) == (1, 1)
    assert [each.id for each in dead_letters.list_dead_letters(registry)] == letters[:1]
    assert dead_letters.get(registry, letters[0]).status == DeadLetterStatus.RESOLVED
    counts = retention.cleanup(registry)
    assert (counts["dead_letter_queue"], counts["error_log"]) == (1, 1)
