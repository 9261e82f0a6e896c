"""Whether a component works: asked again and again, with a limit on how long the answer may take. One that does not is left
alone for a while, then probed once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Literal

from lakeward.astha.reasons import reason
from lakeward.background import begin

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


class Probe:
    """Asks one component's on_health, in a thread of its own: one that hangs hangs alone."""

    def __init__(self, name: str, ask: Callable[[], bool | None], timeout: float) -> None:
        self._name = name
        self._ask = ask
        self._timeout = timeout
        self._lock = threading.Lock()
        self._asking: Future[str | None] | None = None
        self.answered_at: float | None = None  # monotonic

    def check(self) -> str | None:
        """None if it is well, else what is wrong."""
        with self._lock:
            if self._asking is not None and not self._asking.done():
                return "the last on_health has not returned yet"
            self._asking = begin(f"lakeward-health-{self._name}", self._answer)
        try:
            answer = self._asking.result(self._timeout)
        except TimeoutError:
            return f"on_health did not return within {self._timeout} s"
        self.answered_at = time.monotonic()
        return answer

    def _answer(self) -> str | None:
        try:
            is_well = self._ask()
        except BaseException as error:
            return f"on_health raised {reason(error)}"
        # One that returns nothing has nothing to say against it.
        return None if is_well or is_well is None else "on_health says that it does not work"
