"""Errors of Lakeward's own work, written down with their traces."""

from __future__ import annotations

import traceback
from typing import Any

import sqlalchemy as sa

from lakeward.errors import LakewardError, StorageError, error_code
from lakeward.logs import log
from lakeward.names import MAX_NAME_LENGTH
from lakeward.ops import error_log
from lakeward.ops.error_types import error_type
from lakeward.ops.records.operations import OperationType
from lakeward.registry.handle import Registry

MAX_MESSAGE = 4_000  # characters of an error's message: Spark's hold the traces of every stage
MAX_TRACE = 64_000


def insert_failure(
    registry: Registry,
    error: BaseException,
    schema_name: str,
    table_name: str | None = None,
    *,
    sync_run_id: int | None = None,
    operation: OperationType | None = None,
    details: Any = None,
    failure_key: str | None = None,
    connection: sa.Connection | None = None,
) -> None:
    """Write an error down with its stack trace; nothing is tried again by itself. Raises what `error_log.log` does."""
    error_log.log(
        registry,
        schema_name[:MAX_NAME_LENGTH],
        error_type(error),
        message_of(error),
        table_name=table_name,
        sync_run_id=sync_run_id,
        error_code=error_code(error),
        error_details=details,
        stack_trace=_cut("".join(traceback.format_exception(error)), MAX_TRACE),
        operation_type=operation,
        max_retries=0,
        failure_key=failure_key,
        is_told=registry.is_attended and _is_refusal(error),
        connection=connection,
    )


def _is_refusal(error: BaseException) -> bool:
    """Whether it is about what was asked for, and not about the system."""
    return isinstance(error, LakewardError) and error.status < 500 and not isinstance(error, StorageError)


def not_recorded(error: BaseException, problem: Exception, sync_run_id: int | None = None) -> None:
    """Log an error that could not be written down, and why."""
    why = {"why": str(problem), "code": error_code(problem)}
    log.error("error_not_recorded", sync_run_id=sync_run_id, error=message_of(error), **why)


def message_of(error: BaseException) -> str:
    return _cut(str(error) or type(error).__name__, MAX_MESSAGE)


def _cut(text: str, limit: int) -> str:
    """A text without its middle, if it is too long: a trace begins with where it was, and ends with why."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... {len(text) - 2 * half:,} characters ...\n{text[-half:]}"
