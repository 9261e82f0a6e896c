"""Workers: steps in their times, woken, tried again, stopped; and what is done once."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from lakeward.background import Worker, begin
from lakeward.errors import LeaseHeld
from lakeward.retry import RetryConfig, steady, tried
from tests.support.waiting import until


class Steps:
    """Counts steps, and answers each as it is told."""

    def __init__(self, *answers: float | Exception | None) -> None:
        self.answers = list(answers)
        self.count = 0

    def __call__(self) -> float | None:
        self.count += 1
        answer = self.answers.pop(0) if self.answers else math.inf
        if isinstance(answer, Exception):
            raise answer
        return answer


class Holding(Steps):
    """A step that is under way until it may end."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.may_end = threading.Event(), threading.Event()

    def __call__(self) -> float | None:
        self.entered.set()
        self.may_end.wait(10)
        return super().__call__()


def awake(step: Callable[[], float | None], name: str = "test", **options: Any) -> Worker:
    worker = Worker(name, step, **options)
    worker.wake()
    return worker


def test_a_step_is_done_again_in_the_seconds_that_it_gives_and_not_before_it_is_woken() -> None:
    steps = Steps(0.01, 0.01)
    worker = awake(steps)
    until(lambda: steps.count == 3)
    time.sleep(0.05)
    assert steps.count == 3
    worker.wake()
    until(lambda: steps.count == 4)
    assert worker.stop(10)


def test_the_soonest_wake_counts() -> None:
    steps = Steps()
    worker = Worker("test", steps)
    worker.wake(3_600)
    worker.wake(0.01)
    worker.wake(3_600)
    until(lambda: steps.count == 1)
    assert worker.stop(10)


def test_what_is_woken_within_a_step_is_done_once_more() -> None:
    steps = Holding()
    worker = awake(steps)
    assert steps.entered.wait(10)
    worker.wake()
    worker.wake()
    steps.may_end.set()
    until(lambda: steps.count == 2)
    assert worker.stop(10)
    assert steps.count == 2


def test_without_more_to_do_the_thread_ends_and_a_wake_starts_another() -> None:
    steps = Steps(None, None)
    worker = awake(steps, linger=0.02)
    until(lambda: steps.count == 1 and not worker.is_alive)
    worker.wake()
    until(lambda: steps.count == 2)
    assert worker.is_alive, "it lingers"
    until(lambda: not worker.is_alive)


def test_what_a_step_raises_is_told_and_tried_again_after_growing_waits_until_it_goes_well() -> None:
    told: list[str] = []
    steps = Steps(ValueError("once"), LeaseHeld("twice"))
    retry = RetryConfig(initial_delay=0.01, max_delay=0.02)
    worker = awake(steps, retry=retry, failed=lambda error: told.append(str(error)))
    until(lambda: steps.count == 3)
    assert told == ["once", "twice"]
    assert worker.stop(10)


def test_by_itself_a_failure_is_logged_under_the_name_of_the_work() -> None:
    steps = Steps(LeaseHeld("others have it"))
    with capture_logs() as logs:
        worker = awake(steps, "lakeward-upkeep", retry=steady(0.01))
        until(lambda: steps.count == 2)
        assert worker.stop(10)
    assert [(each["event"], each["work"], each["code"]) for each in logs] == [
        ("background_failed", "upkeep", "lease_held")
    ]


def test_a_stop_waits_for_the_step_in_hand_and_nothing_starts_it_again() -> None:
    steps = Holding()
    worker = awake(steps)
    assert steps.entered.wait(10)
    assert not worker.stop(0.01), "the step is under way"
    steps.may_end.set()
    assert worker.stop(10)
    worker.wake()
    assert not worker.is_alive
    assert steps.count == 1


def test_a_step_may_stop_its_own_worker() -> None:
    stopped: list[bool] = []

    def step() -> float:
        stopped.append(worker.stop())
        return 0.0

    worker = awake(step)
    until(lambda: stopped == [True] and not worker.is_alive)


def test_several_threads_do_the_step_at_once_and_each_is_woken() -> None:
    together = threading.Barrier(3)

    def step() -> float:
        together.wait(10)
        return math.inf

    worker = Worker("lakeward-test", step, threads=2)
    for _ in range(2):
        worker.wake()
        together.wait(10)
    names = {each.name for each in threading.enumerate()}
    assert {"lakeward-test-0", "lakeward-test-1"} <= names
    assert worker.stop(10)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_step_that_ends_its_thread_leaves_a_worker_that_is_not_alive() -> None:
    threads: list[threading.Thread] = []

    def step() -> float:
        threads.append(threading.current_thread())
        raise SystemExit

    worker = awake(step)
    until(lambda: not worker.is_alive)
    threads[0].join(10)  # what it raised is told only then, which is to be in this test


def test_what_is_begun_gives_its_result_or_raises() -> None:
    assert begin("test", lambda: 7).result(10) == 7
    with pytest.raises(ZeroDivisionError):
        begin("test", lambda: 1 // 0).result(10)


def test_what_is_tried_ends_with_its_tries_or_its_time_and_raises_what_came_last() -> None:
    tries: list[int] = []

    def action() -> int:
        tries.append(len(tries))
        if len(tries) < 3:
            raise LeaseHeld(f"{len(tries)}")
        return len(tries)

    assert tried(action, LeaseHeld, RetryConfig(2, 0.001)) == 3
    tries.clear()
    with pytest.raises(LeaseHeld, match="2"):
        tried(action, LeaseHeld, RetryConfig(1, 0.001))
    tries.clear()
    with pytest.raises(LeaseHeld, match="1"):
        tried(action, LeaseHeld, steady(0.001), seconds=0)
    tries.clear()
    with pytest.raises(LeaseHeld, match="1"):
        tried(action, LeaseHeld, steady(0.001), sleep=lambda _: True)
    tries.clear()
    with pytest.raises(LeaseHeld, match="1"):
        tried(action, ValueError, steady(0.001))
