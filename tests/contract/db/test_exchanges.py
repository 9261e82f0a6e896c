"""How often a call goes to PostgreSQL and waits for an answer, while it holds locks in some of them: counted on the wire."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeward
from lakeward import Lake
from lakeward.lake.metadata_store import MetadataStore
from lakeward.log.records import TopicConfig
from lakeward.metadata import MetadataManager
from lakeward.registry import intents
from lakeward.tables import registration, tables
from lakeward.tables.records.files import Batch
from tests.support.exchanges import Exchanges
from tests.support.registries import data_file

pytestmark = pytest.mark.on("postgresql")

NAME = "sales.orders"
ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", "b"]})
Call = Callable[[], object]


@pytest.fixture
def proxy(made_url: str) -> Iterator[Exchanges]:
    with Exchanges(made_url) as proxy:
        yield proxy


@pytest.fixture
def lake(proxy: Exchanges, tmp_path: Path) -> Iterator[Lake]:
    with lakeward.connect(proxy.url, tmp_path / "warehouse") as lake:
        lake.create_table(NAME, {"id": "long", "name": "string"})
        MetadataStore(lake).create_topic(TopicConfig("events", 2))
        yield lake


def counted(proxy: Exchanges, call: Call) -> int:
    """The exchanges of a call whose statements the server knows, and whose connections are there."""
    for _ in range(3):
        call()
    before = proxy.count
    call()
    return proxy.count - before


def register(lake: Lake, files: int, **options: Any) -> Call:
    """A registration of its own intent, which is there before it is counted."""
    table = lake.table(NAME)
    declared = [intents.open_intent(lake.registry, table) for _ in range(4)]

    def call() -> None:
        intent = declared.pop()
        made = [data_file(intent.prefix, [number]) for number in range(files)]
        registration.register(lake.registry, table, intent, made, **options)

    return call


@pytest.mark.parametrize("files", [1, 50])
def test_a_registration_is_two_exchanges_whatever_the_number_of_its_files(
    lake: Lake, proxy: Exchanges, files: int
) -> None:
    assert counted(proxy, register(lake, files)) == 2


def test_an_intent_is_one_exchange(lake: Lake, proxy: Exchanges) -> None:
    table = lake.table(NAME)
    assert counted(proxy, lambda: intents.open_intent(lake.registry, table)) == 1


def test_a_registration_under_a_batch_s_key_is_two_exchanges(lake: Lake, proxy: Exchanges) -> None:
    table, numbers = lake.table(NAME), itertools.count()
    declared = [intents.open_intent(lake.registry, table) for _ in range(4)]

    def call() -> None:
        intent, number = declared.pop(), next(numbers)
        batch = Batch("s", str(number), number or None, number + 1)
        registration.register(lake.registry, table, intent, [data_file(intent.prefix, [number])], batch=batch)

    assert counted(proxy, call) == 2


def test_an_append_finds_its_table_declares_itself_and_registers(lake: Lake, proxy: Exchanges) -> None:
    numbers = itertools.count()
    assert counted(proxy, lambda: lake.append(NAME, ROWS)) == 4
    # Besides: was the batch applied before, and has the same one failed before?
    assert counted(proxy, lambda: lake.append(NAME, ROWS, batch=("s", str(next(numbers))))) == 6


def test_an_append_to_the_log_is_no_more(lake: Lake, proxy: Exchanges) -> None:
    assert counted(proxy, lambda: lake.log.append("events", ["x"], partition=0)) <= 7


def test_a_look_up_is_one_exchange(lake: Lake, proxy: Exchanges) -> None:
    table, store, manager = lake.table(NAME), MetadataStore(lake), MetadataManager(lake)
    lake.log.append("events", ["x"], partition=0)
    store.ensure_consumer_group("readers")
    store.commit_offset("readers", "events", 0, 1)
    manager.update_stream_position("sales", {"at": 1})
    calls: dict[str, Call] = {
        "a table by name": lambda: tables.load(lake.registry, NAME),
        "a table as it is now": lambda: tables.load(lake.registry, table),
        "a topic": lambda: store.get_topic("events"),
        "a partition": lambda: store.get_partition("events", 0),
        "the segment of an offset": lambda: store.find_segment_for_offset("events", 0, 0),
        "a committed offset": lambda: store.get_committed_offset("readers", "events", 0),
        "a position": lambda: manager.get_stream_position("sales"),
        "a position's update": lambda: manager.update_stream_position("sales", {"at": 1}),
    }
    assert {name: counted(proxy, call) for name, call in calls.items()} == dict.fromkeys(calls, 1)


def test_a_committed_offset_is_written_with_its_commit(lake: Lake, proxy: Exchanges) -> None:
    store, offsets = MetadataStore(lake), itertools.cycle([0, 1])
    lake.log.append("events", ["x"], partition=0)
    store.ensure_consumer_group("readers")
    assert counted(proxy, lambda: store.commit_offset("readers", "events", 0, next(offsets))) == 5


def test_reading_a_table_s_files_is_a_transaction_that_is_ended(lake: Lake, proxy: Exchanges) -> None:
    lake.append(NAME, ROWS)
    assert counted(proxy, lambda: lake.files(NAME)) <= 5
