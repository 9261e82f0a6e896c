from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakeward.errors import StorageError, StorageUnavailable
from lakeward.storage import s3
from lakeward.storage.s3 import S3Engine, _mapped


@pytest.fixture
def silent() -> Iterator[str]:
    """A store that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


CALLS: list[Callable[[S3Engine], object]] = [
    lambda engine: engine.read("s3://bucket/key"),
    lambda engine: engine.write("s3://bucket/key", b"x"),
    lambda engine: engine.open_input("s3://bucket/key"),
    lambda engine: engine.size("s3://bucket/key"),
    lambda engine: list(engine.list("s3://bucket/key/")),
]


def test_a_store_that_is_silent_is_an_error_in_bounded_time(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once: each waits for several tries."""
    monkeypatch.setattr(s3, "ATTEMPTS", 2)
    engine = S3Engine(
        {
            "endpoint": silent,
            "region": "us-east-1",
            "access_key": "a",
            "secret_key": "b",
            "connect_timeout": 0.2,
            "read_timeout": 0.2,
        }
    )
    with ThreadPoolExecutor(len(CALLS)) as pool:
        for waiting in [pool.submit(call, engine) for call in CALLS]:
            with pytest.raises(StorageError):
                waiting.result()


def test_a_store_that_gave_up_waiting_for_the_request_is_in_trouble_and_not_refusing_it() -> None:
    said = (
        "When reading 'key': AWS Error REQUEST_TIMEOUT during GetObject operation: not read from or written to in time"
    )
    with pytest.raises(StorageUnavailable, match="try again"), _mapped("read", "s3://bucket/key"):
        raise OSError(said)
