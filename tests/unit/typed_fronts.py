"""mypy knows the arguments and the results of a front's methods, which are bound functions.

The proof is `make lint`, which checks this file strictly: where mypy no longer finds an error that is ignored here, it fails.
"""

from __future__ import annotations

from lakeward import Lake, MetadataStore, Topic
from lakeward.aio import MetadataManager as AwaitedManager
from lakeward.metadata import DeadLetter, DeadLetterStatus, MarkerType, MetadataManager, SyncMarker


def what_fits_is_accepted(manager: MetadataManager) -> tuple[SyncMarker, list[DeadLetter], bool]:
    marker = manager.update_stream_position("shop", {"lsn": 1}, "orders", expected=None)
    letters = manager.list_dead_letters(schema_name="shop", status=DeadLetterStatus.PENDING, limit=None)
    return marker, letters, manager.delete_marker("shop", MarkerType.STREAM)


def what_does_not_is_refused(manager: MetadataManager) -> None:
    manager.update_stream_position("shop")  # type: ignore[call-arg]
    manager.list_dead_letters(shema_name="shop")  # type: ignore[call-arg]
    manager.list_dead_letters(schema_name=5)  # type: ignore[arg-type]
    manager.get_error("first")  # type: ignore[arg-type]
    manager.get_error(1).no_such_field  # type: ignore[attr-defined]


async def the_awaited_ones_are_the_same(manager: AwaitedManager) -> list[DeadLetter]:
    await manager.get_error("first")  # type: ignore[arg-type]
    return await manager.list_dead_letters(schema_name="shop")


def a_lake_and_its_log_are_known_too(lake: Lake) -> Topic | None:
    lake.rename_column("shop.orders", "price", new_name="amount")
    lake.move_column("shop.orders", "price", beside="id")  # type: ignore[call-arg]
    lake.writer("shop.orders", 5.0).write([{"id": 1}])
    lake.log.consumer("orders", group="g").offsets.keys()
    return MetadataStore(lake).get_topic("orders")
