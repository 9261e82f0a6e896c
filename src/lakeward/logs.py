"""The log of every module: events with fields, by structlog, which is loaded when there is a first message."""

from __future__ import annotations

import sys
import threading
from typing import Any

from lakeward.errors import LakewardError, error_code

_lock = threading.Lock()
_told: list[int] = []  # the level that `to_stderr` was given, until structlog is loaded and knows it


class _Log:
    """structlog's logger as it is configured at each message: `log.warning("lease_lost", table=...)`."""

    def __getattr__(self, method: str) -> Any:
        import structlog

        with _lock:
            if _told:
                structlog.configure(
                    wrapper_class=structlog.make_filtering_bound_logger(_told.pop()),
                    logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
                )
        return getattr(structlog.get_logger(), method)


log: Any = _Log()


def log_and_go_on(log: Any, event: str, error: Exception, **context: Any) -> None:
    """In an `except` of work that goes on or is tried again: Lakeward's errors are a warning, others, which are faults of ours,
    come with their stack.
    """
    if isinstance(error, LakewardError):
        log.warning(event, **context, error=str(error), code=error_code(error))
    else:
        log.error(event, **context, exc_info=error)


def to_stderr(level: int) -> None:
    """From now on messages of `level` (as of `logging`) and above go to standard error."""
    _told[:] = [level]


def is_configured() -> bool:
    """Whether anybody has said where messages go. By itself structlog prints every level."""
    if _told:
        return True
    structlog = sys.modules.get("structlog")
    return structlog is not None and bool(structlog.is_configured())
