"""Times and ages as they are typed."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from lakeward.errors import InvalidInput

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}  # in milliseconds
_DURATION = re.compile(r"([0-9]{1,18})\s?(ms|s|m|h|d)")


def parse_milliseconds(text: str) -> int:
    """'7d', '12h', '30m', '90s', '500ms' -> milliseconds. Raises InvalidInput."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise InvalidInput(f"{text!r} is no duration; write a number and ms, s, m, h or d, such as 7d")
    return int(match[1]) * _UNITS[match[2]]


def duration_text(milliseconds: int) -> str:
    """The same in the largest unit that gives a whole number."""
    unit = next(
        name
        for name in ("d", "h", "m", "s", "ms")
        if (milliseconds % _UNITS[name] == 0 and milliseconds) or name == "ms"
    )
    return f"{milliseconds // _UNITS[unit]}{unit}"


def parse_age(text: str) -> timedelta:
    """As above, as a timedelta. Raises InvalidInput."""
    try:
        return timedelta(milliseconds=parse_milliseconds(text))
    except OverflowError:
        raise InvalidInput(f"{text!r} is longer than a million days; write a shorter age") from None


def parse_time(text: str) -> datetime | timedelta:
    """An age as above, or '2026-01-02T03:04:05Z'. Raises InvalidInput."""
    if _DURATION.fullmatch(text):
        return parse_age(text)
    try:
        return with_zone(datetime.fromisoformat(text), repr(text))
    except ValueError:
        raise InvalidInput(f"{text!r} is neither an age such as 7d nor a time such as 2026-01-02T03:04:05Z") from None


def point_in_time(text: str | None) -> datetime | None:
    """As `parse_time`; an age is so long ago. Raises InvalidInput."""
    found = None if text is None else parse_time(text)
    try:
        return datetime.now(UTC) - found if isinstance(found, timedelta) else found
    except OverflowError:
        raise InvalidInput(f"{text!r} ago is before the year 1; write a shorter age") from None


def with_zone(time: datetime, shown: str) -> datetime:
    """The time, if it says its zone. `shown`: how it was given. Raises InvalidInput: it does not."""
    if time.tzinfo is None:
        raise InvalidInput(f"{shown} has no zone; write {time.isoformat()}Z or {time.isoformat()}+01:00")
    return time
