"""Progress is for terminals."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

PROGRAM = """
from lakeward.cli.progress import progress
with progress(quiet={quiet}) as step:
    step("Loading the months", 0, 12)
    step("Loading the months", 12, 12)
print("answer")
"""


def run_in_terminal(quiet: bool) -> tuple[str, str]:
    """What the program shows on standard output, and on its terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", PROGRAM.format(quiet=quiet)]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # Linux's way to say that the other end is closed
                break
            if not part:
                break
            shown += part
        assert process.stdout is not None
        answer = process.stdout.read()
    os.close(ours)
    return answer.decode(), shown.decode()


def test_a_terminal_gets_a_bar_and_standard_output_stays_clean() -> None:
    answer, shown = run_in_terminal(quiet=False)
    assert answer == "answer\n"
    assert "Loading the months" in shown and "12/12" in shown


def test_with_json_a_terminal_gets_nothing() -> None:
    assert run_in_terminal(quiet=True) == ("answer\n", "")


def test_without_a_terminal_nothing_is_shown() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(quiet=False)], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("answer\n", "")
