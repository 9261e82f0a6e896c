"""A child that starts in the block writes to its log; this process's output is its own again after it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import subprocess, sys
from pathlib import Path
from lakeward.spark.output import jvm_output_to
print("before")
with jvm_output_to({log}):
    child = subprocess.Popen(["sh", "-c", "read line; echo child; echo complaint >&2"], stdin=subprocess.PIPE)
print("after")
child.communicate(b"go\\n")
print("end", file=sys.stderr)
"""


def run(log: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PROGRAM.format(log=log)], capture_output=True, text=True, timeout=60)


def test_a_child_keeps_the_log_for_as_long_as_it_lives(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    done = run(f"Path({str(log)!r})")
    assert (done.stdout, done.stderr) == ("before\nafter\n", "end\n")
    assert log.read_text().split() == ["child", "complaint"]


def test_without_a_log_it_is_dropped() -> None:
    done = run("None")
    assert (done.stdout, done.stderr) == ("before\nafter\n", "end\n")
