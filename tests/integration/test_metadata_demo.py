"""The example of the operations metadata runs as it stands, on both databases."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "metadata_system_demo.py"


def test_the_example_runs_and_says_what_it_did(made_url: str, tmp_path: Path) -> None:
    environment = {**os.environ, "LAKEWARD_WAREHOUSE": str(tmp_path / "warehouse")}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), made_url],
        capture_output=True,
        text=True,
        timeout=100,
        env=environment,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "customers is at version 2 (add_column email, add_index by_email); fully compatible: True" in done.stdout
    assert "{'uri': 'mongodb://***@db/shop'}" in done.stdout
    assert "runs: 1 of them completed: 1" in done.stdout
    assert "4 positions are known" in done.stdout
