"""What comes from outside reaches the databases' drivers as a value: one that they cannot take is refused in one way."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lakeward import Lake, MetadataStore, TopicConfig
from lakeward.errors import (
    ConsumerGroupNotFound,
    InvalidInput,
    MetadataVersionNotFound,
    NamespaceNotFound,
    PartitionNotFound,
    SnapshotNotFound,
    SyncRunNotFound,
    TableNotFound,
)
from lakeward.log.records import LogAppendResult
from lakeward.log.sql import topics
from lakeward.metadata import MarkerType, MetadataManager
from lakeward.tables.records.files import AppendResult
from tests.support.lakes import make_table, open_lake

TEXTS = ["\0", "a\0b", "\ud800", "x" * 5_000]
NUMBERS = [1 << 63, -(1 << 63) - 1, 1 << 200]


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path) as opened:
        make_table(opened)
        opened.append("sales.orders", [{"id": 1}])
        MetadataStore(opened).create_topic(TopicConfig("orders", 1))
        yield opened


def manager(lake: Lake) -> MetadataManager:
    return MetadataManager(lake, enable_cleanup=False)


READS_TEXT: dict[str, Callable[[Lake, str], object]] = {
    "table": lambda lake, text: lake.files(("sales", text)),
    "tables": lambda lake, text: lake.tables((text,)),
    "scan": lambda lake, text: lake.scan("sales.orders", columns=[text]),
    "filter": lambda lake, text: lake.scan("sales.orders", filter=f"name = '{text}'").read_all().num_rows,
    "batch": lambda lake, text: lake.append("sales.orders", [{"id": 1}], (text, "1")),
    "batch id": lambda lake, text: lake.append("sales.orders", [{"id": 1}], ("s", text)),
    "row": lambda lake, text: lake.append("sales.orders", [{"id": 1, "name": text}]),
    "topic": lambda lake, text: MetadataStore(lake).get_topic(text),
    "committed": lambda lake, text: MetadataStore(lake).get_committed_offset(text, "orders", 0),
    "offsets": lambda lake, text: MetadataStore(lake).get_consumer_offsets(text),
    "lag": lambda lake, text: MetadataStore(lake).lag(text),
    "group": lambda lake, text: MetadataStore(lake).delete_consumer_group(text),
    "note": lambda lake, text: MetadataStore(lake).commit_offset("g", "orders", 0, 0, text),
    "producer": lambda lake, text: lake.log.append("orders", ["a"], producer=(text, 1)),
    "position": lambda lake, text: manager(lake).get_stream_position(text),
    "markers": lambda lake, text: manager(lake).delete_marker("s", MarkerType.BATCH, text),
}
READS_NUMBER: dict[str, Callable[[Lake, int], object]] = {
    "snapshot": lambda lake, number: lake.rollback("sales.orders", number),
    "version": lambda lake, number: lake.rollback_metadata("sales.orders", number),
    "segment": lambda lake, number: MetadataStore(lake).find_segment_for_offset("orders", 0, number),
    "partition": lambda lake, number: MetadataStore(lake).get_partition("orders", number),
    "segments": lambda lake, number: list(MetadataStore(lake).get_segments("orders", 0, number)),
    "delete": lambda lake, number: MetadataStore(lake).delete_segments_before("orders", 0, number),
    "commit": lambda lake, number: MetadataStore(lake).commit_offset("g", "orders", 0, number),
    "watermark": lambda lake, number: MetadataStore(lake).update_high_watermark("orders", 0, number),
    "producer": lambda lake, number: lake.log.append("orders", ["a"], producer=("p", number)),
    "run": lambda lake, number: manager(lake).get_sync_run(number),
    "row": lambda lake, number: lake.append("sales.orders", [{"id": number}]),
}


@pytest.mark.parametrize("what", READS_TEXT)
def test_a_text_that_no_database_holds_is_refused_or_found_nowhere(lake: Lake, what: str) -> None:
    for text in TEXTS:
        _refused_or_not_found(lambda text=text: READS_TEXT[what](lake, text))  # type: ignore[misc]


@pytest.mark.parametrize("what", READS_NUMBER)
def test_a_number_that_no_database_holds_is_refused_or_found_nowhere(lake: Lake, what: str) -> None:
    for number in NUMBERS:
        _refused_or_not_found(lambda number=number: READS_NUMBER[what](lake, number))  # type: ignore[misc]


NOT_FOUND = (
    ConsumerGroupNotFound,
    MetadataVersionNotFound,
    NamespaceNotFound,
    PartitionNotFound,
    SnapshotNotFound,
    SyncRunNotFound,
    TableNotFound,
)
# What the one value that a database may hold, a long text, gives where it is written: what it gives else.
WRITTEN = (AppendResult, LogAppendResult)


def _refused_or_not_found(call: Callable[[], Any]) -> None:
    with contextlib.suppress(InvalidInput, *NOT_FOUND):
        answer = call()
        assert not answer or isinstance(answer, WRITTEN), answer


@pytest.mark.parametrize("value", ["\ud800", 1 << 63])
def test_below_all_checks_the_driver_s_own_refusal_is_one_of_ours(lake: Lake, value: Any) -> None:
    with pytest.raises(InvalidInput, match="none that the registry can hold"):
        lake.registry.database.lookups.one(topics.BY_NAME, {"warehouse_id": value, "name": value})
    with (
        pytest.raises(InvalidInput, match="none that the registry can hold"),
        lake.registry.database.read() as connection,
    ):
        topics.BY_NAME.one(connection, {"warehouse_id": value, "name": value})


def test_an_address_with_what_no_registry_holds_is_answered_as_a_request_that_is_wrong(lake: Lake) -> None:
    url, token = lake.serve()
    nul = base64.urlsafe_b64encode(b"\0").decode()
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}) as client:
        for path in (f"/v1/namespaces?pageToken={nul}", f"/v1/namespaces/sales/tables?pageToken={nul}"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["error"]["type"]) == (400, "BadRequestException")
        for name in ("%00", "%ED%A0%80", "x" * 5_000):
            answer = client.get(f"/v1/namespaces/sales/tables/{name}")
            assert answer.status_code in (400, 404)
            assert "registry" not in answer.text
