"""What a program loads before it does what it was started for: nothing that it does not use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lakeward.cli.main import COMMANDS, app, make

HEAVY = (
    "alembic",
    "boto3",
    "botocore",
    "fastapi",
    "fastavro",
    "google",
    "grpc",
    "pandas",
    "psycopg",
    "py4j",
    "pyarrow.dataset",
    "pydantic",
    "pyiceberg",
    "pygments",
    "pyspark",
    "rich.console",
    "rich.progress",
    "rich.table",
    "rich.traceback",
    "structlog",
    "sqlalchemy.dialects.postgresql",
    "uvicorn",
)
APPEND = """
import lakeward
with lakeward.connect("registry.db", "warehouse") as lake:
    lake.append("shop.orders", [{"id": 1, "name": "a", "price": 1.5}])
"""
COMMAND = """
from lakeward.cli.main import run
sys.argv = ["lakeward", *{words}, "--registry", "registry.db", "--warehouse", "warehouse"]
try:
    run()
except SystemExit as ended:
    assert not ended.code, ended.code
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lakehouse on SQLite and a local folder, with a table."""
    made = tmp_path_factory.mktemp("start")
    loaded(
        made,
        "import lakeward\n"
        "with lakeward.connect('registry.db', 'warehouse') as lake:\n"
        "    lake.create_table('shop.orders', {'id': 'long', 'name': 'string', 'price': 'double'})\n"
        "    lake.append('shop.orders', [{'id': 0, 'name': 'z', 'price': 0.5}])",
    )
    return made


def loaded(folder: Path, program: str) -> set[str]:
    """The modules that a program of its own has loaded by its end."""
    told = "\nprint(' '.join(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}{told}"], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("program", "more"),
    [
        ("import lakeward", ("msgspec", "numpy", "pyarrow", "sqlalchemy", "typer")),
        (COMMAND.format(words=["tables"]), ("numpy", "pyarrow")),
        (APPEND, ("typer",)),
        (COMMAND.format(words=["scan", "shop.orders"]), ()),
    ],
    ids=["import", "tables", "append", "scan"],
)
def test_what_is_not_used_is_not_loaded(folder: Path, program: str, more: tuple[str, ...]) -> None:
    found = loaded(folder, program)
    assert sorted(found & {*HEAVY, *more}) == []


def test_every_command_is_found_by_its_name_alone() -> None:
    """`lakeward tables` loads the module that has it and no other: a command's names are those that it is made under."""
    for commands in COMMANDS:
        alone = make([commands])
        added = [each.name for each in alone.registered_commands]
        added += [each.typer_instance.info.name for each in alone.registered_groups if each.typer_instance]
        assert added == commands.words
    names = [name for commands in COMMANDS for name in commands.words]
    assert len(set(names)) == len(names) == len(app.registered_commands) + len(app.registered_groups)
