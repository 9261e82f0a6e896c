"""Commits of a table's metadata that others may be quicker than: tried again, and after a few lost races in turn.

That is the bound under ceaseless writers. A race is lost to a commit that began earlier, or to a quicker one. Whoever has lost a
few queues, and while somebody queues, nobody else's commit goes through: the first in the queue wins with the next try.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

from lakeward.errors import MetadataConflict
from lakeward.logs import log
from lakeward.registry import Registry, turns
from lakeward.registry.turns import Turn
from lakeward.retry import RetryConfig
from lakeward.tables.records.tables import Table
from lakeward.tables.snapshots import Conflict, Held, NotOurTurn

T = TypeVar("T")

FREE_TRIES = 4
TURN_TRIES = 4  # a compaction may take pending files away in between, and its own lease keeps it from doing so often
RETRY = RetryConfig(initial_delay=0.005, max_delay=0.02, jitter=1.0)

# Gets the number of the try, from 0, and the turn once it has come to that.
Try = Callable[[int, Turn | None], T]


def committed(registry: Registry, table: Table, what: str, attempt: Try[T], retry: RetryConfig = RETRY) -> T:
    """What `attempt` gives, tried again after each Conflict: at first after a short wait, by chance, then in turn.

    An attempt must wait for nobody but for the metadata lock of its process, and only while it runs.

    Args:
        what: what is tried, for the message and the log.

    Raises:
        Held: of `attempt`, at once.
        MetadataConflict: others were quicker in all tries, the last ones in turn.
        LeaseHeld: the queue took longer than a minute.
    """
    must_queue = False
    with ExitStack() as stack:
        turn: Turn | None = None
        for number in range(FREE_TRIES + TURN_TRIES):
            if turn is None and (must_queue or number == FREE_TRIES):
                turn = stack.enter_context(turns.queued(registry, table))
            try:
                return attempt(number, turn)
            except Held:
                raise
            except Conflict as conflict:
                log.debug(
                    "commit_conflict", table=str(table.identifier), tried=what, attempt=number + 1, why=str(conflict)
                )
                must_queue = isinstance(conflict, NotOurTurn)
            if not must_queue:
                time.sleep(retry.delay(number + 1 if turn is None else 1))
    raise MetadataConflict(
        f"{table.identifier}: its metadata moved on in each of {FREE_TRIES + TURN_TRIES} tries to {what}; try again, while "
        "fewer write to it"
    )


class FairLock:
    """A lock that threads get in the order in which they ask: one that asks again at once does not keep the others waiting."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._is_held = False

    def __enter__(self) -> None:
        with self._mutex:
            if not self._is_held:
                self._is_held = True
                return
            ours = threading.Lock()
            ours.acquire()
            self._waiting.append(ours)
        try:
            ours.acquire()  # whoever has the lock hands it over
        except BaseException:  # Ctrl-C, say
            with self._mutex:
                if ours in self._waiting:
                    self._waiting.remove(ours)
                    raise
            self._hand_over()
            raise

    def __exit__(self, *_: object) -> None:
        self._hand_over()

    def _hand_over(self) -> None:
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_held = False
