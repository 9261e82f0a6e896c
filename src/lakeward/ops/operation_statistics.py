"""What an operator asks first: how runs went, what failed, what waits, and how old positions are."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lakeward import validation
from lakeward.db import dialect
from lakeward.ops import dead_letters, positions
from lakeward.ops.records.operations import DeadLetterFilter, ErrorStatus, SyncMarker, SyncStatus
from lakeward.ops.sql import operation_statistics
from lakeward.registry.handle import Registry

_COUNTS = operation_statistics.SUMS[:-1]


def statistics(registry: Registry, schema_name: str | None = None, hours: float = 24.0) -> dict[str, Any]:
    """Runs that started and errors that occurred in the last `hours`; dead letters and positions as they are now.

    Rates are none where there is nothing to divide by. Durations in milliseconds, ages in seconds.

    Raises InvalidInput: hours that are not above 0.
    """
    age = validation.span(hours, "hours", "hours")
    validation.text_or_none(schema_name, "schema_name")
    with registry.database.read() as connection:
        now = dialect.now(connection)
        since = now - age
        run_rows = operation_statistics.runs(connection, since, schema_name)
        error_rows = operation_statistics.errors(connection, since, schema_name)
    letters = dead_letters.counts(registry, DeadLetterFilter(schema_name=schema_name))
    markers = positions.list_markers(registry, schema_name)
    return {
        "schema_name": schema_name,
        "hours": hours,
        "since": since,
        "sync_runs": _runs(run_rows),
        "errors": _errors(error_rows),
        "dead_letters": {"total": sum(letters.values()), **letters},
        "positions": [_position(marker, (now - marker.last_updated).total_seconds()) for marker in markers],
        "connection_pool": pool_use(registry),
    }


def _runs(rows: list[Any]) -> dict[str, Any]:
    by_status = {row["status"]: row for row in rows}
    counts = {f"{s.value}_runs": int(by_status[s.value]["count"]) if s.value in by_status else 0 for s in SyncStatus}
    sums = {f"total_{name}": sum(int(row[name] or 0) for row in rows) for name in _COUNTS}
    milliseconds = sum(int(row["duration_ms"] or 0) for row in rows)
    ended = sum(counts.values()) - counts["running_runs"]
    judged = counts["completed_runs"] + counts["failed_runs"]
    ended_rows = [row for row in rows if row["status"] != SyncStatus.RUNNING.value]
    seconds = milliseconds / 1000
    return {
        "total_runs": sum(counts.values()),
        **counts,
        **sums,
        "avg_duration_ms": milliseconds / ended if ended else None,
        "success_rate": counts["completed_runs"] / judged if judged else None,
        "records_per_second": _per(sum(int(row["records_processed"]) for row in ended_rows), seconds),
        "bytes_per_second": _per(sum(int(row["bytes_processed"]) for row in ended_rows), seconds),
    }


def _per(amount: float, seconds: float) -> float | None:
    return amount / seconds if seconds else None


def _errors(rows: list[Any]) -> dict[str, Any]:
    by_type: dict[str, int] = {}
    by_status = {status.value: 0 for status in ErrorStatus}
    for row in rows:
        by_type[row["error_type"]] = by_type.get(row["error_type"], 0) + int(row["count"])
        by_status[row["status"]] += int(row["count"])
    retried = sum(int(row["retried"]) for row in rows)
    resolved = sum(int(row["resolved_by_retry"]) for row in rows)
    return {
        "total_errors": sum(by_type.values()),
        "by_type": dict(sorted(by_type.items())),
        "by_status": by_status,
        "retried": retried,
        "retry_success_rate": resolved / retried if retried else None,
    }


def _position(marker: SyncMarker, age: float) -> dict[str, Any]:
    return {
        "schema_name": marker.schema_name,
        "table_name": marker.table_name,
        "marker_type": marker.marker_type.value,
        "position": marker.position_data,
        "last_updated": marker.last_updated,
        "age_seconds": max(0.0, age),
    }


def pool_use(registry: Registry) -> dict[str, int | None]:
    """Connections of this process's pool: its size, those in use, those beyond the size; None where it keeps no count.
    `lookups` are those that threads have of their own, beside them."""
    pool: Any = registry.database.engine.pool
    lookups = registry.database.lookups.connections
    if not isinstance(pool, sa.pool.QueuePool):
        return {"size": None, "in_use": None, "overflow": None, "lookups": lookups}
    return {"size": pool.size(), "in_use": pool.checkedout(), "overflow": max(0, pool.overflow()), "lookups": lookups}
