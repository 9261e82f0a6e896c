"""The files that a filter chooses through indexes and pages, against those that the reader wants of all that are live."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from lakeward import Lake
from lakeward.arrow import scan
from lakeward.db import lock_order
from lakeward.db.schema import file_pages, table_files
from lakeward.errors import ColumnNotFound, InvalidFilter
from lakeward.registry import Registry
from lakeward.tables import choosing, footers, pages
from lakeward.tables.records.files import RegisteredFile
from tests.support import registries
from tests.support.lakes import open_lake

NAME = "sales.orders"
FILTERS = [
    *("id = 17", "id < 9", "id in (3, 40, 77)", "id is null", "not id >= 30", "id > 10 and id <= 12"),
    *("name = 'b'", "name in ('a', 'c')", "name is null", "name like 'c%'", "name != 'a'", "name = 'nobody'"),
    *("name = 'a' and id < 20", "name = 'b' or id = 5", "day >= '2024-02-01'", "day = '2024-01-05' and id > 3"),
    *("price is nan", "price > 5", "price < 0 and name is not null", "number = 7", "number > 30 or number is null"),
]


@pytest.fixture
def lake(made_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """Whose pages have four files; where three are few."""
    for module, name, value in (
        (pages, "SIZE", 4),
        (pages, "PAGES_AT_ONCE", 2),
        (choosing, "SMALL", 0),
        (choosing, "FEW", 3),
        (choosing, "AT_ONCE", 3),
    ):
        monkeypatch.setattr(module, name, value)
    with open_lake(made_url, tmp_path, quarantine_seconds=3600) as opened:
        yield opened


def some_rows(chance: random.Random, names: list[str]) -> list[dict[str, Any]]:
    start = chance.randrange(80)
    rows = [
        {
            "id": chance.choice([None, start + i, start + i]),
            "number": start,
            "day": f"2024-0{1 + start % 3}-{1 + start % 28:02d}",
            "name": chance.choice([None, "a", "b", "c1"]),
            "price": chance.choice([None, float("nan"), -1.5, 0.0, 7.0]),
        }
        for i in range(chance.randrange(1, 4))
    ]
    return [{name: row[name] for name in names} for row in rows]


def chosen(lake: Lake, text: Any, live: Sequence[RegisteredFile] | None = None) -> tuple[list[int], list[int]]:
    """The ids of the files that a plan reads, and of those that the reader wants of all."""
    plan, reading = footers.plan(lake.registry, NAME, lambda versions: scan.prepare(versions, None, text))
    every = lake.files(NAME) if live is None else live
    return [file.file_id for file in plan.files], [file.file_id for file in every if reading.wants(file)]


def assert_all_chosen(lake: Lake, filters: Sequence[str] = FILTERS) -> int:
    """For every filter whose columns the table has; how many files were left out in all."""
    left, live = 0, lake.files(NAME)
    for text in filters:
        try:
            found, wanted = chosen(lake, text, live)
        except (ColumnNotFound, InvalidFilter):
            continue
        assert found == wanted, text
        left += len(live) - len(found)
    return left


def page_count(lake: Lake) -> int:
    with lake.registry.database.read() as connection:
        query = sa.select(sa.func.count()).select_from(file_pages).where(file_pages.c.field_id == 0)
        return int(connection.execute(query).scalar_one())


@pytest.mark.parametrize("seed", range(3))
def test_a_filter_chooses_what_the_reader_wants_whatever_has_happened(lake: Lake, seed: int) -> None:
    chance = random.Random(seed)
    columns = {"id": "int", "number": "int", "day": "date", "name": "string", "price": "float"}
    lake.create_table(NAME, columns, partition_by=chance.choice([[], ["name"], ["month(day)", "name"]]))
    left = 0
    changes: list[Any] = [
        lambda: lake.set_partition_spec(NAME, ["bucket(4, id)"]),
        lambda: lake.widen_column(NAME, "id", "long"),
        lambda: lake.set_partition_spec(NAME, ["truncate(10, id)", "name"]),
        lambda: lake.widen_column(NAME, "price", "double"),
        lambda: lake.drop_column(NAME, "number"),
        lambda: lake.add_column(NAME, "number", "long"),
    ]
    snapshots: list[int] = []
    for step in range(17):
        has = [field["name"] for field in lake.metadata(NAME).schema["fields"]]
        lake.append(NAME, some_rows(chance, has))
        what = chance.random()
        if what < 0.2 and changes:
            changes.pop(0)()
        elif what < 0.4:
            snapshots.append(lake.flush(NAME).snapshot_id or snapshots[-1])
        elif what < 0.55:
            retire_some(lake, chance)
        elif what < 0.7 and snapshots:
            lake.rollback(NAME, chance.choice(snapshots))
        left += assert_all_chosen(lake, chance.sample(FILTERS, 4) if step % 8 else FILTERS)
    assert left > 100
    assert page_count(lake) > 1


def retire_some(lake: Lake, chance: random.Random) -> None:
    """A partition of the current spec, of those that a text names."""
    spec = lake.metadata(NAME).spec_id
    shown = {file.partition_path for file in lake.files(NAME) if file.spec_id == spec}
    if paths := sorted(path for path in shown if path and "null" not in path):
        lake.retire_partitions(NAME, [chance.choice(paths)])


def test_files_that_a_rollback_brings_back_are_found_again(lake: Lake) -> None:
    """Pages that were made while they were away do not have them."""
    lake.create_table(NAME, {"id": "long", "name": "string"}, partition_by=["name"])
    for i in range(3):
        lake.append(NAME, [{"id": i, "name": "gone"}])
    before = lake.flush(NAME).snapshot_id
    assert before is not None
    lake.retire_partitions(NAME, [{"name": "gone"}])
    lake.flush(NAME)
    for i in range(9):
        lake.append(NAME, [{"id": 100 + i, "name": "new"}])
    assert chosen(lake, "id = 103")[0] == chosen(lake, "id = 103")[1] != []
    assert page_count(lake) == 2
    lake.rollback(NAME, before)
    for text in ("id = 1", "id >= 0", "name = 'gone' and id = 2"):
        found, wanted = chosen(lake, text)
        assert found == wanted != []


def test_pages_whose_files_have_left_are_made_anew(lake: Lake) -> None:
    lake.create_table(NAME, {"id": "long", "name": "string"}, partition_by=["name"])
    for i in range(40):
        lake.append(NAME, [{"id": i, "name": f"n{i % 2}"}])
    assert_all_chosen(lake)
    assert page_count(lake) == 10
    lake.retire_partitions(NAME, [{"name": "n0"}])
    lake.retire_partitions(NAME, [{"name": "n1"}])
    for i in range(4):
        lake.append(NAME, [{"id": i, "name": "n2"}])
    assert chosen(lake, "id = 2")[0] == chosen(lake, "id = 2")[1] != []
    assert page_count(lake) == 1


def test_a_plan_reads_the_rows_of_few_files(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.create_table(NAME, {"id": "long", "name": "string"}, partition_by=["name"])
    for i in range(30):
        lake.append(NAME, [{"id": i, "name": f"n{i % 3}"}])
    seen: list[int] = []
    wants = scan.Reading.wants

    def counted(reading: scan.Reading, file: RegisteredFile) -> bool:
        seen.append(file.file_id)
        return wants(reading, file)

    monkeypatch.setattr(scan.Reading, "wants", counted)
    for text, few in (("id = 17", 1), ("name = 'n1'", 10), ("name = 'n1' and id < 9", 3), ("id in (3, 5)", 2)):
        seen.clear()
        plan, _ = footers.plan(lake.registry, NAME, lambda versions: scan.prepare(versions, None, text))  # noqa: B023
        assert len(plan.files) == len(seen) == few, text


def test_a_flush_makes_pages_of_the_rows_that_it_has(lake: Lake) -> None:
    lake.create_table(NAME, {"id": "long", "name": "string"})
    for i in range(9):
        lake.append(NAME, [{"id": i, "name": "a"}])
    assert page_count(lake) == 0
    lake.flush(NAME)
    assert page_count(lake) == 2
    assert_all_chosen(lake)


def test_a_registry_that_cannot_keep_pages_answers_all_the_same(lake: Lake) -> None:
    lake.create_table(NAME, {"id": "long", "name": "string"})
    for i in range(5):
        lake.append(NAME, [{"id": i, "name": "a"}])
    with lake.registry.database.transaction() as connection:  # as for a user who may not write it
        connection.execute(sa.text("ALTER TABLE file_pages RENAME COLUMN data TO other"))
    assert [row["id"] for row in lake.scan(NAME, filter="id >= 3").read_all().to_pylist()] == [3, 4]
    lake.flush(NAME)
    assert page_count(lake) == 0


def test_a_file_that_is_set_aside_is_not_chosen_and_comes_back_with_its_page(lake: Lake) -> None:
    lake.create_table(NAME, {"id": "long", "name": "string"}, partition_by=["name"])
    for i in range(8):
        lake.append(NAME, [{"id": i, "name": "a"}])
    first = lake.files(NAME)[0].file_id
    with lake.registry.database.transaction() as connection:
        own = table_files.c.file_id == first
        connection.execute(sa.update(table_files).where(own).values(set_aside_reason="truncated"))
    for text in ("id = 0", "name = 'a' and id < 3"):
        assert first not in chosen(lake, text)[0]
    with lake.registry.database.transaction() as connection:
        connection.execute(sa.update(table_files).where(own).values(set_aside_reason=None))
    for text in ("id = 0", "name = 'a' and id < 3"):
        assert first in chosen(lake, text)[0]


def test_ids_of_files_are_given_under_the_lock_of_their_table(registry: Registry) -> None:
    """So those of a table are committed in ascending order, which pages rest on."""
    if registry.database.is_sqlite:
        return  # one transaction writes at a time
    table = registries.make_table(registry)
    registries.register(registry, table, [1])
    before = last_id(registry)
    with ThreadPoolExecutor(1) as pool:
        with registry.database.transaction() as connection:
            lock_order.tables(connection, [table.table_id])
            waiting = pool.submit(registries.register, registry, table, [2])
            registries.wait_for_lock(registry)
            assert last_id(registry) == before
        assert waiting.result().rows == 1
    assert last_id(registry) > before


def last_id(registry: Registry) -> int:
    """The last one that PostgreSQL has given, committed or not."""
    with registry.database.read() as connection:
        name = connection.exec_driver_sql("SELECT pg_get_serial_sequence('table_files', 'file_id')").scalar_one()
        return int(connection.exec_driver_sql(f"SELECT last_value FROM {name}").scalar_one())
