"""Rows split by partition."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from lakeward.pipeline.splitting import split, terms

SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "price", "type": "decimal(9, 2)", "required": False}]}


@pytest.mark.parametrize("transform", ["bucket[3]", "truncate[100]"])
def test_decimals_that_came_over_the_wire_may_begin_anywhere(transform: str) -> None:
    prices = pa.array([Decimal(number) / 4 for number in range(7)], pa.decimal128(9, 2))
    memory = pa.allocate_buffer(8 + prices.buffers()[1].size)
    buffer = pa.py_buffer(memory).slice(8)
    with pa.FixedSizeBufferWriter(memory) as writer:
        writer.write(bytes(8))
        writer.write(prices.buffers()[1])
    shifted = pa.Array.from_buffers(prices.type, len(prices), [None, buffer])
    assert shifted.equals(prices)
    assert shifted.buffers()[1].address % 16 == 8
    spec = [{"source-id": 1, "field-id": 1000, "name": "p", "transform": transform}]
    expected, found = (
        {
            str(partition): rows.to_pydict()
            for partition, rows in split(pa.record_batch({"price": each}), terms(spec, SCHEMA))
        }
        for each in (prices, shifted)
    )
    assert found == expected
