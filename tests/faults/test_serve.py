"""`lakeward serve` ended by signals: what it has in hand is over then, and no other server waits for its leases."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakeward.registry import Registry, leases
from tests.support.registries import open_at
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
