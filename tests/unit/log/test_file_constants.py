"""Files are told apart by a checksum of their names, and found by a perfect hash of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakeward.log.file_constants import _perfect_hash, told_apart
from tests.support.checksums import of_one_checksum


def test_names_of_one_checksum_come_into_different_groups() -> None:
    first, second = of_one_checksum()
    assert told_apart([first, "a", "b"]) == [[first, "a", "b"]]
    assert told_apart([first, "a", second, "b"]) == [[first, "a", "b"], [second]]


@given(st.sets(st.integers(0, 2**32 - 1), min_size=1, max_size=300))
def test_each_key_has_a_slot_of_its_own(keys: set[int]) -> None:
    starts, sizes, slots = _perfect_hash(sorted(keys))
    for key in keys:
        bucket = key % len(starts)
        assert slots[starts[bucket] + key % sizes[bucket]] == key
    assert len(slots) - slots.count(None) == len(keys)
