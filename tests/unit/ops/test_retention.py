"""The hours of the day in which the background may clean up."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lakeward.errors import InvalidInput
from lakeward.ops.retention import schedule


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        (None, set(range(24))),
        ("02:00-05:00", {2, 3, 4}),
        ("2-5", {2, 3, 4}),
        ("22-2", {22, 23, 0, 1}),
        ("22-24", {22, 23}),
        ("1-2, 13:30-15", {1, 14}),
    ],
)
def test_a_schedule_allows_the_hours_that_it_names(text: str | None, hours: set[int]) -> None:
    allowed = schedule(text)
    assert {hour for hour in range(24) if allowed.allows(datetime(2026, 1, 2, hour, tzinfo=UTC))} == hours


@pytest.mark.parametrize("text", ["", "night", "25-3", "2", "2:70-3", "0 2 * * *"])
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is no span of hours"):
        schedule(text)
