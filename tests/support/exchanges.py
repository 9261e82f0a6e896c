"""A TCP proxy before a PostgreSQL server that counts the exchanges with it, and may delay each answer."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Self

import sqlalchemy as sa


class Exchanges:
    """An exchange is what a client sends until it waits, and the server's answer to it."""

    def __init__(self, url: str, delay: float = 0.0) -> None:
        """`delay`: seconds that each answer takes longer."""
        self._server = sa.make_url(url)
        self._delay = delay
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self.count = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        port: int = self._listener.getsockname()[1]
        return self._server.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((self._server.host, self._server.port))
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets += [client, server]
                asked = threading.Event()
                threading.Thread(target=self._forward, args=(client, server, asked), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client, asked), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket, asked: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                asked.set()
                server.sendall(data)
        _end(server)

    def _answer(self, server: socket.socket, client: socket.socket, asked: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if asked.is_set():  # the first part of an answer
                    asked.clear()
                    self.count += 1
                    time.sleep(self._delay)
                client.sendall(data)
        _end(client)


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
