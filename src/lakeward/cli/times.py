"""Times and ages as they are typed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lakeward.errors import InvalidInput

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_age(text: str) -> timedelta:
    """'7d', '12h', '30m', '90s' -> a timedelta. Raises InvalidInput."""
    unit, number = _UNITS.get(text[-1:]), text[:-1]
    if unit is None or not (number.isascii() and number.isdecimal()) or len(number) > 7:
        raise InvalidInput(f"{text!r} is no age; write a number and s, m, h or d, such as 7d")
    return timedelta(**{unit: int(number)})


def parse_time(text: str) -> datetime | timedelta:
    """An age as above, or '2026-01-02T03:04:05Z'. Raises InvalidInput."""
    if text[-1:] in _UNITS:
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
