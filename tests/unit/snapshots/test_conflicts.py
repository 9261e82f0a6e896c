from __future__ import annotations

import threading

import pytest

from lakeward.snapshots.conflicts import FairLock
from tests.support.waiting import until


def test_a_fair_lock_is_given_in_the_order_in_which_it_was_asked_for() -> None:
    lock, order = FairLock(), list[int]()

    def take(number: int) -> None:
        with lock:
            order.append(number)

    threads = []
    with lock:
        for number in range(8):
            thread = threading.Thread(target=take, args=(number,))
            thread.start()
            until(lambda asked=number + 1: len(lock._waiting) == asked)  # type: ignore[misc]
            threads.append(thread)
    for thread in threads:
        thread.join()
    assert order == list(range(8))


def test_who_asks_again_at_once_lets_the_one_who_waits_go_first() -> None:
    lock, order = FairLock(), list[str]()

    def take() -> None:
        with lock:
            order.append("waiting")

    thread = threading.Thread(target=take)
    with lock:
        thread.start()
        until(lambda: len(lock._waiting) == 1)
    with lock:
        order.append("again")
    thread.join()
    assert order == ["waiting", "again"]


def test_who_is_interrupted_while_waiting_leaves_the_queue_and_the_lock_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock = FairLock()
    plain = threading.Lock

    class Interrupted:
        """A lock whose second acquisition, the wait, is interrupted as Ctrl-C does it."""

        def __init__(self) -> None:
            self._lock = plain()

        def acquire(self) -> None:
            if self._lock.locked():
                raise KeyboardInterrupt
            self._lock.acquire()

        def release(self) -> None:
            self._lock.release()

    with lock:
        monkeypatch.setattr(threading, "Lock", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            lock.__enter__()
        monkeypatch.undo()
    done = threading.Event()

    def take() -> None:
        with lock:
            done.set()

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    assert done.wait(30)
