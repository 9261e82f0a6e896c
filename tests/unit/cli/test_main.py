"""The command itself: quick to start, errors without tracebacks, settings from everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from lakeward import __version__
from lakeward.cli.main import app
from tests.support.shell import invoke as lakeward

HEAVY = ("pyspark", "pyiceberg", "pyarrow", "sqlalchemy", "alembic", "fastapi", "uvicorn", "structlog", "rich")


def commands(group: Any, *path: str) -> Iterator[str]:
    """Every command below a group, as it is typed."""
    for name, found in group.commands.items():
        if hasattr(found, "commands"):
            yield from commands(found, *path, name)
        else:
            yield " ".join((*path, name))


COMMANDS = sorted(commands(typer.main.get_command(app)))
OF_NO_LAKEHOUSE = {"demo", "doctor"}


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from lakeward.cli.main import app\n"
        "try: app(['--help'])\n"
        f"except SystemExit: print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "[]" and "Usage: " in done.stdout


def test_no_list_of_commands_cuts_a_line_short() -> None:
    groups = [name for name, found in typer.main.get_command(app).commands.items() if hasattr(found, "commands")]  # type: ignore[attr-defined]
    assert {"dlq", "errors", "runs", "snapshots"} <= set(groups)
    for group in ("", *groups):
        shown = lakeward(*group.split(), "--help").stdout
        assert [line for line in shown.splitlines() if line.endswith("...") and "Usage:" not in line] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_json(command: str) -> None:
    shown = lakeward(*command.split(), "--help")
    assert shown.exit_code == 0 and "--json" in shown.stdout


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in OF_NO_LAKEHOUSE])
def test_every_command_on_a_lakehouse_can_be_told_which(command: str) -> None:
    shown = lakeward(*command.split(), "--help").stdout
    assert "--registry" in shown and "--warehouse" in shown and "--config" in shown


def test_the_version_is_the_packages() -> None:
    assert lakeward("--version").stdout == f"lakeward {__version__}\n"


def test_wrong_usage_has_exit_code_2() -> None:
    assert lakeward("files").exit_code == 2
    assert lakeward("nonsense").exit_code == 2


def test_an_error_is_one_line_with_its_code_and_exit_code_1(tmp_path: Path) -> None:
    failed = lakeward("db", "status", "--config", str(tmp_path / "none.toml"))
    assert failed.exit_code == 1 and failed.stdout == ""
    assert failed.stderr.startswith("lakeward: the settings file") and "[invalid_setting]" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_with_json_an_error_is_a_document_too(tmp_path: Path) -> None:
    failed = lakeward("db", "status", "--json", "--config", str(tmp_path / "none.toml"))
    assert failed.exit_code == 1
    assert json.loads(failed.stdout)["error"]["code"] == "invalid_setting"


@pytest.mark.parametrize(
    "words",
    [("files",), ("nonsense",), ("tables", "--nonsense"), ("serve", "--port", "x"), ("db", "nonsense")],
)
def test_with_json_wrong_usage_is_a_document_too(words: tuple[str, ...]) -> None:
    failed = lakeward(*words, "--json")
    assert failed.exit_code == 2
    error = json.loads(failed.stdout)["error"]
    assert error["code"] == "invalid_input" and "--help`" in error["message"]
    assert failed.stderr == f"lakeward: {error['message']} [invalid_input]\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_early_ends_the_command_quietly(tmp_path: Path, unbuffered: str) -> None:
    """As in `lakeward ... | head -1`."""
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "lakeward.cli.main", "db", "status", "--registry", str(tmp_path / "registry.db")]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, env=environment, text=True, timeout=60)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_statement_that_writes_is_refused_before_anything_starts() -> None:
    failed = lakeward("sql", "DROP TABLE a.b", "--json")
    assert failed.exit_code == 1
    assert json.loads(failed.stdout)["error"]["code"] == "invalid_input"


def test_db_upgrade_makes_a_registry_and_db_status_describes_it(tmp_path: Path) -> None:
    registry = str(tmp_path / "registry.db")
    before = json.loads(lakeward("db", "status", "--json", "--registry", registry).stdout)
    assert before["exists"] is False and not Path(registry).exists()
    made = json.loads(lakeward("db", "upgrade", "--json", "--registry", registry).stdout)
    assert made["created"] is True and made["to_version"] == before["code_version"]
    after = json.loads(lakeward("db", "status", "--json", "--registry", registry).stdout)
    assert after["exists"] is True and after["schema_version"] == after["code_version"]


def test_db_sizes_lists_the_tables_and_db_vacuum_says_what_it_freed(tmp_path: Path) -> None:
    options = ("--registry", str(tmp_path / "registry.db"), "--warehouse", str(tmp_path / "warehouse"))
    for command in ("sizes", "vacuum"):
        missing = json.loads(lakeward("db", command, "--json", *options).stdout)
        assert missing["error"]["code"] == "registry_outdated" and list(tmp_path.iterdir()) == []
    lakeward("db", "upgrade", *options)
    found = json.loads(lakeward("db", "sizes", "--json", *options).stdout)
    assert {"tables", "table_files", "registry_changes"} <= {each["table"] for each in found["tables"]}
    assert found["bytes"] == (tmp_path / "registry.db").stat().st_size
    shown = lakeward("db", "sizes", *options).stdout
    assert "registry_changes" in shown and "database sqlite" in shown
    for full in ((), ("--full",)):
        freed = json.loads(lakeward("db", "vacuum", "--json", *options, *full).stdout)
        assert freed["full"] == bool(full) and {"freed_bytes", "seconds"} <= freed.keys()
    assert not (tmp_path / "warehouse").exists()


def test_a_settings_file_says_which_lakehouse(tmp_path: Path) -> None:
    config = tmp_path / "my.toml"
    config.write_text('registry = "here.db"\nwarehouse = "files"\n')
    lakeward("db", "upgrade", "--config", str(config))
    assert (tmp_path / "here.db").exists()


def test_doctor_names_all_that_it_looked_for() -> None:
    found = json.loads(lakeward("doctor", "--json").stdout)
    names = [check["name"] for check in found["checks"]]
    assert {"Python", "Java", "pyspark", "Iceberg jars"} <= set(names)
    assert found["missing"] == []
    assert {check["need"] for check in found["checks"]} == {"all", "spark", "s3", "development"}
    shown = lakeward("doctor").stdout
    assert all(name in shown for name in names)
