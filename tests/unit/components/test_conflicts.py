from __future__ import annotations

import random
import time
from types import SimpleNamespace
from typing import Any

import pytest

from lakeward.components.conflicts import conflict_tries, moved_on
from lakeward.registry.snapshots import Conflict

TABLE: Any = SimpleNamespace(identifier="a.b")


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The longest that each wait might have been, in place of the wait."""
    found: list[float] = []
    monkeypatch.setattr(random, "uniform", lambda _, longest: longest)
    monkeypatch.setattr(time, "sleep", found.append)
    return found


def test_conflicts_end_when_all_tries_are_made_and_waits_grow_but_for_one_after_the_last(waits: list[float]) -> None:
    numbers = []
    for attempt in conflict_tries("lost", TABLE, 3, 0.5):
        numbers.append(attempt.number)
        with attempt:
            raise Conflict("others were quicker")
    assert (numbers, waits) == ([0, 1, 2], [0.5, 1.0])


def test_what_is_left_in_the_block_is_the_last_try(waits: list[float]) -> None:
    def commit() -> int:
        for attempt in conflict_tries("lost", TABLE):
            with attempt:
                if attempt.number < 2:
                    raise Conflict("others were quicker")
                return attempt.number
        raise moved_on(TABLE, "commit")

    assert commit() == 2 and len(waits) == 2


def test_a_try_that_was_not_entered_or_met_no_conflict_costs_no_wait_and_only_the_latter_counts(
    waits: list[float],
) -> None:
    looks, numbers = 0, []
    for attempt in conflict_tries("lost", TABLE, 2):
        looks += 1
        if looks <= 5:
            continue
        with attempt:
            numbers.append(attempt.number)
    assert (looks, numbers, waits) == (7, [0, 1], [])


def test_any_other_error_goes_through(waits: list[float]) -> None:
    with pytest.raises(OSError, match="full"):
        for attempt in conflict_tries("lost", TABLE):
            with attempt:
                raise OSError("full")
    assert waits == []
