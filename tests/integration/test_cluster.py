"""A standalone Spark cluster, a master and two workers as processes, with PostgreSQL and an S3 server: nothing is lost."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakeward
from lakeward import toolchain
from tests.support.s3 import S3
from tests.support.spark_cluster import SparkCluster, running_cluster

PROGRAM = Path(__file__).parents[2] / "examples" / "on_a_cluster.py"
ROWS = 1_000

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
    settings = {"s3_endpoint": s3.endpoint, "s3_region": s3.region, "s3_access_key": s3.access_key}
    for name, value in {**settings, "s3_secret_key": s3.secret_key}.items():
        monkeypatch.setenv(f"LAKEWARD_{name.upper()}", value)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    driver = cluster.submit(PROGRAM, pg_url, s3.warehouse, str(ROWS), conf=conf(python))
    assert driver.stdout is not None
    assert (first := driver.stdout.readline()) == "appending\n", _why(cluster, first + driver.stdout.read())
    if is_killed:
        cluster.kill_worker(0)
    told, _ = driver.communicate()
    assert driver.returncode == 0, _why(cluster, told)
    found: dict[str, Any] = json.loads(told.splitlines()[-1])
    assert (found["master"], found["driver_host"]) == (cluster.master, "127.0.0.1")
    assert found["python"] == sys.executable and Path(f"{python}.used").exists()
    assert (found["rows"], found["distinct"], found["records"], found["findings"]) == (ROWS, ROWS, 100, 0)
    with lakeward.connect(pg_url, s3.warehouse) as lake:
        assert sorted(lake.scan("shop.orders").read_all()["id"].to_pylist()) == list(range(ROWS))
        assert {file.row_count for file in lake.files("shop.orders")} != {ROWS}  # from several executors


def _why(cluster: SparkCluster, told: str) -> str:
    return told + "\n".join((cluster.folder / "driver.log").read_text().splitlines()[-30:])
