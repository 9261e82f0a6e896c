"""What became of a commit whose answer was lost: its intent says so."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

import sqlalchemy as sa

from lakeward.errors import IntentLost, RegistryUnavailable
from lakeward.model.files import Intent
from lakeward.registry import intents
from lakeward.registry.handle import Registry

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
        RegistryUnavailable: it is not known, and nothing of the write was taken back.
        IntentLost: the intent was given up.
        What `commit` raises.
    """
    try:
        return commit()
    except RegistryUnavailable as error:
        unknown = error
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        time.sleep(SETTLE_WAIT_SECONDS)
        try:
            with registry.database.transaction() as connection:
                lock(connection)
                is_open = intents.is_open(connection, intent)
                found = None if is_open else answer(connection)
            if is_open:
                return commit()
        except RegistryUnavailable:
            continue
        if found is not None:
            return found
        raise IntentLost(
            f"the write {intent.intent_id} of {what} is not known any more; nothing was registered: write again"
        ) from unknown
    registry.let_go(intent.intent_id)
    raise RegistryUnavailable(
        f"{unknown} Whether the write {intent.intent_id} of {what} was registered is not known: its files are kept. "
        "Send it again with its key once the registry answers, or look what is there"
    ) from unknown


def is_settled(error: BaseException) -> bool:
    """Whether an error of a write or of its commit says for certain that nothing was registered."""
    return not isinstance(error, RegistryUnavailable)
