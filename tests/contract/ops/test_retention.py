"""Old operations metadata goes, and what somebody needs stays; statistics add up. On both databases."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakeward.db import schema
from lakeward.errors import InvalidInput, LeaseHeld
from lakeward.maintenance import operations_upkeep
from lakeward.metadata import MetadataManager
from lakeward.ops import dead_letters, error_log, operation_statistics, positions, retention, runs, schema_versions
from lakeward.ops.records.operations import (
    DeadLetterStatus,
    ErrorStatus,
    ErrorType,
    MarkerType,
    OperationType,
    SyncMode,
    SyncRunStatistics,
    SyncStatus,
)
from lakeward.ops.records.schema_versions import SchemaDefinition
from lakeward.registry import Registry, leases
from tests.support.registries import open_at, rows_of
from tests.support.waiting import until

LONG_AGO = datetime.fromisoformat("2020-01-01T00:00:00Z")
TIMES = ("started_at", "completed_at", "occurred_at", "resolved_at", "created_at", "registered_at", "last_updated")


def age(registry: Registry) -> None:
    """Let all that there is be of long ago."""
    with registry.database.transaction() as connection:
        for name in schema.OPERATIONS:
            table = schema.metadata.tables[name]
            for column in (table.c[each] for each in TIMES if each in table.c):
                connection.execute(table.update().where(column.is_not(None)).values({column.name: LONG_AGO}))


def fill(registry: Registry) -> dict[str, Any]:
    """One of everything that goes and of everything that stays."""
    made: dict[str, Any] = {}
    for name in ("ended", "running", "named by an error", "named by a letter"):
        made[name] = runs.start(registry, "shop", SyncMode.BATCH).id
        if name != "running":
            runs.complete(registry, made[name])
    for run, end in (("named by an error", None), ("ended", ErrorStatus.RESOLVED), ("ended", ErrorStatus.IGNORED)):
        error = error_log.log(registry, "shop", ErrorType.DATA, "bad", sync_run_id=made[run])
        if end is not None:
            error_log.end(registry, end, error.id)
    endings: list[tuple[str, DeadLetterStatus | None]] = [
        ("named by a letter", None),
        ("ended", DeadLetterStatus.RESOLVED),
        ("ended", DeadLetterStatus.DISCARDED),
    ]
    for run, end_letter in endings:
        letter = dead_letters.add(registry, "shop", "t", OperationType.INSERT, {"a": 1}, sync_run_id=made[run])
        if end_letter is not None:
            dead_letters.end(registry, end_letter, letter.id)
    positions.update(registry, MarkerType.STREAM, "shop", {"lsn": 1}, sync_run_id=made["ended"])
    for number in range(13):
        columns = [{"name": f"c{each}", "type": "int"} for each in range(number + 1)]
        schema_versions.register(registry, "shop", "t", SchemaDefinition(columns))
    schema_versions.register(registry, "shop", "u", SchemaDefinition([{"name": "c", "type": "int"}]))
    return made


def test_what_is_old_and_ended_goes_and_the_rest_stays(registry: Registry) -> None:
    made = fill(registry)
    nothing = {"dead_letter_queue": 0, "error_log": 0, "sync_runs": 0, "schema_registry": 0}
    assert retention.cleanup(registry, 30) == nothing
    age(registry)
    assert retention.cleanup(registry, 30) == {
        "dead_letter_queue": 2,
        "error_log": 2,
        "sync_runs": 1,
        "schema_registry": 3,
    }
    assert {row["id"] for row in rows_of(registry, "sync_runs")} == set(made.values()) - {made["ended"]}
    assert [row["status"] for row in rows_of(registry, "error_log")] == ["open"]
    assert [row["status"] for row in rows_of(registry, "dead_letter_queue")] == ["pending"]
    kept = [each.version for each in schema_versions.list_versions(registry, "shop", "t")]
    assert kept == list(range(4, 14))
    assert positions.get(registry, MarkerType.STREAM, "shop") == {"lsn": 1}
    assert retention.cleanup(registry, 30) == nothing


def test_many_rows_go_in_small_transactions_and_are_counted_right(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 7)
    for _ in range(23):
        runs.complete(registry, runs.start(registry, "shop", SyncMode.BATCH).id)
    age(registry)
    assert retention.cleanup(registry)["sync_runs"] == 23


def test_one_process_at_a_time_cleans_up(registry: Registry) -> None:
    with (
        leases.held(registry, retention.LEASE, seconds=30),
        pytest.raises(LeaseHeld, match="metadata:cleanup"),
    ):
        retention.cleanup(registry, wait=0)
    with pytest.raises(InvalidInput, match="above 0"):
        retention.cleanup(registry, 0)


def test_the_strictest_retention_that_anybody_asked_for_holds_for_every_process(registry: Registry) -> None:
    runs.complete(registry, runs.start(registry, "shop", SyncMode.BATCH).id)
    age(registry)  # to 2020
    retention.keep_at_least(registry, 40_000)
    retention.keep_at_least(registry, 7)
    assert retention.retention(registry) == 40_000
    assert retention.cleanup(registry, 1)["sync_runs"] == 0
    retention.keep_at_least(registry, None)
    assert retention.retention(registry) is None
    assert retention.cleanup(registry, 1)["sync_runs"] == 0
    retention.set_retention(registry, 30)
    assert retention.cleanup(registry, 1)["sync_runs"] == 1


@pytest.mark.parametrize("strict", [{"enable_cleanup": False}, {"retention_days": 36_500}])
def test_what_a_manager_keeps_is_kept_by_a_server_with_its_defaults_too(
    registry: Registry, strict: dict[str, Any]
) -> None:
    runs.complete(registry, runs.start(registry, "shop", SyncMode.BATCH).id)
    with MetadataManager(registry, **strict):
        pass
    age(registry)
    with operations_upkeep.running(registry):
        until(lambda: not retention.is_due(registry, retention.schedule(None)))
    assert len(rows_of(registry, "sync_runs")) == 1


def test_a_program_that_lives_for_moments_cleans_up_when_it_is_due_and_the_next_one_does_not(
    registry: Registry,
) -> None:
    def one_run() -> int:
        runs.complete(registry, runs.start(registry, "shop", SyncMode.BATCH).id)
        age(registry)
        with MetadataManager(registry):
            until(lambda: not retention.is_due(registry, retention.schedule(None)))
        return len(rows_of(registry, "sync_runs"))

    assert retention.is_due(registry, retention.schedule(None))
    assert one_run() == 0
    assert one_run() == 1


def test_without_cleanup_in_the_settings_nothing_goes(made_url: str, tmp_path: Path) -> None:
    with open_at(made_url, tmp_path, enable_cleanup=False) as opened, operations_upkeep.running(opened):
        assert retention.retention(opened) is None


def test_statistics_add_up(registry: Registry) -> None:
    for status, records in ((SyncStatus.COMPLETED, 100), (SyncStatus.COMPLETED, 50), (SyncStatus.FAILED, 7)):
        run = runs.start(registry, "shop", SyncMode.BATCH)
        with registry.database.transaction() as connection:
            begun = run.started_at - timedelta(seconds=2)
            connection.execute(
                schema.sync_runs.update().where(schema.sync_runs.c.id == run.id).values(started_at=begun)
            )
        runs.complete(registry, run.id, status, SyncRunStatistics(records, bytes_processed=1 << 40))
    runs.start(registry, "shop", SyncMode.STREAM)
    runs.start(registry, "other", SyncMode.STREAM)
    error = error_log.log(registry, "shop", ErrorType.TIMEOUT, "late")
    error_log.record_retry(registry, error.id, success=True)
    by_hand = error_log.record_retry(registry, error_log.log(registry, "shop", ErrorType.DATA, "bad").id)
    error_log.end(registry, ErrorStatus.RESOLVED, by_hand.id, "by hand")
    dead_letters.add(registry, "shop", "t", OperationType.INSERT, {"a": 1})
    positions.update(registry, MarkerType.STREAM, "shop", {"lsn": 1}, "t")

    found = operation_statistics.statistics(registry, "shop")

    of_runs = found["sync_runs"]
    assert (of_runs["total_runs"], of_runs["completed_runs"], of_runs["failed_runs"]) == (4, 2, 1)
    assert (of_runs["running_runs"], of_runs["cancelled_runs"]) == (1, 0)
    assert (of_runs["total_records_processed"], of_runs["total_bytes_processed"]) == (157, 3 << 40)
    assert of_runs["avg_duration_ms"] >= 2000
    assert of_runs["success_rate"] == 2 / 3
    assert 0 < of_runs["records_per_second"] <= 157 / 6
    assert found["errors"]["by_type"] == {"data": 1, "timeout": 1}
    assert found["errors"]["by_status"] == {"open": 0, "resolved": 2, "ignored": 0}
    assert found["errors"]["retry_success_rate"] == 0.5
    assert found["dead_letters"] == {"total": 1, "pending": 1, "processing": 0, "resolved": 0, "discarded": 0}
    (position,) = found["positions"]
    assert (position["position"], position["table_name"], position["age_seconds"] >= 0) == ({"lsn": 1}, "t", True)
    assert found["connection_pool"]["size"] > 0
    assert operation_statistics.statistics(registry)["sync_runs"]["total_runs"] == 5
    empty = operation_statistics.statistics(registry, "nobody")["sync_runs"]
    assert (empty["total_runs"], empty["success_rate"], empty["avg_duration_ms"]) == (0, None, None)
    with pytest.raises(InvalidInput, match="above 0"):
        operation_statistics.statistics(registry, hours=0)
