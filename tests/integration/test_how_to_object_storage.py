"""The page on object storage runs as it stands, but for where the servers are and what the keys are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.integration.test_readme import ROOT, python_blocks
from tests.support import duck
from tests.support.s3 import S3
from tests.support.servers import free_ports
from tests.support.waiting import until

PAGE = "docs/how-to/object-storage.md"


def test_the_page_on_object_storage_runs_from_the_first_table_to_the_engines(s3: S3, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    here = {
        "s3://my-bucket": f"s3://{s3.bucket}",
        "127.0.0.1:8333": s3.endpoint.removeprefix("http://"),
        "127.0.0.1:8181": f"127.0.0.1:{port}",
        "--port 8181": f"--port {port}",
        "my-key": s3.access_key,
        "my-secret": s3.secret_key,
    }

    def adapted(text: str) -> str:
        for shown, real in here.items():
            text = text.replace(shown, real)
        return text

    text = (ROOT / PAGE).read_text(encoding="utf-8")
    [settings] = re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    [_, serve] = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    [statements] = re.findall(r"^```sql\nINSTALL[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    writing, reading = python_blocks(PAGE)
    (tmp_path / "lakeward.toml").write_text(adapted(settings))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LAKEWARD_", "AWS_"))}
    with_keys = {**environment, "LAKEWARD_S3_ACCESS_KEY": s3.access_key, "LAKEWARD_S3_SECRET_KEY": s3.secret_key}

    def run(program: str, environment: dict[str, str]) -> list[str]:
        command = [sys.executable, "-c", adapted(program)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.splitlines()

    assert run(writing, with_keys) == ["2"]
    command = [sys.executable, "-m", "lakeward.cli.main", *adapted(serve).split()[1:]]
    server = subprocess.Popen(command, cwd=tmp_path, env=with_keys, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        lines = iter(server.stdout.readline, "")
        until(lambda: "Lakeward serves" in next(lines), seconds=100)
        with duck.connect() as connection:
            assert connection.execute(adapted(statements)).fetchall() == [("Lima", 1), ("Oslo", 2)]
        assert run(reading, environment) == ["2"]
    finally:
        server.terminate()
        server.wait(30)
