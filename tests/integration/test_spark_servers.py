"""Sessions on `lakeward serve`: one that died, and the first that answers of several."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakeward
from lakeward.errors import InvalidSetting, ServerUnavailable
from lakeward.spark.catalog_server import answers
from tests.support.servers import free_ports
from tests.support.waiting import until


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    with lakeward.connect(tmp_path / "registry.db", tmp_path / "warehouse") as lake:
        lake.create_table("t.rows", {"id": "long"})
    return tmp_path / "registry.db", tmp_path / "warehouse"


@contextmanager
def serving(places: tuple[Path, Path], port: int) -> Iterator[str]:
    where = ["--registry", str(places[0]), "--warehouse", str(places[1]), "--port", str(port)]
    command = [sys.executable, "-m", "lakeward.cli.main", "serve", *where]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: answers(url), seconds=100)
        yield url
    finally:
        process.kill()
        process.wait()


def test_a_session_outlives_its_server_and_a_new_one_takes_the_first_that_answers(
    places: tuple[Path, Path], spark_process: SparkSession
) -> None:
    first, second = free_ports(2)
    urls = f"http://127.0.0.1:{first}, http://127.0.0.1:{second}"
    with lakeward.connect(*places, server_url=urls) as lake:
        with serving(places, second) as url:
            assert lake.catalog_url == url
            spark = lake.spark()
            lake.append("t.rows", spark.range(3))
        with pytest.raises(ServerUnavailable, match=f"no server answers at {url}.*start `lakeward serve` there again"):
            lake.append("t.rows", spark.range(3, 6))
        with pytest.raises(ServerUnavailable, match=f"none of the servers.*{first}.*{second}"):
            lake.spark()
        with serving(places, first) as other:
            assert lake.catalog_url == other
            lake.append("t.rows", lake.spark().range(3, 6))  # the session that the message advises
        with serving(places, second):
            lake.append("t.rows", spark.range(6, 9))  # the session as it was, which it advises too
        assert sorted(lake.scan("t.rows").read_all()["id"].to_pylist()) == list(range(9))


def test_a_server_url_that_names_none_is_refused(places: tuple[Path, Path]) -> None:
    with lakeward.connect(*places, server_url=" , ") as lake, pytest.raises(InvalidSetting, match="names no server"):
        lake.serve()
