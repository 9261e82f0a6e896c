"""The properties that say when pending files become a snapshot."""

from __future__ import annotations

import pytest

from lakeward.components.snapshot_rules import SnapshotRules, rules_of
from lakeward.errors import InvalidInput

DEFAULT = SnapshotRules(seconds=60)


def test_a_table_without_rules_has_the_default_ones() -> None:
    assert rules_of({"owner": "me"}) == SnapshotRules()
    assert not rules_of({})
    assert rules_of({"owner": "me"}, DEFAULT) == DEFAULT


def test_a_tables_own_rules_replace_the_default_ones() -> None:
    properties = {"lakeward.snapshot.every-rows": "1000", "lakeward.snapshot.every-seconds": "0.5"}
    assert rules_of(properties, DEFAULT) == SnapshotRules(seconds=0.5, rows=1000)
    assert rules_of({"lakeward.snapshot.every-files": "3", "lakeward.snapshot.every-bytes": "9"}) == SnapshotRules(
        files=3, bytes=9
    )


def test_on_query_switches_every_rule_off() -> None:
    properties = {"lakeward.snapshot.mode": "on-query", "lakeward.snapshot.every-files": "3"}
    assert rules_of(properties, DEFAULT) == SnapshotRules()
    assert rules_of({"lakeward.snapshot.mode": "auto"}, DEFAULT) == DEFAULT


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("every-seconds", "0"),
        ("every-seconds", "nan"),
        ("every-seconds", "inf"),
        ("every-files", "1.5"),
        ("every-rows", "-1"),
        ("every-bytes", "1 GB"),
        ("mode", "sometimes"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=f"lakeward.snapshot.{name}"):
        rules_of({f"lakeward.snapshot.{name}": value})


def test_any_limit_that_is_reached_is_enough() -> None:
    rules = SnapshotRules(files=2, rows=10)
    assert not rules.is_reached_by(1, 10**9, 9)
    assert rules.is_reached_by(2, 0, 0)
    assert rules.is_reached_by(1, 0, 10)
