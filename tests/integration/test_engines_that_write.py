"""Engines that try to write are told what to do; what is left of their tries, `clean` takes away."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError
from pyspark.sql import SparkSession

import lakeward
from lakeward.maintenance import strays
from tests.support import duck
from tests.support.lakes import make_table

NAME = "shop.orders"
TOLD = re.compile(
    r"shop\.orders takes no commits.*`lakeward append shop\.orders FILE`.*lake\.append\(.*`lakeward clean`", re.DOTALL
)


@pytest.fixture
def table(lake: lakeward.Lake) -> str:
    make_table(lake, NAME)
    lake.append(NAME, [{"id": 1, "name": "a"}])
    lake.flush(NAME)
    return NAME


def by_pyiceberg(lake: lakeward.Lake) -> None:
    catalog = RestCatalog("lakeward", uri=lake.catalog_url, token=lake.token or "")
    catalog.load_table(NAME).append(pa.table({"id": pa.array([2], pa.int64()), "name": ["b"]}))


def by_duckdb(lake: lakeward.Lake) -> None:
    with duck.connect() as connection:
        connection.execute(f"create secret (type iceberg, token '{lake.token}')")
        connection.execute(
            f"attach '' as lake (type iceberg, endpoint '{lake.catalog_url}', access_delegation_mode 'none')"
        )
        connection.execute("insert into lake.shop.orders values (2, 'b')")


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def tried(lake: lakeward.Lake, write: Callable[[], Any], errors: type[Exception], folder: Path) -> set[Path]:
    """The files that are left of a write; the table is as it was."""
    before = files_below(folder)
    with pytest.raises(errors, match=TOLD):
        write()
    assert lake.scan(NAME).read_all().to_pylist() == [{"id": 1, "name": "a"}]
    return files_below(folder) - before


@pytest.mark.parametrize("write", [by_pyiceberg, by_duckdb])
def test_a_write_is_answered_with_what_to_do_and_clean_removes_what_it_left(
    table: str, lake: lakeward.Lake, tmp_path: Path, write: Callable[[lakeward.Lake], None]
) -> None:
    folder = tmp_path / "warehouse"
    left = tried(lake, lambda: write(lake), (ForbiddenError if write is by_pyiceberg else duckdb.Error), folder)
    assert lake.clean().strays == 0, "nothing is a week old"
    before = time.time() - strays.STRAY_SECONDS - 60
    for path in left:
        os.utime(path, (before, before))
    assert lake.clean().strays == len(left) > 0
    assert {finding.kind for finding in lake.audit(NAME).findings} == set(), "they wait in quarantine"


def test_spark_is_told_too_and_takes_its_files_back(
    table: str, lake: lakeward.Lake, spark: SparkSession, tmp_path: Path
) -> None:
    insert = "insert into lakeward.shop.orders values (2, 'b')"
    left = tried(lake, lambda: spark.sql(insert), Exception, tmp_path / "warehouse")
    assert [path for path in left if path.suffix in (".parquet", ".avro", ".json")] == []
