"""`lake.scan` of a snapshot: its rows, its columns, whatever has become of the table since. On both databases."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lakeward import Lake
from lakeward.errors import ColumnNotFound, InvalidFilter, RefNotFound, SnapshotNotFound
from tests.support.lakes import make_table, open_lake

NAME = "sales.orders"


@pytest.fixture
def lake(made_url: str, tmp_path: Path):  # type: ignore[no-untyped-def]
    with open_lake(made_url, tmp_path, quarantine_seconds=3600, metadata_quarantine_seconds=3600) as opened:
        yield opened


def rows(lake: Lake, **options: Any) -> list[dict[str, Any]]:
    return sorted(lake.scan(NAME, **options).read_all().to_pylist(), key=lambda row: int(row["id"]))


def made(lake: Lake) -> int:
    """A first snapshot of two rows; since then a column was renamed, another added, a partition left, a row came."""
    make_table(lake, NAME, partition_by=["name"])
    lake.append(NAME, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    first = lake.flush(NAME).snapshot_id
    assert first is not None
    lake.rename_column(NAME, "name", "label")
    lake.add_column(NAME, "more", "long")
    lake.retire_partitions(NAME, [{"name": "a"}])
    lake.append(NAME, [{"id": 3, "label": "c", "more": 5}])
    lake.flush(NAME)
    return first


def test_a_snapshot_is_read_with_its_rows_and_its_columns(lake: Lake) -> None:
    first = made(lake)
    assert rows(lake, snapshot=first) == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    assert rows(lake) == [{"id": 2, "label": "b", "more": None}, {"id": 3, "label": "c", "more": 5}]
    lake.clean()  # what has left is in quarantine still
    assert rows(lake, snapshot=first, columns=["id"], filter="name = 'a'") == [{"id": 1}]
    with pytest.raises(ColumnNotFound, match="label"):
        lake.scan(NAME, columns=["label"], snapshot=first)
    with pytest.raises((InvalidFilter, ColumnNotFound), match="more"):
        lake.scan(NAME, filter="more = 5", snapshot=first)


def test_branches_and_tags_name_snapshots(lake: Lake) -> None:
    first = made(lake)
    lake.create_tag(NAME, "before", first)
    assert [row["id"] for row in rows(lake, snapshot="before")] == [1, 2]
    lake.append(NAME, [{"id": 4, "label": "c", "more": 5}])
    assert [row["id"] for row in rows(lake, snapshot="main")] == [2, 3]  # what is pending is in no snapshot
    with pytest.raises(RefNotFound, match="nowhere"):
        lake.scan(NAME, snapshot="nowhere")


def test_a_snapshot_that_is_not_there_or_has_expired_is_named(lake: Lake) -> None:
    first = made(lake)
    lake.expire_snapshots(NAME, -timedelta(minutes=1), keep=1)
    for gone in (first, 5):
        with pytest.raises(SnapshotNotFound, match=rf"{gone}.*lakeward snapshots list"):
            lake.scan(NAME, snapshot=gone)
    make_table(lake, "sales.lines", format="json")
    with pytest.raises(SnapshotNotFound):
        lake.scan("sales.lines", snapshot=1)


def test_a_table_that_exists_is_taken_as_it_is_where_that_is_asked_for(lake: Lake) -> None:
    table = lake.create_table(NAME, {"id": "long"}, if_not_exists=True)
    assert lake.create_table(NAME, {"other": "string"}, if_not_exists=True) == table
    assert [field["name"] for field in lake.metadata(NAME).schema["fields"]] == ["id"]


def test_a_lake_says_where_it_is_and_no_password(lake: Lake) -> None:
    text = repr(lake)
    assert text.startswith("<Lake ") and str(lake.registry.warehouse.location) in text
    assert str(lake.registry.database.url.database) in text and lake.registry.database.url.password in (None, "", "***")
