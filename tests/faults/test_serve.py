"""`lakeward serve` ended by signals: what it has in hand is over then, and no other server waits for its leases."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import lakeward
from lakeward.ops import runs
from lakeward.ops.records.operations import SyncRun, SyncStatus
from lakeward.registry import Registry, intents, leases
from tests.support.registries import make_table, open_at
from tests.support.waiting import until


@pytest.fixture
def registry(made_url: str, tmp_path: Path) -> Iterator[Registry]:
    with open_at(made_url, tmp_path) as opened:
        yield opened


@contextmanager
def serving(url: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "lakeward.cli.main", "serve", "--port", "0"]
    where = ["--registry", url, "--warehouse", str(folder / "warehouse")]
    process = subprocess.Popen([*command, *where], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def is_active(registry: Registry) -> bool:
    with registry.database.read() as connection:
        return leases.is_held(connection, "astha:lakeward")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_server_that_is_told_to_end_lets_go_of_its_components_lease(
    registry: Registry, made_url: str, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with serving(made_url, tmp_path) as server:
        until(lambda: is_active(registry), seconds=100)
        server.send_signal(number)
        output, _ = server.communicate(timeout=100)
        assert server.returncode == code, output
        assert not is_active(registry), output


def test_a_server_clears_a_write_that_dies_while_it_runs(
    registry: Registry, made_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEWARD_LEASE_SECONDS", "1")
    with serving(made_url, tmp_path):
        until(lambda: is_active(registry), seconds=100)
        with open_at(made_url, tmp_path, lease_seconds=1.0) as dying:
            intent = intents.open_intent(dying, make_table(dying))
            dying.engine(intent.prefix).write(intent.prefix + "00000.parquet", b"x")
        until(lambda: not list(registry.engine(intent.prefix).list(intent.prefix)), seconds=100)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_server_of_many_tables_that_is_told_to_end_ends_within_seconds(tmp_path: Path) -> None:
    with lakeward.connect(tmp_path / "registry.db", tmp_path / "warehouse", durable=False) as lake:
        for number in range(2_000):
            lake.create_table(f"shop.t{number}", {"id": "long"}, properties={"lakeward.snapshot.every-seconds": "1"})
        with serving(f"sqlite:///{tmp_path}/registry.db", tmp_path) as server:
            until(lambda: is_active(lake.registry), seconds=100)
            server.send_signal(signal.SIGTERM)
            output, _ = server.communicate(timeout=30)
            assert server.returncode == 143, output
            assert not is_active(lake.registry), output


@contextmanager
def a_java_that_never_comes_up(folder: Path) -> Iterator[dict[str, str]]:
    """An environment whose Java says what it is, and hangs when Spark starts with it."""
    home = folder / "java"
    (home / "bin").mkdir(parents=True)
    started, java = folder / "started", home / "bin" / "java"
    java.write_text(
        "#!/bin/sh\n"
        'case "$*" in *-XshowSettings*) echo "    java.specification.version = 17" >&2; exit 0;; esac\n'
        f"echo $$ > {started}.new\nmv {started}.new {started}\nexec sleep 300\n"
    )
    java.chmod(0o755)
    try:
        yield {**os.environ, "JAVA_HOME": str(home)}
    finally:
        if started.exists():
            os.kill(int(started.read_text()), signal.SIGKILL)


@pytest.mark.slow
def test_a_server_is_told_to_end_while_spark_is_starting_and_ends_within_seconds(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/registry.db"
    config = tmp_path / "lakeward.toml"
    config.write_text("merge_in_process_bytes = 0\n[components.compactor]\ninterval_seconds = 0.2\n")
    with lakeward.connect(tmp_path / "registry.db", tmp_path / "warehouse") as lake:
        lake.create_table("shop.orders", {"id": "long"})
        for number in range(12):
            lake.append("shop.orders", [{"id": number}])
    printed = tmp_path / "printed"  # no pipe: the Java that hangs would hold it open when the server is gone
    with a_java_that_never_comes_up(tmp_path) as environment, printed.open("w") as output:
        command = [sys.executable, "-m", "lakeward.cli.main", "serve", "--port", "0", "--config", str(config)]
        where = ["--registry", url, "--warehouse", str(tmp_path / "warehouse")]
        server = subprocess.Popen(
            [*command, *where], stdout=output, stderr=subprocess.STDOUT, text=True, env=environment
        )
        try:
            until((tmp_path / "started").exists, seconds=100)
            server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 143, printed.read_text()
        finally:
            server.kill()
            server.wait()


def test_a_server_where_there_is_no_lakehouse_asks_for_create(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lakeward.cli.main", "serve", "--port", "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and "`lakeward serve --create`" in done.stderr
    assert list(tmp_path.iterdir()) == []
    server = subprocess.Popen([*command, "--create"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None and "Lakeward serves" in server.stdout.readline()
    finally:
        server.terminate()
        server.wait(30)


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_server_is_told_to_end_during_a_compaction_and_its_runs_say_what_was_done(tmp_path: Path) -> None:
    names = [f"shop.t{number}" for number in range(4)]
    config = tmp_path / "lakeward.toml"
    config.write_text("merge_in_process_bytes = 0\n[components.compactor]\ninterval_seconds = 0.2\n")
    with lakeward.connect(tmp_path / "registry.db", tmp_path / "warehouse", durable=False) as lake:
        for name in names:
            lake.create_table(name, {"id": "long"})
            for number in range(12):
                lake.append(name, [{"id": number}])
        command = [sys.executable, "-m", "lakeward.cli.main", "serve", "--port", "0", "--config", str(config)]
        where = ["--registry", f"sqlite:///{tmp_path}/registry.db", "--warehouse", str(tmp_path / "warehouse")]
        server = subprocess.Popen([*command, *where], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            # The first is done, so Spark is there, and the next one is in hand.
            until(lambda: any(run.status == SyncStatus.COMPLETED for run in compactions(lake)), seconds=300)
            server.send_signal(signal.SIGTERM)
            output, _ = server.communicate(timeout=60)
            assert server.returncode == 143, output
        finally:
            server.kill()
            server.wait()
        done = {str(lake.table(name).identifier): len(lake.files(name)) == 1 for name in names}
        assert any(done.values()), output
        told = compactions(lake)
        assert all(run.status in (SyncStatus.COMPLETED, SyncStatus.CANCELLED) for run in told), told
        completed = [run for run in told if run.status == SyncStatus.COMPLETED]
        assert [run.records_processed for run in completed] == [12] * sum(done.values()), (told, output)
        assert all(run.records_processed == 0 for run in told if run not in completed), told
        for name in names:
            assert sorted(row["id"] for row in lake.scan(name).read_all().to_pylist()) == list(range(12))
            assert len(lake.files(name)) in (1, 12)


def compactions(lake: lakeward.Lake) -> list[SyncRun]:
    return [run for run in runs.list_runs(lake.registry) if run.source_info == {"component": "compactor"}]
