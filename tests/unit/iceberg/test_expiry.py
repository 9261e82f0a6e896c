"""Which snapshots expire: by branch, by tag, by age and count, by the table's properties."""

from __future__ import annotations

from typing import Any

import pytest

from lakeward.errors import InvalidInput
from lakeward.iceberg import expiry, metadata, refs
from lakeward.tables.records.tables import Document, SnapshotRef

NOW = 1_000_000
DAY = 86_400_000


def document(*parents: int | None, main: int, properties: dict[str, str] | None = None, **named: Any) -> Document:
    """Snapshots 1, 2, ... with these parents, each 100 ms after the one before, the last one now."""
    first = NOW - 100 * (len(parents) - 1)
    snapshots = [
        {"snapshot-id": i, "timestamp-ms": first + 100 * (i - 1)}
        | ({} if parent is None else {"parent-snapshot-id": parent})
        for i, parent in enumerate(parents, 1)
    ]
    result: Document = {
        "snapshots": snapshots,
        "properties": properties or {},
        "current-snapshot-id": main,
        "last-updated-ms": NOW,
        "snapshot-log": [{"snapshot-id": s["snapshot-id"], "timestamp-ms": s["timestamp-ms"]} for s in snapshots],
        "refs": {"main": {"snapshot-id": main, "type": "branch"}},
    }
    for name, ref in named.items():
        result = refs.with_ref(result, SnapshotRef(name=name, **ref))
    return result


def expired(found: Document, before: int | None = NOW + 1, keep: int | None = None) -> tuple[list[int], list[str]]:
    result = expiry.find_expired(found, NOW, older_than_ms=before, keep=keep)
    return [snapshot["snapshot-id"] for snapshot in result.snapshots], result.refs


def test_the_current_snapshot_never_expires() -> None:
    assert expired(document(None, 1, 2, main=3)) == ([1, 2], [])
    assert expired(document(None, main=1)) == ([], [])


def test_age_and_count_both_keep() -> None:
    found = document(None, 1, 2, 3, 4, main=5)
    assert expired(found, before=NOW - 200) == ([1, 2], [])
    assert expired(found, keep=4) == ([1], [])
    assert expired(found, before=NOW - 100, keep=3) == ([1, 2], [])


def test_without_a_time_the_tables_properties_say() -> None:
    age, least = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"
    assert expired(document(None, 1, 2, main=3), before=None) == ([], [])  # five days
    assert expired(document(None, 1, 2, main=3, properties={age: "100"}), before=None) == ([1], [])
    assert expired(document(None, 1, 2, main=3, properties={age: "0", least: "2"}), before=None) == ([1], [])
    assert expired(document(None, 1, 2, main=3, properties={least: "2"}), keep=1) == ([1, 2], [])


@pytest.mark.parametrize("value", ["", "-1", "1.5", "five", "²"])
def test_a_property_that_is_no_number_is_named(value: str) -> None:
    found = document(None, main=1, properties={"history.expire.max-snapshot-age-ms": value})
    with pytest.raises(InvalidInput, match="max-snapshot-age-ms"):
        expired(found, before=None)
    assert expiry.protected(found, NOW) == set()


def test_a_tag_keeps_its_snapshot_and_no_other() -> None:
    found = document(None, 1, 2, 3, main=4, t={"type": "tag", "snapshot_id": 2})
    assert expired(found) == ([1, 3], [])


def test_a_branch_goes_by_its_own_count_and_age() -> None:
    found = document(None, 1, 2, 3, main=4, b={"type": "branch", "snapshot_id": 3, "min_snapshots_to_keep": 2})
    assert expired(found) == ([1], [])
    found = document(None, 1, 2, 3, main=4, b={"type": "branch", "snapshot_id": 3, "max_snapshot_age_ms": 200})
    assert expired(found) == ([1], [])
    found = document(None, 1, 2, main=3, b={"type": "branch", "snapshot_id": 2, "max_snapshot_age_ms": 1})
    assert expired(found, before=0) == ([], [])  # main keeps its own


def test_what_a_rollback_left_goes_by_age_alone() -> None:
    found = document(None, 1, 2, 1, main=4)  # back to 1 after 3
    assert expired(found, before=NOW - 100, keep=9) == ([2], [])
    assert expired(found, keep=9) == ([2, 3], [])


def test_a_name_goes_when_its_snapshot_is_older_than_it_may_be() -> None:
    old = {"type": "tag", "snapshot_id": 1, "max_ref_age_ms": 199}
    found = document(None, 1, 2, main=3, t=old, kept={**old, "max_ref_age_ms": 200})
    assert expired(found, before=0) == ([], ["t"])
    table = {"history.expire.max-ref-age-ms": "199"}
    assert expired(document(None, 1, 2, main=3, properties=table, t=old | {"max_ref_age_ms": None})) == ([1, 2], ["t"])
    assert expired(document(None, main=1, properties={"history.expire.max-ref-age-ms": "0"})) == ([], [])
    lost = {"type": "tag", "snapshot_id": 77}
    assert expired(document(None, main=1, t=lost)) == ([], ["t"])


def test_what_expired_is_taken_out_with_its_names_and_the_log_before_it() -> None:
    found = document(None, 1, 2, main=3, t={"type": "tag", "snapshot_id": 1, "max_ref_age_ms": 1})
    after = expiry.without(found, expiry.find_expired(found, NOW, older_than_ms=NOW + 1))
    assert [s["snapshot-id"] for s in after["snapshots"]] == [3]
    assert list(after["refs"]) == ["main"]
    assert [entry["snapshot-id"] for entry in after["snapshot-log"]] == [3]


def test_only_what_is_asked_for_in_so_many_words_is_protected_from_the_limit() -> None:
    assert expiry.protected(document(None, 1, 2, main=3), NOW) == set()
    least = {"history.expire.min-snapshots-to-keep": "2"}
    assert expiry.protected(document(None, 1, 2, main=3, properties=least), NOW) == {2, 3}
    age = {"history.expire.max-snapshot-age-ms": "200"}
    assert expiry.protected(document(None, 1, 2, 3, main=4, properties=age), NOW) == {2, 3, 4}
    branch = {"type": "branch", "snapshot_id": 2, "min_snapshots_to_keep": 2}
    assert expiry.protected(document(None, 1, 2, main=3, b=branch), NOW) == {1, 2}


def test_main_goes_back_with_a_line_in_the_log_that_is_not_before_the_last() -> None:
    after = metadata.with_main(document(None, 1, main=2), 1, NOW - 50)
    assert after["current-snapshot-id"] == after["refs"]["main"]["snapshot-id"] == 1
    assert after["snapshot-log"][-1] == {"snapshot-id": 1, "timestamp-ms": NOW}
