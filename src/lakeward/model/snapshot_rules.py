"""When a table's pending files become a snapshot by themselves: properties of the table, and what they mean."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from lakeward.errors import InvalidInput

MODE = "lakeward.snapshot.mode"  # auto: as the rules say; on-query: only for a query, or by hand
EVERY_SECONDS = "lakeward.snapshot.every-seconds"
EVERY_FILES = "lakeward.snapshot.every-files"
EVERY_BYTES = "lakeward.snapshot.every-bytes"
EVERY_ROWS = "lakeward.snapshot.every-rows"
PREFIX = "lakeward.snapshot."

_FIELDS = {EVERY_SECONDS: "seconds", EVERY_FILES: "files", EVERY_BYTES: "bytes", EVERY_ROWS: "rows"}


class SnapshotRules(msgspec.Struct, frozen=True):
    """A snapshot is made when one of these is reached by what is pending; none of them: only for a query, or by hand.

    A query always makes one: it sees every registered row, whatever the rules say.
    """

    seconds: float | None = None  # since the oldest pending change was registered
    files: int | None = None
    bytes: int | None = None
    rows: int | None = None

    def __bool__(self) -> bool:
        return any(each is not None for each in (self.seconds, self.files, self.bytes, self.rows))

    def is_reached_by(self, files: int, bytes: int, rows: int) -> bool:
        pairs = ((self.files, files), (self.bytes, bytes), (self.rows, rows))
        return any(limit is not None and found >= limit for limit, found in pairs)


def rules_of(properties: Mapping[str, str | None], default: SnapshotRules | None = None) -> SnapshotRules:
    """A table's rules; `default` where it has none of its own.

    Raises:
        InvalidInput: a property has a value that it cannot have, or a name that none has.
    """
    given = {name: value for name, value in properties.items() if name.startswith(PREFIX) and value is not None}
    if unknown := given.keys() - {MODE, *_FIELDS}:
        raise InvalidInput(
            f"{sorted(unknown)[0]!r} is no property of snapshots; there are {', '.join((MODE, *_FIELDS))}"
        )
    mode = given.pop(MODE, "auto")
    if mode not in ("auto", "on-query"):
        raise InvalidInput(f"property {MODE}={mode!r} is neither 'auto' nor 'on-query'")
    rules = msgspec.convert({_FIELDS[name]: _number(name, value) for name, value in given.items()}, SnapshotRules)
    if mode == "on-query":
        return SnapshotRules()
    return rules or default or rules


def _number(name: str, text: str) -> float:
    try:
        value = float(text) if name == EVERY_SECONDS else int(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InvalidInput(f"property {name}={text!r} is no number greater than 0")
    return value
