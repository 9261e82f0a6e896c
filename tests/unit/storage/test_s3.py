from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from lakeward.errors import StorageError
from lakeward.storage.s3 import S3Engine


@pytest.fixture
def silent() -> Iterator[str]:
    """A store that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize(
    "call",
    [
        lambda engine: engine.read("s3://bucket/key"),
        lambda engine: engine.write("s3://bucket/key", b"x"),
        lambda engine: engine.open_input("s3://bucket/key"),
        lambda engine: engine.size("s3://bucket/key"),
        lambda engine: list(engine.list("s3://bucket/key/")),
    ],
)
def test_a_store_that_is_silent_is_an_error_in_bounded_time(silent: str, call: Callable[[S3Engine], object]) -> None:
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
    with pytest.raises(StorageError):
        call(engine)
