"""Where the server may listen."""

from __future__ import annotations

import socket

import pytest

from lakeward.catalog.listening import listening_socket
from lakeward.catalog.serve import check_loopback
from lakeward.errors import InvalidSetting


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_a_loopback_host_is_allowed(host: str) -> None:
    check_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "example.org", ""])
def test_a_host_that_other_machines_reach_is_refused_by_name(host: str) -> None:
    with pytest.raises(InvalidSetting, match=repr(host)):
        check_loopback(host)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(InvalidSetting, match=f"port {port}"):
            listening_socket("127.0.0.1", port)
