"""Where the metadata of a table is, once it shows what was pending: loads that wait for that hold no worker.

A worker is a thread. Short SQL has those that all requests share; what reads and writes objects has some of its own, so that a
storage that hangs keeps nobody else waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import anyio
from anyio import to_thread

from lakeward.errors import LeaseHeld, StorageUnavailable
from lakeward.registry import Registry, leases
from lakeward.snapshots import snapshot_commit
from lakeward.snapshots.snapshot_commit import Flight
from lakeward.tables import snapshots

T = TypeVar("T")

STORAGE_WORKERS = 16
LOAD_SECONDS = 30.0  # for the storage to answer: clients give up after some 60


class Loads:
    """The loads of a server. Its methods are called in one event loop."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._workers = anyio.CapacityLimiter(STORAGE_WORKERS)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watches: dict[int, _Watch] = {}

    async def location(self, table_id: int, *, files: bool) -> str:
        """Of metadata that shows all that is pending now; without `files`, its schema and properties.

        Raises:
            TableNotFound, MetadataConflict, StorageError.
            LeaseHeld: somebody held the table's pending files for all of `hold_timeout_seconds`.
            StorageUnavailable: the storage took longer than half a minute.
        """
        wait = self._registry.settings.hold_timeout_seconds
        deadline = asyncio.get_running_loop().time() + wait
        while True:
            goal = await to_thread.run_sync(lambda: snapshots.goal(self._registry, table_id, with_files=files))
            if goal.is_empty:
                return goal.location
            left = deadline - asyncio.get_running_loop().time()
            if goal.is_kept:
                if left <= 0 or not await self._released(table_id, left):
                    raise snapshot_commit.held_too_long(goal.table, wait)
                continue
            flight, is_ours = snapshot_commit.board(self._registry, goal, "query", files=files)
            if is_ours:
                self._fly(flight)
            try:
                done = await _within(asyncio.shield(asyncio.wrap_future(flight.result)))
                return done.metadata_location
            except LeaseHeld:  # taken just now
                if left <= 0:
                    raise
            await asyncio.sleep(leases.POLL_SECONDS)

    async def with_storage(self, work: Callable[[], T]) -> T:
        """Do what reads objects, in one of the workers for that. Raises StorageUnavailable: it took too long."""
        # Given up or not, it takes a worker for as long as it runs.
        return await _within(asyncio.shield(self._begin(to_thread.run_sync(work, limiter=self._workers))))

    def _fly(self, flight: Flight) -> None:
        async def fly() -> None:
            try:
                await to_thread.run_sync(flight.fly, limiter=self._workers)
            except BaseException:
                flight.give_up(StorageUnavailable("the server stopped before it came to this flush; ask again"))
                raise

        _ = self._begin(fly())

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)  # the loop itself keeps no task alive
        task.add_done_callback(self._tasks.discard)
        return task

    async def _released(self, table_id: int, seconds: float) -> bool:
        """Wait until nobody holds the table, one look for all who wait; whether that came in time."""
        watch = self._watches.get(table_id)
        if watch is None or watch.task.done():
            watch = self._watches[table_id] = _Watch(self._registry, table_id)
            watch.task.add_done_callback(lambda _: self._watches.pop(table_id, None))
        watch.until = max(watch.until, asyncio.get_running_loop().time() + seconds)
        try:
            await asyncio.wait_for(asyncio.shield(watch.task), seconds)
        except TimeoutError:
            return False
        return True


class _Watch:
    """Looks whether a table is held, for as long as somebody waits."""

    def __init__(self, registry: Registry, table_id: int) -> None:
        self.until = 0.0
        self._registry, self._table_id = registry, table_id
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(leases.POLL_SECONDS)
            goal = await to_thread.run_sync(lambda: snapshots.goal(self._registry, self._table_id))
            if not goal.is_held or asyncio.get_running_loop().time() > self.until:
                return


async def _within(work: Awaitable[T]) -> T:
    try:
        return await asyncio.wait_for(work, LOAD_SECONDS)
    except TimeoutError:
        raise StorageUnavailable(
            f"the table's storage has not answered for {LOAD_SECONDS:.0f} s; try again later, and look at the store"
        ) from None
