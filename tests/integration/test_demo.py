"""The demo, as a user runs it: real data, Spark, PyIceberg, and the command's exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from lakeward.astha import SUBSCRIPTIONS
from lakeward.demo.report import Comparison, DemoReport, Overhead, TableReport
from lakeward.demo.run import check
from lakeward.errors import CheckFailed

ROWS = {"airlines": 16, "airports": 1458, "planes": 3322, "weather": 26115, "flights": 336776}


def lakeward(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LAKEWARD_")}
    command = [sys.executable, "-m", "lakeward.cli.main", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_demo_loads_registers_serves_and_finds_everything_again(tmp_path: Path) -> None:
    done = lakeward(tmp_path, "demo", "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)  # nothing else stands there

    engines = ("source", "spark", "pyiceberg", "scan")
    assert found["rows"] == {name: dict.fromkeys(engines, rows) for name, rows in ROWS.items()}
    assert found["checks"] == {"comparisons": 15, "columns": 3 * (2 + 8 + 9 + 15 + 19), "failed": []}
    files = found["files"]
    assert {name: table["rows"] for name, table in files.items()} == ROWS
    assert files["flights"]["partitions"] == 12 and files["flights"]["files"] >= 12
    # Registered means readable, and a read is what makes the snapshot: one for all that was pending.
    assert all(table["pending_before_read"] == table["files"] for table in files.values())
    assert all(table["pending_after_read"] == 0 for table in files.values())
    assert found["snapshots"] == {name: {"before_read": 0, "after_read": 1} for name in ROWS}
    assert 0 < found["registration_overhead"] < 1 and found["registration"]["appends"] == 11
    work = found["components"]
    assert (work["rows"], work["files_arrived"], work["columns"]) == (27004, 31, 20)
    assert work["files_after"] <= 3 and work["bytes_after"] < work["bytes_before"]
    assert work["snapshots"]["size"] >= 1  # how many depends on how many files come while one is made
    assert set(work["events"]) == set(SUBSCRIPTIONS) and all(work["events"].values())
    assert found["query"] and found["seconds"]["total"] > 0

    folder = tmp_path / "lakeward-demo"
    tables = json.loads(lakeward(folder, "tables", "--json").stdout)  # by the settings file in it
    assert {table["name"]: table["rows"] for table in tables["tables"]} == {**ROWS, "january": 27004}


def test_the_demo_refuses_a_folder_that_it_did_not_make(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    failed = lakeward(tmp_path, "demo", "--folder", ".", "--json")
    assert failed.returncode == 1
    assert json.loads(failed.stdout)["error"]["code"] == "invalid_input"
    assert (tmp_path / "thesis.txt").exists()


TABLE = TableReport(10, 1, 100, 0, 1, 0, 0, 1)
EQUAL = Comparison("airlines", "spark", 10, 2, [])
REPORT = DemoReport("x", {"airlines": TABLE}, {"airlines": 10}, [EQUAL], Overhead(1, 1.0, 0.1), [], {})


def test_a_run_in_which_all_is_equal_passes() -> None:
    check(REPORT)


@pytest.mark.parametrize(
    "report, said",
    [
        (
            msgspec.structs.replace(
                REPORT, comparisons=[msgspec.structs.replace(EQUAL, differences=["9 rows, not 10"])]
            ),
            "airlines through spark: 9 rows, not 10",
        ),
        (
            msgspec.structs.replace(REPORT, tables={"airlines": msgspec.structs.replace(TABLE, rows=9)}),
            "airlines: 9 rows registered, not 10",
        ),
        (
            msgspec.structs.replace(REPORT, tables={"airlines": msgspec.structs.replace(TABLE, pending_after=1)}),
            "airlines: 1 files are pending",
        ),
    ],
)
def test_any_difference_fails_the_run_by_name(report: DemoReport, said: str) -> None:
    with pytest.raises(CheckFailed) as failed:
        check(report)
    assert said in str(failed.value)
