"""What a lane is made of: events that wait, by batches, and what it gives out and counts."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import msgspec

from lakeward.astha.events import Event
from lakeward.astha.feed import Place
from lakeward.astha.sql.changes import Change


class Entry:
    """One event in one lane."""

    __slots__ = ("attempts", "change", "done", "event")

    def __init__(self, change: Change, event: Event[Any]) -> None:
        self.change = change
        self.event = event
        self.attempts = 0
        self.done = False


class Batch:
    """The entries of one page, so that it can be told up to where all is done."""

    __slots__ = ("after", "at", "entries", "put_at", "within")

    def __init__(self, entries: list[Entry], within: Place, after: Place) -> None:
        self.entries = entries
        self.within = within
        self.after = after
        self.at = 0  # all before it are done
        self.put_at = time.monotonic()

    def is_done(self) -> bool:
        while self.at < len(self.entries) and self.entries[self.at].done:
            self.at += 1
        return self.at == len(self.entries)

    def place(self) -> Place:
        """Before the first entry that is not done."""
        return msgspec.structs.replace(self.within, sequence=self.entries[self.at].change.sequence - 1)


class Waiting(NamedTuple):
    """What a lane has in memory, and where the feed goes on after it; None while a refresh is due that begins anew."""

    length: int
    oldest: Change | None  # that is not done
    place: Place | None


class Task(msgspec.Struct, frozen=True):
    """What a worker does next: handle a table's events, or refresh."""

    generation: int  # of the lane's when it was given out: grows when what waits is dropped
    table_id: int | None  # None: refresh


class Counts(msgspec.Struct):
    delivered: int = 0
    retried: int = 0
    parked: int = 0  # since the start
    refreshes: int = 0
    folded: int = 0
