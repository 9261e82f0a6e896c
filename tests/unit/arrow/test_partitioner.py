"""A key lands where a Kafka client would put it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.arrow.partitioner import murmur2, partitions_of

# From Kafka's own tests (UtilsTest.testMurmur2).
KAFKA = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


def reference(data: bytes) -> int:
    """Utils.murmur2, step by step."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    for i in range(len(data) // 4):
        k = int.from_bytes(data[4 * i : 4 * i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    rest = data[len(data) & ~3 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


@pytest.mark.parametrize("text", KAFKA)
def test_the_hash_is_kafkas(text: str) -> None:
    assert int(murmur2(pa.array([text.encode()], pa.large_binary()))[0]) == KAFKA[text] & 0xFFFFFFFF


@given(st.lists(st.binary(max_size=50), max_size=50), st.integers(1, 40))
def test_many_keys_at_once_are_hashed_as_one_by_one(keys: list[bytes], count: int) -> None:
    expected = [(reference(key) & 0x7FFFFFFF) % count for key in keys]
    assert partitions_of(pa.array(keys, pa.binary()), count).to_pylist() == expected


def test_keys_may_be_texts_slices_chunks_and_nulls() -> None:
    keys = pa.array(["x", "a", None, "foobar", ""], pa.string())
    expected = [(reference(b"a") & 0x7FFFFFFF) % 7, None, (reference(b"foobar") & 0x7FFFFFFF) % 7]
    assert partitions_of(keys.slice(1, 3), 7).to_pylist() == expected
    assert partitions_of(pa.chunked_array([keys.slice(1, 1), keys.slice(2, 2)]), 7).to_pylist() == expected
    assert partitions_of(pa.array([], pa.binary()), 7).to_pylist() == []
