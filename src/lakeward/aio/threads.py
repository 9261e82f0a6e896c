"""Runs synchronous calls for those who await them: in a few threads of their own, never in the event loop's."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 8
CHUNK = 1_000  # items of an iterator that are fetched together


class Threads:
    """A small executor. SQLite blocks, and so does the lock at which its writers queue: neither may hold up the loop."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(THREADS, "lakeward-aio")

    async def run(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """The result of a call. One that is cancelled goes on in its thread to its end: a transaction is never cut."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: call(*arguments, **named))

    async def iterate(self, make: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
        """An iterator's items, fetched some at a time."""
        items = await self.run(make)
        while chunk := await self.run(lambda: list(itertools.islice(items, CHUNK))):
            for item in chunk:
                yield item

    async def close(self) -> None:
        await asyncio.to_thread(self._executor.shutdown)
