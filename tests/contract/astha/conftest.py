"""Asthas on a registry that are stopped at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from lakeward.astha import Astha
from lakeward.registry import Registry
from tests.support.asthas import Recorder, component, quick
from tests.support.waiting import until


class Start(Protocol):
    def __call__(self, *components: Recorder, register: dict[str, Any] | None = None, **config: Any) -> Astha: ...


@pytest.fixture
def start(registry: Registry) -> Iterator[Start]:
    """Start an Astha with these components, and wait until each has refreshed."""
    started: list[Astha] = []

    def begin(*components: Recorder, register: dict[str, Any] | None = None, **config: Any) -> Astha:
        astha = Astha(registry, quick(**config))
        for each in components:
            astha.register(each, **(register or {}))
        before = [each.refreshes for each in components]
        astha.start()
        started.append(astha)
        until(lambda: all(c.refreshes > b for c, b in zip(components, before, strict=True)), astha.status)
        until(lambda: all(component(astha, each.name).reason is None for each in components), astha.status)
        return astha

    yield begin
    for astha in started:
        astha.stop()
