"""Cutting long lists into parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items, the last one shorter (itertools has this from Python 3.12 on)."""
    iterator = iter(items)
    while part := list(islice(iterator, size)):
        yield part
