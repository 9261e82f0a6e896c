"""Stored footers: by policy, many at once, and deleted in any number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward import Lake
from lakeward.arrow import scan
from lakeward.db import dialect
from lakeward.errors import PartitionMetadataNotFound, TableNotFound
from lakeward.tables import footers
from lakeward.tables.records.tables import TableMetadata
from lakeward.tables.sql import footers as store
from tests.support.lakes import ROWS, make_table, open_lake

NAME = "sales.orders"


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path) as opened:
        yield opened


def stored(lake: Lake) -> set[str]:
    with lake.registry.database.read() as connection:
        return set(connection.exec_driver_sql("SELECT file_path FROM partition_metadata").scalars())


def paths(lake: Lake) -> list[str]:
    return [file.file_path for file in lake.files(NAME)]


def test_a_plan_has_the_files_that_its_reader_wants_and_their_footers_alone(lake: Lake) -> None:
    make_table(lake, NAME)
    lake.append(NAME, ROWS)
    lake.append(NAME, ROWS[:2])
    _, second = paths(lake)
    plan, reading = footers.plan(lake.registry, NAME, lambda versions: scan.prepare(versions, ["id"], "id < 2"))
    assert {file.file_path for file in plan.files} == set(plan.footers) == set(paths(lake))
    assert reading.chosen.names == ["id"]
    plan, _ = footers.plan(lake.registry, NAME, lambda versions: scan.prepare(versions, filter="id > 1"))
    assert {file.file_path for file in plan.files} == set(plan.footers) == set(paths(lake)) - {second}
    assert [
        footer and footer.num_rows for footer in footers.loader(lake.registry, plan)(list(plan.footers)).values()
    ] == [len(ROWS)]


def test_a_table_that_is_dropped_is_not_found_and_never_read_as_empty(lake: Lake) -> None:
    make_table(lake, NAME)
    lake.append(NAME, ROWS)

    def prepare(versions: list[TableMetadata]) -> scan.Reading:
        lake.drop_table(NAME)  # in the middle of the plan, which sees one moment all the same
        return scan.prepare(versions)

    plan, _ = footers.plan(lake.registry, NAME, prepare)
    assert len(plan.files) == len(plan.footers) == 1
    with pytest.raises(TableNotFound):
        lake.scan(NAME)


def test_a_table_that_wants_no_footers_has_none_and_is_read_all_the_same(lake: Lake) -> None:
    make_table(lake, NAME, properties={"lakeward.footers": "never"})
    lake.append(NAME, ROWS)
    assert lake.scan(NAME).read_all().num_rows == len(ROWS)
    assert stored(lake) == set()
    with pytest.raises(PartitionMetadataNotFound):
        footers.load_partition_metadata(lake.registry, paths(lake)[0])


def test_footers_on_first_use_are_stored_by_the_first_scan_that_reads_the_file(lake: Lake) -> None:
    make_table(lake, NAME, partition_by=["name"], properties={"lakeward.footers": "on-first-use"})
    lake.append(NAME, ROWS)
    assert stored(lake) == set()
    assert lake.scan(NAME, filter="name = 'n1'").read_all().num_rows == 2
    assert stored(lake) == {file.file_path for file in lake.files(NAME) if file.partition_path == "name=n1"}
    lake.scan(NAME).read_all()
    assert stored(lake) == set(paths(lake))
    assert footers.load_partition_metadata(lake.registry, paths(lake)[0]).num_rows == 2


def test_a_footer_too_large_to_store_is_read_from_the_object_each_time_and_writes_nothing(
    made_url: str, tmp_path: Path
) -> None:
    with open_lake(made_url, tmp_path, footer_limit=10) as lake:
        make_table(lake, NAME)
        lake.append(NAME, ROWS)
        (path,) = paths(lake)
        with lake.registry.database.transaction() as connection:
            connection.exec_driver_sql("UPDATE partition_metadata SET metadata_size = 123456")
        assert footers.load_partition_metadata(lake.registry, path).num_rows == len(ROWS)
        with lake.registry.database.read() as connection:
            assert [row.metadata_size for row in store.load(connection, [path])] == [123456]


def test_any_number_of_footers_is_deleted_and_no_other(lake: Lake) -> None:
    table = make_table(lake, NAME)
    many = [f"file:///x/{i}.parquet" for i in range(12_000)]
    with lake.registry.database.transaction() as connection:
        store.insert(connection, table.table_id, [(path, b"x") for path in many], 1, dialect.now(connection))
    assert footers.delete_partition_metadata_batch(lake.registry, iter(many[1:])) == len(many) - 1
    assert stored(lake) == {many[0]}
    assert footers.delete_partition_metadata_batch(lake.registry, []) == 0


def test_a_file_that_leaves_while_footers_are_rebuilt_gets_none(lake: Lake) -> None:
    table = make_table(lake, NAME, partition_by=["name"])
    lake.append(NAME, ROWS)
    plan, _ = footers.plan(lake.registry, NAME, scan.prepare)
    footers.delete_partition_metadata_batch(lake.registry, list(plan.footers))
    gone = [file.file_path for file in plan.files if file.partition_path == "name=n0"]
    lake.retire_partitions(NAME, [{"name": "n0"}])
    footers._store(lake.registry, table, dict.fromkeys(plan.footers, b"footer"))
    assert stored(lake) == set(plan.footers) - set(gone)
