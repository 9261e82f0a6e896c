"""How long one waits for other writers; and on PostgreSQL who they are, which the server tells only while one waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from lakeward.background import Worker
from lakeward.db.drivers import POSTGRESQL_ARGUMENTS
from lakeward.logs import log
from lakeward.retry import steady

SAY_SECONDS = 5.0  # a writer that has waited for so long says for whom, again and again
WAIT_SECONDS = 60.0  # and gives up after this, with an error
IDLE_SECONDS = 60.0  # without a transaction the thread ends then: its registry may have been forgotten

# A prepared transaction has no process. What another role's session does is hidden from one without pg_read_all_stats.
_HOLDERS = """
SELECT waiting.pid, holder.pid, activity.application_name, activity.state, activity.state_change
FROM pg_stat_activity waiting
CROSS JOIN LATERAL unnest(pg_blocking_pids(waiting.pid)) AS holder (pid)
LEFT JOIN pg_stat_activity activity ON activity.pid = holder.pid
WHERE waiting.pid = ANY(%s) AND waiting.wait_event_type = 'Lock'
ORDER BY waiting.pid, activity.xact_start NULLS FIRST
"""


class _Watched:
    __slots__ = ("holder", "process", "since")

    def __init__(self, process: int) -> None:
        self.process = process  # of the server
        self.since = time.monotonic()
        self.holder: str | None = None


class Waits:
    """Watches the connections of one Database, by a thread that looks at those alone that have been in use for long."""

    def __init__(self, url: sa.URL, dialect: sa.Dialect, shown_url: str) -> None:
        self._connect: dict[str, Any] = {**dialect.create_connect_args(url)[1], **POSTGRESQL_ARGUMENTS}
        self._shown_url = shown_url
        self._watched: set[_Watched] = set()  # without a lock: a child that is forked would find it held for ever
        self._is_at_work = False  # whether the worker's next step is planned
        self._worker = Worker(
            "lakeward-waits", self._step, linger=IDLE_SECONDS, retry=steady(SAY_SECONDS), failed=self._not_looked
        )
        self._told = threading.local()

    @contextmanager
    def watched(self, connection: sa.Connection) -> Iterator[None]:
        """While the block uses the connection."""
        driver: Any = connection.connection.dbapi_connection
        mine = _Watched(driver.info.backend_pid)
        try:
            self._watched.add(mine)
            if not self._is_at_work:
                self._begin()
            yield
        finally:
            self._told.holder = mine.holder
            self._watched.discard(mine)

    def _begin(self) -> None:
        try:
            self._worker.wake(SAY_SECONDS)
        except RuntimeError as error:  # the machine has no thread left, and a transaction needs none
            self._not_looked(error)
        else:
            self._is_at_work = True

    def holder(self) -> str:
        """For whom this thread waited, when its last block ended."""
        return getattr(self._told, "holder", None) or "another transaction"

    def stop(self) -> None:
        self._worker.stop(0)

    def _step(self) -> float | None:
        self._is_at_work = False  # who comes from here on wakes the worker
        watched = list(self._watched)
        if not watched:
            return None
        self._is_at_work = True
        begun = time.monotonic() - SAY_SECONDS
        if long := {each.process: each for each in watched if each.since <= begun}:
            self._look(long)
        return SAY_SECONDS

    def _not_looked(self, error: Exception) -> None:
        # The server is not there, say: who waits is told by its own connection.
        log.debug("waits_not_looked_at", registry=self._shown_url, error=str(error))

    def _look(self, long: dict[int, _Watched]) -> None:
        import psycopg

        with psycopg.connect(**self._connect, autocommit=True) as connection:
            found = connection.execute(_HOLDERS, [list(long)]).fetchall()
        holders: dict[int, list[str]] = {}
        for waiting, *described in found:
            holders.setdefault(waiting, []).append(_described(*described))
        for waiting, texts in holders.items():
            long[waiting].holder = " and ".join(dict.fromkeys(texts))
        for holder in dict.fromkeys(long[waiting].holder for waiting in holders):  # once for all that wait for it
            log.warning("writers_of_the_registry_wait", registry=self._shown_url, holder=holder)


def _described(process: int, application: str | None, state: str | None, since: Any) -> str:
    if not process:
        return "a prepared transaction (pg_prepared_xacts)"
    known = f"{application or 'without a name'}, {state or 'what it does is hidden from this user'}"
    return f"process {process} of the server ({known}{f' since {since:%Y-%m-%d %H:%M:%S%z}' if since else ''})"
