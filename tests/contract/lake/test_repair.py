"""A table whose Iceberg metadata is gone: audit says so, repair writes it anew from the registry, and all goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from lakeward import Lake
from lakeward.errors import LeaseHeld, ObjectNotFound
from lakeward.iceberg import metadata
from lakeward.tables.records.tables import Table
from tests.support.compacting import swapped
from tests.support.lakes import ROWS, assert_nothing_left_over, make_table, objects, open_lake
from tests.support.shell import Shell

pytestmark = pytest.mark.on("sqlite")

NAME = "sales.orders"


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path) as opened:
        yield opened


def seen_by_iceberg(lake: Lake) -> list[int]:
    scanned = StaticTable.from_metadata(lake.table(NAME).metadata_location or "").scan()
    return sorted(scanned.to_arrow()["id"].to_pylist())


def scanned(lake: Lake) -> list[int]:
    return sorted(lake.scan(NAME).read_all()["id"].to_pylist())


def fill(lake: Lake, format_version: int = 2) -> Table:
    """Files of two schemas and two specs; some committed, one pending, and a removal that no snapshot shows."""
    make_table(lake, NAME, format_version=format_version)
    lake.append(NAME, ROWS)
    lake.add_column(NAME, "extra", "int")
    lake.flush(NAME)
    lake.set_partition_spec(NAME, ["name"])
    lake.append(NAME, [{"id": 10, "name": "a", "extra": 1}, {"id": 11, "name": "b", "extra": 2}])
    lake.flush(NAME)
    lake.retire_partitions(NAME, [{"name": "b"}])
    lake.append(NAME, [{"id": 12, "name": "c", "extra": 3}])
    return lake.table(NAME)


def lose(lake: Lake, which: str) -> list[str]:
    """Delete objects of the table's metadata; their locations."""
    table = lake.table(NAME)
    engine = lake.registry.engine(table.location)
    location = table.metadata_location or ""
    document = metadata.decode(engine.read(location))
    lists = [snapshot["manifest-list"] for snapshot in document["snapshots"]]
    every = [info.location for info in engine.list(table.location + "/metadata/")]
    manifests = [each for each in every if each.endswith(".avro") and each not in lists]
    gone = {"metadata file": [location], "lists": lists, "manifests": manifests, "everything": every}[which]
    assert engine.delete(gone) == []
    return gone


@pytest.mark.parametrize("format_version", [2, 3])
@pytest.mark.parametrize("which", ["metadata file", "lists", "manifests", "everything"])
def test_what_is_lost_is_written_anew_and_every_reader_sees_the_rows(
    lake: Lake, which: str, format_version: int
) -> None:
    fill(lake, format_version)
    before = scanned(lake)
    gone = lose(lake, which)
    report = lake.audit(NAME)
    assert not report.ok
    found = {finding.what for finding in report.findings if finding.kind == "metadata"}
    assert found and found <= set(gone)
    before_repair = objects(lake, lake.table(NAME))
    repaired = lake.repair(NAME)
    assert set(repaired.lost) == found
    assert (repaired.files, repaired.snapshots_expired) == (2, 2)
    assert seen_by_iceberg(lake) == sorted(set(before) - {12})
    assert_nothing_left_over(lake, NAME)
    lake.flush(NAME)
    assert seen_by_iceberg(lake) == scanned(lake) == before
    lake.append(NAME, [{"id": 13, "name": "a", "extra": None}])
    lake.flush(NAME)
    swapped(lake, NAME, [file for file in lake.files(NAME) if file.partition_path == "name=a"])
    lake.flush(NAME)
    assert seen_by_iceberg(lake) == scanned(lake) == sorted([*before, 13])
    lake.expire_snapshots(NAME, keep=1)
    lake.clean()
    assert seen_by_iceberg(lake) == scanned(lake)
    assert_nothing_left_over(lake, NAME)
    assert not any("/metadata/" in each for each in objects(lake, lake.table(NAME)) & before_repair)


def test_sequence_numbers_and_row_ids_go_on_where_they_were(lake: Lake) -> None:
    fill(lake, 3)
    engine = lake.registry.engine(lake.table(NAME).location)
    before = metadata.decode(engine.read(lake.table(NAME).metadata_location or ""))
    ids = {file.file_path: file.first_row_id for file in lake.files(NAME) if file.snapshot_id is not None}
    lose(lake, "everything")
    lake.repair(NAME)
    document = metadata.decode(engine.read(lake.table(NAME).metadata_location or ""))
    assert document["last-sequence-number"] == before["last-sequence-number"] + 1
    assert document["next-row-id"] >= before["next-row-id"]
    assert document["last-column-id"] == before["last-column-id"]
    assert [schema["schema-id"] for schema in document["schemas"]] == [s["schema-id"] for s in before["schemas"]]
    assert document["partition-specs"] == before["partition-specs"]
    assert {f.file_path: f.first_row_id for f in lake.files(NAME) if f.snapshot_id is not None} == ids
    lake.flush(NAME)
    assert min(f.first_row_id or 0 for f in lake.files(NAME) if f.file_path not in ids) >= before["next-row-id"]


def test_a_table_of_which_nothing_is_lost_stays_as_it_is(lake: Lake) -> None:
    fill(lake)
    before = lake.table(NAME)
    assert lake.repair(NAME).lost == []
    assert lake.table(NAME) == before
    make_table(lake, "sales.never_flushed")
    assert lake.repair("sales.never_flushed").lost == []


def test_a_table_without_any_snapshot_gets_its_metadata_back(lake: Lake) -> None:
    make_table(lake, NAME)
    lake.flush(NAME)
    lose(lake, "everything")
    assert lake.repair(NAME).snapshot_id is None
    lake.append(NAME, ROWS)
    lake.flush(NAME)
    assert seen_by_iceberg(lake) == scanned(lake)
    assert_nothing_left_over(lake, NAME)


def test_a_table_that_is_held_is_not_repaired(lake: Lake) -> None:
    fill(lake)
    lose(lake, "everything")
    with lake.hold(NAME), pytest.raises(LeaseHeld):
        lake.repair(NAME)


def test_whatever_meets_lost_metadata_says_what_brings_it_back(lake: Lake) -> None:
    fill(lake)
    lose(lake, "everything")
    for action in (
        lambda: lake.flush(NAME),
        lambda: lake.merge_manifests(NAME),
        lambda: lake.expire_snapshots(NAME, keep=1),
        lambda: lake.rollback(NAME, 1),
        lambda: lake.refs(NAME),
        lambda: lake.manifests(NAME),
    ):
        with pytest.raises(ObjectNotFound, match=r"lakeward repair sales\.orders"):
            action()
    lake.repair(NAME)
    lake.flush(NAME)
    assert seen_by_iceberg(lake) == scanned(lake)


def test_the_commands_say_what_is_lost_and_write_it_anew(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    with open_lake(str(tmp_path / "registry.db"), tmp_path) as lake:
        fill(lake)
        assert shell.json("repair", NAME)["lost"] == []
        gone = lose(lake, "everything")
        findings = shell.json("audit", NAME, exit_code=1)["findings"]
        assert [each["what"] for each in findings if each["kind"] == "metadata"] == [lake.table(NAME).metadata_location]
        repaired = shell.json("repair", NAME)
        assert set(repaired["lost"]) <= set(gone) and repaired["rows"] == 7
        assert shell.json("audit", NAME)["ok"]
