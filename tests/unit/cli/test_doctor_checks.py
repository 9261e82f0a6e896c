"""What is missing is tried on a machine that has no Java and an empty cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.cli import development, doctor_checks
from lakeward.spark import toolchain


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("LAKEWARD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(toolchain, "_carried_java", lambda: None)


def test_what_is_missing_comes_with_a_remedy_and_what_is_there_without() -> None:
    results = doctor_checks.checks()
    assert {check.name: bool(check.remedy) for check in results} == {check.name: not check.found for check in results}


def test_a_machine_without_java_and_jars_is_told_the_commands() -> None:
    remedies = {check.name: check.remedy for check in doctor_checks.checks() if not check.found}
    assert remedies["Java"] == "apt-get install openjdk-17-jre-headless"
    assert remedies["Iceberg jars"].endswith("-m lakeward.spark.toolchain")


def test_another_pyspark_is_not_good_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "_version", lambda package: "4.2.0")
    (spark,) = [check for check in doctor_checks.checks() if check.name == "pyspark"]
    assert not spark.found
    assert "4.2.0" in spark.detail
    assert spark.remedy == f"pip install pyspark=={toolchain.PYSPARK_VERSION}"


def test_a_user_of_spark_needs_java_and_a_user_without_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [check.name for check in doctor_checks.missing_needs(doctor_checks.checks())] == ["Java"]
    installed = doctor_checks._version
    monkeypatch.setattr(doctor_checks, "_version", lambda package: None if package == "pyspark" else installed(package))
    assert doctor_checks.missing_needs(doctor_checks.checks()) == []


def test_what_all_need_is_missed_and_what_developers_need_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "_version", lambda package: None)
    monkeypatch.setattr(development, "postgres_binaries", lambda: None)
    found = {check.name: check for check in doctor_checks.checks()}
    assert not found["PostgreSQL server (tests)"].found
    names = [check.name for check in doctor_checks.missing_needs(found.values())]
    assert names == ["pyarrow", "SQL drivers"]


@pytest.mark.parametrize("place", ["cache/ivy/jars", "home/.ivy2.5.2/jars"])
def test_jars_that_spark_has_fetched_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / place
    folder.mkdir(parents=True)
    for coordinate in toolchain.spark_packages().coordinates:
        group, artifact, version = coordinate.split(":")
        (folder / f"{group}_{artifact}-{version}.jar").touch()
    found = {check.name: check for check in doctor_checks.checks()}
    assert found["Iceberg jars"].found and str(folder) in found["Iceberg jars"].detail
    assert not found["S3 jars"].found
