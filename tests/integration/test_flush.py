"""What engines read after a flush is what the registry says, whatever was done to the table in between."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable

from lakeward import Lake, StorageManager
from tests.support.lakes import assert_nothing_left_over, make_table, open_lake

NAME = "sales.orders"
PARTITIONS = ["a", "b", "c d", "é%"]
Rows = Counter[tuple[int, str]]


class Model:
    """What a table must hold: its rows by partition."""

    def __init__(self) -> None:
        self.rows: dict[str, Rows] = {name: Counter() for name in PARTITIONS}

    @property
    def all(self) -> Rows:
        return sum(self.rows.values(), Counter())


def some_rows(dice: random.Random, names: list[str]) -> list[dict[str, Any]]:
    return [{"id": dice.randrange(1000), "name": dice.choice(names)} for _ in range(dice.randrange(1, 6))]


def step(lake: Lake, model: Model, dice: random.Random) -> None:
    action = dice.choice(["append", "append", "append", "replace", "retire", "clean", "column"])
    partition = dice.choice(PARTITIONS)
    if action == "append":
        rows = some_rows(dice, PARTITIONS)
        lake.append(NAME, rows)
        for row in rows:
            model.rows[row["name"]][row["id"], row["name"]] += 1
    elif action == "replace":
        rows = some_rows(dice, [partition])
        StorageManager(lake).insert_partition("sales", "orders", {"name": partition}, rows)
        model.rows[partition] = Counter((row["id"], row["name"]) for row in rows)
    elif action == "retire":
        lake.retire_partitions(NAME, [{"name": partition}])
        model.rows[partition] = Counter()
    elif action == "clean":
        lake.clean()
    else:
        lake.add_column(NAME, f"extra{lake.table(NAME).version}", "string")


def rows_of(table: Any) -> Rows:
    return Counter(zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True))


@pytest.mark.parametrize(("seed", "format_version"), [(0, 2), (1, 2), (2, 3)])
def test_after_any_steps_a_flush_shows_exactly_the_registered_rows(
    made_url: str, tmp_path: Path, seed: int, format_version: int
) -> None:
    dice = random.Random(seed)
    model = Model()
    with open_lake(made_url, tmp_path, keep_snapshots=3, keep_metadata_files=2) as lake:
        make_table(lake, NAME, partition_by=["name"], format_version=format_version)
        history: dict[int, Rows] = {}
        for _ in range(12):
            for _ in range(dice.randrange(1, 4)):
                step(lake, model, dice)
            flushed = lake.flush(NAME)
            read = StaticTable.from_metadata(flushed.metadata_location)
            assert rows_of(read.scan().to_arrow()) == model.all
            assert rows_of(lake.scan(NAME).read_all()) == model.all
            current = read.current_snapshot()
            if current is not None:
                history[current.snapshot_id] = model.all
                assert current.summary is not None
                assert current.summary["total-records"] == str(model.all.total())
            for snapshot in read.snapshots():  # each retained snapshot still shows what it showed
                past = read.scan(snapshot_id=snapshot.snapshot_id).select("id", "name").to_arrow()
                assert rows_of(past) == history[snapshot.snapshot_id]
        assert lake.table(NAME).row_count == model.all.total()
        assert_nothing_left_over(lake, NAME)


def test_a_thousand_files_become_one_snapshot_and_one_manifest(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, durable=False) as lake:
        make_table(lake, NAME, schema={"id": "int"}, partition_by=["id"])
        lake.append(NAME, [{"id": i} for i in range(1000)])
        flushed = lake.flush(NAME)
        assert flushed.files == 1000
        read = StaticTable.from_metadata(flushed.metadata_location)
        (snapshot,) = read.snapshots()
        assert len(snapshot.manifests(read.io)) == 1
        assert sorted(read.scan().to_arrow()["id"].to_pylist()) == list(range(1000))
        lake.retire_partitions(NAME, [{"id": i} for i in range(0, 1000, 2)])
        flushed = lake.flush(NAME)
        assert flushed.removed == 500
        read = StaticTable.from_metadata(flushed.metadata_location)
        assert sorted(read.scan().to_arrow()["id"].to_pylist()) == list(range(1, 1000, 2))
