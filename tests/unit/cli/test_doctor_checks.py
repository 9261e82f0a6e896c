"""What is missing is tried on a machine that has no Java and an empty cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward import toolchain
from lakeward.cli import doctor_checks


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
    assert remedies["Iceberg jars"].endswith("-m lakeward.toolchain")


def test_another_pyspark_is_not_good_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "_version", lambda package: "4.2.0")
    (spark,) = [check for check in doctor_checks.checks() if check.name == "pyspark"]
    assert not spark.found
    assert "4.2.0" in spark.detail
    assert spark.remedy == f"pip install pyspark=={toolchain.PYSPARK_VERSION}"
