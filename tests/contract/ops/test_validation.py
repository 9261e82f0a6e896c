"""What no call can use is refused with a code of Lakeward's, alike on both databases, and changes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from lakeward.db import schema
from lakeward.errors import InvalidInput, LakewardError
from lakeward.metadata import (
    Backoff,
    DeadLetterFilter,
    ErrorFilter,
    MetadataManager,
    SchemaDefinition,
    SyncRunStatistics,
)
from tests.support.registries import rows_of

Call = Callable[[MetadataManager, Any], object]
COLUMNS = [{"name": "id", "type": "int"}]
DEEP: dict[str, Any] = {}
for _ in range(2_000):
    DEEP = {"a": DEEP}


@pytest.fixture
def manager(made_url: str) -> Iterator[MetadataManager]:
    with MetadataManager(made_url, redact_columns=["ssn"]) as opened:
        opened.start_sync_run("shop", "batch")  # type: ignore[arg-type]
        opened.register_schema("shop", "t", SchemaDefinition(COLUMNS))
        opened.log_error("shop", "data", "bad", record_data={"id": 1})  # type: ignore[arg-type]
        opened.add_to_dead_letter_queue("shop", "t", "insert", {"id": 1})  # type: ignore[arg-type]
        opened.update_stream_position("shop", {"lsn": 1})
        yield opened


NO_ID: list[Any] = ["1", True, 2**64, 1.5, [], b"1"]
NO_NUMBER: list[Any] = [math.inf, math.nan, -1, 0, "1", None, 1e300, 1e9, True]
NO_TEXT: list[Any] = ["a\0b", "\ud800", 5, b"x", ["a"]]
NO_MEMBER: list[Any] = ["nope", 5, [], {}]
NO_TIME: list[Any] = [
    datetime(2026, 1, 1),
    "2026-01-01",
    date(2026, 1, 1),
    5,
    datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
]
NO_LIST: list[Any] = [None, 5, "id", {"id": 1}]

CALLS: list[tuple[list[Any], dict[str, Call]]] = [
    (
        NO_ID,
        {
            "get_sync_run": lambda m, bad: m.get_sync_run(bad),
            "heartbeat": lambda m, bad: m.heartbeat(bad),
            "update_sync_run": lambda m, bad: m.update_sync_run(bad, SyncRunStatistics()),
            "complete_sync_run": lambda m, bad: m.complete_sync_run(bad),
            "get_error": lambda m, bad: m.get_error(bad),
            "record_retry": lambda m, bad: m.record_retry(bad),
            "resolve_error": lambda m, bad: m.resolve_error(bad),
            "ignore_error": lambda m, bad: m.ignore_error(bad),
            "get_dead_letter": lambda m, bad: m.get_dead_letter(bad),
            "resolve_dead_letter": lambda m, bad: m.resolve_dead_letter(bad),
            "requeue_dead_letter": lambda m, bad: m.requeue_dead_letter(bad),
            "claim": lambda m, bad: m.discard_dead_letter(1, claim=bad),
            "position's run": lambda m, bad: m.update_stream_position("shop", {}, sync_run_id=bad),
            "error's run": lambda m, bad: m.log_error("shop", "data", "x", sync_run_id=bad),  # type: ignore[arg-type]
            "letter's error": lambda m, bad: m.add_to_dead_letter_queue("shop", "t", "insert", {}, error_log_id=bad),  # type: ignore[arg-type]
            "page of runs": lambda m, bad: m.list_sync_runs(limit=bad),
            "pages of runs": lambda m, bad: m.list_sync_runs(before=bad),
            "page of errors": lambda m, bad: m.list_errors(limit=bad),
            "errors of a run": lambda m, bad: m.list_errors(sync_run_id=bad),
            "page of letters": lambda m, bad: m.list_dead_letters(limit=bad),
            "letters of a run": lambda m, bad: m.count_dead_letters(DeadLetterFilter(sync_run_id=bad)),
            "errors due": lambda m, bad: m.errors_due(bad),
            "claims": lambda m, bad: m.claim_dead_letters("w", bad),
            "version": lambda m, bad: m.get_schema_version("shop", "t", bad),
            "iceberg_schema_id": lambda m, bad: m.tie_schema_version("shop", "t", 1, iceberg_schema_id=bad),
            "max_retries": lambda m, bad: m.log_error("shop", "data", "x", max_retries=bad),  # type: ignore[arg-type]
            "records": lambda m, bad: m.update_sync_run(1, SyncRunStatistics(bad)),
        },
    ),
    (
        NO_NUMBER,
        {
            "statistics": lambda m, bad: m.get_sync_statistics(hours=bad),
            "trends": lambda m, bad: m.get_error_trends(hours=bad),
            "recovery": lambda m, bad: m.recover_failed_runs(bad),
            "clean-up": lambda m, bad: m.cleanup_old_metadata(math.nan if bad is None else bad),
            "lease": lambda m, bad: m.claim_dead_letters("w", lease_seconds=1e300 if bad == 1e9 else bad),
            "claim": lambda m, bad: m.errors_due(claim_seconds=1e300 if bad == 1e9 else bad),
            "back-off": lambda m, bad: Backoff(first=1e300 if bad == 1e9 else bad, longest=1e10),
            "factor": lambda m, bad: Backoff(factor=math.nan if bad in (1e300, 1e9) else bad),
            "longest": lambda m, bad: Backoff(longest=-1 if bad == 1e9 else bad),
            "retention": lambda m, bad: MetadataManager("unused", retention_days=-1 if bad is None else bad),
            "silence": lambda m, bad: MetadataManager("unused", heartbeat_limit_seconds=1e300 if bad == 1e9 else bad),
        },
    ),
    (
        NO_TEXT,
        {
            "position": lambda m, bad: m.get_stream_position(bad),
            "position of a table": lambda m, bad: m.get_stream_position("shop", bad),
            "deleted": lambda m, bad: m.delete_marker(bad, "stream"),  # type: ignore[arg-type]
            "markers": lambda m, bad: m.get_active_markers(bad),
            "runs": lambda m, bad: m.list_sync_runs(bad),
            "errors": lambda m, bad: m.list_errors(bad),
            "errors of a table": lambda m, bad: m.list_errors(None, bad),
            "errors due": lambda m, bad: m.errors_due(schema_name=bad),
            "statistics": lambda m, bad: m.get_sync_statistics(bad),
            "trends": lambda m, bad: m.get_error_trends(bad),
            "letters": lambda m, bad: m.list_dead_letters(DeadLetterFilter(schema_name=bad)),
            "letters of a record": lambda m, bad: m.count_dead_letters(DeadLetterFilter(source_record_id=bad)),
            "source record": lambda m, bad: m.add_to_dead_letter_queue("s", "t", "insert", {}, source_record_id=bad),  # type: ignore[arg-type]
            "latest version": lambda m, bad: m.get_schema_version("shop", bad),
            "version": lambda m, bad: m.get_schema_version(bad, "t", 1),
            "versions": lambda m, bad: m.list_schema_versions("shop", bad),
            "tables": lambda m, bad: m.list_schema_tables(bad),
        },
    ),
    (
        NO_MEMBER,
        {
            "markers": lambda m, bad: m.get_active_markers(None, bad),
            "deleted": lambda m, bad: m.delete_marker("shop", bad),
            "state": lambda m, bad: m.list_dead_letters(DeadLetterFilter(status=bad)),
            "operation": lambda m, bad: m.claim_dead_letters("w", 1, DeadLetterFilter(operation_type=bad)),
            "filter": lambda m, bad: m.discard_dead_letters(bad),
            "errors ended": lambda m, bad: m.resolve_errors(bad),
            "errors of a type ended": lambda m, bad: m.ignore_errors(ErrorFilter(error_type=bad)),
            "runs": lambda m, bad: m.list_sync_runs(status=bad),
            "errors": lambda m, bad: m.list_errors(error_type=bad),
            "evolution": lambda m, bad: m.register_schema("shop", "t", SchemaDefinition(COLUMNS), bad),
            "definition": lambda m, bad: m.register_schema("shop", "t", bad),
            "statistics": lambda m, bad: m.complete_sync_run(1, statistics=bad),
        },
    ),
    (
        NO_TIME,
        {
            "runs": lambda m, bad: m.list_sync_runs(since=bad),
            "errors": lambda m, bad: m.list_errors(since=bad),
            "errors ended": lambda m, bad: m.resolve_errors(ErrorFilter(before=bad)),
        },
    ),
    (
        NO_LIST,
        {
            "columns": lambda m, bad: m.register_schema("shop", "new", SchemaDefinition(bad)),
            "keys": lambda m, bad: m.register_schema("shop", "new", SchemaDefinition(COLUMNS, bad)),
            "indexes": lambda m, bad: m.register_schema("shop", "new", SchemaDefinition(COLUMNS, (), bad)),
        },
    ),
    (
        [DEEP, object()],
        {
            "position": lambda m, bad: m.update_stream_position("shop", {"a": bad}),
            "record": lambda m, bad: m.log_error("shop", "data", "x", record_data=bad),  # type: ignore[arg-type]
            "letter": lambda m, bad: m.add_to_dead_letter_queue("shop", "t", "insert", bad),  # type: ignore[arg-type]
            "envelope": lambda m, bad: m.add_to_dead_letter_queue("shop", "t", "insert", 1, envelope=bad),  # type: ignore[arg-type]
            "source position": lambda m, bad: m.register_schema(
                "shop", "new", SchemaDefinition(COLUMNS), source_position=bad
            ),
            "property": lambda m, bad: m.register_schema("shop", "new", SchemaDefinition([{**COLUMNS[0], "x": bad}])),
        },
    ),
]


@pytest.mark.parametrize("values, calls", CALLS, ids=["id", "number", "text", "member", "time", "list", "document"])
def test_what_cannot_be_used_is_refused_and_changes_nothing(
    manager: MetadataManager, values: list[Any], calls: dict[str, Call]
) -> None:
    before = {name: rows_of(manager.registry, name) for name in schema.OPERATIONS}
    taken = []
    for name, call in calls.items():
        for bad in values:
            try:
                found = call(manager, bad)
                taken.append(f"{name}: {bad!r:.50} gave {found!r:.80}")
            except InvalidInput:
                pass
            except (Exception, RecursionError) as error:
                code = error.code if isinstance(error, LakewardError) else type(error).__name__
                taken.append(f"{name}: {bad!r:.50} raised {code}: {str(error)[:80]}")
    assert taken == []
    assert {name: rows_of(manager.registry, name) for name in schema.OPERATIONS} == before


def test_states_and_operations_may_be_given_as_texts(manager: MetadataManager) -> None:
    chosen: Any = DeadLetterFilter(status="pending", operation_type="insert")  # type: ignore[arg-type]
    assert len(manager.list_dead_letters(chosen)) == 1
    assert manager.get_active_markers("shop", "stream")[0].position_data == {"lsn": 1}  # type: ignore[arg-type]
    assert manager.delete_marker("shop", "stream")  # type: ignore[arg-type]


def test_a_time_of_any_zone_and_a_back_off_of_any_growth_are_taken(manager: MetadataManager) -> None:
    moment = datetime.now(timezone(timedelta(hours=14))) - timedelta(minutes=5)
    assert len(manager.list_sync_runs(since=moment)) == 1
    assert manager.list_sync_runs(since=datetime.now(UTC) + timedelta(minutes=5)) == []
    steep = Backoff(first=1, factor=1e300, longest=100)
    assert [steep.delay(failures) for failures in (1, 2, 61)] == [1, 100, 100]


def test_details_that_are_nested_deep_are_logged_without_their_depths(manager: MetadataManager) -> None:
    error = manager.log_error("shop", "data", "bad", error_details=DEEP)  # type: ignore[arg-type]
    assert "nested deeper" in str(error.error_details)
