"""Who may register, and when: everything else is refused with a code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from lakeward.astha import TABLE_FILES, TABLES, Astha, AsthaConfig, WatchedTable
from lakeward.errors import SubscriberRefused
from lakeward.registry import Registry
from tests.contract.astha.conftest import Start
from tests.support.asthas import Recorder, component, make_tables, quick, touch
from tests.support.waiting import until


class Other(Recorder):
    """A component whose subscriptions are its own choice."""

    def __init__(self, name: str, tables: Sequence[WatchedTable[Any]]) -> None:
        super().__init__(name)
        self.subscribed = tables

    def get_subscribed_tables(self) -> Sequence[WatchedTable[Any]]:
        return self.subscribed


def refusal(astha: Astha, subscriber: Recorder, **narrowed: Any) -> str:
    with pytest.raises(SubscriberRefused) as refused:
        astha.register(subscriber, **narrowed)
    assert refused.value.code == "subscriber_refused"
    return str(refused.value)


def test_a_name_registers_once(registry: Registry) -> None:
    astha = Astha(registry)
    astha.register(Recorder("compactor"))
    assert "'compactor' is registered already" in refusal(astha, Recorder("compactor"))


def test_an_unknown_name_is_refused_and_told_how_to_become_known(registry: Registry) -> None:
    said = refusal(Astha(registry), Other("mine", [TABLES]))
    assert "'mine' is none of" in said and "subscriptions={'mine'" in said


@pytest.mark.parametrize("tables", [[], [TABLES], [TABLE_FILES]])
def test_subscriptions_that_are_not_the_names_are_refused(
    registry: Registry, tables: Sequence[WatchedTable[Any]]
) -> None:
    assert "its subscriptions are table_files, table_stats" in refusal(Astha(registry), Other("compactor", tables))


def test_operations_are_those_of_the_feed(registry: Registry) -> None:
    assert "UPSERT" in refusal(Astha(registry), Recorder(), operations=["INSERT", "UPSERT"])


def test_registration_ends_with_the_start_for_good(registry: Registry, start: Start) -> None:
    astha = start(Recorder("compactor"))
    assert "comes too late" in refusal(astha, Recorder("snapshotter"))
    astha.stop()
    assert "comes too late" in refusal(astha, Recorder("snapshotter"))


def test_an_astha_starts_once(registry: Registry, start: Start) -> None:
    astha = start()
    with pytest.raises(SubscriberRefused, match="started before"):
        astha.start()
    astha.stop()
    with pytest.raises(SubscriberRefused, match="started before"):
        astha.start()


def test_a_component_of_ones_own_is_told_of_what_the_config_says(registry: Registry) -> None:
    mine = Other("mine", [TABLES])
    astha = Astha(registry, quick(subscriptions={"mine": ["tables"]}))
    assert "its subscriptions are tables" in refusal(astha, Other("mine", [TABLES, TABLE_FILES]))
    astha.register(mine)
    with astha:
        until(lambda: mine.refreshes == 1)
        make_tables(registry)
        until(lambda: [event.table for event in mine.events] == ["tables"])


def test_status_says_everything_of_each_component(registry: Registry, start: Start) -> None:
    make_tables(registry)
    told = Recorder()
    told.version = "7"
    astha = start(told)
    touch(registry, 1, 3)
    until(lambda: component(astha).delivered == 3 and component(astha).queue_length == 0, astha.status)
    until(lambda: component(astha).last_health_check, astha.status)
    found = component(astha)
    assert (found.name, found.version, found.status, found.breaker) == ("compactor", "7", "active", "closed")
    assert found.subscriptions == ["table_files", "table_stats"]
    assert (found.lag_events, found.lag_seconds) == (0, 0.0)
    assert (found.retried, found.parked, found.refreshes, found.reason, found.last_error) == (0, 0, 1, None, None)
    whole = astha.status()
    assert (whole.name, whole.state, whole.restarts, whole.owner) == ("lakeward", "active", 0, registry.owner)


def test_an_astha_without_components_runs_and_stops(registry: Registry) -> None:
    astha = Astha(registry, AsthaConfig())
    assert astha.stop() and astha.status().state == "stopped"
    with astha:
        until(lambda: astha.status().state == "active")
    assert astha.status().state == "stopped"
