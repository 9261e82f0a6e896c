#!/usr/bin/env python3
"""Write the pages of the reference that are made of the code: the command line, and the errors (`make reference`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import typer
from typer.cli import get_docs_for_click

from lakeward import errors
from lakeward.cli.main import app

ERRORS = """# Errors

Every error that Lakeward raises on purpose is a `lakeward.errors.LakewardError` with a stable `code`. Its message names the
value and the way out. The command line prints `lakeward: message [code]` on standard error and exits with 1;
with `--json` it prints `{"error": {"code": ..., "message": ...}}` on standard output too. The server answers with the status.

| code | exception | status | what it means |
|---|---|---|---|
"""


def command_line() -> str:
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="lakeward")
    return str(get_docs_for_click(obj=command, ctx=context, name="lakeward", title="Command line"))


def error_codes() -> str:
    found = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, errors.LakewardError)]
    return ERRORS + "".join(_row(each) for each in sorted(found, key=lambda each: each.code))


def _row(error: type[errors.LakewardError]) -> str:
    meaning = " ".join(inspect.cleandoc(error.__doc__ or "").split())
    return f"| `{error.code}` | `{error.__name__}` | {error.status} | {meaning} |\n"


PAGES = {"cli.md": command_line, "errors.md": error_codes}
HEAD = "<!-- Made of the code by `make reference`. -->\n\n"
FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"


def page(made: Callable[[], str]) -> str:
    return HEAD + "\n".join(line.rstrip() for line in made().rstrip().splitlines()) + "\n"


def main() -> int:
    for name, made in PAGES.items():
        (FOLDER / name).write_text(page(made), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
