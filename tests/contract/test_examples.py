"""The examples run as they stand, and do what they say."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_subscriber_of_ones_own_counts_what_the_registry_says(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "astha_integration.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    found = re.search(r"counted from (\d+) events: (.*)", done.stdout)
    assert found is not None, done.stdout
    assert int(found[1]) >= 40
    assert sorted(ast.literal_eval(found[2]).values()) == [20, 60]
