"""Cutting long lists, and long work, into parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items, the last one shorter (itertools has this from Python 3.12 on)."""
    iterator = iter(items)
    while part := list(islice(iterator, size)):
        yield part


def done_in_batches(step: Callable[[int], tuple[int, int | None]]) -> int:
    """How much was done in all: `step` does a part after an id, and gives how much that was and the id to go on after, None at
    the end."""
    total = 0
    after: int | None = 0
    while after is not None:
        done, after = step(after)
        total += done
    return total
