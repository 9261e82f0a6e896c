"""The one place where what a database has ended, so that others could go on, is run again."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from lakeward.errors import TransactionConflict
from lakeward.logs import log
from lakeward.retry import RetryConfig, tried

# A decorator that gives back what it takes: mypy then knows the type of what is decorated without checking its module first.
F = TypeVar("F", bound=Callable[..., Any])

RETRY = RetryConfig(5, initial_delay=0.005, max_delay=0.5, backoff_factor=3.0, jitter=1.0)


def retried(function: F) -> F:
    """For a function that opens one transaction and does nothing else that lasts: it is run again, from its beginning, where
    the database has ended that transaction by a deadlock or a serialization failure.

    A transaction of the caller's is the caller's to run again. So no iterator may be among the arguments: it would be empty.
    """

    def failed(error: TransactionConflict) -> None:
        if not error.is_rolled_back:
            raise error
        log.debug("transaction_run_again", function=function.__qualname__, error=str(error))

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)  # with nothing in between: every write comes this way
        except TransactionConflict as error:
            first = [error]

        def again() -> Any:
            if first:
                raise first.pop()
            return function(*args, **kwargs)

        try:
            return tried(again, TransactionConflict, RETRY, failed=failed)
        except TransactionConflict as error:
            error.is_rolled_back = False  # nobody above tries as often again
            raise

    return run  # type: ignore[return-value]
