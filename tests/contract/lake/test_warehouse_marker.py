"""A warehouse belongs to one registry: two of them, or an empty one over a full warehouse, are refused with the way out."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from lakeward import Lake, connect
from lakeward.errors import ObjectNotFound, WarehouseTaken
from lakeward.registry import warehouse_marker
from lakeward.registry.handle import registry_uuid
from tests.support.lakes import ROWS, make_table, open_lake
from tests.support.s3 import S3
from tests.support.shell import Shell

pytestmark = pytest.mark.on("sqlite")

NAME = "sales.orders"


def full(url: str, folder: Path) -> None:
    with open_lake(url, folder) as lake:
        make_table(lake, NAME)
        lake.append(NAME, ROWS)


def another(folder: Path) -> str:
    return f"sqlite:///{folder / 'another' / 'registry.db'}"


def marker_of(folder: Path) -> Path:
    return folder / "warehouse" / warehouse_marker.NAME


def test_a_warehouse_names_its_registry(made_url: str, tmp_path: Path) -> None:
    full(made_url, tmp_path)
    with open_lake(made_url, tmp_path) as lake:
        assert registry_uuid(lake.registry.database) in marker_of(tmp_path).read_text()
        assert lake.scan(NAME).read_all().num_rows == len(ROWS)


def test_an_empty_registry_over_a_full_warehouse_is_refused(made_url: str, tmp_path: Path) -> None:
    full(made_url, tmp_path)
    for _ in range(2):
        with pytest.raises(WarehouseTaken, match=r"belongs to the registry .* `lakeward db adopt`"):
            open_lake(another(tmp_path), tmp_path)
    marker_of(tmp_path).unlink()  # as a version leaves it that knew no marks
    with pytest.raises(WarehouseTaken, match="knows nothing of"):
        open_lake(another(tmp_path), tmp_path)
    with open_lake(made_url, tmp_path) as lake:
        assert lake.scan(NAME).read_all().num_rows == len(ROWS)
        assert marker_of(tmp_path).exists(), "its own registry marks it"


def test_a_warehouse_inside_of_anothers_is_refused(made_url: str, tmp_path: Path) -> None:
    full(made_url, tmp_path)
    inside = tmp_path / "warehouse" / "deep" / "inside"
    with pytest.raises(WarehouseTaken, match="choose a folder outside of it") as refused:
        connect(another(tmp_path), inside)
    advised = str(refused.value).rpartition("delete file://")[2]
    assert not (inside / warehouse_marker.NAME).exists()
    Path(advised).unlink()
    with connect(another(tmp_path), inside) as lake:
        make_table(lake, NAME)
    assert (inside / warehouse_marker.NAME).exists()


def test_a_registry_whose_warehouse_is_anothers_meanwhile_writes_and_deletes_nothing(
    made_url: str, tmp_path: Path
) -> None:
    full(made_url, tmp_path)
    marker_of(tmp_path).write_text('{"registry_uuid":"another"}')
    with open_lake(made_url, tmp_path) as lake:
        before = sorted(path for path in (tmp_path / "warehouse").rglob("*"))
        for use in (lambda: lake.append(NAME, ROWS), lambda: lake.flush(NAME), lambda: lake.scan(NAME)):
            with pytest.raises(WarehouseTaken, match="belongs to the registry another"):
                use()
        assert sorted(path for path in (tmp_path / "warehouse").rglob("*")) == before


def test_a_registry_that_was_restored_or_moved_is_the_same(tmp_path: Path) -> None:
    full(f"sqlite:///{tmp_path / 'registry.db'}", tmp_path)
    (tmp_path / "moved").mkdir()
    with sqlite3.connect(tmp_path / "registry.db") as opened, sqlite3.connect(tmp_path / "moved" / "r.db") as copy:
        opened.backup(copy)
    with open_lake(f"sqlite:///{tmp_path / 'moved' / 'r.db'}", tmp_path) as lake:
        assert lake.append(NAME, ROWS).rows == len(ROWS)


def test_a_registry_that_takes_anothers_place_adopts_its_warehouse(made_url: str, tmp_path: Path) -> None:
    full(made_url, tmp_path)
    with pytest.raises(WarehouseTaken):
        open_lake(another(tmp_path), tmp_path)
    shell = Shell(tmp_path)
    shell.options[1] = str(tmp_path / "another" / "registry.db")
    shell.run("db", "upgrade")
    assert shell.json("db", "adopt")["registry_uuid"] == shell.json("db", "status")["registry_uuid"]
    full(another(tmp_path), tmp_path)
    with open_lake(made_url, tmp_path) as lake, pytest.raises(WarehouseTaken):
        lake.append(NAME, ROWS)


def test_a_folder_with_files_of_others_is_a_warehouse(made_url: str, tmp_path: Path) -> None:
    (tmp_path / "warehouse" / "data").mkdir(parents=True)
    (tmp_path / "warehouse" / "data" / "notes.txt").write_text("mine")
    full(made_url, tmp_path)


def test_a_bucket_is_marked_too(s3: S3, tmp_path: Path) -> None:
    where = f"s3://{s3.bucket}/lake"
    keys: dict[str, Any] = {
        "warehouse": where,
        "s3_endpoint": s3.endpoint,
        "s3_access_key": s3.access_key,
        "s3_secret_key": s3.secret_key,
        "s3_region": s3.region,
    }

    def opened(name: str) -> Lake:
        return connect(tmp_path / name, **keys)

    with opened("a.db") as lake:
        make_table(lake, NAME)
        lake.append(NAME, ROWS)
    with pytest.raises(WarehouseTaken):
        opened("b.db")
    with opened("a.db") as lake:
        assert lake.scan(NAME).read_all().num_rows == len(ROWS)


def test_a_warehouse_that_is_gone_says_that_files_are_missing(made_url: str, tmp_path: Path) -> None:
    full(made_url, tmp_path)
    shutil.rmtree(tmp_path / "warehouse")
    with open_lake(made_url, tmp_path) as lake, pytest.raises(ObjectNotFound):
        lake.scan(NAME).read_all()
