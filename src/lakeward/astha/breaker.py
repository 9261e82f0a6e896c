"""A circuit breaker: a component that does not work is left alone for a while, then probed once."""

from __future__ import annotations

import time
from typing import Literal

State = Literal["closed", "open", "half_open"]


class Breaker:
    """Closed: events flow. Open: they wait. Half-open: one probe decides. Used under its lane's lock."""

    def __init__(self, open_seconds: float) -> None:
        self._open_seconds = open_seconds
        self._opened_at = 0.0
        self.state: State = "closed"
        self.reason: str | None = None

    @property
    def is_closed(self) -> bool:
        return self.state == "closed"

    def open(self, reason: str) -> None:
        """Open, or stay so from now on."""
        self.state, self.reason = "open", reason
        self._opened_at = time.monotonic()

    def try_half_open(self) -> bool:
        """Whether it is time for the probe; its caller makes it."""
        if self.state == "open" and time.monotonic() - self._opened_at >= self._open_seconds:
            self.state = "half_open"
            return True
        return False

    def close(self) -> None:
        self.state, self.reason = "closed", None
