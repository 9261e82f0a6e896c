#!/usr/bin/env python3
"""Check that the wheel works by itself: installed into an empty environment, and run from another folder than the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.bootstrap import ROOT, UV_ENVIRONMENT, find_uv

PROGRAM = """
import lakeward
with lakeward.connect("registry.db", "warehouse") as lake:
    lake.create_table("shop.orders", {"id": "long", "city": "string"}, partition_by=["city"])
    lake.append("shop.orders", [{"id": 1, "city": "Oslo"}, {"id": 2, "city": "Lima"}], batch=("orders", "1"))
    lake.flush("shop.orders")
    assert lake.scan("shop.orders", filter="city = 'Oslo'").read_all().to_pylist() == [{"id": 1, "city": "Oslo"}]
"""


def main() -> int:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LAKEWARD_", "PYTHON"))}
    environment |= UV_ENVIRONMENT
    uv = find_uv()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        python, command = folder / "venv" / "bin" / "python", folder / "venv" / "bin" / "lakeward"

        def run(*words: object) -> None:
            subprocess.run([*map(str, words)], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)

        run(*uv, "build", "-q", "--wheel", "-o", folder / "dist", ROOT)
        run(*uv, "venv", "-q", "--python", sys.executable, folder / "venv")
        (wheel,) = (folder / "dist").glob("*.whl")
        run(*uv, "pip", "install", "-q", "--python", python, "-c", ROOT / "constraints.txt", wheel)
        run(command, "--help")
        run(python, "-c", PROGRAM)
        run(command, "tables", "--registry", "registry.db", "--warehouse", "warehouse")
    print("wheel: installed by itself, it works")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
