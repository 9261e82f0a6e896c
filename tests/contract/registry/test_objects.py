"""An object that is gone because its table was dropped is told as that, wherever it is read or written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakeward import Lake
from lakeward.arrow.scan import prepare, scan_files
from lakeward.errors import ObjectNotFound, TableNotFound, TopicNotFound
from lakeward.log import topics
from lakeward.log.records import TopicConfig
from tests.support.lakes import ROWS, make_table, open_lake

NAME = "sales.orders"
READS: dict[str, Callable[[Any, str], Any]] = {
    "read": lambda engine, location: engine.read(location),
    "open_input": lambda engine, location: engine.open_input(location),
    "size": lambda engine, location: engine.size(location),
    "modified": lambda engine, location: engine.modified(location),
}


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Any:
    with open_lake(made_url, tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_each_way_to_read_an_object_tells_a_dropped_table_from_a_lost_object(
    lake: Lake, read: Callable[[Any, str], Any]
) -> None:
    table = make_table(lake, NAME)
    lake.append(NAME, ROWS)
    location = lake.files(NAME)[0].file_path
    engine = lake.registry.engine(table.location)
    Path(location.removeprefix("file://")).unlink()
    with pytest.raises(ObjectNotFound):
        read(engine, location)
    lake.drop_table(NAME, purge=True)
    for _ in range(3):  # until the table's row has gone too
        with pytest.raises(TableNotFound, match="dropped"):
            read(engine, location)
        lake.clean()
    with pytest.raises(ObjectNotFound):
        read(engine, lake.registry.below + "no/table.parquet")
    make_table(lake, NAME)  # the name used again is another table
    with pytest.raises(TableNotFound):
        read(engine, location)


def test_a_file_whose_folder_goes_with_its_table_while_it_is_written(lake: Lake) -> None:
    table = make_table(lake, NAME)
    engine = lake.registry.engine(table.location)
    outputs = [engine.open_output(f"{table.location}/data/{number}/x.parquet") for number in range(2)]
    folder = Path(table.location.removeprefix("file://"))
    shutil.rmtree(folder / "data" / "0")
    with pytest.raises(ObjectNotFound):
        outputs[0].close()
    lake.drop_table(NAME, purge=True)
    shutil.rmtree(folder / "data", ignore_errors=True)
    with pytest.raises(TableNotFound, match="dropped"), outputs[1]:
        outputs[1].write(b"x")


def test_a_scan_that_was_planned_before_a_drop_says_that_the_table_is_gone(lake: Lake) -> None:
    make_table(lake, NAME)
    lake.append(NAME, ROWS)
    files, engine = lake.files(NAME), lake.registry.engine(lake.table(NAME).location)
    reading = prepare(lake.metadata_versions(NAME))
    lake.drop_table(NAME, purge=True)
    with pytest.raises(TableNotFound):
        scan_files(reading, files, lambda paths: dict.fromkeys(paths), engine).read_all()


def test_a_topic_is_told_as_a_topic(lake: Lake) -> None:
    topic = topics.create(lake.registry, TopicConfig("events", 1))
    lake.log.append("events", [{"value": b"x"}])
    engine = lake.registry.engine(topic.location)
    location = next(iter(engine.list(topic.location + "/"))).location
    topics.delete(lake.registry, "events")
    engine.delete([location])
    with pytest.raises(TopicNotFound):
        engine.read(location)
