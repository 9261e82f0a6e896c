"""Components that run together: none keeps the program that runs them."""

from __future__ import annotations

import threading
from pathlib import Path

from lakeward.astha import Astha
from lakeward.components import supervisor
from lakeward.components.schema_manager import SchemaManager
from lakeward.db import schema
from lakeward.registry import Registry
from lakeward.retry import Deadline
from tests.support.asthas import Recorder, quick
from tests.support.registries import make_table, open_at
from tests.support.waiting import until


class Hanging(Recorder):
    """A component whose threads do not end before `go` is set."""

    def __init__(self) -> None:
        super().__init__("compactor")
        self.go, self.runs = threading.Event(), threading.Event()

    def register_with_astha(self, astha: Astha) -> None:
        astha.register(self)

    def start(self) -> None:
        self.runs.set()

    def stop(self) -> None:
        self.go.wait()
        self.runs.clear()


def test_a_component_that_does_not_stop_keeps_the_program_for_a_bounded_time(registry: Registry) -> None:
    hanging = Hanging()
    with supervisor.running(registry, ["snapshotter"], quick(), {"compactor": hanging}, Deadline(0.05)) as running:
        assert hanging.runs.wait(30)
        assert set(running.components) == {"snapshotter", "compactor"}
    assert hanging.runs.is_set()
    hanging.go.set()
    until(lambda: not hanging.runs.is_set())


def test_one_that_stands_by_serves_no_schema_that_was_changed_by_hand(
    registry: Registry, made_url: str, tmp_path: Path
) -> None:
    """It hears of no change, but for those that it reads."""
    table = make_table(registry)
    names = ["schema_manager"]
    with open_at(made_url, tmp_path) as other, supervisor.running(registry, names, quick(lease_seconds=2.0)) as active:
        until(lambda: active.astha.state == "active")
        with supervisor.running(other, names, quick(lease_seconds=2.0)) as standing:
            managers = [each.components["schema_manager"] for each in (active, standing)]
            assert all(isinstance(each, SchemaManager) for each in managers)

            def served() -> list[dict[str, str]]:
                return [each.get_schema("sales.orders").properties for each in managers]  # type: ignore[attr-defined]

            assert served() == [{}, {}]
            expected: dict[str, str] = {}
            for value in ("1", "2"):
                expected["by"] = value
                with registry.database.transaction() as connection:
                    change = schema.table_metadata.update().where(schema.table_metadata.c.table_id == table.table_id)
                    connection.execute(change.values(properties=expected))
                assert served()[1] == expected
                until(lambda: served() == [expected] * 2)
            active.astha.stop()
            until(lambda: standing.astha.state == "active" and not other.schemas.is_suspended)
            assert served()[1] == {"by": "2"}
    assert not other.schemas.is_suspended and not registry.schemas.is_suspended
