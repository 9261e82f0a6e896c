"""What becomes of rows that break a table's schema: properties of the table, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lakeward.tables.records.properties import INVALID_ROWS, INVALID_ROWS_MAX, REDACTED_COLUMNS


class InvalidRowsRule(msgspec.Struct, frozen=True):
    """`max`: rows of one write that may go to the dead letters; 0 where all are refused."""

    max: int = 0
    redacted: tuple[str, ...] = ()

    @property
    def keeps(self) -> bool:
        return self.max > 0


def rule_of(properties: Mapping[str, str | None]) -> InvalidRowsRule:
    """A table's rule.

    Raises:
        InvalidInput: a property has a value that it cannot have.
    """
    most = INVALID_ROWS_MAX.of(properties)
    keeps = INVALID_ROWS.of(properties) == "dead-letter"
    return InvalidRowsRule(most if keeps else 0, REDACTED_COLUMNS.of(properties))
