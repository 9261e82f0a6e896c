"""What became of a commit whose answer was lost: its intent says so."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Generic, TypeVar

import sqlalchemy as sa

from lakeward.db.retry import retried
from lakeward.errors import CommitUnknown, IntentLost, RegistryBusy, RegistryFull, RegistryLost, RegistryUnavailable
from lakeward.registry import intents
from lakeward.registry.handle import Registry
from lakeward.tables.records.files import Intent

T = TypeVar("T")

# What else belongs to a commit: it gets the transaction's connection and the registry's time.
Also = Callable[[sa.Connection, datetime], object]

SETTLE_SECONDS = 30.0  # how long an unknown outcome is asked for
SETTLE_WAIT_SECONDS = 0.5


def settled(
    registry: Registry,
    intent: Intent,
    what: str,
    commit: Callable[[], T],
    lock: Callable[[sa.Connection], object],
    answer: Callable[[sa.Connection], T | None],
) -> T:
    """Run a commit that takes an intent; where the registry does not answer, find out what happened, or do it again.

    Args:
        what: what is written to, for messages.
        commit: the transaction. While its intent is open, it was not committed.
        lock: waits for a commit that may still be under way in the database.
        answer: what a commit that went through was answered; none if the intent was given up instead.

    Raises:
        CommitUnknown: it is not known, and nothing of the write was taken back.
        RegistryUnavailable: it did not answer in all that time; nothing was committed.
        IntentLost: the intent was given up.
        What `commit` raises.
    """
    tried = _Tried(commit)
    if tried.succeeded():
        return tried.result
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline and not tried.is_hopeless:
        time.sleep(SETTLE_WAIT_SECONDS)
        try:
            is_open, found = _look(registry, intent, lock, answer)
        except RegistryUnavailable:
            continue
        except RegistryLost:
            break
        if is_open:
            tried.is_unknown = False
            if tried.succeeded():
                return tried.result
            continue
        if found is not None:
            return found
        raise IntentLost(
            f"the write {intent.intent_id} of {what} is not known any more; nothing was registered: write again"
        ) from tried.error
    if not tried.is_unknown:
        raise tried.error
    registry.let_go(intent.intent_id)
    raise CommitUnknown(
        f"{tried.error} Whether the write {intent.intent_id} of {what} was registered is not known: its files are kept. "
        "Send it again with its key once the registry answers, or look what is there"
    ) from tried.error


class _Tried(Generic[T]):
    """A commit that is tried until it is known what became of it."""

    result: T
    error: RegistryUnavailable

    def __init__(self, commit: Callable[[], T]) -> None:
        self._commit = commit
        self.is_unknown = False

    def succeeded(self) -> bool:
        try:
            self.result = self._commit()
        except RegistryUnavailable as error:
            self.error = error
            self.is_unknown = isinstance(error, CommitUnknown)
            return False
        return True

    @property
    def is_hopeless(self) -> bool:
        """Whether others had the registry for as long as is waited for them, or its disk is full."""
        return isinstance(self.error, (RegistryBusy, RegistryFull))


@retried
def _look(
    registry: Registry,
    intent: Intent,
    lock: Callable[[sa.Connection], object],
    answer: Callable[[sa.Connection], T | None],
) -> tuple[bool, T | None]:
    """(whether the intent is open, the answer of its commit)."""
    with registry.database.transaction() as connection:
        lock(connection)
        is_open = intents.is_open(connection, intent)
        return is_open, None if is_open else answer(connection)


def is_settled(error: BaseException) -> bool:
    """Whether an error of a write or of its commit says for certain that nothing was registered.

    An interrupt does not say it, but to give the write up finds it out: that takes the intent first.
    """
    return not isinstance(error, CommitUnknown)
