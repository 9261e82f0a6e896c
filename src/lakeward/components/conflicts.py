"""Commits of a table's metadata that others may be quicker than: tried again, after a short wait."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from types import TracebackType

from lakeward.errors import MetadataConflict
from lakeward.logs import log
from lakeward.model.tables import Table
from lakeward.registry.snapshots import Conflict

TRIES = 20
WAIT_SECONDS = 0.01


class Try:
    """One attempt: a `with` block that a Conflict ends, and nothing else does."""

    def __init__(self, number: int) -> None:
        self.number = number  # from 0
        self.is_made = False
        self.conflict: Conflict | None = None

    def __enter__(self) -> None:
        self.is_made = True

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> bool:
        self.conflict = error if isinstance(error, Conflict) else None
        return self.conflict is not None


def conflict_tries(event: str, table: Table, most: int = TRIES, wait_seconds: float = WAIT_SECONDS) -> Iterator[Try]:
    """Attempts, until the caller leaves the loop or has made `most`; one whose block was not entered does not count.

    After a conflict comes a wait of up to `wait_seconds` for each attempt so far, by chance, so that two do not meet again.

    Args:
        event: what a conflict is logged as.
    """
    number = 0
    while number < most:
        attempt = Try(number)
        yield attempt
        number += attempt.is_made
        if attempt.conflict is not None:
            log.debug(event, table=str(table.identifier), attempt=number, why=str(attempt.conflict))
            if number < most:
                time.sleep(random.uniform(0, wait_seconds * number))


def moved_on(table: Table, what: str) -> MetadataConflict:
    """To be raised when all tries are made: others were quicker each time."""
    return MetadataConflict(
        f"{table.identifier}: its metadata moved on in each of {TRIES} tries to {what}; try again, while fewer write to it"
    )
