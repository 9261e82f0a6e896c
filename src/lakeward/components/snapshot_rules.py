"""When a table's pending files become a snapshot by themselves: properties of the table, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lakeward.tables.records.properties import (
    SNAPSHOT_BYTES,
    SNAPSHOT_FILES,
    SNAPSHOT_MODE,
    SNAPSHOT_ROWS,
    SNAPSHOT_SECONDS,
)


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
        InvalidInput: a property has a value that it cannot have.
    """
    mode = SNAPSHOT_MODE.of(properties)
    rules = SnapshotRules(
        seconds=SNAPSHOT_SECONDS.of(properties),
        files=SNAPSHOT_FILES.of(properties),
        bytes=SNAPSHOT_BYTES.of(properties),
        rows=SNAPSHOT_ROWS.of(properties),
    )
    if mode == "on-query":
        return SnapshotRules()
    return rules or default or rules
