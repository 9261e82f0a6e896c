#!/usr/bin/env python3
"""Check that the wheel works by itself: installed into an empty environment, and run from another folder than the checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from lakeward.spark import toolchain
from tools.bootstrap import ROOT, UV_ENVIRONMENT, find_uv

PROGRAM = """
import lakeward
with lakeward.connect("registry.db", "warehouse") as lake:
    lake.create_table("shop.orders", {"id": "long", "city": "string"}, partition_by=["city"])
    lake.append("shop.orders", [{"id": 1, "city": "Oslo"}, {"id": 2, "city": "Lima"}], batch=("orders", "1"))
    lake.flush("shop.orders")
    assert lake.scan("shop.orders", filter="city = 'Oslo'").read_all().to_pylist() == [{"id": 1, "city": "Oslo"}]
"""


Run = Callable[..., None]


def main() -> int:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LAKEWARD_", "PYTHON"))}
    environment |= UV_ENVIRONMENT
    uv = find_uv()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        python = folder / "venv" / "bin" / "python"

        def run(*words: object, **others: Any) -> None:
            options = {"cwd": folder, "env": environment, "check": True, "stdout": subprocess.DEVNULL, **others}
            subprocess.run([*map(str, words)], **options)

        install = (*uv, "pip", "install", "-q", "--python", python, "-c", ROOT / "constraints.txt")
        run(*uv, "build", "-q", "--wheel", "-o", folder / "dist", ROOT)
        run(*uv, "venv", "-q", "--python", sys.executable, folder / "venv")
        (wheel,) = (folder / "dist").glob("*.whl")
        run(*install, wheel)
        _check_plain(run, python)
        print("wheel: installed by itself, it works", flush=True)
        _link_spark(python)
        run(*install, "--offline", f"lakeward[spark] @ file://{wheel}")
        _check_with_spark(run, python, environment)
    print("wheel: installed with [spark], the README's program works")
    return 0


def _link_spark(python: Path) -> None:
    """pyspark and what it needs, out of the checkout's environment: to build and to unpack it anew takes minutes."""
    (into,) = (python.parent.parent / "lib").glob("python*/site-packages")
    for name in ("pyspark", "py4j"):
        package = Path(str(metadata.distribution(name).locate_file(""))).resolve()
        for found in (package / name, *package.glob(f"{name}-*.dist-info")):
            (into / found.name).symlink_to(found)


def _check_plain(run: Run, python: Path) -> None:
    command = python.with_name("lakeward")
    run(command, "--help")
    run(python, "-c", PROGRAM)
    run(command, "tables", "--registry", "registry.db", "--warehouse", "warehouse")
    run(command, "doctor")


def _check_with_spark(run: Run, python: Path, environment: dict[str, str]) -> None:
    """With the Java and the jars of the checkout, if it has them: those that Spark would fetch are not what is checked."""
    here = {
        **environment,
        "LAKEWARD_CACHE_DIR": str(toolchain.cache_folder()),
        "JAVA_HOME": str(toolchain.find_java().home),
    }
    run(python.with_name("lakeward"), "--help")
    (program,) = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    run(python, "-c", program, env=here, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    raise SystemExit(main())
