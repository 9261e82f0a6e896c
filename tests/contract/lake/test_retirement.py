"""Files that leave a table: replaced and expired partitions, quarantine and its end, dropped tables, footers."""

from __future__ import annotations

import re
import time
from datetime import date, timedelta
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from lakeward import Lake, StorageManager
from lakeward.arrow import scan
from lakeward.errors import (
    BatchOutOfOrder,
    FileRefused,
    InvalidInput,
    LeaseHeld,
    PartitionMetadataNotFound,
    TableNotFound,
)
from lakeward.registry import intents, leases
from lakeward.tables import footers, retirement
from lakeward.tables import tables as registry_tables
from tests.contract.db import processes
from tests.support.lakes import ROWS, assert_nothing_left_over, make_table, objects, open_lake

pytestmark = pytest.mark.on("sqlite")

NAME = "sales.orders"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def lake(made_url: str, tmp_path: Path):  # type: ignore[no-untyped-def]
    with open_lake(made_url, tmp_path) as opened:
        yield opened


def seen_by_iceberg(lake: Lake) -> list[int]:
    lake.flush(NAME)
    rows = StaticTable.from_metadata(lake.table(NAME).metadata_location or "").scan().to_arrow()
    return sorted(rows["id"].to_pylist())


@pytest.mark.parametrize("flushed_before", [True, False])
def test_a_replaced_partition_has_exactly_its_new_rows(lake: Lake, flushed_before: bool) -> None:
    make_table(lake, NAME, partition_by=["name"])
    lake.append(NAME, ROWS)
    if flushed_before:
        lake.flush(NAME)
    result = StorageManager(lake).insert_partition("sales", "orders", {"name": "n0"}, [{"id": 100, "name": "n0"}])
    assert result.rows == 1
    expected = sorted([row["id"] for row in ROWS if row["name"] != "n0"] + [100])
    assert sorted(lake.scan(NAME).read_all()["id"].to_pylist()) == expected
    assert seen_by_iceberg(lake) == expected
    assert lake.table(NAME).row_count == len(expected)
    assert_nothing_left_over(lake, NAME)


def test_a_replacement_is_a_write_like_any_other(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, metadata_updates="sync") as lake:
        make_table(lake, NAME, partition_by=["name"])
        manager = StorageManager(lake)
        first = manager.insert_partition("sales", "orders", {"name": "n0"}, ROWS[:1], batch=("nightly", "1", 0, 1))
        assert first.snapshot_id == lake.table(NAME).current_snapshot_id
        assert set(first.seconds) == {"write", "register", "snapshot"}
        again = manager.insert_partition("sales", "orders", {"name": "n0"}, [{"id": 7, "name": "n0"}], ("nightly", "1"))
        assert (again.replayed, again.files) == (True, first.files)
        assert [row["id"] for row in lake.scan(NAME).read_all().to_pylist()] == [ROWS[0]["id"]]
        with pytest.raises(BatchOutOfOrder):
            manager.insert_partition("sales", "orders", {"name": "n0"}, [], batch=("nightly", "2", 5, 6))
        emptied = manager.insert_partition("sales", "orders", {"name": "n0"}, [], batch=("nightly", "2", 1, 2))
        assert emptied.rows == lake.table(NAME).row_count == 0
        assert seen_by_iceberg(lake) == []
        assert_nothing_left_over(lake, NAME)


def test_rows_of_another_partition_are_refused_and_nothing_changes(lake: Lake) -> None:
    make_table(lake, NAME, partition_by=["name"])
    lake.append(NAME, ROWS)
    with pytest.raises(FileRefused) as refused:
        StorageManager(lake).insert_partition("sales", "orders", {"name": "n0"}, [{"id": 1, "name": "n1"}])
    assert refused.value.reason == "wrong_partition"
    with pytest.raises(InvalidInput):
        StorageManager(lake).insert_partition("sales", "orders", {"nome": "n0"}, [{"id": 1, "name": "n0"}])
    assert lake.table(NAME).row_count == len(ROWS)
    assert_nothing_left_over(lake, NAME)


def test_two_replacements_of_one_partition_wait_for_each_other(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(lake, NAME, partition_by=["name"])
    monkeypatch.setattr(retirement, "LEASE_SECONDS", 0.3)
    name = retirement.partition_lease(table, 0, '{"1000":"n0"}')
    with leases.held(lake.registry, name, seconds=30), pytest.raises(LeaseHeld):
        StorageManager(lake).insert_partition("sales", "orders", {"name": "n0"}, [{"id": 1, "name": "n0"}])


def test_a_retired_file_stays_while_a_retained_snapshot_reaches_it(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, keep_snapshots=2) as lake:
        make_table(lake, NAME, partition_by=["name"])
        lake.append(NAME, ROWS)
        lake.flush(NAME)
        with_it = StaticTable.from_metadata(lake.table(NAME).metadata_location or "")
        (path,) = [file.file_path for file in lake.files(NAME) if file.partition_path == "name=n0"]
        assert lake.retire_partitions(NAME, [{"name": "n0"}]) == 1
        assert lake.clean().files == 0  # the current snapshot still lists it
        lake.flush(NAME)
        assert lake.clean().footers == 0  # the snapshot before is retained
        assert footers.load_partition_metadata(lake.registry, path).num_rows == 2
        assert with_it.scan().to_arrow().num_rows == len(ROWS)
        for _ in range(2):
            lake.append(NAME, [{"id": 9, "name": "n1"}])
            lake.flush(NAME)
        assert lake.clean().footers == 1
        with pytest.raises(PartitionMetadataNotFound):
            footers.load_partition_metadata(lake.registry, path)
        assert not lake.registry.engine(path).exists(path)
        assert_nothing_left_over(lake, NAME)


def test_quarantine_lasts_its_time(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, quarantine_seconds=3600) as lake:
        make_table(lake, NAME, partition_by=["name"])
        lake.append(NAME, ROWS)
        assert lake.retire_partitions(NAME, [{"name": "n0"}]) == 1
        assert lake.clean().files == 0
        assert lake.audit(NAME).ok


def test_partitions_expire_by_their_newest_file(lake: Lake) -> None:
    make_table(lake, NAME, partition_by=["name"])
    lake.append(NAME, ROWS)
    with lake.registry.database.transaction() as connection:
        connection.exec_driver_sql(
            "UPDATE table_files SET registered_at = '2020-01-01T00:00:00.000000Z' WHERE partition_path <> 'name=n0'"
        )
    lake.append(NAME, [{"id": 1, "name": "n1"}])
    assert lake.retire_expired_partitions(NAME, timedelta(days=1)) == 1  # n2; n1 has a new file
    assert {file.partition_path for file in lake.files(NAME)} == {"name=n0", "name=n1"}
    assert_nothing_left_over(lake, NAME)


def test_a_dropped_tables_name_is_free_and_its_files_stay_until_cleaned(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, quarantine_seconds=3600) as lake:
        old = make_table(lake, NAME)
        lake.append(NAME, ROWS)
        lake.drop_table(NAME)
        new = make_table(lake, NAME)
        lake.append(NAME, ROWS[:1])
        assert new.table_uuid != old.table_uuid
        lake.clean()
        assert len(objects(lake, old)) == 1
        assert lake.scan(NAME).read_all().num_rows == 1


def test_a_name_used_again_and_purged_leaves_the_renamed_tables_files(lake: Lake) -> None:
    first = make_table(lake, NAME)
    lake.append(NAME, ROWS)
    lake.flush(NAME)
    lake.rename_table(NAME, "sales.kept")
    second = make_table(lake, NAME)
    lake.append(NAME, ROWS)
    lake.flush(NAME)
    lake.drop_table(NAME, purge=True)
    lake.clean()
    assert objects(lake, second) == set()
    assert lake.scan("sales.kept").read_all().num_rows == len(ROWS)
    assert len(objects(lake, first)) > 1
    assert_nothing_left_over(lake, "sales.kept")
    with pytest.raises(TableNotFound):
        registry_tables.load_by_id(lake.registry, second.table_id)


def test_footers_can_be_rebuilt_and_deleted_by_many(lake: Lake) -> None:
    table = make_table(lake, NAME)
    for _ in range(3):
        lake.append(NAME, ROWS)
    paths = [file.file_path for file in lake.files(NAME)]
    many = [*paths, *(f"file:///nowhere/{i}" for i in range(5000))]
    assert footers.delete_partition_metadata_batch(lake.registry, many) == 3
    with pytest.raises(PartitionMetadataNotFound):
        footers.load_partition_metadata(lake.registry, paths[0])
    assert lake.scan(NAME).read_all().num_rows == 3 * len(ROWS)  # falls back to the objects
    assert footers.rebuild(lake.registry, table) == 3
    assert footers.load_partition_metadata(lake.registry, paths[0]).num_rows == len(ROWS)


@pytest.mark.on("sqlite", "postgresql")
def test_a_footer_that_cannot_be_decoded_is_read_again_and_replaced(lake: Lake) -> None:
    make_table(lake, NAME)
    lake.append(NAME, ROWS)
    (path,) = [file.file_path for file in lake.files(NAME)]
    literal = "x'00ff'" if "sqlite" in str(lake.registry.database.url) else "'\\x00ff'"
    with lake.registry.database.transaction() as connection:
        connection.exec_driver_sql(f"UPDATE partition_metadata SET metadata = {literal}")
    assert footers.load_partition_metadata(lake.registry, path).num_rows == len(ROWS)
    with lake.registry.database.read() as connection:
        size = connection.exec_driver_sql("SELECT length(metadata) FROM partition_metadata").scalar_one()
    assert size > 100


def test_a_footer_over_the_limit_leaves_a_row_that_says_so(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, footer_limit=10) as lake:
        make_table(lake, NAME)
        lake.append(NAME, ROWS)
        with lake.registry.database.read() as connection:
            row = connection.exec_driver_sql("SELECT metadata, metadata_size FROM partition_metadata").one()
        assert row.metadata is None and row.metadata_size > 10
        (path,) = [file.file_path for file in lake.files(NAME)]
        assert footers.load_partition_metadata(lake.registry, path).num_rows == len(ROWS)


def retire_and_clean(url: str, folder: Path) -> None:
    with open_lake(url, folder, durable=False) as lake:
        for i in range(60):
            lake.append(NAME, [{"id": i, "name": f"n{i % 3}"}])
            lake.retire_partitions(NAME, [{"name": f"n{(i + 1) % 3}"}])
            lake.clean()


@pytest.mark.on("sqlite", "postgresql")
def test_a_plan_never_misses_a_footer_while_partitions_are_retired_and_cleaned(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, durable=False) as lake:
        make_table(lake, NAME, partition_by=["name"])
        churn = processes.start(retire_and_clean, [(made_url, tmp_path)])
        with_files = 0
        while processes.running(churn):
            plan, _ = footers.plan(lake.registry, NAME, scan.prepare)
            loaded = footers.loader(lake.registry, plan)([file.file_path for file in plan.files])
            assert all(footer is not None and footer.num_rows == 1 for footer in loaded.values())
            with_files += bool(plan.files)
        processes.expect_success(churn)
        assert with_files > 20


def test_a_warehouse_s_upkeep_leaves_another_warehouse_of_the_registry_alone(made_url: str, tmp_path: Path) -> None:
    """Its handle may lack the other's credentials: an object that it cannot see is not an object that is gone."""
    with (
        open_lake(made_url, tmp_path, lease_seconds=0.5) as ours,
        open_lake(made_url, tmp_path / "theirs", warehouse_name="theirs") as theirs,
    ):
        table = make_table(ours, NAME)
        ours.append(NAME, ROWS)
        intent = intents.open_intent(ours.registry, table)
        engine = ours.registry.engine(intent.prefix)
        engine.write(intent.prefix + "0.parquet", b"half")
        ours.registry.let_go(intent.intent_id)
        ours.drop_table(NAME)
        time.sleep(0.6)
        kept = objects(ours, table)
        assert len(kept) == 2
        assert (theirs.recover().intents, theirs.clean().files, theirs.clean().tables) == (0, 0, 0)
        assert objects(ours, table) == kept
        cleaned = ours.clean()
        ours.clean()
        assert (cleaned.files, cleaned.failed, objects(ours, table)) == (1, [], set())


def test_a_write_that_others_may_outlive_is_swept_once_more(made_url: str, tmp_path: Path) -> None:
    """Spark's tasks may write a little longer than the job that has failed."""
    with open_lake(made_url, tmp_path) as lake:
        table = make_table(lake, NAME)
        intent = intents.open_intent(lake.registry, table)
        intents.abort(lake.registry, intent, sweep_again=True)
        lake.registry.engine(intent.prefix).write(intent.prefix + "late.parquet", b"late")
        assert lake.recover().objects == 1
        assert objects(lake, table) == set()
        assert_nothing_left_over(lake, NAME)


def test_a_partition_is_named_as_its_files_show_it(lake: Lake) -> None:
    schema = {"id": "long", "day": "date", "name": "string"}
    make_table(lake, NAME, schema=schema, partition_by=["month(day)", "bucket(4, id)", "name"])
    rows = [{"id": i, "day": date(2026, 1 + i % 2, 3), "name": f"a/{i % 2}"} for i in range(8)]
    lake.append(NAME, rows)
    shown = {file.partition_path: file.row_count for file in lake.files(NAME)}
    one, other, *_ = sorted(shown)
    assert one.startswith("day_month=2026-01/id_bucket=") and one.endswith("/name=a%2F0")
    assert lake.retire_partitions(NAME, [one]) == 1
    assert lake.table(NAME).row_count == 8 - shown[one]
    StorageManager(lake).insert_partition("sales", "orders", other, [])
    assert {file.partition_path for file in lake.files(NAME)} == shown.keys() - {one, other}
    for wrong in (
        "day_month=2026-01",
        "day_month=2026-01/id_bucket=9/name=a",
        "day_month=2026-01/id_bucket=1/name=null",
    ):
        with pytest.raises(InvalidInput, match=re.escape(repr(wrong))):
            lake.retire_partitions(NAME, [wrong])
