"""Errors: logged, tried again with growing waits, resolved or ignored; the last failure sends the record to the dead letters."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any, Unpack

import sqlalchemy as sa

from lakeward import lossless_json, validation
from lakeward.batching import done_in_batches
from lakeward.db import dialect
from lakeward.db.retry import retried
from lakeward.errors import (
    ErrorRecordNotFound,
    LakewardError,
    StatusConflict,
    TransactionConflict,
    error_code,
)
from lakeward.logs import log as log_of_process
from lakeward.ops import claims, dead_letters, redaction, runs
from lakeward.ops.positions import check_names, joined
from lakeward.ops.records.operations import (
    ErrorFields,
    ErrorFilter,
    ErrorRecord,
    ErrorStatus,
    ErrorTrend,
    ErrorType,
    OperationType,
)
from lakeward.ops.sql import dead_letters as letter_store
from lakeward.ops.sql import error_log
from lakeward.registry.handle import Registry
from lakeward.retry import RetryConfig

PAGE = 100
CLAIM_SECONDS = 300.0  # how long what errors_due hands out is kept from others
MAX_RETRIES = 1_000_000
TOLD = "told to whoever ran the command"
BULK = 500  # errors that one transaction ends


def Backoff(first: float = 60.0, factor: float = 2.0, longest: float = 3_600.0) -> RetryConfig:
    """How long to wait before a retry: `first` seconds, then `factor` times as long each time, up to `longest`.

    Raises InvalidInput.
    """
    return RetryConfig(initial_delay=first, max_delay=longest, backoff_factor=factor, jitter=0.0)


DEFAULT_BACKOFF = Backoff()


@retried
def log(
    registry: Registry,
    schema_name: str,
    error_type: ErrorType,
    error_message: str,
    table_name: str | None = None,
    sync_run_id: int | None = None,
    error_code: str | None = None,
    error_details: Any = None,
    stack_trace: str | None = None,
    record_data: Any = None,
    operation_type: OperationType | None = None,
    max_retries: int = 3,
    *,
    backoff: RetryConfig = DEFAULT_BACKOFF,
    redact_columns: Collection[str] = (),
    failure_key: str | None = None,
    is_told: bool = False,
    connection: sa.Connection | None = None,
) -> ErrorRecord:
    """Write down an error. Texts and details are stored without secrets, the record as it is but for `redact_columns`.

    With max_retries above 0 it is due for a first retry after the back-off's first wait.

    Args:
        failure_key: what fails, such as a batch that is sent again and again: its open error, if there is one, counts the
            failure and says what happened this time.
        is_told: it needs nobody any more, since whoever asked for the work was told; it is written down as ignored.

    Raises:
        InvalidName, InvalidInput.
        SyncRunNotFound: no such run.
    """
    check_names(schema_name, table_name)
    record, known = redaction.columns(record_data, redact_columns)
    lossless_json.dumps(record, "record_data")  # refused before anything is written
    values = {
        "schema_name": schema_name,
        "table_name": table_name,
        "sync_run_id": sync_run_id,
        "error_type": validation.one_of(ErrorType, error_type, "error_type").value,
        "error_code": redaction.storable(error_code, known),
        "error_message": redaction.storable(error_message, known) or "",
        "error_details": runs.info(error_details, "error_details", known),
        "stack_trace": redaction.storable(stack_trace, known),
        "record_data": record,
        "operation_type": None
        if operation_type is None
        else validation.one_of(OperationType, operation_type, "operation_type").value,
        "max_retries": validation.whole(max_retries, "max_retries", 0, MAX_RETRIES),
        "status": ErrorStatus.OPEN.value,
        "failure_key": failure_key,
    }
    with joined(registry.database, connection) as joint:
        runs.check_known(joint, sync_run_id)
        now = dialect.now(joint)
        due = now + timedelta(seconds=backoff.delay(1)) if max_retries and not is_told else None
        if is_told:
            values |= {"status": ErrorStatus.IGNORED.value, "resolved_at": now, "resolution": TOLD}
        write = error_log.insert if failure_key is None or is_told else error_log.insert_or_count
        return write(joint, {**values, "occurred_at": now, "next_retry_at": due})


def succeeded(registry: Registry, failure_key: str) -> None:
    """What failed under a key is done: its open error, if there is one, is resolved. What goes wrong is logged."""
    try:
        found = registry.database.lookups.one(error_log.OPEN_OF_KEY, {"failure_key": failure_key})
        if found is not None:
            end(registry, ErrorStatus.RESOLVED, found["id"], "it succeeded later")
    except LakewardError as problem:  # somebody was quicker, say; the work is done all the same
        why = {"error": str(problem), "code": error_code(problem)}
        log_of_process.warning("error_not_resolved", failure_key=failure_key, **why)


@retried
def due(
    registry: Registry,
    limit: int = PAGE,
    schema_name: str | None = None,
    *,
    claim_seconds: float = CLAIM_SECONDS,
) -> list[ErrorRecord]:
    """Hand out errors whose retry is due, the longest due first. Nobody else gets them for `claim_seconds`.

    Whoever gets one tries it again and says so by `record_retry`, with the record's `claim`.
    """
    kept, most = validation.span(claim_seconds, "claim_seconds", "seconds"), validation.whole(limit, "limit", 1)
    validation.text_or_none(schema_name, "schema_name")
    with registry.database.transaction() as connection:
        now = dialect.now(connection)
        return error_log.take_due(connection, now, now + kept, most, schema_name)


@retried
def record_retry(
    registry: Registry,
    error_id: int,
    success: bool = False,
    error_message: str | None = None,
    claim: int | None = None,
    *,
    backoff: RetryConfig = DEFAULT_BACKOFF,
    redact_columns: Collection[str] = (),
) -> ErrorRecord:
    """Count a retry. A success resolves the error. A failure sets the next retry; the last one that is allowed moves the
    record, if there is one, to the dead letters: the error then stays open until the dead letter is dealt with.

    `claim`: the number of the claim under which it was tried; needed while the claim of whoever was handed it holds.

    Raises:
        ErrorRecordNotFound.
        StatusConflict: it is not open, or no retry is left; or it is claimed, and not under this claim.
    """
    message = redaction.storable(error_message)  # which takes its time with a long text
    validation.whole(error_id, "error_id")
    validation.whole_or_none(claim, "claim")
    with registry.database.transaction() as connection:
        # Locked before the error, as whoever ends dead letters does, so that no two wait for each other.
        letter = letter_store.of_error(connection, error_id, lock=True)
        error = _open(connection, error_id, "is not tried again")
        if error.retry_count >= error.max_retries:
            raise StatusConflict(
                f"the error {error_id} was tried again {error.retry_count} times, which is all that max_retries allows; "
                "resolve or ignore it, or see its dead letter"
            )
        now = dialect.now(connection)
        current = None if error.claimed_until is None else error.claim
        claims.check(f"the error {error.id}", claim, current=current, until=error.claimed_until, by="", now=now)
        now = max(now, error.occurred_at)
        count = error.retry_count + 1
        values: dict[str, Any] = {"retry_count": count, "last_retry_at": now, "claimed_until": None}
        if success:
            ended = {"status": ErrorStatus.RESOLVED.value, "resolved_at": now, "next_retry_at": None}
            return error_log.update(connection, error_id, {**values, **ended, "resolution": f"retry {count} succeeded"})
        if message is not None:
            values["error_message"] = message
        values["next_retry_at"] = (
            now + timedelta(seconds=backoff.delay(count + 1)) if count < error.max_retries else None
        )
        failed = error_log.update(connection, error_id, values)
        if count == error.max_retries and failed.record_data is not None:
            if letter is None and letter_store.of_error(connection, error_id) is not None:
                raise TransactionConflict(f"a dead letter of the error {error_id} came meanwhile; try again")
            dead_letters.add_failed(connection, failed, letter, redact_columns)
        return failed


def _open(connection: sa.Connection, error_id: int, what: str) -> ErrorRecord:
    error = load(connection, error_id, lock=True)
    if error.status != ErrorStatus.OPEN:
        raise StatusConflict(f"the error {error_id} {what}: it is {error.status.value} since {error.resolved_at}")
    return error


def load(connection: sa.Connection, error_id: int, *, lock: bool = False) -> ErrorRecord:
    """An error, in the caller's transaction. Raises ErrorRecordNotFound; InvalidInput: what is no id."""
    found = error_log.load(connection, validation.whole(error_id, "error_id"), lock=lock)
    if found is None:
        raise ErrorRecordNotFound(f"no error {error_id}; `lakeward errors list` shows those there are")
    return found


@retried
def end(registry: Registry, status: ErrorStatus, error_id: int, resolution: str | None = None) -> ErrorRecord:
    """Say that an open error is dealt with (resolve), or that it needs nothing (ignore); the error as it is then.

    Raises ErrorRecordNotFound; StatusConflict: it is not open.
    """
    note = redaction.storable(resolution)
    with registry.database.transaction() as connection:
        error = _open(connection, error_id, f"cannot be {status.value}")
        now = max(dialect.now(connection), error.occurred_at)
        error_log.end(connection, [error_id], status, now, note)
        ended = error_log.load(connection, error_id)
    assert ended is not None
    return ended


def end_all(
    registry: Registry,
    status: ErrorStatus,
    chosen: ErrorFilter | None = None,
    resolution: str | None = None,
    **fields: Unpack[ErrorFields],
) -> int:
    """Resolve or ignore all open errors that are chosen, by an ErrorFilter or by its fields; how many.

    In transactions of some hundred each, so that nothing waits long.

    Raises InvalidInput: it is not said which, or by a value that no error has.
    """
    note = redaction.storable(resolution)
    narrowed = validation.filter_of(ErrorFilter, chosen, fields, "errors", is_needed=True)
    return done_in_batches(lambda after: _end_batch(registry, status, narrowed, note, after))


@retried
def _end_batch(
    registry: Registry, status: ErrorStatus, chosen: ErrorFilter, note: str | None, after: int
) -> tuple[int, int | None]:
    with registry.database.transaction() as connection:
        found = error_log.open_ids(connection, chosen, after, BULK)
        error_log.end(connection, found, status, dialect.now(connection), note)
        return len(found), found[-1] if len(found) == BULK else None


def get(registry: Registry, error_id: int) -> ErrorRecord:
    """An error. Raises ErrorRecordNotFound."""
    with registry.database.read() as connection:
        return load(connection, error_id)


def list_errors(
    registry: Registry,
    schema_name: str | None = None,
    table_name: str | None = None,
    error_type: ErrorType | None = None,
    status: ErrorStatus | None = None,
    sync_run_id: int | None = None,
    since: datetime | None = None,
    limit: int | None = PAGE,
    before: int | None = None,
) -> list[ErrorRecord]:
    """The newest first. `before`: an id, to go on from the last page; `since`: occurred then or later.

    Raises InvalidInput, InvalidName.
    """
    most, start = validation.page_of(limit, before)
    filters = {
        "schema_name": validation.text_or_none(schema_name, "schema_name"),
        "table_name": validation.text_or_none(table_name, "table_name"),
        "error_type": validation.one_of_or_none(ErrorType, error_type, "error_type"),
        "status": validation.one_of_or_none(ErrorStatus, status, "status"),
        "sync_run_id": validation.whole_or_none(sync_run_id, "sync_run_id"),
        "since": validation.moment(since, "since"),
    }
    with registry.database.read() as connection:
        return error_log.page(connection, **filters, limit=most, before=start)  # type: ignore[arg-type]


def trends(registry: Registry, schema_name: str | None = None, hours: float = 24.0) -> list[ErrorTrend]:
    """Errors by hour and type, the oldest hour first, with what became of those that were tried again."""
    age = validation.span(hours, "hours", "hours")
    validation.text_or_none(schema_name, "schema_name")
    with registry.database.read() as connection:
        moment = dialect.now(connection) - age
        rows = error_log.since(connection, moment, schema_name)
    return [
        ErrorTrend(
            hour=datetime.fromisoformat(row["hour"]).replace(tzinfo=UTC),
            error_type=ErrorType(row["error_type"]),
            errors=int(row["errors"]),
            retried=int(row["retried"]),
            resolved_by_retry=int(row["resolved_by_retry"]),
        )
        for row in rows
    ]
