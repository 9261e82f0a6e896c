"""Trying again: how often, and how long to wait between."""

from __future__ import annotations

import random
from dataclasses import dataclass

from lakeward.errors import InvalidSetting


@dataclass(frozen=True, slots=True)
class RetryConfig:
    """Waits of `initial_delay`, then each `backoff_factor` times the last, up to `max_delay` seconds."""

    max_retries: int = 30
    initial_delay: float = 0.1
    max_delay: float = 5.0
    backoff_factor: float = 2.0
    jitter: float = 0.1  # a wait is up to this share longer, so that many that failed at once do not come back at once

    def __post_init__(self) -> None:
        if self.max_retries < 0:
            raise InvalidSetting(f"max_retries={self.max_retries!r} must be 0 or more")
        if not 0 < self.initial_delay <= self.max_delay:
            raise InvalidSetting(
                f"initial_delay={self.initial_delay!r} must be greater than 0, and at most max_delay={self.max_delay!r}"
            )
        if self.backoff_factor < 1 or not 0 <= self.jitter <= 1:
            raise InvalidSetting(
                f"backoff_factor={self.backoff_factor!r} must be 1 or more, jitter={self.jitter!r} from 0 to 1"
            )

    def delay(self, failures: int) -> float:
        """Seconds to wait after so many failures (1 or more) in a row."""
        # The exponent is bounded: a float overflows, and max_delay is reached long before.
        plain = min(self.max_delay, self.initial_delay * self.backoff_factor ** min(failures - 1, 60))
        return plain * (1 + random.uniform(0, self.jitter))
