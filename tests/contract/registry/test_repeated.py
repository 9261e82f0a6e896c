"""Work that is done again and again while a server runs."""

from __future__ import annotations

import threading

from lakeward.registry import Registry
from lakeward.registry.repeated import repeated


def test_whatever_goes_wrong_once_is_tried_again(registry: Registry) -> None:
    errors: list[Exception] = [ValueError("a fault of ours"), OSError("none of Lakeward's")]
    is_done = threading.Event()

    def act(_: Registry) -> None:
        if errors:
            raise errors.pop()
        is_done.set()

    with repeated(registry, "test", 0.01, act):
        assert is_done.wait(30)
