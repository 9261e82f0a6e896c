"""What `lakeward append` reads, and how it names it: files, standard input and pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from lakeward.ops.error_log import TOLD
from tests.support.shell import Shell, invoke

NAME = "shop.t"
CSV = "id,name\n1,a\n"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    made.run("create", NAME, "--schema", "id long, name string")
    return made


def refusal(shell: Shell, *arguments: str, lines: str | None = None) -> str:
    done = invoke("append", NAME, *arguments, *shell.options, lines=lines)
    assert done.exit_code == 1, done.output
    return done.stderr


def test_standard_input_is_called_that_in_refusals_runs_and_errors(shell: Shell) -> None:
    assert refusal(shell, "-", lines='{"id": "x"}\n').startswith("lakeward: standard input, line 1: ")
    assert "standard input is a Parquet file whose end" in refusal(shell, "-", lines="PAR1")
    assert "standard input, item 1" in refusal(shell, "-", lines='[{"id": "x"}]')
    assert "standard input, row 1" in refusal(shell, "-", "--format", "csv", lines="id\nx\n")
    assert shell.json("append", NAME, "-", lines='{"id": 1}\n')["rows"] == 1
    run = shell.json("runs", "list")["runs"][0]
    assert run["source_info"]["first"] == ["standard input"]
    for command in (("runs", "list"), ("errors", "list")):
        assert "lakeward-" not in shell.run(*command, "--json")


def test_dead_letters_of_standard_input_say_so(shell: Shell) -> None:
    shell.run("alter", "set", NAME, "lakeward.invalid-rows=dead-letter")
    for number, lines in enumerate(('{"id": "x"}\n{"id": 1}\n', '[{"id": "y"}]')):
        assert shell.json("append", NAME, "-", "--batch", "s", str(number), lines=lines)["dead_letters"] == 1
    assert shell.json("append", NAME, "-", "--format", "csv", lines="id\nx\n")["dead_letters"] == 1
    text = shell.run("dlq", "list", "--json")
    assert "lakeward-" not in text and text.count('"standard input"') == 3


def test_csv_without_its_format_is_told_what_was_seen_and_how_to_say_it(shell: Shell) -> None:
    said = refusal(shell, "-", lines=CSV)
    assert "standard input is neither Parquet nor JSON" in said and "'id,name'" in said and "--format csv" in said
    assert shell.json("append", NAME, "-", "--format", "csv", lines=CSV)["rows"] == 1


def test_what_was_seen_is_not_shown_of_a_table_with_redacted_columns(shell: Shell) -> None:
    shell.run("alter", "set", NAME, "lakeward.redact-columns=name")
    assert "secret" not in refusal(shell, "-", lines="1,secret\n")


def test_another_character_between_names_is_named(shell: Shell) -> None:
    said = refusal(shell, "-", "--format", "csv", lines="id;name\n1;a\n")
    assert "'id;name'" in said and "';' between the names" in said
    assert "'\\t' between the names" in refusal(shell, "-", "--format", "csv", lines="id\tname\n1\ta\n")
    shell.run("alter", "set", NAME, "lakeward.invalid-rows=dead-letter")
    assert "';' between the names" in refusal(shell, "-", "--format", "csv", lines="id;name\n1;a\n")


def test_one_field_is_one(shell: Shell) -> None:
    assert "1 field, where the first line has 2" in refusal(shell, "-", "--format", "csv", lines="id,name\n1\n")


def test_nothing_from_standard_input_is_no_rows(shell: Shell) -> None:
    assert shell.json("append", NAME, "-", lines="")["rows"] == 0


def test_a_format_is_refused_where_it_would_be_passed_over(shell: Shell) -> None:
    (shell.folder / "a.txt").write_text(CSV)
    assert "for standard input (-) and pipes" in refusal(shell, str(shell.folder / "a.txt"), "--format", "csv")
    assert "none of json, csv" in refusal(shell, "-", "--format", "xml", lines="")


@contextmanager
def fed(path: Path, text: str) -> Iterator[str]:
    """A named pipe that somebody writes a text to."""
    os.mkfifo(path)
    writer = Thread(target=lambda: path.write_text(text), daemon=True)
    writer.start()
    yield str(path)
    writer.join(30)
    assert not writer.is_alive()


def test_pipes_are_read_as_standard_input_is(shell: Shell) -> None:
    with fed(shell.folder / "one", '{"id": 1}\n') as one, fed(shell.folder / "two", '[{"id": 2}, {"id": 3}]') as two:
        assert shell.json("append", NAME, one, two)["rows"] == 3
    assert shell.json("runs", "list")["runs"][0]["source_info"]["first"] == [one, two]
    with fed(shell.folder / "csv", CSV) as csv:
        assert shell.json("append", NAME, csv, "--format", "csv")["rows"] == 1
    with fed(shell.folder / "bad", '{"id": "x"}\n') as bad:
        assert f"{bad}, line 1" in refusal(shell, bad)


def test_a_pipe_of_the_shell_is_read(shell: Shell) -> None:
    command = [sys.executable, "-m", "lakeward.cli.main", "append", NAME, "/dev/stdin", "--json", *shell.options]
    done = subprocess.run(command, input='{"id": 1}\n', text=True, capture_output=True)
    assert done.returncode == 0 and '"rows": 1' in done.stdout, done.stderr


def test_what_is_neither_file_nor_pipe_is_refused(shell: Shell) -> None:
    assert "is a folder; name the files in it" in refusal(shell, str(shell.folder))
    assert "/dev/null is no regular file" in refusal(shell, "/dev/null")
    assert "an empty text is given for a file" in refusal(shell, "")


def test_a_refusal_is_written_down_and_told_but_no_open_error(shell: Shell) -> None:
    refusal(shell, str(shell.folder / "none.json"))
    refusal(shell, "-", lines='{"id": "x"}\n')
    errors = shell.json("errors", "list")["errors"]
    assert [(each["status"], each["resolution"]) for each in errors] == [("ignored", TOLD)] * 2
    status = shell.json("status")  # which exits with 1 where something is wrong
    assert (status["failed_runs"], status["open_errors"], status["problems"]) == (2, 0, [])


def test_a_batch_of_a_job_is_an_open_error_until_it_is_in(shell: Shell) -> None:
    for _ in range(2):
        refusal(shell, "-", "--batch", "nightly", "1", lines='{"id": "x"}\n')
    assert shell.json("status", exit_code=1)["open_errors"] == 1
    assert [each["occurrences"] for each in shell.json("errors", "list")["errors"]] == [2]
    shell.run("append", NAME, "-", "--batch", "nightly", "1", lines='{"id": 1}\n')
    assert shell.json("status")["open_errors"] == 0
