"""The `lakeward` command in a lakehouse of a test's own."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer.testing
from typer.testing import Result

from lakeward.cli.main import app

# Typer makes all commands anew for each call, which takes longer than most of them.
_testing: Any = typer.testing
_testing._get_command = functools.cache(_testing._get_command)


def invoke(*arguments: str, lines: str | None = None) -> Result:
    """What the command does in this process; `lines` is its standard input."""
    return typer.testing.CliRunner().invoke(app, arguments, input=lines)


class Shell:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.options = ["--registry", str(folder / "registry.db"), "--warehouse", str(folder / "warehouse")]

    def run(self, *arguments: str, lines: str | None = None, exit_code: int = 0) -> str:
        """What the command prints; `lines` is its standard input."""
        done = invoke(*arguments, *self.options, lines=lines)
        assert done.exit_code == exit_code, done.output
        return done.stdout

    def json(self, *arguments: str, lines: str | None = None, exit_code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", lines=lines, exit_code=exit_code))

    def parquet(self, name: str, *ids: int) -> str:
        path = self.folder / name
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{i}" for i in ids]}), path)
        return str(path)
