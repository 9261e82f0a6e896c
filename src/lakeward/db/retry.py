"""The one place where what a database has ended, so that others could go on, is run again."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from lakeward.errors import TransactionConflict
from lakeward.logs import log
from lakeward.retry import RetryConfig

# A decorator that gives back what it takes: mypy then knows the type of what is decorated without checking its module first.
F = TypeVar("F", bound=Callable[..., Any])

RETRY = RetryConfig(5, initial_delay=0.005, max_delay=0.5, backoff_factor=3.0, jitter=1.0)


def retried(function: F) -> F:
    """For a function that opens one transaction and does nothing else that lasts: it is run again, from its beginning, where
    the database has ended that transaction by a deadlock or a serialization failure.

    A transaction of the caller's is the caller's to run again. So no iterator may be among the arguments: it would be empty.
    """

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        failures = 0
        while True:
            try:
                return function(*args, **kwargs)
            except TransactionConflict as error:
                failures += 1
                if not error.is_rolled_back:
                    raise
                if failures > RETRY.max_retries:
                    error.is_rolled_back = False  # nobody above tries as often again
                    raise
                log.debug("transaction_run_again", function=function.__qualname__, error=str(error))
            time.sleep(RETRY.delay(failures))

    return run  # type: ignore[return-value]
