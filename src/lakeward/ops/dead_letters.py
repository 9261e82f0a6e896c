"""Dead letters: records that could not be applied, kept whole until they are resolved or discarded.

pending -> processing (claimed, with a lease) -> resolved or discarded; released, or its claim run out, it is pending again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Unpack

import sqlalchemy as sa

from lakeward import lossless_json, validation
from lakeward.batching import done_in_batches
from lakeward.db import dialect
from lakeward.db.retry import retried
from lakeward.errors import DeadLetterNotFound, ErrorRecordNotFound, InvalidInput, StatusConflict
from lakeward.names import is_storable
from lakeward.ops import claims, redaction, runs
from lakeward.ops.positions import check_names, joined
from lakeward.ops.records.operations import (
    DeadLetter,
    DeadLetterFields,
    DeadLetterFilter,
    DeadLetterStatus,
    ErrorRecord,
    ErrorStatus,
    OperationType,
)
from lakeward.ops.sql import dead_letters, error_log
from lakeward.registry.handle import Registry
from lakeward.validation import filter_of

PAGE = 100
CLAIM_SECONDS = 300.0
BULK = 500  # rows that one transaction changes
MAX_SOURCE_ID = 500  # bytes of UTF-8; an index holds it
NO_TABLE = "(none)"  # of the record of an error that named none
REPAIRED = "an append has repaired it"  # resolutions
TAKEN = "the batch was sent again, and this record fits now"

Prepared = Mapping[str, Any]  # the columns of a row that is yet to be inserted, without its times, run and error


class Repair(NamedTuple):
    """The dead letter that a write repairs, and the number of the claim under which it does, if there is one."""

    dead_letter_id: int
    claim: int | None = None


@retried
def add(
    registry: Registry,
    schema_name: str,
    table_name: str,
    operation_type: OperationType,
    record_data: Any,
    sync_run_id: int | None = None,
    error_log_id: int | None = None,
    source_record_id: str | None = None,
    error_message: str | None = None,
    *,
    envelope: Any = None,
    redact_columns: Collection[str] = (),
    connection: sa.Connection | None = None,
) -> DeadLetter:
    """Keep a record that could not be applied, whole. A source record that fails again is the same row with a higher error_count,
    pending again, and holds the record as it failed last; rows without source_record_id stay apart.

    Raises:
        InvalidName, InvalidInput.
        SyncRunNotFound, ErrorRecordNotFound.
    """
    check_names(schema_name, table_name)
    values = prepare(
        schema_name,
        table_name,
        operation_type,
        record_data,
        source_record_id=source_record_id,
        error_message=error_message,
        envelope=envelope,
        redact_columns=redact_columns,
    )
    with joined(registry.database, connection) as joint:
        runs.check_known(joint, sync_run_id)
        if error_log_id is not None and error_log.load(joint, validation.whole(error_log_id, "error_log_id")) is None:
            raise ErrorRecordNotFound(f"no error {error_log_id}; `lakeward errors list` shows those there are")
        now = dialect.now(joint)
        named = {"sync_run_id": sync_run_id, "error_log_id": error_log_id}
        row = {**values, **named, "created_at": now, "last_failed_at": now}
        return (dead_letters.insert if source_record_id is None else dead_letters.insert_or_count)(joint, row)


def prepare(
    schema_name: str,
    table_name: str,
    operation_type: OperationType,
    record_data: Any,
    *,
    source_record_id: str | None = None,
    error_message: str | None = None,
    envelope: Any = None,
    redact_columns: Collection[str] = (),
) -> Prepared:
    """A dead letter as it will be stored, checked (but for its names) and redacted. Raises InvalidInput."""
    _check_source_id(source_record_id)
    record, known = redaction.columns(record_data, redact_columns)
    wrapping, more = redaction.columns(envelope, redact_columns, "envelope")
    lossless_json.dumps(record, "record_data")
    lossless_json.dumps(wrapping, "envelope")
    if record is None:
        raise InvalidInput("record_data is None: a dead letter is a record; log an error where there is none")
    return {
        "schema_name": schema_name,
        "table_name": table_name,
        "operation_type": validation.one_of(OperationType, operation_type, "operation_type").value,
        "record_data": record,
        "envelope": wrapping,
        "source_record_id": source_record_id,
        "error_message": redaction.storable(error_message, [*known, *more]),
        "status": DeadLetterStatus.PENDING.value,
    }


def insert_prepared(
    connection: sa.Connection, letters: Sequence[Prepared], now: datetime, *, sync_run_id: int | None = None
) -> None:
    """Keep many of one run in the caller's transaction. Those with a source_record_id are not for this: they may be there
    already.

    Raises SyncRunNotFound.
    """
    if letters:
        runs.check_known(connection, sync_run_id)
        added = {"sync_run_id": sync_run_id, "created_at": now, "last_failed_at": now}
        dead_letters.insert_all(connection, [{**letter, **added} for letter in letters])


def replace_of_source(
    connection: sa.Connection,
    where: tuple[str, str],
    source: str,
    letters: Sequence[Prepared],
    now: datetime,
    *,
    sync_run_id: int | None = None,
) -> None:
    """Keep the letters of one try of what is tried again and again, in the caller's transaction: they take the places of the
    last try's, which count them, and those that are left over are resolved.

    Args:
        where: schema and table.
        source: what is tried; the letters' source_record_id begin with it.

    Raises SyncRunNotFound.
    """
    runs.check_known(connection, sync_run_id)
    added = {"sync_run_id": sync_run_id, "created_at": now, "last_failed_at": now}
    kept = {
        dead_letters.insert_or_count(connection, {**letter, **added, "source_record_id": f"{source}:{number}"}).id
        for number, letter in enumerate(letters)
    }
    before = dead_letters.of_source(connection, *where, source, _ALLOWED["resolved"])
    left = [_changed(connection, each, "resolved", TAKEN) for each in before if each.id not in kept]
    _end_errors(connection, left, "resolved", TAKEN)


def settle_repair(
    connection: sa.Connection,
    where: tuple[str, str],
    repair: Repair,
    again: Prepared | None,
    now: datetime,
    *,
    sync_run_id: int | None = None,
) -> None:
    """End the letter that a write to a table repairs, in the write's transaction.

    Args:
        where: schema and table.
        again: the letter that the write has made of the record, which still does not fit: the same letter then holds it, is
            pending, and counts one failure more. None resolves it.

    Raises:
        DeadLetterNotFound.
        InvalidInput: it is a letter of another table.
        StatusConflict: it has ended, or is claimed, and not under this claim.
    """
    found = _load(connection, repair.dead_letter_id, lock=True)
    if (found.schema_name, found.table_name) != where:
        raise InvalidInput(
            f"the dead letter {found.id} is of {found.schema_name}.{found.table_name}, and was to be repaired by a write to "
            f"{'.'.join(where)}; append to the table that it is of"
        )
    _check_state(found, "resolved", repair.claim, now)
    if again is None:
        _end_errors(connection, [_changed(connection, found, "resolved", REPAIRED)], "resolved", REPAIRED)
        return
    values = {name: again[name] for name in ("operation_type", "record_data", "envelope", "error_message")}
    pending = {"status": DeadLetterStatus.PENDING.value, "claimed_by": None, "claimed_until": None}
    counted = {"error_count": found.error_count + 1, "last_failed_at": max(now, found.last_failed_at)}
    dead_letters.update(connection, found.id, {**values, **pending, **counted, "sync_run_id": sync_run_id})


def _check_source_id(source_record_id: str | None) -> None:
    if source_record_id is None:
        return
    if not isinstance(source_record_id, str) or not source_record_id or not is_storable(source_record_id):
        raise InvalidInput(
            f"source_record_id {source_record_id!r} is no text of one character or more, without NUL and surrogates"
        )
    if len(source_record_id.encode()) > MAX_SOURCE_ID:
        raise InvalidInput(
            f"source_record_id {source_record_id[:40]!r}... is longer than {MAX_SOURCE_ID} bytes; give a digest of it"
        )


def add_failed(
    connection: sa.Connection, error: ErrorRecord, found: DeadLetter | None, redact_columns: Collection[str] = ()
) -> DeadLetter:
    """Keep the record of an error that is not tried again. One that is there for this error already (`found`, locked) counts
    once more."""
    now = dialect.now(connection)
    if found is not None:
        values = {"error_count": found.error_count + 1, "last_failed_at": max(now, found.last_failed_at)}
        return dead_letters.update(connection, found.id, values)
    return dead_letters.insert(
        connection,
        {
            "schema_name": error.schema_name,
            "table_name": error.table_name or NO_TABLE,
            "operation_type": (error.operation_type or OperationType.UPSERT).value,
            "record_data": redaction.columns(error.record_data, redact_columns)[0],
            "sync_run_id": error.sync_run_id,
            "error_log_id": error.id,
            "error_message": error.error_message,
            "error_count": error.retry_count + 1,
            "status": DeadLetterStatus.PENDING.value,
            "created_at": now,
            "last_failed_at": now,
        },
    )


# Looking ------------------------------------------------------------------------------------------------------------------
def get(registry: Registry, dead_letter_id: int) -> DeadLetter:
    """A dead letter. Raises DeadLetterNotFound."""
    with registry.database.read() as connection:
        return _load(connection, dead_letter_id)


def _load(connection: sa.Connection, dead_letter_id: int, *, lock: bool = False) -> DeadLetter:
    found = dead_letters.load(connection, validation.whole(dead_letter_id, "dead_letter_id"), lock=lock)
    if found is None:
        raise DeadLetterNotFound(f"no dead letter {dead_letter_id}; `lakeward dlq list` shows those there are")
    return found


def list_dead_letters(
    registry: Registry,
    chosen: DeadLetterFilter | None = None,
    limit: int | None = PAGE,
    before: int | None = None,
    **fields: Unpack[DeadLetterFields],
) -> list[DeadLetter]:
    """Those that are chosen, by a DeadLetterFilter or by its fields, the newest first.

    Args:
        limit: how many at most; None for all.
        before: an id, to go on from the last page.

    Raises InvalidInput, InvalidName.
    """
    most, start = validation.page_of(limit, before)
    narrowed = filter_of(DeadLetterFilter, chosen, fields, "dead letters")
    with registry.database.read() as connection:
        return dead_letters.page(connection, narrowed, limit=most, before=start)


def counts(
    registry: Registry, chosen: DeadLetterFilter | None = None, **fields: Unpack[DeadLetterFields]
) -> dict[str, int]:
    """How many are chosen, by a DeadLetterFilter or by its fields: by status, every status named.

    Raises InvalidInput, InvalidName.
    """
    narrowed = filter_of(DeadLetterFilter, chosen, fields, "dead letters")
    with registry.database.read() as connection:
        found = dead_letters.counts(connection, narrowed)
    return {status.value: found.get(status.value, 0) for status in DeadLetterStatus}


# Working on them ----------------------------------------------------------------------------------------------------------
@retried
def claim(
    registry: Registry,
    worker: str,
    limit: int = PAGE,
    chosen: DeadLetterFilter | None = None,
    *,
    lease_seconds: float = CLAIM_SECONDS,
    **fields: Unpack[DeadLetterFields],
) -> list[DeadLetter]:
    """Take pending ones for a worker, the oldest first; no other worker gets them before the lease has run out.

    They may be narrowed by a DeadLetterFilter or by its fields.

    Raises InvalidInput: a worker without a name, a lease or a limit that is not above 0.
    """
    if not isinstance(worker, str) or not worker:
        raise InvalidInput(
            f"worker {worker!r} is no name; give a text, such as the host's name and the process's number"
        )
    owner = redaction.storable(worker) or worker
    lease, most = validation.span(lease_seconds, "lease_seconds", "seconds"), validation.whole(limit, "limit", 1)
    narrowed = filter_of(DeadLetterFilter, chosen, fields, "dead letters")
    with registry.database.transaction() as connection:
        now = dialect.now(connection)
        return dead_letters.claim(connection, owner, now, now + lease, most, narrowed)


_ALLOWED: dict[str, frozenset[str]] = {
    "released": frozenset({"processing"}),
    "resolved": frozenset({"pending", "processing"}),
    "discarded": frozenset({"pending", "processing"}),
    "requeued": frozenset({"resolved", "discarded"}),
}
_STATUS = {"released": "pending", "requeued": "pending", "resolved": "resolved", "discarded": "discarded"}


def release(registry: Registry, dead_letter_id: int, claim: int | None = None) -> DeadLetter:
    """Let one that is claimed be pending again. Raises as `resolve_dead_letter`."""
    return _change(registry, "released", dead_letter_id, claim=claim)


def end(
    registry: Registry,
    ending: DeadLetterStatus,
    dead_letter_id: int,
    resolution: str | None = None,
    claim: int | None = None,
    *,
    connection: sa.Connection | None = None,
) -> DeadLetter:
    """Say that a record is where it belongs (resolve), or give it up (discard); the open error that its dead letter names is
    resolved or ignored with it.

    Args:
        claim: the number of the claim under which it was worked on; needed while the claim of a worker holds.

    Raises:
        DeadLetterNotFound.
        StatusConflict: it is in no state for this, or is claimed, and not under this claim.
    """
    return _change(registry, ending.value, dead_letter_id, claim=claim, resolution=resolution, connection=connection)


def requeue(registry: Registry, dead_letter_id: int) -> DeadLetter:
    """Let one that is resolved or discarded be pending again. Raises as `resolve_dead_letter`."""
    return _change(registry, "requeued", dead_letter_id)


@retried
def _change(
    registry: Registry,
    what: str,
    dead_letter_id: int,
    *,
    claim: int | None = None,
    resolution: str | None = None,
    connection: sa.Connection | None = None,
) -> DeadLetter:
    validation.whole_or_none(claim, "claim")
    note = redaction.storable(resolution)
    with joined(registry.database, connection) as joint:
        found = _load(joint, dead_letter_id, lock=True)
        now = dialect.now(joint)
        _check_state(found, what, claim, now)
        changed = _changed(joint, found, what, note)
        _end_errors(joint, [changed], what, note)
        return changed


def _check_state(found: DeadLetter, what: str, claim: int | None, now: datetime) -> None:
    """Raises StatusConflict."""
    if found.status.value not in _ALLOWED[what]:
        raise StatusConflict(
            f"the dead letter {found.id} is {found.status.value} and cannot be {what}; "
            f"that is possible from {' or '.join(sorted(_ALLOWED[what]))}"
        )
    claims.check(
        f"the dead letter {found.id}",
        claim,
        current=found.claim if found.status == DeadLetterStatus.PROCESSING else None,
        until=found.claimed_until,
        by=f" by {found.claimed_by}",
        now=now,
    )


def _changed(connection: sa.Connection, found: DeadLetter, what: str, resolution: str | None) -> DeadLetter:
    ended = _STATUS[what] != DeadLetterStatus.PENDING.value
    now = max(dialect.now(connection), found.created_at)
    return dead_letters.update(
        connection,
        found.id,
        {
            "status": _STATUS[what],
            "claimed_by": None,
            "claimed_until": None,
            "resolved_at": now if ended else None,
            "resolution": resolution if ended else None,
        },
    )


def _end_errors(connection: sa.Connection, letters: Sequence[DeadLetter], what: str, resolution: str | None) -> None:
    """The errors that dead letters name end with them: after all of these, and by id, as whoever ends errors does, so that
    no two wait for each other."""
    if _STATUS[what] == DeadLetterStatus.PENDING.value:
        return
    status = ErrorStatus.RESOLVED if what == "resolved" else ErrorStatus.IGNORED
    for error_id, letter in sorted((each.error_log_id, each.id) for each in letters if each.error_log_id is not None):
        note = resolution or f"its dead letter {letter} was {what}"
        error_log.end(connection, [error_id], status, dialect.now(connection), note)


def reopen_all(
    registry: Registry, what: str, chosen: DeadLetterFilter | None = None, **fields: Unpack[DeadLetterFields]
) -> int:
    """End the claims (release) of all that are chosen, by a DeadLetterFilter or by its fields, dead workers' or not; or let those
    that have ended be pending again (requeue); how many.

    Raises InvalidInput: it is not said which, or by a value that none has.
    """
    return _change_all(registry, what, chosen, fields)


def end_all(
    registry: Registry,
    ending: DeadLetterStatus,
    chosen: DeadLetterFilter | None = None,
    resolution: str | None = None,
    **fields: Unpack[DeadLetterFields],
) -> int:
    """Resolve or discard all that are chosen, by a DeadLetterFilter or by its fields, and nobody has claimed; how many.

    Raises InvalidInput: it is not said which, or by a value that none has.
    """
    return _change_all(registry, ending.value, chosen, fields, resolution)


def _change_all(
    registry: Registry,
    what: str,
    chosen: DeadLetterFilter | None,
    fields: DeadLetterFields,
    resolution: str | None = None,
) -> int:
    """All that are in a state for it, but those that are claimed. In transactions of some hundred each, so that nothing
    waits long."""
    states = _ALLOWED[what] if what == "released" else _ALLOWED[what] - {"processing"}
    note = redaction.storable(resolution)
    narrowed = filter_of(DeadLetterFilter, chosen, fields, "dead letters", is_needed=True)
    return done_in_batches(lambda after: _change_batch(registry, what, narrowed, states, note, after))


@retried
def _change_batch(
    registry: Registry, what: str, chosen: DeadLetterFilter, states: frozenset[str], note: str | None, after: int
) -> tuple[int, int | None]:
    with registry.database.transaction() as connection:
        found = dead_letters.ids(connection, chosen, states, after=after, limit=BULK)
        changed = []
        for each in found:
            locked = dead_letters.load(connection, each, lock=True)
            if locked is not None and locked.status.value in states:
                changed.append(_changed(connection, locked, what, note))
        _end_errors(connection, changed, what, note)
        return len(changed), found[-1] if len(found) == BULK else None
