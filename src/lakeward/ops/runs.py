"""Sync runs: started, seen alive, ended once; given up where nothing was heard of them for too long."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
import sqlalchemy as sa

from lakeward import lossless_json, validation
from lakeward.db import dialect
from lakeward.db.retry import retried
from lakeward.errors import InvalidInput, StatusConflict
from lakeward.logs import log
from lakeward.ops import redaction
from lakeward.ops.positions import check_names, joined, unknown_run
from lakeward.ops.records.operations import SyncMode, SyncRun, SyncRunStatistics, SyncStatus
from lakeward.ops.sql import runs
from lakeward.registry.handle import Registry

PAGE = 100
RECOVERED_AT_ONCE = 200  # runs that one transaction gives up

Values = Mapping[str, Any]  # columns of a row


@retried
def start(
    registry: Registry,
    schema_name: str,
    sync_mode: SyncMode,
    config_hash: str | None = None,
    source_info: Any = None,
    destination_info: Any = None,
    instance_id: str | None = None,
    node_id: str | None = None,
    *,
    connection: sa.Connection | None = None,
) -> SyncRun:
    """Begin a run. Secrets in source_info and destination_info are not stored. Raises InvalidName, InvalidInput."""
    values = described(
        schema_name,
        sync_mode,
        config_hash=config_hash,
        source_info=source_info,
        destination_info=destination_info,
        instance_id=instance_id,
        node_id=node_id,
    )
    with joined(registry.database, connection) as joint:
        return insert_running(joint, values)


def described(
    schema_name: str,
    sync_mode: SyncMode,
    *,
    config_hash: str | None = None,
    source_info: Any = None,
    destination_info: Any = None,
    instance_id: str | None = None,
    node_id: str | None = None,
) -> Values:
    """What a run's row says of what it is, without secrets. Raises InvalidName, InvalidInput."""
    check_names(schema_name)
    return {
        "schema_name": schema_name,
        "sync_mode": validation.one_of(SyncMode, sync_mode, "sync_mode").value,
        "config_hash": redaction.storable(config_hash),
        "source_info": info(source_info, "source_info"),
        "destination_info": info(destination_info, "destination_info"),
        "instance_id": redaction.storable(instance_id),
        "node_id": redaction.storable(node_id),
    }


def insert_running(connection: sa.Connection, values: Values, *, heartbeats: bool = False) -> SyncRun:
    """Insert a run that begins now, in the caller's transaction. `values`: see `described`.

    Args:
        heartbeats: it is going to send heartbeats, of which this is the first.
    """
    now = dialect.now(connection)
    alive = {"heartbeat_at": now} if heartbeats else {}
    begun = {"status": SyncStatus.RUNNING.value, "started_at": now, "last_seen_at": now}
    return runs.insert(connection, {**values, **alive, **begun})


def insert_whole(
    connection: sa.Connection,
    values: Values,
    status: SyncStatus,
    seconds: float,
    counts: SyncRunStatistics,
    now: datetime,
    error_message: str | None = None,
) -> Callable[[], int]:
    """Insert a run that has ended now and took so long, in the caller's transaction; what tells its id. `values`: see
    `described`."""
    sent = runs.send_whole(
        connection,
        {
            **values,
            **msgspec.structs.asdict(counts),
            "status": status.value,
            "started_at": now - timedelta(seconds=seconds),
            "completed_at": now,
            "duration_ms": int(seconds * 1_000),
            "last_seen_at": now,
            "error_message": redaction.storable(error_message),
        },
    )

    def run_id() -> int:
        row = sent.row()
        assert row is not None
        return int(row["id"])

    return run_id


def info(value: Any, what: str, known: Collection[str] = ()) -> Any:
    """A document to show to people: without secrets, and with the repr of what JSON cannot hold."""
    return (
        None
        if value is None
        else lossless_json.loads(lossless_json.dumps(redaction.document(value, known), what, lenient=True))
    )


@retried
def heartbeat(registry: Registry, sync_run_id: int, statistics: SyncRunStatistics | None = None) -> SyncRun:
    """Say that a run lives, and what it has done so far in all, if that is given.

    Raises:
        SyncRunNotFound.
        StatusConflict: it has ended, or was given up.
        InvalidInput: counts below 0.
    """
    counts = _counts(statistics)
    with registry.database.transaction(durable=False) as connection:
        run = _running(connection, sync_run_id, "sends no heartbeat")
        now = max(dialect.now(connection), run.last_seen_at)
        return runs.update(connection, sync_run_id, {**counts, "last_seen_at": now, "heartbeat_at": now})


@retried
def update_statistics(registry: Registry, sync_run_id: int, statistics: SyncRunStatistics) -> SyncRun:
    """Set what a run has done so far, in all; it is a sign of life too. Raises as `heartbeat`."""
    with registry.database.transaction() as connection:
        run = _running(connection, sync_run_id, "takes no statistics")
        now = max(dialect.now(connection), run.last_seen_at)
        return runs.update(connection, sync_run_id, {"last_seen_at": now, **_counts(statistics)})


def add_in(connection: sa.Connection, run_id: int, counts: SyncRunStatistics, now: datetime) -> None:
    """Add to a run's counts what the caller's transaction does, even if the run was given up meanwhile. Where it is not there
    any more, that is logged alone: the work goes on."""
    if not runs.add(connection, run_id, _counts(counts), now):
        log.warning("sync_run_counts_lost", sync_run_id=run_id, why="it was deleted", **_counts(counts))


def complete_in(connection: sa.Connection, run_id: int, counts: SyncRunStatistics, now: datetime) -> None:
    """As `add_in`, and complete the run, whose work the caller's transaction is: also one that was given up, or cancelled as
    its program ended, meanwhile. Its record is then true whatever becomes of the program after the commit."""
    add_in(connection, run_id, counts, now)
    run = runs.load(connection, run_id, lock=True)
    if run is not None:
        _end(connection, run, SyncStatus.COMPLETED, {"error_message": None, "error_details": None})


def check_running(registry: Registry, run_id: int) -> None:
    """Raises SyncRunNotFound; StatusConflict: it has ended, or was given up."""
    with registry.database.read() as connection:
        _running(connection, run_id, "can be joined by no write", lock=False)


def _running(connection: sa.Connection, run_id: int, what: str, *, lock: bool = True) -> SyncRun:
    run = _load(connection, run_id, lock=lock)
    if run.status != SyncStatus.RUNNING:
        raise StatusConflict(f"the sync run {run_id} {what}: it is {run.status.value} since {run.completed_at}")
    return run


def _load(connection: sa.Connection, run_id: int, *, lock: bool = False) -> SyncRun:
    found = runs.load(connection, validation.whole(run_id, "sync_run_id"), lock=lock)
    if found is None:
        raise unknown_run(run_id)
    return found


def _counts(statistics: SyncRunStatistics | None) -> dict[str, int]:
    if statistics is None:
        return {}
    if not isinstance(statistics, SyncRunStatistics):
        raise InvalidInput(
            f"statistics are a {type(statistics).__name__}; give SyncRunStatistics(records_processed=5), say"
        )
    given = msgspec.structs.asdict(statistics)
    return {name: validation.whole(value, name, 0) for name, value in given.items()}


@retried
def complete(
    registry: Registry,
    sync_run_id: int,
    status: SyncStatus = SyncStatus.COMPLETED,
    statistics: SyncRunStatistics | None = None,
    error_message: str | None = None,
    error_details: Any = None,
    *,
    connection: sa.Connection | None = None,
) -> SyncRun:
    """End a run. Ending it again in the same way changes nothing; in another way is refused.

    Raises:
        SyncRunNotFound.
        StatusConflict: it has ended otherwise, or was given up.
        InvalidInput: a status that is no end, counts below 0.
    """
    ending = validation.one_of(SyncStatus, status, "status")
    if ending == SyncStatus.RUNNING:
        raise InvalidInput("status 'running' ends no run; give completed, failed or cancelled")
    counts = _counts(statistics)
    values = {"error_message": redaction.storable(error_message), "error_details": info(error_details, "error_details")}
    with joined(registry.database, connection) as joint:
        run = _load(joint, sync_run_id, lock=True)
        if run.status != SyncStatus.RUNNING:
            if run.status == ending and all(getattr(run, name) == value for name, value in counts.items()):
                return run
            raise StatusConflict(
                f"the sync run {sync_run_id} is {run.status.value} since {run.completed_at} and cannot become {ending.value}; "
                "start another run"
            )
        return _end(joint, run, ending, {**counts, **values})


def _end(connection: sa.Connection, run: SyncRun, status: SyncStatus, values: dict[str, Any]) -> SyncRun:
    now = max(dialect.now(connection), run.started_at)  # a clock may go back
    duration = (now - run.started_at) // timedelta(milliseconds=1)
    seen = max(now, run.last_seen_at)
    ended = {"status": status.value, "completed_at": now, "duration_ms": duration, "last_seen_at": seen}
    return runs.update(connection, run.id, {**values, **ended})


def get(registry: Registry, sync_run_id: int) -> SyncRun:
    """A run. Raises SyncRunNotFound."""
    with registry.database.read() as connection:
        return _load(connection, sync_run_id)


def list_runs(
    registry: Registry,
    schema_name: str | None = None,
    status: SyncStatus | None = None,
    sync_mode: SyncMode | None = None,
    since: datetime | None = None,
    limit: int | None = PAGE,
    before: int | None = None,
    table_name: str | None = None,
) -> list[SyncRun]:
    """The newest first. `before`: an id, to go on from the last page; `since`: started then or later.

    `table_name`: of runs that write a table ('shop.orders', or 'orders' whatever the namespace), those of it.

    Raises InvalidInput, InvalidName.
    """
    most, start = validation.page_of(limit, before)
    filters = {
        "schema_name": validation.text_or_none(schema_name, "schema_name"),
        "status": validation.one_of_or_none(SyncStatus, status, "status"),
        "sync_mode": validation.one_of_or_none(SyncMode, sync_mode, "sync_mode"),
        "since": validation.moment(since, "since"),
        "table_name": validation.text_or_none(table_name, "table_name"),
    }
    with registry.database.read() as connection:
        return runs.page(connection, **filters, limit=most, before=start)  # type: ignore[arg-type]


def recover(
    registry: Registry, max_age_hours: float = 24.0, *, heartbeat_seconds: float | None = None
) -> list[SyncRun]:
    """Mark as failed the runs of which nothing was heard for so long; a healthy one of any age is left alone.

    Args:
        heartbeat_seconds: a shorter limit for runs that do send heartbeats.

    Raises:
        InvalidInput: an age that is not above 0.
    """
    age = validation.span(max_age_hours, "max_age_hours", "hours")
    shorter = None if heartbeat_seconds is None else validation.span(heartbeat_seconds, "heartbeat_seconds", "seconds")
    found = _give_up(registry, age, with_heartbeats=False)
    return found if shorter is None else found + _give_up(registry, shorter, with_heartbeats=True)


def _give_up(registry: Registry, age: timedelta, *, with_heartbeats: bool) -> list[SyncRun]:
    given_up: list[SyncRun] = []
    while True:
        found = _give_up_batch(registry, age, with_heartbeats)
        given_up += found
        if len(found) < RECOVERED_AT_ONCE:
            break
    for run in given_up:
        log.warning("sync_run_given_up", sync_run_id=run.id, schema_name=run.schema_name)
    return given_up


@retried
def _give_up_batch(registry: Registry, age: timedelta, with_heartbeats: bool) -> list[SyncRun]:
    with registry.database.transaction() as connection:
        since = dialect.now(connection) - age
        ended: list[SyncRun] = []
        for run in runs.silent(connection, since, with_heartbeats=with_heartbeats, limit=RECOVERED_AT_ONCE):
            message = f"no sign of life since {run.last_seen_at.isoformat()}: given up"
            ended.append(_end(connection, run, SyncStatus.FAILED, {"error_message": message}))
        return ended


def check_known(connection: sa.Connection, run_id: int | None) -> None:
    """Raises SyncRunNotFound."""
    if run_id is not None:
        _load(connection, run_id)
