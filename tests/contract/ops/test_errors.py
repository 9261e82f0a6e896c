"""Errors and dead letters: tried again, moved, claimed by one worker at a time, kept whole. On both databases."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from lakeward.db import schema
from lakeward.errors import (
    DeadLetterNotFound,
    ErrorRecordNotFound,
    InvalidInput,
    StatusConflict,
    SyncRunNotFound,
)
from lakeward.metadata import MetadataManager
from lakeward.ops import dead_letters, error_log, runs
from lakeward.ops.records.operations import (
    DeadLetter,
    DeadLetterFilter,
    DeadLetterStatus,
    ErrorFilter,
    ErrorRecord,
    ErrorStatus,
    ErrorType,
    OperationType,
    SyncMode,
)
from lakeward.registry import Registry
from tests.support.registries import rows_of

RECORD = {
    "id": 2**70,
    "amount": Decimal("1234567890123456789012345678901234567890.12"),
    "ratios": [math.inf, -math.inf, -0.0, 1.0, 1],
    "raw": b"\x00\xff\x00",
    "text": "a\0b \ud800 ä",
    "born": [date(1, 1, 1), "0044-03-15 BC", date(9999, 12, 31), "294276-12-31", datetime(2026, 1, 1)],
    "nested": {"$decimal": "no tag", "list": (1, None, True)},
}


def log(registry: Registry, **values: Any) -> ErrorRecord:
    defaults = {"table_name": "orders", "record_data": {"id": 1}, "operation_type": OperationType.INSERT}
    return error_log.log(registry, "shop", ErrorType.VALIDATION, "no amount", **{**defaults, **values})


def add(registry: Registry, **values: Any) -> DeadLetter:
    record = values.pop("record_data", {"id": 1})
    return dead_letters.add(registry, "shop", "orders", OperationType.INSERT, record, **values)


def pass_time(registry: Registry, **time: float) -> None:
    """Let what waits have waited for so long more."""
    ago = timedelta(**time)
    with registry.database.transaction() as connection:
        for table, columns in (
            (schema.error_log, ("next_retry_at", "claimed_until")),
            (schema.dead_letter_queue, ("claimed_until",)),
        ):
            for row in connection.execute(table.select()).mappings().all():
                moved = {name: row[name] - ago for name in columns if row[name] is not None}
                if moved:
                    connection.execute(table.update().where(table.c.id == row["id"]).values(moved))


# Errors -------------------------------------------------------------------------------------------------------------------
def test_an_error_is_kept_with_all_that_is_known(registry: Registry) -> None:
    run = runs.start(registry, "shop", SyncMode.STREAM)
    error = log(
        registry,
        sync_run_id=run.id,
        error_code="VAL_001",
        error_details={"column": "amount", "row": 5},
        stack_trace="Traceback: a\0b",
        record_data=RECORD,
        max_retries=5,
    )
    assert (error.status, error.retry_count, error.max_retries) == (ErrorStatus.OPEN, 0, 5)
    assert error.record_data == RECORD
    assert error.error_details == {"column": "amount", "row": 5}
    assert error.stack_trace == "Traceback: a\\x00b"
    assert error_log.get(registry, error.id) == error
    assert error_log.list_errors(registry, "shop", "orders", ErrorType.VALIDATION, ErrorStatus.OPEN, run.id) == [error]
    assert error_log.list_errors(registry, status=ErrorStatus.RESOLVED) == []


def test_each_retry_waits_twice_as_long_up_to_the_longest(registry: Registry) -> None:
    backoff = error_log.Backoff(first=10, factor=2, longest=35)
    error = log(registry, max_retries=9, backoff=backoff)
    waits = [(error.next_retry_at or error.occurred_at) - error.occurred_at]
    for _ in range(4):
        error = error_log.record_retry(registry, error.id, backoff=backoff)
        assert error.next_retry_at is not None and error.last_retry_at is not None
        waits.append(error.next_retry_at - error.last_retry_at)
    assert [wait.total_seconds() for wait in waits] == [10, 20, 35, 35, 35]


def test_what_is_due_is_handed_to_one_caller_until_its_claim_runs_out(registry: Registry) -> None:
    errors = [log(registry) for _ in range(3)]
    log(registry, max_retries=0)
    assert error_log.due(registry) == []
    pass_time(registry, seconds=61)
    assert [error.id for error in error_log.due(registry, 2)] == [error.id for error in errors[:2]]
    assert [error.id for error in error_log.due(registry)] == [errors[2].id]
    assert error_log.due(registry) == []
    pass_time(registry, seconds=error_log.CLAIM_SECONDS)
    assert len(error_log.due(registry, schema_name="shop")) == 3
    assert error_log.due(registry, schema_name="other") == []


def test_the_outcome_of_a_claim_that_another_has_now_is_refused(registry: Registry) -> None:
    log(registry)
    pass_time(registry, seconds=61)
    (slow,) = error_log.due(registry, claim_seconds=30)
    pass_time(registry, seconds=31)
    (quick,) = error_log.due(registry)
    assert (slow.claim, quick.claim) == (1, 2)
    for outdated in (slow.claim, None):
        with pytest.raises(StatusConflict, match="claim"):
            error_log.record_retry(registry, slow.id, claim=outdated)
    assert error_log.due(registry) == []
    done = error_log.record_retry(registry, quick.id, claim=quick.claim)
    assert (done.retry_count, done.claimed_until) == (1, None)
    with pytest.raises(StatusConflict, match="is not current"):
        error_log.record_retry(registry, quick.id, claim=quick.claim)


def test_a_claim_that_has_run_out_still_counts_while_nobody_else_has_one(registry: Registry) -> None:
    one, other = log(registry), log(registry)
    pass_time(registry, seconds=61)
    assert len(error_log.due(registry, claim_seconds=1)) == 2
    pass_time(registry, seconds=2)
    assert error_log.record_retry(registry, one.id, claim=1).retry_count == 1
    assert error_log.record_retry(registry, other.id).retry_count == 1


def test_a_retry_that_succeeds_resolves_the_error(registry: Registry) -> None:
    error = log(registry)
    done = error_log.record_retry(registry, error.id, success=True)
    assert (done.status, done.retry_count, done.next_retry_at) == (ErrorStatus.RESOLVED, 1, None)
    with pytest.raises(StatusConflict, match="it is resolved since"):
        error_log.record_retry(registry, error.id)
    assert rows_of(registry, "dead_letter_queue") == []


def test_the_last_failure_moves_the_record_to_the_dead_letters(registry: Registry) -> None:
    error = log(registry, record_data=RECORD, max_retries=2)
    assert error_log.record_retry(registry, error.id).next_retry_at is not None
    assert dead_letters.list_dead_letters(registry) == []
    last = error_log.record_retry(registry, error.id, error_message="still no amount")
    assert (last.status, last.next_retry_at) == (ErrorStatus.OPEN, None)
    (letter,) = dead_letters.list_dead_letters(registry)
    assert (letter.record_data, letter.error_log_id, letter.error_count) == (RECORD, error.id, 3)
    assert letter.error_message == "still no amount"
    with pytest.raises(StatusConflict, match="all that max_retries allows"):
        error_log.record_retry(registry, error.id)
    dead_letters.end(registry, DeadLetterStatus.RESOLVED, letter.id, resolution="put back")
    assert error_log.get(registry, error.id).status == ErrorStatus.RESOLVED


def test_an_error_whose_record_is_a_dead_letter_already_makes_no_second_one(registry: Registry) -> None:
    error = log(registry, max_retries=1)
    letter = add(registry, error_log_id=error.id)
    error_log.record_retry(registry, error.id)
    (found,) = dead_letters.list_dead_letters(registry)
    assert (found.id, found.error_count) == (letter.id, 2)


def test_errors_are_resolved_or_ignored_once(registry: Registry) -> None:
    one, other = log(registry), log(registry)
    assert error_log.end(registry, ErrorStatus.RESOLVED, one.id, "fixed").resolution == "fixed"
    assert error_log.end(registry, ErrorStatus.IGNORED, other.id).status == ErrorStatus.IGNORED
    for status in (ErrorStatus.RESOLVED, ErrorStatus.IGNORED):
        for error in (one, other):
            with pytest.raises(StatusConflict, match="since"):
                error_log.end(registry, status, error.id)
    pass_time(registry, days=1)
    assert error_log.due(registry) == []


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (ErrorFilter(), 5),
        (ErrorFilter(table_name="orders"), 3),
        (ErrorFilter(schema_name="other"), 0),
        (ErrorFilter(table_name="orders", error_code="A"), 1),
        (ErrorFilter(error_type=ErrorType.TIMEOUT), 1),
        (ErrorFilter(sync_run_id=1), 1),
        (ErrorFilter(before=datetime(2026, 1, 1, tzinfo=UTC)), 2),
    ],
)
def test_open_errors_are_ended_by_filter_in_small_transactions(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, chosen: ErrorFilter, expected: int
) -> None:
    monkeypatch.setattr(error_log, "BULK", 2)
    run = runs.start(registry, "shop", SyncMode.BATCH)
    made = [
        log(registry, error_code="A", sync_run_id=run.id),
        log(registry),
        log(registry),
        log(registry, table_name="lines"),
        error_log.log(registry, "shop", ErrorType.TIMEOUT, "late"),
    ]
    with registry.database.transaction() as connection:
        change = schema.error_log.update().where(schema.error_log.c.id.in_([made[0].id, made[3].id]))
        connection.execute(change.values(occurred_at=datetime(2025, 12, 31, tzinfo=UTC)))
    ignored = error_log.end(registry, ErrorStatus.IGNORED, log(registry).id, "before")
    done = error_log.end_all(registry, ErrorStatus.RESOLVED, chosen, "token=hunter2")
    resolved = error_log.list_errors(registry, status=ErrorStatus.RESOLVED)
    assert done == len(resolved) == expected
    assert {(each.resolution, each.next_retry_at) for each in resolved} <= {("token=***", None)}
    assert len(error_log.list_errors(registry, status=ErrorStatus.OPEN)) == 5 - expected
    assert error_log.get(registry, ignored.id) == ignored


def test_trends_count_by_hour_and_type_with_what_retries_achieved(registry: Registry) -> None:
    for success in (True, True, False):
        error = error_log.record_retry(registry, log(registry).id, success)
    error_log.end(registry, ErrorStatus.RESOLVED, error.id, "by hand, after a retry that failed")
    log(registry)
    error_log.log(registry, "other", ErrorType.TIMEOUT, "late")
    trends = error_log.trends(registry)
    validation = [each for each in trends if each.error_type == ErrorType.VALIDATION]
    assert sum(each.errors for each in validation) == 4
    assert (sum(e.retried for e in validation), sum(e.resolved_by_retry for e in validation)) == (3, 2)
    assert all(each.hour.minute == 0 and each.hour.tzinfo is not None for each in trends)
    assert [each.error_type for each in error_log.trends(registry, "other")] == [ErrorType.TIMEOUT]
    assert error_log.trends(registry, "other")[0].retry_success_rate is None


# Dead letters -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "record", [RECORD, "raw text \0", b"\xff", [1, 2], "x" * 10_000_000], ids=lambda r: str(r)[:20]
)
def test_a_record_and_its_envelope_come_back_as_they_were(registry: Registry, record: Any) -> None:
    letter = add(registry, record_data=record, envelope={"op": "c", "after": record, "ts": 1})
    found = dead_letters.get(registry, letter.id)
    assert found == letter
    assert (found.record_data, found.envelope) == (record, {"op": "c", "after": record, "ts": 1})


@pytest.mark.parametrize("record", ["raw text", "123", '{"id": 1}', [Decimal("0.10"), 1e22], {"id": 1.5}], ids=str)
def test_a_record_comes_back_through_the_callers_connection(registry: Registry, record: Any) -> None:
    with sa.create_engine(registry.database.url).begin() as connection:
        letter = add(registry, record_data=record, envelope=record, connection=connection)
        error = log(registry, record_data=record, error_details=record, connection=connection)
        run = runs.start(registry, "shop", SyncMode.BATCH, source_info=record, connection=connection)
    assert [letter.record_data, letter.envelope, error.record_data, error.error_details] == [record] * 4
    assert run.source_info == record
    assert dead_letters.get(registry, letter.id) == letter


def test_nan_comes_back_as_nan(registry: Registry) -> None:
    letter = add(registry, record_data={"a": math.nan})
    assert math.isnan(dead_letters.get(registry, letter.id).record_data["a"])


def test_a_source_record_that_fails_again_is_the_same_row_as_it_failed_last(registry: Registry) -> None:
    first = add(registry, source_record_id="7")
    (claimed,) = dead_letters.claim(registry, "w")
    again = add(registry, source_record_id="7", record_data={"id": 2}, error_message="worse")
    assert (again.id, again.error_count, again.status) == (first.id, 2, DeadLetterStatus.PENDING)
    assert (again.record_data, again.error_message) == ({"id": 2}, "worse")
    with pytest.raises(StatusConflict, match="not current"):
        dead_letters.end(registry, DeadLetterStatus.RESOLVED, first.id, claim=claimed.claim)
    dead_letters.end(registry, DeadLetterStatus.RESOLVED, first.id)
    assert add(registry, source_record_id="7").error_count == 3
    for _ in range(2):
        add(registry)
    dead_letters.add(registry, "shop", "other", OperationType.INSERT, {"id": 1}, source_record_id="7")
    assert len(rows_of(registry, "dead_letter_queue")) == 4
    found = dead_letters.list_dead_letters(registry, schema_name="shop", table_name="orders", source_record_id="7")
    assert [each.id for each in found] == [first.id]


def test_no_two_workers_get_one_record(registry: Registry) -> None:
    for _ in range(60):
        add(registry)
    taken: dict[str, list[int]] = {f"w{number}": [] for number in range(4)}

    def work(name: str) -> None:
        while found := dead_letters.claim(registry, name, 7):
            assert all(each.claimed_by == name for each in found)
            taken[name] += [each.id for each in found]

    threads = [threading.Thread(target=work, args=[name]) for name in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([each for ids in taken.values() for each in ids]) == 60
    assert len({each for ids in taken.values() for each in ids}) == 60


def test_a_dead_workers_claim_runs_out_and_its_outcome_is_then_refused(registry: Registry) -> None:
    add(registry)
    (first,) = dead_letters.claim(registry, "dead", lease_seconds=60)
    assert dead_letters.claim(registry, "other") == []
    with pytest.raises(StatusConflict, match="claimed by dead until"):
        dead_letters.end(registry, DeadLetterStatus.DISCARDED, first.id)
    pass_time(registry, seconds=61)
    (second,) = dead_letters.claim(registry, "other")
    assert (second.id, second.claim) == (first.id, first.claim + 1)
    with pytest.raises(StatusConflict, match=f"claim {first.claim} .* not current"):
        dead_letters.end(registry, DeadLetterStatus.RESOLVED, first.id, claim=first.claim)
    assert (
        dead_letters.end(registry, DeadLetterStatus.RESOLVED, first.id, claim=second.claim).status
        == DeadLetterStatus.RESOLVED
    )


STEPS = {
    "released": {"processing": "pending"},
    "resolved": {"pending": "resolved", "processing": "resolved"},
    "discarded": {"pending": "discarded", "processing": "discarded"},
    "requeued": {"resolved": "pending", "discarded": "pending"},
}


def ending(status: DeadLetterStatus) -> Callable[..., DeadLetter]:
    return lambda registry, *given, **named: dead_letters.end(registry, status, *given, **named)


CHANGES: dict[str, Callable[..., DeadLetter]] = {
    "released": dead_letters.release,
    "resolved": ending(DeadLetterStatus.RESOLVED),
    "discarded": ending(DeadLetterStatus.DISCARDED),
    "requeued": dead_letters.requeue,
}


@pytest.mark.parametrize("what", STEPS)
@pytest.mark.parametrize("state", ["pending", "processing", "resolved", "discarded"])
def test_only_some_changes_of_state_are_allowed(registry: Registry, what: str, state: str) -> None:
    letter = add(registry)
    if state == "processing":
        (letter,) = dead_letters.claim(registry, "w")
    elif state != "pending":
        letter = CHANGES[state](registry, letter.id)
    claimed = {"claim": letter.claim} if state == "processing" and what != "requeued" else {}
    if state in STEPS[what]:
        changed = CHANGES[what](registry, letter.id, **claimed)
        assert changed.status.value == STEPS[what][state]
    else:
        with pytest.raises(StatusConflict, match=f"is {state} and cannot be {what}"):
            CHANGES[what](registry, letter.id, **claimed)
        assert dead_letters.get(registry, letter.id) == letter


def test_many_are_changed_and_counted_by_filter_and_claimed_ones_are_left(registry: Registry) -> None:
    for number in range(6):
        add(registry, source_record_id=str(number))
    add(registry, source_record_id="0")
    dead_letters.add(registry, "other", "lines", OperationType.DELETE, {"id": 1})
    dead_letters.claim(registry, "w", 1)
    chosen = DeadLetterFilter(schema_name="shop")
    assert dead_letters.counts(registry, chosen) == {"pending": 5, "processing": 1, "resolved": 0, "discarded": 0}
    assert dead_letters.end_all(registry, DeadLetterStatus.DISCARDED, chosen) == 5
    assert dead_letters.reopen_all(registry, "requeued", DeadLetterFilter(source_record_id="5")) == 1
    assert dead_letters.counts(registry) == {"pending": 2, "processing": 1, "resolved": 0, "discarded": 4}
    assert [
        each.error_count for each in dead_letters.list_dead_letters(registry, DeadLetterFilter(min_error_count=2))
    ] == [2]
    assert dead_letters.reopen_all(registry, "released", DeadLetterFilter()) == 1


def test_a_filters_fields_may_be_given_as_keywords_in_its_place(registry: Registry) -> None:
    """In every operation that takes a filter."""
    manager = MetadataManager(registry)
    letters = [add(registry, source_record_id=str(number)) for number in range(4)]
    lines = manager.add_to_dead_letter_queue("other", "lines", OperationType.DELETE, {"id": 1})
    assert manager.list_dead_letters(schema_name="other", limit=5) == [lines]
    assert manager.count_dead_letters(schema_name="shop")["pending"] == 4
    assert [each.id for each in manager.claim_dead_letters("w", table_name="lines")] == [lines.id]
    assert manager.resolve_dead_letters(source_record_id="0", resolution="put back") == 1
    assert manager.discard_dead_letters(error_log_id=None, source_record_id="1") == 1
    assert manager.requeue_dead_letters(status=DeadLetterStatus.DISCARDED) == 1
    assert manager.release_dead_letters(operation_type=OperationType.DELETE) == 1
    states = [manager.get_dead_letter(each.id).status.value for each in (*letters, lines)]
    assert states == ["resolved", "pending", "pending", "pending", "pending"]
    log(registry, error_code="a")
    log(registry, error_code="b")
    assert manager.resolve_errors(error_code="a") == 1 and manager.ignore_errors(schema_name="shop") == 1


def test_a_filter_and_its_fields_at_once_and_a_change_of_none_in_particular_are_refused(registry: Registry) -> None:
    manager = MetadataManager(registry)
    letter, error = add(registry), log(registry)
    with pytest.raises(InvalidInput, match="by fields such as schema_name='shop', or by one DeadLetterFilter"):
        manager.list_dead_letters(DeadLetterFilter(), schema_name="shop")
    for change in (manager.resolve_dead_letters, manager.discard_dead_letters, manager.requeue_dead_letters,
                   manager.release_dead_letters, manager.resolve_errors, manager.ignore_errors):  # fmt: skip
        with pytest.raises(InvalidInput, match=r"say which .* is all of them"):
            change()
        with pytest.raises(TypeError, match="shema_name"):
            change(shema_name="shop")  # type: ignore[call-arg]
    assert manager.get_dead_letter(letter.id) == letter and manager.get_error(error.id) == error


def test_what_is_unknown_or_wrong_is_refused_and_changes_nothing(registry: Registry) -> None:
    calls: list[tuple[type[Exception], Callable[[], object]]] = [
        (ErrorRecordNotFound, lambda: error_log.get(registry, 99)),
        (ErrorRecordNotFound, lambda: error_log.record_retry(registry, 99)),
        (ErrorRecordNotFound, lambda: error_log.end(registry, ErrorStatus.RESOLVED, 99)),
        (ErrorRecordNotFound, lambda: add(registry, error_log_id=99)),
        (SyncRunNotFound, lambda: log(registry, sync_run_id=99)),
        (SyncRunNotFound, lambda: add(registry, sync_run_id=99)),
        (DeadLetterNotFound, lambda: dead_letters.get(registry, 99)),
        (DeadLetterNotFound, lambda: dead_letters.end(registry, DeadLetterStatus.RESOLVED, 99)),
        (InvalidInput, lambda: log(registry, max_retries=-1)),
        (InvalidInput, lambda: log(registry, operation_type="guess")),
        (InvalidInput, lambda: log(registry, record_data=object())),
        (InvalidInput, lambda: add(registry, record_data=None)),
        (InvalidInput, lambda: add(registry, source_record_id="")),
        (InvalidInput, lambda: add(registry, source_record_id="x" * 501)),
        (InvalidInput, lambda: dead_letters.claim(registry, "")),
        (InvalidInput, lambda: runs.list_runs(registry, status="lost")),  # type: ignore[arg-type]
        (InvalidInput, lambda: error_log.Backoff(first=0)),
    ]
    for kind, call in calls:
        with pytest.raises(kind):
            call()
    assert rows_of(registry, "error_log") == rows_of(registry, "dead_letter_queue") == []
