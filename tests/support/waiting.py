"""Waiting for what happens in other threads and processes."""

from __future__ import annotations

import time
from collections.abc import Callable

SECONDS = 60.0  # how long a condition is waited for, far more than it takes


def until(condition: Callable[[], object], what: object = None, seconds: float = SECONDS) -> None:
    """Wait until `condition` is true; `what` (a function, or a value) is shown if it never is."""
    deadline, pause = time.monotonic() + seconds, 0.001
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"never came true: {what() if callable(what) else what}")
        pause = min(
            pause * 1.5, 0.03
        )  # many conditions ask the registry: they must not keep the machine from what they wait for
        time.sleep(pause)
