"""A standalone Spark cluster, a master and two workers as processes, with PostgreSQL and an S3 server: nothing is lost."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakeward
from lakeward.spark import toolchain
from tests.support.lakes import objects, sweeps_later
from tests.support.s3 import S3
from tests.support.spark_cluster import SparkCluster, running_cluster
from tests.support.waiting import until

PROGRAM = Path(__file__).parents[2] / "examples" / "on_a_cluster.py"
ROWS = 16_000  # 2,000 a task: Iceberg's writer may begin another file after each thousand
# As Iceberg names the files of a task: its partition, its number, a UUID of the write, its operation, the file's number.
FILE = re.compile(r"/data/[0-9a-f-]{36}/\d{5}-(?P<task>\d+)-[0-9a-f-]{36}-\d+-(?P<number>\d{5})\.parquet$")

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with running_cluster(tmp_path) as running:
        yield running


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter of the cluster's own, at a path that the driver does not run under."""
    path = tmp_path / "python-of-the-cluster"
    path.write_text(f'#!/bin/sh\ntouch "$0.used"\nexec "{sys.executable}" "$@"\n')
    path.chmod(0o755)
    return path


def conf(python: Path) -> dict[str, str]:
    return {
        "spark.jars": ",".join(map(str, toolchain.local_jars(s3=True))),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.pyspark.python": str(python),
        "spark.executor.memory": "800m",
        "spark.ui.enabled": "false",
    }


@pytest.mark.parametrize("is_killed", [False, True], ids=["whole", "a worker is killed"])
def test_a_submitted_program_uses_the_cluster_as_it_is_and_loses_nothing(
    cluster: SparkCluster,
    python: Path,
    pg_url: str,
    s3: S3,
    is_killed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = ROWS if is_killed else 1_000
    settings = {"s3_endpoint": s3.endpoint, "s3_region": s3.region, "s3_access_key": s3.access_key}
    for name, value in {**settings, "s3_secret_key": s3.secret_key}.items():
        monkeypatch.setenv(f"LAKEWARD_{name.upper()}", value)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with lakeward.connect(pg_url, s3.warehouse) as lake:  # so that the program finds its table
        small = {"write.target-file-size-bytes": "4096"}
        lake.create_table("shop.orders", {"id": "long", "name": "string"}, properties=small)
    driver = cluster.submit(PROGRAM, pg_url, s3.warehouse, str(rows), conf=conf(python))
    assert driver.stdout is not None
    assert (first := driver.stdout.readline()) == "appending\n", _why(cluster, first + driver.stdout.read())
    if is_killed:
        with lakeward.connect(pg_url, s3.warehouse) as lake:
            kill_within_a_task(cluster, lake)
    told, _ = driver.communicate()
    assert driver.returncode == 0, _why(cluster, told)
    found: dict[str, Any] = json.loads(told.splitlines()[-1])
    assert (found["master"], found["driver_host"]) == (cluster.master, "127.0.0.1")
    assert found["python"] == sys.executable and Path(f"{python}.used").exists()
    assert (found["rows"], found["distinct"], found["records"]) == (rows, rows, 100)
    with lakeward.connect(pg_url, s3.warehouse) as lake:
        registered = {file.file_path for file in lake.files("shop.orders")}
        assert len(registered) > 1  # from several executors
        strays = data_objects(lake) - registered
        assert bool(strays) == is_killed
        assert found["findings"] == len(strays)
        lake.recover()
        assert data_objects(lake) == registered | strays, "a task that was lost may still write"
        sweeps_later(lake, hours=1)
        assert lake.recover().objects == len(strays)
        assert data_objects(lake) == registered
        assert lake.audit("shop.orders").findings == []
        assert sorted(lake.scan("shop.orders").read_all()["id"].to_pylist()) == list(range(rows))


def data_objects(lake: lakeward.Lake) -> set[str]:
    table = lake.table("shop.orders")
    return {each for each in objects(lake, table) if each.startswith(f"{table.location}/data/")}


def kill_within_a_task(cluster: SparkCluster, lake: lakeward.Lake) -> None:
    """Kill the worker of a task that has finished its first file, and not its second."""

    def killed() -> bool:
        for task in with_one_file(lake):
            if (worker := cluster.worker_of(task)) is not None:
                with cluster.stopped(worker):
                    if task in with_one_file(lake):
                        cluster.kill_worker(worker)
                        return True
        return False

    until(killed, lambda: _why(cluster, str(data_objects(lake))), seconds=120)


def with_one_file(lake: lakeward.Lake) -> set[str]:
    names = [match for each in data_objects(lake) if (match := FILE.search(each))]
    return {match["task"] for match in names} - {match["task"] for match in names if match["number"] != "00001"}


def _why(cluster: SparkCluster, told: str) -> str:
    return told + "\n".join((cluster.folder / "driver.log").read_text().splitlines()[-30:])
