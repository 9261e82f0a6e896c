"""What every connection of the two drivers has in common, whoever opens it."""

from __future__ import annotations

import os
from typing import Any

from lakeward.errors import InvalidInput

# What the drivers raise, as it is, of texts with lone surrogates and of numbers beyond 64 bits.
UNSTORABLE = (UnicodeEncodeError, OverflowError)


def unstorable() -> InvalidInput:
    return InvalidInput(
        "a value that was given is none that the registry can hold or look for: a text with NUL or a lone surrogate, a number "
        "beyond 64 bits, or one of another type; give another"
    )


# SQLite ---------------------------------------------------------------------------------------------------------------
BUSY_TIMEOUT_MS = (
    60_000  # how long a statement waits for another program's lock (our own writers wait at the writer lock)
)
SQLITE_ARGUMENTS: dict[str, Any] = {
    "check_same_thread": False,
    "timeout": BUSY_TIMEOUT_MS / 1000,
    "cached_statements": 512,
}

# PostgreSQL -----------------------------------------------------------------------------------------------------------
CONNECT_TIMEOUT_S = 10
# A peer that is gone without a word is noticed within a minute, on both sides: a transaction of a client that has frozen
# must not keep a table's lock for ever.
KEEPALIVE = {"keepalives": 1, "keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 3}
USER_TIMEOUT_MS = 30_000  # sent data that nobody acknowledges
POSTGRESQL_ARGUMENTS: dict[str, Any] = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "application_name": "lakeward",
    "tcp_user_timeout": USER_TIMEOUT_MS,
    **KEEPALIVE,
}


# What this code counts on, whatever the database or the role has as its default: psycopg reads times of this style alone, and
# a writer that has waited for a lock goes on from what is there then.
_SESSION = "SET DateStyle = 'ISO'; SET default_transaction_isolation = 'read committed'"


def prepare_session(connection: Any) -> None:
    """On a new connection of psycopg. JSON stays text: `types.Json` decodes. Numbers are of one type whatever their size, as a
    statement is prepared for each combination of types."""
    from psycopg.types.numeric import Int8Dumper
    from psycopg.types.string import TextLoader

    connection.adapters.register_dumper(int, Int8Dumper)
    connection.adapters.register_loader("json", TextLoader)
    connection.execute(_SESSION)


def cut(connection: Any) -> None:
    """In a forked child: put nothing in the place of the parent's connection of psycopg, so that no byte is ever sent on it."""
    if connection.closed:
        return
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nothing, connection.fileno(), inheritable=False)
    os.close(nothing)
