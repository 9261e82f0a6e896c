"""What Lakeward's own components share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from lakeward.astha import Astha
from lakeward.astha.events import Event, WatchedTable
from lakeward.background import Worker
from lakeward.registry import HasRegistry, Registry, registry_of

T = TypeVar("T")


class OwnComponent(ABC, Generic[T]):
    """A component on one registry; of its own it has at most the threads of one worker."""

    name: str
    version = "1"
    tables: Sequence[WatchedTable[T]]  # the registry tables it hears of,
    operations: frozenset[str] | None = None  # and of these changes there; None: all

    def __init__(self, lake: Registry | HasRegistry) -> None:
        self._registry = registry_of(lake)
        self._worker: Worker | None = None

    def get_subscribed_tables(self) -> Sequence[WatchedTable[T]]:
        """The registry tables it hears of."""
        return self.tables

    def register_with_astha(self, astha: Astha) -> None:
        """Have Astha tell it of what it needs to hear."""
        astha.register(self, operations=self.operations)

    @abstractmethod
    def on_event(self, event: Event[T]) -> None:
        """Act on one change."""

    @abstractmethod
    def on_refresh(self) -> None:
        """Take the whole state from the registry."""

    def on_health(self) -> bool:
        """Whether its threads live; one that was not started has none."""
        return self._worker is None or self._worker.is_alive

    def start(self) -> None:
        """Nothing: it has no threads."""

    def stop(self) -> None:
        """Finish what is in hand."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def _wake(self) -> None:
        if (worker := self._worker) is not None:
            worker.wake()
