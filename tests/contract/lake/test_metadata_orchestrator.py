"""The metadata orchestrator: says whether registrations get through, and has at hand what they need."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lakeward import Lake
from lakeward.astha import Astha
from lakeward.astha.events import WATCHED, Event
from lakeward.components import MetadataOrchestrator, MetadataOrchestratorConfig
from lakeward.db import lock_order
from lakeward.errors import DatabaseError, InvalidSetting
from tests.support.lakes import ROWS, make_table, open_lake
from tests.support.registries import assert_exact, changes, last_sequence
from tests.support.waiting import until

pytestmark = pytest.mark.on("sqlite")

NAME = "sales.orders"


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path, durable=False) as opened:
        yield opened


@pytest.fixture
def others(made_url: str, tmp_path: Path, lake: Lake) -> Iterator[Lake]:
    """Another process's lake, say: what it does comes by the feed alone."""
    with open_lake(made_url, tmp_path, durable=False) as opened:
        yield opened


def deliver(lake: Lake, orchestrator: MetadataOrchestrator, after: int) -> None:
    """Each event twice, as may be."""
    subscribed = {str(name) for name in orchestrator.get_subscribed_tables()}
    for row in changes(lake.registry, after):
        if row["table_name"] in subscribed:
            record = msgspec.convert(row["data"], WATCHED[row["table_name"]].record)
            event: Event[Any] = Event(
                row["table_name"], row["operation"], record, row["changed_at"], row["table_id"], row["sequence"]
            )
            orchestrator.on_event(event)
            orchestrator.on_event(event)


def test_its_figures_are_those_of_the_registrations_made(lake: Lake) -> None:
    make_table(lake, NAME)
    orchestrator = MetadataOrchestrator(lake)
    before = orchestrator.get_metrics()
    lake.append(NAME, ROWS)
    lake.append(NAME, ROWS)
    after = orchestrator.get_metrics()
    assert after.commits - before.commits == 4  # two intents, two registrations
    assert (after.groups, after.failures, after.waiting) == (0, 0, 0)
    assert after.last_commit is not None and after.waited_seconds > 0


def test_a_new_version_of_a_table_that_is_written_to_is_at_hand_before_it_is_asked_for(
    lake: Lake, others: Lake
) -> None:
    table, idle = make_table(lake, NAME), make_table(lake, "sales.idle")
    lake.append(NAME, ROWS)
    orchestrator, start = MetadataOrchestrator(lake), last_sequence(lake.registry)
    for name in (NAME, "sales.idle"):
        others.add_column(name, "more", "int")
    deliver(lake, orchestrator, start)
    assert lake.registry.schemas.holds(table.table_id, 2)
    assert not lake.registry.schemas.holds(idle.table_id, 2)


@pytest.mark.parametrize("by", ["event", "refresh"])
def test_a_table_that_is_dropped_is_remembered_no_more(lake: Lake, others: Lake, by: str) -> None:
    table, kept = make_table(lake, NAME), make_table(lake, "sales.kept")
    for name in (NAME, "sales.kept"):
        lake.append(name, ROWS)
    orchestrator, start = MetadataOrchestrator(lake), last_sequence(lake.registry)
    assert set(lake.registry.group_commit.tables()) == {table.table_id, kept.table_id}
    others.drop_table(NAME)
    if by == "event":
        deliver(lake, orchestrator, start)
    else:
        orchestrator.on_refresh()
    assert lake.registry.group_commit.tables() == [kept.table_id]
    assert not lake.registry.schemas.holds(table.table_id, 1)
    assert lake.registry.schemas.holds(kept.table_id, 1)


def test_it_is_unwell_while_a_registration_waits_for_long_and_well_again_after_it(lake: Lake) -> None:
    table = make_table(lake, NAME)
    orchestrator = MetadataOrchestrator(lake, MetadataOrchestratorConfig(max_wait_seconds=0.01))
    assert orchestrator.on_health()
    with ThreadPoolExecutor(1) as pool:
        with lake.registry.database.transaction() as connection:
            lock_order.tables(connection, [table.table_id])
            waiting = pool.submit(lake.append, NAME, ROWS)
            until(lambda: not orchestrator.on_health())
        assert waiting.result().rows == len(ROWS)
    assert orchestrator.on_health()
    assert_exact(lake.registry, table)


def test_it_is_unwell_when_transaction_after_transaction_fails_until_one_does_not(lake: Lake) -> None:
    make_table(lake, NAME)
    orchestrator = MetadataOrchestrator(lake, MetadataOrchestratorConfig(max_failures=3))
    for failed in range(3):
        assert orchestrator.on_health(), failed
        with pytest.raises(DatabaseError):
            lake.registry.group_commit.commit(
                lambda connection, _: connection.exec_driver_sql("SELECT nothing FROM nowhere")
            )
    assert not orchestrator.on_health()
    lake.append(NAME, ROWS)
    assert orchestrator.on_health()


def test_its_settings_bound_the_groups(lake: Lake) -> None:
    MetadataOrchestrator(lake, MetadataOrchestratorConfig(max_group_commits=3, max_group_files=7))
    assert (lake.registry.group_commit.limits.commits, lake.registry.group_commit.limits.files) == (3, 7)
    with pytest.raises(InvalidSetting, match="max_group_files 0 is no whole number from 1"):
        MetadataOrchestratorConfig(max_group_files=0)


def test_astha_runs_it(lake: Lake, others: Lake) -> None:
    table = make_table(lake, NAME)
    lake.append(NAME, ROWS)
    orchestrator, astha = MetadataOrchestrator(lake), Astha(lake)
    orchestrator.register_with_astha(astha)
    with astha:
        others.drop_table(NAME)
        until(lambda: table.table_id not in lake.registry.group_commit.tables())
