"""A server inside the process: the catalog of a Lake that was given no server's URL, for as long as it is open."""

from __future__ import annotations

import secrets
import socket
from concurrent.futures import Future, wait
from functools import partial

from lakeward.background import begin
from lakeward.catalog.app import create_app
from lakeward.catalog.listening import listening_socket, make_server
from lakeward.errors import LakewardError
from lakeward.registry import Registry
from lakeward.retry import until

HOST = "127.0.0.1"
_START_SECONDS = 30.0
_STOP_SECONDS = 15.0


class EmbeddedServer:
    """Serves one registry on a free loopback port, to whoever has its token. Started and stopped once."""

    def __init__(self, registry: Registry) -> None:
        self.token = secrets.token_urlsafe(32)
        self._server = make_server(create_app(registry, token=self.token))
        self._socket: socket.socket | None = None
        self._running: Future[None] | None = None

    @property
    def url(self) -> str:
        """'http://127.0.0.1:<port>'. Raises LakewardError: the server was not started."""
        if self._socket is None:
            raise LakewardError("the embedded server is not running; call start() first")
        return f"http://{HOST}:{self._socket.getsockname()[1]}"

    def start(self) -> tuple[str, str]:
        """Start, and give (url, token) once requests are answered.

        Raises:
            LakewardError: it did not come up.
        """
        self._socket = listening_socket(HOST, 0)
        url = self.url
        # A daemon: a Lake that nobody closed must not keep the process alive.
        self._running = begin("lakeward-server", partial(self._server.run, [self._socket]))
        running = self._running
        until(lambda: self._server.started or running.done(), _START_SECONDS, every=0.005)
        if not self._server.started:
            self.stop()
            raise LakewardError(f"the embedded server did not start on {url}; see the log")
        return url, self.token

    def stop(self) -> None:
        """End what is being answered, then the server; no effect if it does not run."""
        if self._running is not None:
            self._server.should_exit = True
            wait([self._running], _STOP_SECONDS)
            self._running = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
