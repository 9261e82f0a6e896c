"""What is set for Spark before a session starts, read where Spark would read it. A real spark-submit: tests/integration/test_cluster.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.spark import given as spark_given

OURS = {
    "spark.jars": "ours.jar",
    "spark.jars.ivy": "/ivy",
    "spark.sql.extensions": "Iceberg",
    "spark.driver.host": "127.0.0.1",
}


@pytest.fixture(autouse=True)
def nothing_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))


def test_where_nothing_is_set_all_of_ours_is() -> None:
    assert spark_given.given() == {}
    assert spark_given.besides(OURS, {}) == OURS


def test_the_defaults_file_is_read_as_spark_does(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# a comment\n\nspark.master   spark://host:7077\nspark.driver.host=10.0.0.1\n  spark.executor.memory\t2g  \nalone\n"
    )
    assert spark_given.given() == {
        "spark.master": "spark://host:7077",
        "spark.driver.host": "10.0.0.1",
        "spark.executor.memory": "2g",
    }


def test_submitted_arguments_come_after_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.master local[1]\n")
    arguments = "--master yarn --conf spark.a='b c' --conf=spark.d=e=f --jars x.jar pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    assert spark_given.given() == {"spark.master": "yarn", "spark.a": "b c", "spark.d": "e=f", "spark.jars": "x.jar"}


def test_what_is_given_stays_and_lists_are_added_to() -> None:
    given = {"spark.driver.host": "10.0.0.1", "spark.jars": "jdbc.jar", "spark.sql.extensions": "Other"}
    assert spark_given.besides(OURS, given) == {
        "spark.jars": "jdbc.jar,ours.jar",
        "spark.jars.ivy": "/ivy",
        "spark.sql.extensions": "Other,Iceberg",
    }


@pytest.mark.parametrize("name", ["spark.jars", "spark.jars.packages"])
def test_who_names_icebergs_jars_gets_no_second_ones(name: str) -> None:
    given = {name: "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"}
    assert spark_given.besides(OURS, given) == {"spark.sql.extensions": "Iceberg", "spark.driver.host": "127.0.0.1"}
