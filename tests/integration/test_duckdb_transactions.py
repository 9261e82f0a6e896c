"""A transaction of DuckDB pins the metadata that is not younger than its beginning: what was committed before it is there,
whenever its metadata is made."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import lakeward
from lakeward.snapshots import snapshot_commit
from tests.support import duck
from tests.support.lakes import make_table

NAME = "shop.orders"


@pytest.fixture
def duckdb_(lake: lakeward.Lake) -> Iterator[duckdb.DuckDBPyConnection]:
    with duck.connect() as connection:
        connection.execute(f"create secret (type iceberg, token '{lake.token}')")
        connection.execute(
            f"attach '' as lake (type iceberg, endpoint '{lake.catalog_url}', access_delegation_mode 'none')"
        )
        yield connection


def write_versions(lake: lakeward.Lake) -> None:
    """What the component iceberg_updater does: metadata of a table's schema, without its pending files."""
    snapshot_commit.flush(lake.registry, lake.table(NAME).table_id, files=False)


def test_the_first_metadata_is_as_old_as_the_table(lake: lakeward.Lake, duckdb_: duckdb.DuckDBPyConnection) -> None:
    make_table(lake, NAME)
    lake.append(NAME, [{"id": 1, "name": "a"}])
    duckdb_.execute("begin")
    write_versions(lake)
    assert duckdb_.execute("select id, name from lake.shop.orders").fetchall() == [(1, "a")]


def test_a_new_column_is_as_old_as_its_change(lake: lakeward.Lake, duckdb_: duckdb.DuckDBPyConnection) -> None:
    make_table(lake, NAME)
    lake.append(NAME, [{"id": 1, "name": "a"}])
    lake.flush(NAME)
    lake.add_column(NAME, "city", "string")
    lake.append(NAME, [{"id": 2, "name": "b", "city": "Oslo"}])
    duckdb_.execute("begin")
    write_versions(lake)
    assert duckdb_.execute("select id, city from lake.shop.orders order by id").fetchall() == [(1, None), (2, "Oslo")]


def test_what_is_committed_later_is_not_seen(lake: lakeward.Lake, duckdb_: duckdb.DuckDBPyConnection) -> None:
    make_table(lake, NAME)
    lake.append(NAME, [{"id": 1, "name": "a"}])
    lake.flush(NAME)
    duckdb_.execute("begin")
    lake.append(NAME, [{"id": 2, "name": "b"}])
    assert duckdb_.execute("select id from lake.shop.orders").fetchall() == [(1,)]
    duckdb_.execute("commit")
    assert duckdb_.execute("select id from lake.shop.orders order by id").fetchall() == [(1,), (2,)]
