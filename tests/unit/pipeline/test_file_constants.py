"""Files are told apart by a checksum of their names, and found by a perfect hash of it."""

from __future__ import annotations

import random
import zlib

from hypothesis import given
from hypothesis import strategies as st

from lakeward.pipeline.file_constants import _perfect_hash, told_apart


def same_checksum() -> tuple[str, str]:
    seen: dict[int, str] = {}
    chance = random.Random(1)  # numbers in turn differ by too little to meet soon
    while True:
        name = f"file:/{chance.getrandbits(64):x}.parquet"
        other = seen.setdefault(zlib.crc32(name.encode()), name)
        if other != name:
            return other, name


def test_names_of_one_checksum_come_into_different_groups() -> None:
    first, second = same_checksum()
    assert told_apart([first, "a", "b"]) == [[first, "a", "b"]]
    assert told_apart([first, "a", second, "b"]) == [[first, "a", "b"], [second]]


@given(st.sets(st.integers(0, 2**32 - 1), min_size=1, max_size=300))
def test_each_key_has_a_slot_of_its_own(keys: set[int]) -> None:
    starts, sizes, slots = _perfect_hash(sorted(keys))
    for key in keys:
        bucket = key % len(starts)
        assert slots[starts[bucket] + key % sizes[bucket]] == key
    assert len(slots) - slots.count(None) == len(keys)
