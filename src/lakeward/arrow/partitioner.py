"""Which partition of a topic a key belongs to: Kafka's murmur2, so that a key lands where a Kafka client would put it.

Source of the rule: org.apache.kafka.common.utils.Utils.murmur2 and BuiltInPartitioner.partitionForKey:
`(murmur2(key) & 0x7fffffff) % partitions`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_R = np.uint32(24)


def partitions_of(keys: pa.Array | pa.ChunkedArray, count: int) -> pa.Array:
    """The partition (int32, 0 to count - 1) of each key (binary or string, as UTF-8); null where the key is null."""
    array = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    if isinstance(array, pa.ChunkedArray):  # too large for one array
        return pa.concat_arrays([partitions_of(chunk, count) for chunk in array.chunks])
    array = array.cast(pa.large_binary())
    hashed = murmur2(array)
    found = (hashed & np.uint32(0x7FFFFFFF)) % np.uint32(count)
    mask = None if not array.null_count else np.asarray(array.is_null())
    return pa.array(found.astype(np.int32), mask=mask)


def murmur2(keys: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """The hash of each key of a large_binary array, as uint32; of nulls, that of an empty key.

    All keys at once, four bytes of each at a time: what is left to do shrinks as the shorter keys end.
    """
    offsets = np.frombuffer(keys.buffers()[1], np.int64)[keys.offset : keys.offset + len(keys) + 1]
    starts, lengths = offsets[:-1], np.diff(offsets)
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    data = np.concatenate([data, np.zeros(4, np.uint8)])  # so that the last word may be read whole
    hashes = _SEED ^ lengths.astype(np.uint32)
    words = lengths // 4
    with np.errstate(over="ignore"):
        for word in range(int(words.max(initial=0))):
            still = np.flatnonzero(words > word)
            k = _word(data, starts[still] + 4 * word) * _M
            k ^= k >> _R
            hashes[still] = (hashes[still] * _M) ^ (k * _M)
        left = lengths % 4
        some = np.flatnonzero(left)
        if len(some):
            rest = _word(data, starts[some] + 4 * words[some])
            kept = np.uint32(0xFFFFFFFF) >> ((4 - left[some]) * 8).astype(np.uint32)
            hashes[some] = (hashes[some] ^ (rest & kept)) * _M
        hashes ^= hashes >> np.uint32(13)
        hashes *= _M
        hashes ^= hashes >> np.uint32(15)
    return hashes


def _word(
    data: np.ndarray[tuple[int], np.dtype[np.uint8]], at: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """Four bytes from each position, little end first."""
    word = data[at].astype(np.uint32)
    for byte in (1, 2, 3):
        word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word
