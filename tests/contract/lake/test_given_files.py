"""`update_table_files` believes nothing that is said of a file: it looks."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward import Lake, StorageManager
from lakeward.errors import FileRefused, InvalidInput, TableNotFound
from lakeward.registry import abandoned
from lakeward.tables import registration
from lakeward.tables.records.files import FileInfo
from tests.support.lakes import assert_nothing_left_over, make_table, open_lake
from tests.support.registries import rows_of

pytestmark = pytest.mark.on("sqlite")

NAME = "sales.orders"
NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path, durable=False) as opened:
        make_table(opened, NAME, partition_by=["name"])
        yield opened


def info(path: Path, ids: list[int] | None = None, **said: Any) -> FileInfo:
    """A file of rows of one partition, and what is said of it, which is true but for `said`."""
    rows = [1, 2, 3] if ids is None else ids
    if not path.exists():
        pq.write_table(pa.table({"id": rows, "name": ["a"] * len(rows)}), path)
    data = path.read_bytes()
    true: dict[str, Any] = {
        "name": path.name,
        "path": str(path),
        "size": len(data),
        "row_count": len(rows),
        "checksum": "sha256:" + hashlib.sha256(data).hexdigest(),
        "created": NOW,
        "modified": NOW,
        "partition_path": "name=a",
    }
    return FileInfo(**{**true, **said})


def test_files_that_are_what_is_said_of_them_are_registered_in_one_commit(lake: Lake, tmp_path: Path) -> None:
    files = [info(tmp_path / "a.parquet"), info(tmp_path / "b.parquet", [4], checksum=None, partition_path="")]
    result = StorageManager(lake).update_table_files("sales", "orders", *files)
    assert (result.rows, len(result.files)) == (4, 2)
    assert sorted(lake.scan(NAME).read_all()["id"].to_pylist()) == [1, 2, 3, 4]
    assert_nothing_left_over(lake, NAME)


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ({"size": 1}, "wrong_size: .* not the 1 that FileInfo says"),
        ({"checksum": "sha256:" + "0" * 64}, "wrong_checksum"),
        ({"checksum": "md5:" + "0" * 32}, "wrong_checksum"),
        ({"row_count": 4}, "wrong_row_count: .* 3 rows, not the 4"),
        ({"partition_path": "name=b"}, "wrong_partition"),
        ({"path": "/nowhere/a.parquet"}, "not_found"),
        ({"name": "b.parquet"}, "has the name 'b.parquet'; it is 'a.parquet'"),
        ({"created": NOW.replace(tzinfo=None)}, "no datetime with a time zone"),
        ({"modified": NOW - timedelta(1)}, "before it was created"),
        ({"checksum": "0" * 64}, "write 'sha256:'"),
        ({"checksum": "crc99:00"}, "crc99"),
        ({"size": "large"}, "size in the FileInfo of .*: 'large' is no whole number"),
    ],
)
def test_a_file_that_is_not_what_is_said_of_it_is_refused(
    lake: Lake, tmp_path: Path, said: dict[str, Any], match: str
) -> None:
    given = msgspec.structs.replace(info(tmp_path / "a.parquet"), **said)
    with pytest.raises(InvalidInput) as caught:
        StorageManager(lake).update_table_files("sales", "orders", given)
    reason = f"{caught.value.reason}: " if isinstance(caught.value, FileRefused) else ""
    assert re.search(match, f"{reason}{caught.value}")
    assert lake.table(NAME).file_count == 0
    assert_nothing_left_over(lake, NAME)


def test_rows_are_counted_file_by_file(lake: Lake, tmp_path: Path) -> None:
    files = [info(tmp_path / "a.parquet", row_count=1), info(tmp_path / "b.parquet", [4], row_count=3)]
    with pytest.raises(FileRefused, match=r"a\.parquet has 3 rows, not the 1"):
        StorageManager(lake).update_table_files("sales", "orders", *files)
    assert lake.table(NAME).row_count == 0


def test_a_file_enters_once_however_it_is_named(lake: Lake, tmp_path: Path) -> None:
    manager, first = StorageManager(lake), info(tmp_path / "a.parquet")
    (tmp_path / "link.parquet").symlink_to(tmp_path / "a.parquet")
    others = [
        first,
        msgspec.structs.replace(first, path=f"{tmp_path}/./a.parquet"),
        msgspec.structs.replace(first, path=f"file://{tmp_path}/a.parquet"),
        info(tmp_path / "link.parquet"),
    ]
    for other in others:
        with pytest.raises(InvalidInput, match="given twice in one call"):
            manager.update_table_files("sales", "orders", first, other)
    assert lake.table(NAME).file_count == 0


def test_a_file_of_a_table_is_not_registered_again(lake: Lake, tmp_path: Path) -> None:
    manager = StorageManager(lake)
    manager.update_table_files("sales", "orders", info(tmp_path / "a.parquet"))
    live = manager.table_files("sales", "orders")[0]
    make_table(lake, "sales.other", partition_by=["name"])
    for table in ("orders", "other"):
        with pytest.raises(FileRefused, match="a file of a table already") as caught:
            manager.update_table_files("sales", table, live)
        assert caught.value.reason == "already_registered"
    lake.retire_partitions(NAME, [{"name": "a"}])
    with pytest.raises(FileRefused, match="a file of a table already"):  # in quarantine
        manager.update_table_files("sales", "orders", live)


def test_a_batch_of_files_is_registered_once_and_its_key_is_not_for_others(lake: Lake, tmp_path: Path) -> None:
    manager = StorageManager(lake)
    files = [info(tmp_path / "a.parquet"), info(tmp_path / "b.parquet", [4], checksum=None)]
    first = manager.update_table_files("sales", "orders", *files, batch=("load", "1"))
    again = manager.update_table_files("sales", "orders", *files[::-1], batch=("load", "1"))
    assert (first.replayed, again.replayed, again.files) == (False, True, first.files)
    with pytest.raises(FileRefused, match=r"batch '1' of stream 'load' of sales.orders has brought other files before"):
        manager.update_table_files("sales", "orders", info(tmp_path / "c.parquet", [5]), batch=("load", "1"))
    assert lake.table(NAME).row_count == 4
    assert len(rows_of(lake.registry, "applied_batches")) == 1


def test_files_go_to_the_table_that_was_meant_when_they_were_looked_at(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = abandoned.owned

    def remade(*arguments: Any) -> set[str]:
        lake.drop_table(NAME)
        make_table(lake, NAME)
        return real(*arguments)

    monkeypatch.setattr(abandoned, "owned", remade)
    with pytest.raises(TableNotFound, match="it was dropped"):
        StorageManager(lake).update_table_files("sales", "orders", info(tmp_path / "a.parquet"))
    assert lake.table(NAME).row_count == 0


def test_an_iterators_batch_goes_to_the_table_whose_batches_were_asked(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = registration.first_answer

    def remade(*arguments: Any) -> Any:
        if rows_of(lake.registry, "sync_runs") == []:
            monkeypatch.setattr(registration, "first_answer", real)
            lake.drop_table(NAME)
            make_table(lake, NAME)
        return real(*arguments)

    monkeypatch.setattr(registration, "first_answer", remade)
    with pytest.raises(TableNotFound, match="it was dropped"):
        lake.append(NAME, iter([{"id": 1, "name": "a"}]), batch=("s", "1"))
    assert lake.table(NAME).row_count == 0
