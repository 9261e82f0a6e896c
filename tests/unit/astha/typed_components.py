"""mypy proves that a component handles the records of all that it subscribes to.

The proof is `make lint`, which checks this file strictly: where mypy no longer finds an error that is ignored here, it fails.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakeward.astha import TABLE_FILES, TABLE_STATS, Astha, Event, Subscriber, TableFile, TableStats, WatchedTable


class _Compactor:
    name = "compactor"
    version = "1"

    def get_subscribed_tables(self) -> Sequence[WatchedTable[TableFile | TableStats]]:
        return [TABLE_FILES, TABLE_STATS]

    def on_health(self) -> bool:
        return True

    def on_refresh(self) -> None: ...


class HandlesBoth(_Compactor):
    def on_event(self, event: Event[TableFile | TableStats]) -> None:
        print(event.data.table_id)


class HandlesOne(_Compactor):
    def on_event(self, event: Event[TableFile]) -> None:
        print(event.data.file_path)


class ReadsAFieldOfOne(_Compactor):
    def on_event(self, event: Event[TableFile | TableStats]) -> None:
        print(event.data.file_path)  # type: ignore[union-attr]


def checked_by_mypy(astha: Astha) -> None:
    both: Subscriber[TableFile | TableStats] = HandlesBoth()
    astha.register(both)
    astha.register(HandlesBoth())
    one: Subscriber[TableFile | TableStats] = HandlesOne()  # type: ignore[assignment]
    astha.register(one)
    astha.register(HandlesOne())  # type: ignore[misc]
