"""What becomes of rows that break a table's schema: properties of the table, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lakeward.errors import InvalidInput

POLICY = "lakeward.invalid-rows"  # refuse: the whole write; dead-letter: those rows go to the dead letters
MAX = "lakeward.invalid-rows.max"  # rows of one write; with more of them it is refused
REDACTED = "lakeward.redact-columns"  # names, by comma, whose values dead letters do not hold
DEFAULT_MAX = 1_000


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
        InvalidInput: a property has a value that it cannot have, or a name that none has.
    """
    for name, value in properties.items():
        if name.startswith(f"{POLICY}.") and name != MAX and value is not None:
            raise InvalidInput(f"{name!r} is no property of invalid rows; there are {POLICY} and {MAX}")
    policy, most = properties.get(POLICY) or "refuse", properties.get(MAX) or str(DEFAULT_MAX)
    if policy not in ("refuse", "dead-letter"):
        raise InvalidInput(f"property {POLICY}={policy!r} is neither 'refuse' nor 'dead-letter'")
    if not (most.isascii() and most.isdecimal() and len(most) < 19 and int(most) > 0):
        raise InvalidInput(f"property {MAX}={most!r} is no whole number of 1 or more")
    names = tuple(name.strip() for name in (properties.get(REDACTED) or "").split(",") if name.strip())
    return InvalidRowsRule(int(most) if policy == "dead-letter" else 0, names)
