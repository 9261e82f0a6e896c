"""A table whose partitions and order change: files of every spec stay right, judged by PyIceberg and DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable

from lakeward import Lake, StorageManager
from lakeward.errors import FileRefused
from tests.support import duck
from tests.support.lakes import ROWS, assert_nothing_left_over, make_table, open_lake

pytestmark = pytest.mark.on("sqlite")

NAME = "sales.orders"


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path) as opened:
        yield opened


def by_judges(lake: Lake, filter: str = "true") -> list[int]:
    """The ids that PyIceberg, DuckDB and Lakeward's own scan agree on, in the current metadata file."""
    location = lake.table(NAME).metadata_location
    assert location is not None
    iceberg = StaticTable.from_metadata(location).scan(filter).to_arrow()["id"].to_pylist()
    with duck.connect() as connection:
        found = connection.execute(f"select id from iceberg_scan('{location}') where {filter}").fetchall()
    scanned = lake.scan(NAME, filter=None if filter == "true" else filter).read_all()["id"].to_pylist()
    assert sorted(iceberg) == sorted(row[0] for row in found) == sorted(scanned)
    return sorted(scanned)


def rows(*ids: int) -> list[dict[str, Any]]:
    return [{"id": i, "name": f"n{i % 3}"} for i in ids]


@pytest.mark.parametrize("version", [2, 3])
def test_files_of_every_spec_are_read_and_pruned_in_one_snapshot(lake: Lake, version: int) -> None:
    make_table(lake, NAME, partition_by=["name"], format_version=version)
    lake.append(NAME, rows(0, 1))
    lake.set_partition_spec(NAME, ["bucket(2, id)"])
    lake.append(NAME, rows(2, 3))
    lake.set_partition_spec(NAME, [])
    lake.append(NAME, rows(4))
    lake.set_partition_spec(NAME, ["name"])  # the first one again
    lake.append(NAME, rows(5, 6))
    flushed = lake.flush(NAME)
    assert by_judges(lake) == [0, 1, 2, 3, 4, 5, 6]
    assert by_judges(lake, "name = 'n0'") == [0, 3, 6]
    assert by_judges(lake, "id = 2") == [2]
    read = StaticTable.from_metadata(flushed.metadata_location)
    assert set(read.specs()) == {0, 1, 2} and read.spec().spec_id == 0
    snapshot = read.current_snapshot()
    assert snapshot is not None
    assert sorted(m.partition_spec_id for m in snapshot.manifests(read.io)) == [0, 1, 2]
    assert_nothing_left_over(lake, NAME)


def test_files_pending_under_an_older_spec_are_committed_under_it(lake: Lake) -> None:
    make_table(lake, NAME, partition_by=["name"])
    lake.append(NAME, rows(0, 1, 2))
    lake.flush(NAME)
    lake.append(NAME, rows(3, 4))
    lake.set_partition_spec(NAME, ["truncate(1, name)"])
    lake.flush(NAME)
    assert by_judges(lake) == [0, 1, 2, 3, 4]
    assert {file.spec_id for file in lake.files(NAME)} == {0}
    lake.append(NAME, rows(5))
    assert lake.files(NAME)[-1].spec_id == 1
    lake.flush(NAME)
    assert by_judges(lake, "name = 'n2'") == [2, 5]


def test_a_column_goes_once_no_file_is_partitioned_by_it_and_what_is_left_is_read(lake: Lake) -> None:
    make_table(lake, NAME, schema={"id": "long", "name": "string", "region": "string"}, partition_by=["region"])
    lake.append(NAME, [{**row, "region": "eu"} for row in rows(0, 1)])
    lake.flush(NAME)
    lake.retire_partitions(NAME, [{"region": "eu"}])
    lake.set_partition_spec(NAME, ["name"])
    lake.append(NAME, [{**row, "region": "us"} for row in rows(2, 5)])  # pending while its column goes
    lake.drop_column(NAME, "region")
    lake.flush(NAME)
    lake.append(NAME, rows(3))
    lake.flush(NAME)
    assert by_judges(lake) == [2, 3, 5]
    assert by_judges(lake, "name = 'n0'") == [3]
    assert lake.files(NAME, set_aside=True) == []


def test_a_partition_is_replaced_in_the_current_spec_alone(lake: Lake) -> None:
    make_table(lake, NAME, partition_by=["name"])
    lake.append(NAME, rows(0, 1))
    lake.set_partition_spec(NAME, ["name", "bucket(1, id)"])
    lake.append(NAME, rows(3))
    StorageManager(lake).insert_partition("sales", "orders", {"name": "n0", "id_bucket": 0}, rows(6))
    lake.flush(NAME)
    assert by_judges(lake, "name = 'n0'") == [0, 6]


def test_a_replacement_that_began_under_another_spec_is_whole(lake: Lake) -> None:
    """Its files are of the spec it began with, and so are those that it replaces."""
    make_table(lake, NAME, partition_by=["name"])
    lake.append(NAME, rows(0, 1))
    with pytest.raises(FileRefused) as refused:
        StorageManager(lake).insert_partition("sales", "orders", {"name": "n0"}, rows(1))
    assert refused.value.reason == "wrong_partition"
    StorageManager(lake).insert_partition("sales", "orders", {"name": "n0"}, rows(3))
    lake.set_partition_spec(NAME, [])
    lake.flush(NAME)
    assert by_judges(lake) == [1, 3]


def test_a_sort_order_is_told_to_engines_and_files_say_which_they_have(lake: Lake) -> None:
    make_table(lake, NAME)
    lake.append(NAME, ROWS)
    lake.set_sort_order(NAME, ["id desc"])
    lake.append(NAME, ROWS)
    flushed = lake.flush(NAME)
    read = StaticTable.from_metadata(flushed.metadata_location)
    assert (read.sort_order().order_id, set(read.sort_orders())) == (1, {0, 1})
    assert [file.sort_order_id for file in lake.files(NAME)] == [0, 1]
    newest = lake.files(NAME)[-1].file_path
    plan = {task.file.file_path: task.file.sort_order_id for task in read.scan().plan_files()}
    assert plan[newest] == 1
