"""How the application is put on a port, by itself and embedded."""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI

from lakeward.errors import InvalidSetting

# Longer than Java's and Python's clients keep a connection that they may use again: where a server closes first, a request
# fails now and then.
_KEEP_ALIVE_SECONDS = 75
_STOP_SECONDS = 2  # for requests that are being answered; a client sends the others again
_BACKLOG = 512


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that queues connections from now on, so that nobody is refused while the server comes up.

    Raises:
        InvalidSetting: the port is taken, or the host is none of this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise InvalidSetting(
            f"cannot serve on {host} port {port}: {error.strerror}; choose another --port (0 takes a free one) or --host"
        ) from error
    return listening


def make_server(app: FastAPI) -> uvicorn.Server:
    """The application's uvicorn: quiet, and without lifespan events, which it has none of."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
    )
