from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.astha import AsthaConfig, RetryConfig
from lakeward.astha.reasons import MAX_CHARACTERS, reason
from lakeward.errors import InvalidSetting


def config(**changes: Any) -> AsthaConfig:
    return AsthaConfig(**changes)


def test_waits_double_from_100_ms_up_to_5_s() -> None:
    retry = RetryConfig(jitter=0.0)
    assert [retry.delay(failures) for failures in range(1, 9)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert retry.max_retries == 30


@given(st.integers(1, 10**9), st.floats(0.001, 5), st.floats(1, 100), st.floats(0, 1))
def test_a_wait_is_within_its_bounds_however_often_it_failed(
    failures: int, initial: float, factor: float, jitter: float
) -> None:
    retry = RetryConfig(initial_delay=initial, backoff_factor=factor, jitter=jitter)
    assert initial <= retry.delay(failures) <= 5.0 * (1 + jitter) + 1e-9


@pytest.mark.parametrize(
    "changes",
    [
        {"max_retries": -1},
        {"initial_delay": 0},
        {"initial_delay": 6.0},
        {"backoff_factor": 0.5},
        {"jitter": 1.5},
        {"jitter": -0.1},
    ],
)
def test_a_retry_setting_that_makes_no_sense_is_refused_by_name(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match=next(iter(changes))):
        RetryConfig(**changes)


@pytest.mark.parametrize("name", ["batch_size", "queue_limit", "workers", "max_failures"])
def test_a_count_below_one_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidSetting, match=f"{name} 0 is no"):
        config(**{name: 0})


def test_numbers_of_numpy_are_numbers() -> None:
    retry = RetryConfig(np.int64(3), np.float64(0.5), np.float32(1.0), np.float64(3.0), np.float64(0.5))  # type: ignore[arg-type]
    assert 0.5 <= retry.delay(1) <= 0.75
    assert config(batch_size=np.int64(5), lease_seconds=np.float64(2.0)).batch_size == 5


@pytest.mark.parametrize(
    "changes", [{"name": ""}, {"name": 5}, {"batch_size": "10"}, {"lease_seconds": "10"}, {"workers": None}]
)
def test_a_setting_of_another_type_is_refused_by_name(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match=next(iter(changes))):
        config(**changes)


@pytest.mark.parametrize("name", ["poll_interval", "event_timeout", "drain_timeout", "lease_seconds", "stale_after"])
def test_a_time_that_is_none_is_refused_by_name(name: str) -> None:
    for value in (0, -1.0, float("nan")):
        with pytest.raises(InvalidSetting, match=name):
            config(**{name: value})


def test_a_fixed_subscription_cannot_be_changed() -> None:
    with pytest.raises(InvalidSetting, match="'compactor' are fixed"):
        AsthaConfig(subscriptions={"compactor": ("tables",)})


@pytest.mark.parametrize("tables", [(), ("tables", "topics")])
def test_a_subscription_of_ones_own_is_to_watched_tables(tables: tuple[str, ...]) -> None:
    with pytest.raises(InvalidSetting, match="'mine' has"):
        AsthaConfig(subscriptions={"mine": tables})


def test_what_an_error_says_can_be_kept_by_any_database() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert reason(ValueError("no")) == "ValueError: no"
    assert reason(ValueError("a\x00b\udc80c")) == "ValueError: a\\x00b\\udc80c"
    assert "Mute" in reason(Mute())
    assert len(reason(ValueError("x" * 10**6))) < MAX_CHARACTERS + 100
