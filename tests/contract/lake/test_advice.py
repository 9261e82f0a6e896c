"""What errors of a lake advise is done as they say it, and works."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward.errors import FileRefused, InvalidInput, LakewardError, SnapshotNotFound
from lakeward.lake import Lake, MetadataStore, connect
from lakeward.log.records import TopicConfig
from tests.support.shell import invoke


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with connect(tmp_path / "r.db", tmp_path / "w", durable=False) as opened:
        opened.create_table("shop.orders", {"id": "long", "name": "string"})
        yield opened


def advised(error: LakewardError, pattern: str) -> str:
    found = re.search(pattern, str(error))
    assert found is not None, str(error)
    return found[1]


def run(lake: Lake, command: str) -> str:
    where = ["--registry", str(lake.settings.registry), "--warehouse", str(lake.settings.warehouse)]
    done = invoke(*shlex.split(command), *where)
    assert done.exit_code == 0, done.output
    return done.output


def test_the_command_that_lists_a_tables_snapshots(lake: Lake) -> None:
    lake.append("shop.orders", [{"id": 1}])
    there = lake.flush("shop.orders").snapshot_id
    with pytest.raises(SnapshotNotFound) as refused:
        lake.rollback("shop.orders", 5)
    assert str(there) in run(lake, advised(refused.value, "`lakeward (.*?)`"))


def test_the_property_that_lets_more_rows_be_dead_letters(lake: Lake) -> None:
    lake.set_properties("shop.orders", {"lakeward.invalid-rows": "dead-letter", "lakeward.invalid-rows.max": "1"})
    rows = [{"id": "a"}, {"id": "b"}, {"id": 3}]
    with pytest.raises(FileRefused) as refused:
        lake.append("shop.orders", rows)
    lake.set_properties("shop.orders", {advised(refused.value, r"raise the table's (\S+)"): "2"})
    assert lake.append("shop.orders", rows).dead_letters == 2


def test_one_row_is_given_in_a_list(lake: Lake) -> None:
    row = {"id": 1, "name": "a"}
    with pytest.raises(InvalidInput) as refused:
        lake.append("shop.orders", row)
    assert advised(refused.value, "give one row as (.*)") == "[{...}]"
    assert lake.append("shop.orders", [row]).rows == 1


def test_the_argument_that_lets_a_consumer_commit(lake: Lake) -> None:
    MetadataStore(lake).create_topic(TopicConfig("clicks"))
    lake.log.append("clicks", [{"value": b"v"}])
    alone = lake.log.consumer("clicks")
    alone.poll()
    with pytest.raises(InvalidInput) as refused:
        alone.commit()
    assert advised(refused.value, r"open it with (\w+)=") == "group"
    consumer = lake.log.consumer("clicks", group="readers")
    consumer.poll()
    consumer.commit()
    assert MetadataStore(lake).list_consumer_groups() == ["readers"]
