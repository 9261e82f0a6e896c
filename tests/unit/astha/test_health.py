from __future__ import annotations

import threading

from lakeward.astha.health import Breaker, Probe
from tests.support.waiting import until


def test_a_probe_says_what_is_wrong() -> None:
    def raises() -> bool:
        raise ValueError("broken")

    def ends() -> bool:
        raise SystemExit(3)

    assert Probe("c", lambda: True, 5.0).check() is None
    assert Probe("c", lambda: None, 5.0).check() is None, "nothing is said against it"
    assert "does not work" in (Probe("c", lambda: False, 5.0).check() or "")
    assert "ValueError: broken" in (Probe("c", raises, 5.0).check() or "")
    assert "SystemExit: 3" in (Probe("c", ends, 5.0).check() or "")


def test_a_probe_of_one_that_hangs_gives_up_and_asks_no_second_time_meanwhile() -> None:
    go, asked = threading.Event(), []

    def hangs() -> bool:
        asked.append(1)
        return go.wait(30)

    probe = Probe("c", hangs, 0.01)
    assert "did not return within 0.01 s" in (probe.check() or "")
    assert "has not returned yet" in (probe.check() or "")
    assert asked == [1] and probe.answered_at is None
    go.set()
    until(lambda: probe.check() is None)
    assert probe.answered_at is not None


def test_a_breaker_is_closed_at_first_opens_and_stays_open_for_its_time() -> None:
    breaker = Breaker(open_seconds=1000.0)
    assert breaker.is_closed and not breaker.try_half_open()
    breaker.open("why")
    assert (breaker.state, breaker.reason) == ("open", "why")
    assert not breaker.try_half_open() and breaker.state == "open"


def test_a_breaker_whose_time_has_passed_allows_one_probe() -> None:
    breaker = Breaker(open_seconds=0.001)
    breaker.open("why")
    until(breaker.try_half_open)
    assert breaker.state == "half_open" and not breaker.try_half_open()
    breaker.close()
    assert breaker.is_closed and breaker.reason is None


def test_a_probe_that_fails_opens_the_breaker_for_its_whole_time_again() -> None:
    breaker = Breaker(open_seconds=0.001)
    breaker.open("first")
    until(breaker.try_half_open)
    breaker._open_seconds = 1000.0
    breaker.open("again")
    assert not breaker.try_half_open() and breaker.reason == "again"
