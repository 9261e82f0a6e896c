"""Whether a component works: asked again and again, with a limit on how long the answer may take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from lakeward.astha.reasons import reason


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
        self._asking: threading.Thread | None = None
        self.answered_at: float | None = None  # monotonic

    def check(self) -> str | None:
        """None if it is well, else what is wrong."""
        with self._lock:
            if self._asking is not None and self._asking.is_alive():
                return "the last on_health has not returned yet"
            answer: list[str | None] = []
            self._asking = threading.Thread(
                target=self._run, args=(answer,), name=f"lakeward-health-{self._name}", daemon=True
            )
            self._asking.start()
        self._asking.join(self._timeout)
        if not answer:
            return f"on_health did not return within {self._timeout} s"
        self.answered_at = time.monotonic()
        return answer[0]

    def _run(self, answer: list[str | None]) -> None:
        try:
            is_well = self._ask()
        except BaseException as error:
            answer.append(f"on_health raised {reason(error)}")
            return
        # One that returns nothing has nothing to say against it.
        answer.append(None if is_well or is_well is None else "on_health says that it does not work")
