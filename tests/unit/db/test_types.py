"""Column types mean the same on both databases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.dialects import postgresql, sqlite

from lakeward.db.types import Flag, Json, UtcTime, time_text

SQLITE: Any = sqlite.dialect()
POSTGRESQL: Any = postgresql.dialect()  # type: ignore[no-untyped-call]
TIMES = st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 30), timezones=st.just(UTC))


@given(TIMES)
def test_a_time_comes_back_from_its_text(time: datetime) -> None:
    assert UtcTime().process_result_value(time_text(time), SQLITE) == time


@given(TIMES, TIMES)
def test_the_order_of_texts_is_the_order_of_times(one: datetime, other: datetime) -> None:
    assert (time_text(one) < time_text(other)) == (one < other)


def test_a_time_of_another_zone_is_kept_in_utc() -> None:
    abroad = datetime(2026, 1, 2, 3, 4, 5, 6, timezone(timedelta(hours=2)))
    assert time_text(abroad) == "2026-01-02T01:04:05.000006Z"
    back = UtcTime().process_result_value(abroad, POSTGRESQL)
    assert back == abroad
    assert back.tzinfo is UTC


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRESQL], ids=["sqlite", "postgresql"])
def test_a_time_without_a_zone_is_refused(dialect: Any) -> None:
    with pytest.raises(ValueError, match="no time zone"):
        UtcTime().process_bind_param(datetime(2026, 1, 2), dialect)


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(), st.lists))
def test_a_document_comes_back(document: Any) -> None:
    if document is not None:  # no document is no text
        assert Json().process_result_value(Json().process_bind_param(document, SQLITE), SQLITE) == document


def test_a_flag_is_a_number_on_sqlite_alone() -> None:
    assert Flag().process_bind_param(True, SQLITE) == 1
    assert Flag().process_bind_param(True, POSTGRESQL) is True
    assert Flag().process_result_value(0, SQLITE) is False
