"""Lakeward's own components, run together under one Astha: in `lakeward serve`, in the demo, or in a program of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import msgspec

from lakeward.astha import Astha, AsthaConfig
from lakeward.components.compactor import Compactor
from lakeward.components.iceberg_updater import IcebergUpdater
from lakeward.components.metadata_orchestrator import MetadataOrchestrator
from lakeward.components.schema_manager import SchemaManager
from lakeward.components.snapshotter import Snapshotter
from lakeward.errors import InvalidInput
from lakeward.model.events import Registers, Subscriber
from lakeward.registry import HasRegistry, Registry


class Component(Subscriber[Any], Protocol):
    """A subscriber that knows what it wants to hear of, and has threads of its own."""

    def register_with_astha(self, astha: Registers) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


# By name, with the settings that each has by itself. In the order in which they start.
COMPONENTS: Mapping[str, Callable[[Registry | HasRegistry], Component]] = {
    "metadata_orchestrator": MetadataOrchestrator,
    "schema_manager": SchemaManager,
    "iceberg_updater": IcebergUpdater,
    "snapshotter": Snapshotter,
    "compactor": Compactor,
}


class Fleet(msgspec.Struct, frozen=True):
    """What runs: the Astha, and its components by name."""

    astha: Astha
    components: dict[str, Component]


@contextmanager
def running(
    lake: Registry | HasRegistry,
    names: Iterable[str] = COMPONENTS,
    config: AsthaConfig | None = None,
    others: Mapping[str, Component] | None = None,
) -> Iterator[Fleet]:
    """While the block runs, so do the components that are named. Of all processes one has them active.

    Args:
        lake: a Lake lets the compactor use its Spark session; with a registry alone it makes Parquet of JSON lines only.
        others: components with settings of one's own, in place of those of the same name.

    Raises:
        InvalidInput: there is no component of a name.
    """
    chosen = list(names)
    if unknown := [name for name in chosen if name not in COMPONENTS]:
        raise InvalidInput(f"no component {unknown[0]!r}; there are {', '.join(COMPONENTS)}")
    made = {name: COMPONENTS[name](lake) for name in chosen if name not in (others or {})} | dict(others or {})
    astha = Astha(lake, config)
    with ExitStack() as stack:
        for component in made.values():
            component.register_with_astha(astha)
            component.start()
            stack.callback(component.stop)
        stack.enter_context(astha)
        yield Fleet(astha, made)
