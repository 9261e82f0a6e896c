"""Watches the feed: waits for commits, and turns rows into events, each decoded once."""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

import msgspec

from lakeward.astha.events import WATCHED, Event, Operation
from lakeward.astha.feed import Page, Place, Reader
from lakeward.astha.sql.changes import Change
from lakeward.logs import log
from lakeward.registry import Registry


class Item(NamedTuple):
    """A change, and the event that all its subscribers share; None if this code cannot read the row."""

    change: Change
    event: Event[Any] | None


_DECODERS = {name: msgspec.json.Decoder(watched.record) for name, watched in WATCHED.items()}
_OPERATIONS: dict[str, Operation] = {"INSERT": "INSERT", "UPDATE": "UPDATE", "DELETE": "DELETE"}


QUIET_SECONDS = 10.0  # without a change for so long, other processes' commits are looked for less often,
QUIET_FACTOR = 3  # by this factor


class Watcher:
    """Waits for commits and reads what they changed."""

    def __init__(self, registry: Registry) -> None:
        """Raises RegistryUnavailable."""
        self._database = registry.database
        self.reader = Reader(registry.database)
        self._wake = threading.Event()
        self._seen: int | str | None = None
        self._found_at = 0.0
        self._database.on_commit(self.wake)

    def close(self) -> None:
        self._database.on_commit(self.wake, remove=True)

    def wake(self) -> None:
        """Something was committed in this process, or there is something else to do."""
        self._wake.set()

    def wait(self, seconds: float) -> bool:
        """Wait for a commit in this process, at most so long; then whether anybody may have committed since the last call.

        Other processes' commits show in something that costs microseconds to read. What costs is to wake up for it, so where
        nothing has changed for a while the wait is longer.
        """
        is_quiet = time.monotonic() - self._found_at > QUIET_SECONDS
        was_told = self._wake.wait(QUIET_FACTOR * seconds if is_quiet else seconds)
        self._wake.clear()
        version = self._database.lookups.version()
        moved = was_told or version is None or version != self._seen
        self._seen = version
        return moved

    def read(self, place: Place, count: int) -> Page[Item]:
        """Up to `count` changes that come next, decoded. Raises RegistryUnavailable."""
        page = self.reader.read(place, count)
        if page.changes:
            self._found_at = time.monotonic()
        return Page([Item(change, decode(change)) for change in page.changes], *page[1:])


def decode(change: Change) -> Event[Any] | None:
    """The typed event of a row of the feed. Fields of a newer version are skipped; None if one is missing or of another type."""
    decoder = _DECODERS.get(change.table_name)
    if decoder is None:
        return None
    try:
        data = decoder.decode(change.data)
    except msgspec.MsgspecError as error:
        log.warning("event_not_read", table=change.table_name, sequence=change.sequence, error=str(error))
        return None
    operation = _OPERATIONS[change.operation]
    return Event(change.table_name, operation, data, change.changed_at, change.table_id, change.sequence)
