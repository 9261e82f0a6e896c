"""Components that run together: none keeps the program that runs them."""

from __future__ import annotations

import threading

import pytest

from lakeward.components import fleet
from lakeward.model.events import Registers
from lakeward.registry import Registry
from tests.support.asthas import Recorder, quick
from tests.support.waiting import until


class Hanging(Recorder):
    """A component whose threads do not end before `go` is set."""

    def __init__(self) -> None:
        super().__init__("compactor")
        self.go, self.runs = threading.Event(), threading.Event()

    def register_with_astha(self, astha: Registers) -> None:
        astha.register(self)

    def start(self) -> None:
        self.runs.set()

    def stop(self) -> None:
        self.go.wait()
        self.runs.clear()


def test_a_component_that_does_not_stop_keeps_the_program_for_a_bounded_time(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "STOP_SECONDS", 0.05)
    hanging = Hanging()
    with fleet.running(registry, ["snapshotter"], quick(), {"compactor": hanging}) as running:
        assert hanging.runs.wait(30)
        assert set(running.components) == {"snapshotter", "compactor"}
    assert hanging.runs.is_set()
    hanging.go.set()
    until(lambda: not hanging.runs.is_set())
