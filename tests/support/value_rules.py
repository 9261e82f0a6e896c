"""The table of docs/reference/values.md, read so that tests can try each of its lines by each way in."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "values.md"
_LINE = re.compile(r"\| `(?P<type>[^`]+)` \| `(?P<value>[^`]+)` \| (?:`(?P<becomes>[^`]+)`|(?P<refused>refused)) \|")
_NAMES = {
    "Decimal": Decimal,
    "date": date,
    "datetime": datetime,
    "time": time,
    "UTC": UTC,
    "UUID": UUID,
    "float": float,
}


class ValueRule(NamedTuple):
    type: str
    text: str  # of the value, as Python writes it
    value: Any
    becomes: Any
    is_refused: bool

    @property
    def is_in_json(self) -> bool:
        """Whether JSON can express the value as it stands."""
        return _is_plain(self.value)

    @property
    def is_in_csv(self) -> bool:
        """Whether a field of CSV can: a text is given as it is, a number is the text of it, and a column of texts takes both."""
        plain = isinstance(self.value, (str, int, float)) and not isinstance(self.value, bool)
        return plain and (isinstance(self.value, str) or self.type not in ("string", "binary", "fixed[2]"))


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, dict)):
        return all(map(_is_plain, value.values() if isinstance(value, dict) else value))
    return value is None or isinstance(value, (str, int, bool)) or (isinstance(value, float) and math.isfinite(value))


def value_rules() -> list[ValueRule]:
    rules = []
    for line in PAGE.read_text().splitlines():
        if match := _LINE.fullmatch(line):
            value, becomes = (
                None if text is None else eval(text, dict(_NAMES)) for text in match.group("value", "becomes")
            )
            rules.append(ValueRule(match["type"], match["value"], value, becomes, match["refused"] is not None))
    return rules


def arrow_array(value: Any) -> pa.Array | None:
    """The value as a column of Arrow's own type for it; none where Arrow has no column of such values."""
    if isinstance(value, UUID):
        return pa.ExtensionArray.from_storage(pa.uuid(), pa.array([value.bytes], pa.binary(16)))
    try:
        return pa.array([value])
    except pa.ArrowException:
        return None
