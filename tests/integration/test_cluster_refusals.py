"""What a cluster's executors lack is said before the work, with the way out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakeward
from lakeward import MetadataStore, TopicConfig
from lakeward.log import source as log_source
from lakeward.spark import toolchain
from tests.support.s3 import S3
from tests.support.spark_cluster import SparkCluster, running_cluster

pytestmark = pytest.mark.timeout(400)

PROGRAM = """
import sys
import lakeward

registry, warehouse, program = sys.argv[1:]

def told(work):
    try:
        work()
    except Exception as error:
        print(getattr(error, "code", type(error).__name__), str(error).replace("\\n", " "), flush=True)
    else:
        print("nothing was refused", flush=True)

with lakeward.connect(registry, warehouse, create=False) as lake:
    spark = lake.spark()
    rows = spark.range(0, 8, 1, 4).selectExpr("id", "cast(id AS string) AS key", "cast(id AS string) AS value")
    exec(program)
    spark.stop()
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkCluster]:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with running_cluster(tmp_path) as running:
        yield running


def run(
    cluster: SparkCluster, registry: str, warehouse: str, program: str, monkeypatch: pytest.MonkeyPatch, python: str
) -> list[str]:
    """What the program prints, line by line."""
    file = cluster.folder / "program.py"
    file.write_text(PROGRAM)
    conf = {
        "spark.jars": ",".join(map(str, toolchain.local_jars(s3=True))),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.pyspark.python": python,
        "spark.pyspark.driver.python": sys.executable,
        "spark.executor.memory": "800m",
        "spark.ui.enabled": "false",
    }
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    driver = cluster.submit(file, registry, warehouse, program, conf=conf)
    output, _ = driver.communicate()
    assert driver.returncode == 0, output + (cluster.folder / "driver.log").read_text()[-3000:]
    return output.splitlines()


def without_lakeward(folder: Path) -> str:
    """An interpreter that has all but Lakeward."""
    hidden = folder / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'lakeward':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
    )
    python = folder / "python-without-lakeward"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{hidden}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return str(python)


def test_executors_without_lakeward_are_refused_where_it_is_needed_and_nowhere_else(
    cluster: SparkCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, warehouse = str(tmp_path / "registry.db"), str(tmp_path / "lake")
    with lakeward.connect(registry, warehouse) as lake:
        lake.create_table("shop.orders", {"id": "long", "key": "string", "value": "string"})
        MetadataStore(lake).create_topic(TopicConfig("orders", 2))
    program = """
told(lambda: lake.append("shop.orders", rows))
told(lambda: lake.log.append("orders", rows.select("value"), key="one"))
told(lambda: lake.log.append("orders", rows.select("key", "value")))
print(lake.log.read(spark, "orders").count())
"""
    python = without_lakeward(tmp_path)
    table, one_key, keys, read = run(cluster, registry, warehouse, program, monkeypatch, python)
    assert table == one_key == "nothing was refused"
    assert keys.startswith("executors_unfit a key column") and "has no module lakeward" in keys
    assert "spark.pyspark.python" in keys
    assert read == "8"


def test_a_reader_of_the_format_says_on_an_executor_without_lakeward_what_is_missing(tmp_path: Path) -> None:
    from pyspark import cloudpickle

    reader = tmp_path / "reader"
    reader.write_bytes(cloudpickle.dumps(log_source._BatchReader({"subscribe": "orders"}, [])))  # type: ignore[no-untyped-call]
    program = f"import pickle; print(type(pickle.load(open({str(reader)!r}, 'rb'))).__name__)"
    done = subprocess.run([without_lakeward(tmp_path), "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "No module named 'lakeward" in done.stderr
    assert "spark.pyspark.python" in done.stderr and "lake.log.read(spark, topic)" in done.stderr
    there = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert there.stdout == "_BatchReader\n", there.stderr


def test_a_folder_that_executors_do_not_share_is_refused_before_anything_is_written(
    cluster: SparkCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    warehouse = "/proc/self/cwd/lake"  # with each process a folder of its own
    registry = str(tmp_path / "registry.db")
    with lakeward.connect(registry, warehouse) as lake:
        lake.create_table("shop.orders", {"id": "long", "key": "string", "value": "string"})
        MetadataStore(lake).create_topic(TopicConfig("orders", 1))
    program = """
told(lambda: lake.append("shop.orders", rows))
told(lambda: lake.log.append("orders", rows.select("value")))
"""
    for said in run(cluster, registry, warehouse, program, monkeypatch, sys.executable):
        assert said.startswith(f"executors_unfit the executors of {cluster.master} do not share the folder")
        assert "/proc/self/cwd/lake" in said
        assert "Mount one folder at that path on all machines, or use a warehouse on S3" in said
    with lakeward.connect(registry, warehouse) as lake:
        assert (lake.table("shop.orders").row_count, lake.files("shop.orders")) == (0, [])


def test_keys_that_only_the_driver_has_are_refused_and_those_of_the_settings_reach_executors(
    cluster: SparkCluster, tmp_path: Path, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    monkeypatch.setenv("LAKEWARD_S3_ENDPOINT", s3.endpoint)
    monkeypatch.setenv("LAKEWARD_S3_REGION", s3.region)
    registry = str(tmp_path / "registry.db")
    with lakeward.connect(registry, s3.warehouse) as lake:
        lake.create_table("shop.orders", {"id": "long", "key": "string", "value": "string"})
    program = 'told(lambda: lake.append("shop.orders", rows))'
    (said,) = run(cluster, registry, s3.warehouse, program, monkeypatch, sys.executable)
    assert said.startswith(f"executors_unfit the executors of {cluster.master} have no keys for S3")
    assert "LAKEWARD_S3_" in said and s3.secret_key not in said
    monkeypatch.setenv("LAKEWARD_S3_ACCESS_KEY", s3.access_key)
    monkeypatch.setenv("LAKEWARD_S3_SECRET_KEY", s3.secret_key)
    assert run(cluster, registry, s3.warehouse, program, monkeypatch, sys.executable) == ["nothing was refused"]
