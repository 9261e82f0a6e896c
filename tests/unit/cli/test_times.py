"""Times as they are typed: what an error advises is taken."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

import lakeward
from lakeward.cli.groups import _offsets
from lakeward.cli.times import parse_time, point_in_time
from lakeward.errors import InvalidInput

TEXTS = ["2026-01-01", "20260101", "2026-01-01T03", "2026-01-01 03:04", "2026-W01-1", "2026-01-01T03:04:05.000006"]


def advised(error: InvalidInput) -> list[str]:
    found = re.search(r"has no zone; write (\S+) or (\S+)$", str(error))
    assert found is not None, str(error)
    return list(found.groups())


@pytest.mark.parametrize("text", TEXTS)
def test_a_time_without_a_zone_is_refused_with_one_that_is_taken(text: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(repr(text))) as caught:
        parse_time(text)
    utc, ahead = (cast(datetime, parse_time(each)) for each in advised(caught.value))
    assert utc.replace(tzinfo=None) == ahead.replace(tzinfo=None) == datetime.fromisoformat(text)
    assert (utc - ahead).total_seconds() == 3600


@pytest.mark.parametrize("text", TEXTS)
def test_a_time_that_chooses_records_says_its_zone_too(text: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(repr(text))) as caught:
        point_in_time(text)
    utc, ahead = (cast(datetime, point_in_time(each)) for each in advised(caught.value))
    assert (utc - ahead).total_seconds() == 3600


def test_an_age_is_so_long_ago() -> None:
    before = datetime.now(UTC)
    found = cast(datetime, point_in_time("90m"))
    assert before <= found + timedelta(minutes=90) <= datetime.now(UTC)
    for text in ("9999999d", "soon", "-1h", "1.5h"):
        with pytest.raises(InvalidInput, match=re.escape(repr(text))):
            point_in_time(text)


def test_an_offset_by_time_without_a_zone_is_refused_with_one_that_is_taken(tmp_path: Path) -> None:
    with lakeward.connect(tmp_path / "registry.db", tmp_path / "warehouse") as lake:
        topic = lakeward.MetadataStore(lake).create_topic(lakeward.TopicConfig("orders", partition_count=1))
        with pytest.raises(InvalidInput, match="--to '2026-01-01'") as caught:
            _offsets(lake, topic, {0: (0, 0)}, "2026-01-01")
        for each in advised(caught.value):
            assert _offsets(lake, topic, {0: (0, 0)}, each) == {0: 0}
