"""Runs synchronous calls for those who await them: in a few threads of their own, never in the event loop's."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 8
CHUNK = 1_000  # items of an iterator that are fetched together


class Awaited:
    """A front whose methods run in threads of its own, each by the method of the same name of the front that it stands for.

    SQLite blocks, and so does the lock at which its writers queue: neither may hold up the loop.
    """

    def __init__(self, front: Any) -> None:
        self._front = front
        self._executor = ThreadPoolExecutor(THREADS, "lakeward-aio")

    async def _run(self, call: Callable[[], T]) -> T:
        """The result of a call. One that is cancelled goes on in its thread to its end: a transaction is never cut."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    async def close(self) -> None:
        """Close what it stands for, and end the threads."""
        await self._run(self._front.close)
        await asyncio.to_thread(self._executor.shutdown)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def awaited(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method of a front, to await."""

    async def run(self: Awaited, /, *arguments: P.args, **named: P.kwargs) -> T:
        return await self._run(lambda: method(self._front, *arguments, **named))

    return update_wrapper(run, method)


def iterated(method: Callable[Concatenate[Any, P], Iterable[T]]) -> Callable[Concatenate[Any, P], AsyncIterator[T]]:
    """A method of a front that gives many things, to iterate over."""

    async def run(self: Awaited, /, *arguments: P.args, **named: P.kwargs) -> AsyncIterator[T]:
        items = await self._run(lambda: iter(method(self._front, *arguments, **named)))
        while chunk := await self._run(lambda: list(itertools.islice(items, CHUNK))):
            for item in chunk:
                yield item

    shown: Any = update_wrapper(run, method)
    shown.__signature__ = inspect.signature(method).replace(return_annotation=AsyncIterator)
    return shown  # type: ignore[no-any-return]
