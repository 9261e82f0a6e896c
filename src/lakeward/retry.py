"""Trying again: how often, and how long to wait between."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from lakeward import validation
from lakeward.errors import InvalidSetting

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


@dataclass(frozen=True, slots=True)
class RetryConfig:
    """Waits of `initial_delay`, then each `backoff_factor` times the last, up to `max_delay` seconds."""

    max_retries: int = 30
    initial_delay: float = 0.1
    max_delay: float = 5.0
    backoff_factor: float = 2.0
    jitter: float = 0.1  # a wait is up to this share longer, so that many that failed at once do not come back at once

    def __post_init__(self) -> None:
        validation.whole(self.max_retries, "max_retries", 0, refused=InvalidSetting)
        validation.span(self.initial_delay, "initial_delay", "seconds", refused=InvalidSetting)
        validation.span(self.max_delay, "max_delay", "seconds", refused=InvalidSetting)
        validation.number(self.backoff_factor, "backoff_factor", 1, math.inf, refused=InvalidSetting)
        validation.number(self.jitter, "jitter", 0, 1, refused=InvalidSetting)
        if not self.initial_delay <= self.max_delay:
            raise InvalidSetting(f"initial_delay={self.initial_delay!r} must be at most max_delay={self.max_delay!r}")

    def delay(self, failures: int) -> float:
        """Seconds to wait after so many failures (1 or more) in a row."""
        grown = (failures - 1) * math.log(self.backoff_factor)
        if grown >= math.log(self.max_delay / self.initial_delay):  # the power would soon be no number any more
            plain = self.max_delay
        else:
            plain = self.initial_delay * self.backoff_factor ** (failures - 1)
        return plain * (1 + random.uniform(0, self.jitter))


def steady(seconds: float) -> RetryConfig:
    """Waits that are all as long, without an end."""
    return RetryConfig(validation.MAX_INTEGER, seconds, seconds, jitter=0.0)


def tried(
    action: Callable[[], T],
    error: type[E] | tuple[type[E], ...],
    retry: RetryConfig,
    *,
    seconds: float = math.inf,
    sleep: Callable[[float], object] = time.sleep,
    failed: Callable[[E], object] | None = None,
) -> T:
    """What `action` gives, tried again while it raises `error`, until its tries or the seconds are over.

    Args:
        sleep: waits; where it gives something true, nobody is to try again.
        failed: told each error that is followed by another try; it may raise to end them.

    Raises what `action` raised last.
    """
    deadline = time.monotonic() + seconds
    for failures in range(1, retry.max_retries + 1):
        try:
            return action()
        except error as raised:
            if time.monotonic() >= deadline:
                raise
            if failed is not None:
                failed(raised)
            if sleep(retry.delay(failures)):
                raise
    return action()


def until(find: Callable[[], T], seconds: float, every: float) -> T:
    """What `find` gives, asked again `every` so many seconds until it gives something true, or the seconds are over."""
    deadline = time.monotonic() + seconds
    while not (found := find()) and time.monotonic() < deadline:
        time.sleep(every)
    return found


class Deadline:
    """When all that is ended together has to be over: so long after the first asks."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end: float | None = None

    def left(self) -> float:
        """Seconds. The clock runs from the first call on."""
        if self._end is None:
            self._end = time.monotonic() + self._seconds
        return max(0.0, self._end - time.monotonic())
