"""Spark Connect: the session runs in another process. What cannot be done so is refused with a way that works; the rest works."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession

import lakeward
from lakeward import MetadataStore, TopicConfig
from lakeward.errors import SparkConnectUnsupported
from lakeward.spark import toolchain
from tests.support.lakes import objects
from tests.support.servers import free_ports
from tests.support.waiting import until

NAME = "shop.orders"
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@pytest.fixture(scope="module")
def connect_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder, (port,) = tmp_path_factory.mktemp("connect"), free_ports(1)
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
    }
    options = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]", "--class", SERVER]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [*submit, *options, "spark-internal"], cwd=folder, env=os.environ | toolchain.spark_environment(),
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        until(lambda: _listens(port) or server.poll() is not None, seconds=90)
        assert server.poll() is None, (folder / "server.log").read_text()[-3000:]
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _listens(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def session(connect_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    monkeypatch.setenv(
        "SPARK_CONNECT_MODE_ENABLED", "1"
    )  # as SparkSession.builder.remote does, where no other Spark runs
    made = ConnectSession.builder.remote(connect_url).create()
    yield made  # type: ignore[misc]  # the two kinds have one interface, and no class in common
    made.stop()


def test_an_append_is_refused_and_leaves_nothing_and_the_way_that_it_names_works(
    lake: lakeward.Lake, session: SparkSession
) -> None:
    table = lake.create_table(NAME, {"id": "long"})
    before = objects(lake, table)
    with pytest.raises(
        SparkConnectUnsupported, match=r"Spark Connect.*lake\.spark\(\), or .*df\.toArrow\(\)"
    ) as refused:
        lake.append(NAME, session.range(3))
    assert refused.value.code == "spark_connect_unsupported"
    assert objects(lake, table) == before and lake.files(NAME) == []
    assert lake.append(NAME, session.range(3).toArrow()).rows == 3
    assert sorted(lake.scan(NAME).read_all()["id"].to_pylist()) == [0, 1, 2]


def test_a_table_of_json_lines_takes_a_dataframe(lake: lakeward.Lake, session: SparkSession) -> None:
    lake.create_table("shop.lines", {"id": "long"}, format="json")
    assert lake.append("shop.lines", session.range(3)).rows == 3
    assert lake.scan("shop.lines").read_all()["id"].to_pylist() == [0, 1, 2]


def test_a_compaction_is_refused_before_it_begins(lake: lakeward.Lake, session: SparkSession) -> None:
    lake.create_table(NAME, {"id": "long"})
    for each in range(3):
        lake.append(NAME, [{"id": each}])
    with pytest.raises(SparkConnectUnsupported, match=r"lake\.spark\(\), or by the command `lakeward compact`"):
        lake.compact(NAME, session)
    assert len(lake.files(NAME)) == 3


def test_topics_take_and_give_dataframes(lake: lakeward.Lake, session: SparkSession) -> None:
    MetadataStore(lake).create_topic(TopicConfig("orders", 2))
    records = session.range(0, 8, 1, 2).selectExpr("cast(id AS string) AS key", "cast(id AS string) AS value")
    assert lake.log.append("orders", records).records == 8
    read = lake.log.read(session, "orders").selectExpr("cast(value AS string) AS value").collect()
    assert sorted(row["value"] for row in read) == [str(each) for each in range(8)]
