from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lakeward.db.conditions import equal
from lakeward.db.schema import error_log, sync_runs
from lakeward.ops.sql.error_log import by_retry

_r, _e = sync_runs.c, error_log.c
SUMS = ("records_processed", "records_inserted", "records_updated", "records_deleted", "bytes_processed", "duration_ms")


def runs(connection: sa.Connection, since: datetime, schema_name: str | None = None) -> list[Mapping[str, Any]]:
    """Of runs that started since then, by status: how many, and sums."""
    sums = [sa.func.sum(_r[name]).label(name) for name in SUMS]
    status = _by_time(_r.status)
    query = sa.select(status.label("status"), sa.func.count().label("count"), *sums)
    query = query.where(_r.started_at >= since, equal(_r.schema_name, schema_name))
    return [dict(row) for row in connection.execute(query.group_by(status)).mappings()]


def errors(connection: sa.Connection, since: datetime, schema_name: str | None = None) -> list[Mapping[str, Any]]:
    """Of errors that occurred since then, by type and status: how many, how many were tried again, and what a retry resolved."""
    retried = sa.func.sum(sa.case((_e.retry_count > 0, 1), else_=0)).label("retried")
    kind = _by_time(_e.error_type)
    resolved = sa.func.sum(sa.case((by_retry(), 1), else_=0)).label("resolved_by_retry")
    query = sa.select(kind.label("error_type"), _e.status, sa.func.count().label("count"), retried, resolved)
    query = query.where(_e.occurred_at >= since, equal(_e.schema_name, schema_name))
    return [dict(row) for row in connection.execute(query.group_by(kind, _e.status)).mappings()]


def _by_time(group: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    """What rows are grouped by, as an expression: SQLite would read the whole index of a column rather than the time's, to group
    without sorting."""
    return sa.func.lower(group)
