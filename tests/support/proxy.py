"""A TCP proxy before a PostgreSQL server, which cuts a connection at its COMMIT: before the server sees it, or after."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Literal, Self

import sqlalchemy as sa

Cut = Literal["before", "after"]
COMMIT = b"COMMIT\x00"  # a simple query, as psycopg sends it


class Proxy:
    """Forwards to a server until it is told to cut. Counts the cuts that it has made."""

    def __init__(self, url: str) -> None:
        self._server = sa.make_url(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._cuts: list[Cut] = []
        self._at, self._statement = COMMIT, b""
        self._then: Callable[[], None] | None = None
        self._is_down = False
        self._stays_down = False
        self._sockets: list[socket.socket] = []
        self._muted: set[socket.socket] = set()  # clients that hear no more answers
        self.made = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        port: int = self._listener.getsockname()[1]
        return self._server.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)

    def cut(
        self,
        *cuts: Cut,
        at: bytes = COMMIT,
        statement: bytes = b"",
        then: Callable[[], None] | None = None,
        stay_down: bool = False,
    ) -> None:
        """Cut the next commits, one for each of `cuts`, of transactions that have sent `statement`; or the next statements with
        something else `at` which to cut.

        `then` runs after a cut and before the client learns of it; with `stay_down` nobody is let in afterwards.
        """
        with self._lock:
            self._cuts, self._at, self._statement, self._then, self._stays_down = (
                list(cuts),
                at,
                statement,
                then,
                stay_down,
            )

    def go_down(self) -> None:
        """Cut all connections, and let nobody in."""
        self._is_down = True
        for each in self._sockets:
            _close(each)
        self._sockets.clear()

    def come_back(self) -> None:
        self._is_down = False

    def close(self) -> None:
        for each in [self._listener, *self._sockets]:
            _close(each)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_down:
                _close(client)
                continue
            server = socket.create_connection((self._server.host, self._server.port))
            self._sockets += [client, server]
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
            threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        sent = b""  # by the transaction so far
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                sent += data
                if self._at in sent:
                    if (cut := self._next_cut(sent)) is not None:
                        self._make(cut, data, client, server)
                        return
                    sent = b""
                server.sendall(data)
        _close(server)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if client not in self._muted:
                    client.sendall(data)
        if client not in self._muted:
            _close(client)

    def _next_cut(self, sent: bytes) -> Cut | None:
        with self._lock:
            return self._cuts.pop(0) if self._cuts and self._statement in sent else None

    def _make(self, cut: Cut, data: bytes, client: socket.socket, server: socket.socket) -> None:
        self._is_down = self._stays_down
        self._muted.add(client)  # that the server has committed, `then` can see in the database
        if cut == "before":
            _close(server)
        else:
            server.sendall(data)
        if self._then is not None:
            self._then()
        self.made += 1
        _close(client)


def _close(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
