"""One Spark for all tests of the process; each test's lake has a session of its own on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakeward
from lakeward.spark import toolchain
from tests.support.java import Judge
from tests.support.spark import spark_defaults


@pytest.fixture(scope="session")
def spark_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark, with Iceberg and S3 on its class path; `Lake.spark()` then makes sessions beside this one."""
    os.environ.update(toolchain.spark_environment())
    builder = SparkSession.builder.appName("tests")
    for key, value in spark_defaults(tmp_path_factory.mktemp("spark"), s3=True).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # what fails on purpose would fill the log
    yield session
    session.stop()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lakeward.Lake]:
    with lakeward.connect(registry=tmp_path / "registry.db", warehouse=tmp_path / "warehouse") as opened:
        yield opened


@pytest.fixture
def spark(spark_process: SparkSession, lake: lakeward.Lake, tmp_path: Path) -> Iterator[SparkSession]:
    """A session on the test's lake. Whatever metadata the test has made must be what Iceberg's Java library reads."""
    session = lake.spark()
    assert session is not spark_process
    yield session
    assert Judge(spark_process).refused_below(tmp_path / "warehouse") == {}
