"""Lakeward's own components, run together under one Astha: in `lakeward serve`, in the demo, or in a program of one's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol, TypeVar

import msgspec

from lakeward.astha import Astha, AsthaConfig
from lakeward.astha.events import Subscriber
from lakeward.background import Worker
from lakeward.components.compactor import Compactor, CompactorConfig
from lakeward.components.iceberg_updater import IcebergUpdater, IcebergUpdaterConfig
from lakeward.components.metadata_orchestrator import MetadataOrchestrator, MetadataOrchestratorConfig
from lakeward.components.schema_manager import SchemaManager, SchemaManagerConfig
from lakeward.components.snapshotter import Snapshotter, SnapshotterConfig
from lakeward.errors import InvalidInput, InvalidSetting
from lakeward.logs import log, log_and_go_on
from lakeward.registry import HasRegistry, Registry, registry_of
from lakeward.registry.repeated import STOP_SECONDS
from lakeward.retry import Deadline

T = TypeVar("T")


class Component(Subscriber[Any], Protocol):
    """A subscriber that knows what it wants to hear of, and has threads of its own."""

    def register_with_astha(self, astha: Astha) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


# By name, each with its settings. In the order in which they start.
COMPONENTS: Mapping[str, tuple[Callable[..., Component], Callable[..., Any]]] = {
    "metadata_orchestrator": (MetadataOrchestrator, MetadataOrchestratorConfig),
    "schema_manager": (SchemaManager, SchemaManagerConfig),
    "iceberg_updater": (IcebergUpdater, IcebergUpdaterConfig),
    "snapshotter": (Snapshotter, SnapshotterConfig),
    "compactor": (Compactor, CompactorConfig),
}
# They have no threads, and serve the callers of their process whether or not it is the active one.
WITHOUT_THREADS = frozenset({"metadata_orchestrator", "schema_manager"})


def configured(kind: Callable[..., T], table: str, values: Mapping[str, Any]) -> T:
    """A config of the values in a table of the settings file.

    Raises:
        InvalidSetting: a name that it lacks, or a value that makes no sense.
    """
    known = [each for each in kind.__annotations__ if each not in _NOT_IN_FILES]
    for name in values:
        if name not in known:
            raise InvalidSetting(f"[{table}] has no setting {name!r}; it knows {', '.join(known)}")
    try:
        return kind(**values)
    except InvalidSetting as error:
        raise InvalidSetting(f"[{table}] {error}") from error


_NOT_IN_FILES = frozenset({"default", "retry", "spark", "subscriptions"})


def from_settings(lake: Registry | HasRegistry) -> dict[str, Component]:
    """The components that the lake's settings enable, each as its table [components.<name>] says.

    Raises InvalidSetting: a table for no component, or one that cannot be used.
    """
    tables = registry_of(lake).settings.components
    for name, values in tables.items():
        if name not in COMPONENTS or not isinstance(values, Mapping):
            raise InvalidSetting(f"[components.{name}] is no table of a component; there are {', '.join(COMPONENTS)}")
    made: dict[str, Component] = {}
    for name, (kind, config) in COMPONENTS.items():
        values = dict(tables.get(name, {}))
        enabled = values.pop("enabled", True)
        if not isinstance(enabled, bool):
            raise InvalidSetting(f"[components.{name}] has enabled={enabled!r}, which is neither true nor false")
        if enabled:
            made[name] = kind(lake, configured(config, f"components.{name}", values))
    return made


class _Runner:
    """Starts and stops the threads of one component, as it is told.

    Each has a thread for that: a component finishes what it has in hand before it stops, and nobody else waits for it.
    """

    def __init__(self, component: Component) -> None:
        self._component = component
        self._shall_run = self._runs = self._is_ending = False
        self._worker = Worker(f"lakeward-run-{component.name}", self._change, failed=self._not_changed)

    def tell(self, shall_run: bool) -> None:
        self._shall_run = shall_run
        self._worker.wake()

    def end(self) -> None:
        """Stop it for good; `wait` waits for that."""
        self._shall_run, self._is_ending = False, True
        self._worker.wake()

    def wait(self, deadline: Deadline) -> None:
        """Wait until it has stopped, or the deadline: one that hangs would keep the program for ever.

        What one leaves by half, such as a compaction, changes nothing; recovery clears it.
        """
        if not self._worker.join(deadline.left()):
            log.error("component_not_stopped", component=self._component.name)

    def _change(self) -> float | None:
        is_ending = self._is_ending
        if self._shall_run != self._runs:
            self._runs = self._shall_run
            (self._component.start if self._runs else self._component.stop)()
        return None if is_ending else math.inf

    def _not_changed(self, error: Exception) -> None:
        log_and_go_on(log, "component_not_changed", error, component=self._component.name, runs=self._runs)


def _end(runners: Iterable[_Runner], deadline: Deadline) -> None:
    """Stop them all at once: together they have until the deadline."""
    for runner in runners:
        runner.end()
    for runner in runners:
        runner.wait(deadline)


class Running(msgspec.Struct, frozen=True):
    """What runs: the Astha, and its components by name."""

    astha: Astha
    components: dict[str, Component]


@contextmanager
def running(
    lake: Registry | HasRegistry,
    names: Iterable[str] = COMPONENTS,
    config: AsthaConfig | None = None,
    others: Mapping[str, Component] | None = None,
    deadline: Deadline | None = None,
) -> Iterator[Running]:
    """While the block runs, so do the components that are named. Of all processes one has them active.

    Their threads run there alone: they are stopped when this process is no longer the active one, such as after it was paused
    for longer than its lease, and started again when it takes over.

    Args:
        lake: a Lake lets the compactor use its Spark session; with a registry alone it does what needs none.
        others: components with settings of one's own, in place of those of the same name.
        deadline: for what the components have in hand at the end of the block; some seconds for all of them by itself.

    Raises:
        InvalidInput: there is no component of a name.
    """
    chosen = list(names)
    if unknown := [name for name in chosen if name not in COMPONENTS]:
        raise InvalidInput(f"no component {unknown[0]!r}; there are {', '.join(COMPONENTS)}")
    made = {name: COMPONENTS[name][0](lake) for name in chosen if name not in (others or {})} | dict(others or {})
    runners: list[_Runner] = []
    managers = [each for each in made.values() if isinstance(each, SchemaManager)]

    def tell(is_active: bool) -> None:
        log.info("components_active" if is_active else "components_stand_by", components=sorted(made))
        for runner in runners:
            runner.tell(is_active)
        for manager in managers:
            manager.follow(is_active)

    astha = Astha(lake, config, on_active=tell)
    with ExitStack() as stack:
        stack.callback(_end, runners, deadline or Deadline(STOP_SECONDS))
        for component in made.values():
            component.register_with_astha(astha)
            if component.name in WITHOUT_THREADS:
                component.start()
                stack.callback(component.stop)
            else:
                runners.append(_Runner(component))
        tell(False)
        stack.enter_context(astha)
        yield Running(astha, made)
