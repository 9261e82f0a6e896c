"""Merges of small groups, which need no Spark: their order, their memory, their end; what Spark makes of the same is compared in
tests/integration/test_compaction.py."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lakeward import Lake
from lakeward.arrow import file_writer, merge
from lakeward.errors import ObjectNotFound
from lakeward.maintenance import compaction
from lakeward.tables.records import properties
from tests.support.lakes import ROWS, assert_nothing_left_over, make_table, open_lake

pytestmark = pytest.mark.on("sqlite")

NAME = "sales.orders"


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path) as opened:
        yield opened


def compact(lake: Lake, **options: Any) -> compaction.Compacted:
    return compaction.compact_table(lake.registry, lake.table(NAME), no_session, **options)


def no_session() -> Any:
    raise AssertionError("Spark was asked for")


def ids(lake: Lake) -> list[list[int]]:
    """Of each file, in the order of its rows."""
    paths = [file.file_path.removeprefix("file://") for file in lake.files(NAME)]
    return [pq.read_table(path, partitioning=None)["id"].to_pylist() for path in paths]


def test_a_process_that_merges_small_files_loads_neither_spark_nor_pyiceberg(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path) as lake:
        make_table(lake, NAME, partition_by=["name"], sort_by=["id"])
        for _ in range(5):
            lake.append(NAME, ROWS)
    program = (
        "import sys, lakeward\n"
        f"with lakeward.connect({made_url!r}, {str(tmp_path / 'warehouse')!r}) as lake:\n"
        f"    assert lake.compact({NAME!r}).files_after == 3\n"
        "assert not {'pyspark', 'py4j', 'pyiceberg'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_a_sort_order_rows_keep_the_order_of_the_files_and_their_own(lake: Lake) -> None:
    make_table(lake, NAME)
    for number in range(6):
        lake.append(NAME, [{"id": number * 10 - i} for i in range(3)])
    before = [each for file in ids(lake) for each in file]
    assert compact(lake).files_after == 1
    assert ids(lake) == [before]


@pytest.mark.parametrize("is_read_ahead", [True, False])
def test_a_file_is_sorted_as_a_whole_however_many_row_groups_it_has(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, is_read_ahead: bool
) -> None:
    monkeypatch.setattr(merge, "_WHOLE", (1 << 20) * is_read_ahead)
    monkeypatch.setattr(merge, "SLICE_ROWS", 7)
    monkeypatch.setattr(file_writer, "FLUSH_ROWS", 10)
    make_table(lake, NAME, sort_by=["id desc"])
    for number in range(6):
        lake.append(NAME, [{"id": i * 37 % 101 + number} for i in range(9)])
    expected = sorted((each for file in ids(lake) for each in file), reverse=True)
    assert compact(lake).files_after == 1
    (file,) = lake.files(NAME)
    assert (ids(lake), file.sort_order_id) == ([expected], 1)
    assert len(file.split_offsets) > 1
    assert_nothing_left_over(lake, NAME)


@pytest.mark.parametrize("sort_by", [["id"], []])
def test_a_partition_gets_as_many_files_as_planned_whose_rows_do_not_overlap(lake: Lake, sort_by: list[str]) -> None:
    make_table(lake, NAME, sort_by=sort_by)
    for number in range(8):
        lake.append(NAME, [{"id": i * 8 + number, "name": f"{i * 7919 % 4001:x}" * 9} for i in range(500)])
    size = sum(file.file_size for file in lake.files(NAME))
    lake.set_properties(NAME, {properties.COMPACTION_SIZE.name: str(size // 3)})
    (job,) = lake.plan_compaction(NAME).jobs
    assert job.expected == 3
    assert compact(lake).files_after == 3
    found = ids(lake)
    assert [len(each) for each in found] == [1334, 1334, 1332]
    if sort_by:
        assert [each for file in found for each in file] == list(range(4_000))
    assert_nothing_left_over(lake, NAME)


def test_a_merge_that_is_stopped_leaves_all_as_it_was(lake: Lake) -> None:
    make_table(lake, NAME, partition_by=["name"])
    for _ in range(5):
        lake.append(NAME, ROWS)
    before = lake.files(NAME)
    asked: list[int] = []

    def is_stopped() -> bool:
        asked.append(1)
        return len(asked) > 7  # in the second of three partitions

    with pytest.raises(compaction.Stopped):
        compact(lake, is_stopped=is_stopped)
    assert lake.files(NAME) == before
    assert_nothing_left_over(lake, NAME)


def test_a_file_that_is_gone_is_named_and_the_others_stay(lake: Lake) -> None:
    make_table(lake, NAME)
    for _ in range(5):
        lake.append(NAME, ROWS)
    gone = lake.files(NAME)[3].file_path
    lake.registry.engine(gone).delete([gone], below=lake.table(NAME).location)
    with pytest.raises(ObjectNotFound, match=gone.rpartition("/")[2]):
        compact(lake)
    assert len(lake.files(NAME)) == 5


def test_files_of_an_earlier_spec_go_to_the_partitions_of_the_current_one(lake: Lake) -> None:
    make_table(lake, NAME, schema={"id": "long", "at": "timestamptz"})
    for _ in range(5):
        lake.append(NAME, [{"id": 1, "at": "9999-12-31T00:00:00+00:00"}])
    lake.set_properties(NAME, {properties.COMPACTION_SPECS.name: "true"})
    lake.set_partition_spec(NAME, ["day(at)"])
    assert compact(lake).files_after == 1
    assert [file.partition_path for file in lake.files(NAME)] == ["at_day=9999-12-31"]
