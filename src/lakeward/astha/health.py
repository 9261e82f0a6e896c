"""Whether a component works: asked again and again, with a limit on how long the answer may take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from lakeward.astha.reasons import reason
from lakeward.background import begin


class HealthChecker:
    """Counts failures in a row: healthy at first, unhealthy from `max_failures` on, healthy again after one success."""

    def __init__(self, max_failures: int = 5) -> None:
        self.max_failures = max_failures
        self.failures = 0
        self.error: str | None = None  # of the last failure

    @property
    def is_healthy(self) -> bool:
        return self.failures < self.max_failures

    def succeeded(self) -> None:
        self.failures = 0
        self.error = None

    def failed(self, error: str) -> None:
        self.failures += 1
        self.error = error


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
