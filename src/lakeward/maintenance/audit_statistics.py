"""Column statistics under audit: those of partitions against the rows of files, those of files against their footers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from lakeward.tables import bounds
from lakeward.tables.bounds import Order
from lakeward.tables.records.files import FileStatistics, RegisteredFile
from lakeward.tables.records.tables import ColumnStatistics, TableStats

FIELD_ID = b"PARQUET:field_id"


def partition_disagreements(
    stat: TableStats, members: list[RegisteredFile], orders: Mapping[int, Order]
) -> Iterator[str]:
    """What a row of table_stats says of columns that its files do not."""
    merged = bounds.merge({}, (file.statistics for file in members), orders)
    for field_id in sorted(merged.keys() | stat.columns.keys()):
        said, found = stat.columns.get(field_id), merged.get(field_id)
        if said is None or found is None or _values(said, orders, field_id) != _values(found, orders, field_id):
            yield f"column {field_id}: says {said}, the files' rows {found}"


def _values(column: ColumnStatistics, orders: Mapping[int, Order], field_id: int) -> tuple[Any, ...]:
    """Comparable: equal bounds may be written in different widths, once a column has been widened."""
    order = orders.get(field_id, bytes)
    edges = [None if bound is None else order(bound) for bound in (column.lower, column.upper)]
    return (column.value_count, column.null_count, column.nan_count, column.bounded, *edges)


def file_disagreements(
    statistics: FileStatistics, footer: pq.FileMetaData, orders: Mapping[int, Order]
) -> Iterator[str]:
    """What the statistics of a file say of its top-level columns that its footer does not.

    Bounds may be wider than the values, never narrower. Nested columns are passed over: writers count their values in
    different ways.
    """
    for field_id, index in _top_level_columns(footer).items():
        chunks = [footer.row_group(i).column(index) for i in range(footer.num_row_groups)]
        values = sum(chunk.num_values for chunk in chunks)
        if statistics.value_counts.get(field_id, values) != values:
            yield f"column {field_id} has {values} values, registered were {statistics.value_counts[field_id]}"
        known = [chunk.statistics for chunk in chunks if chunk.is_stats_set]
        if len(known) < len(chunks):
            continue
        if all(s.has_null_count for s in known):
            nulls = sum(s.null_count for s in known)
            if statistics.null_counts.get(field_id, nulls) != nulls:
                yield f"column {field_id} has {nulls} nulls, registered were {statistics.null_counts[field_id]}"
        if field_id in orders:
            yield from _outside(statistics, field_id, orders[field_id], [s for s in known if s.has_min_max])


def _top_level_columns(footer: pq.FileMetaData) -> dict[int, int]:
    """Field id to the index of its leaf, of the primitive columns at the top."""
    names = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
    return {
        int(field.metadata[FIELD_ID]): names[field.name]
        for field in footer.schema.to_arrow_schema()
        if not pt.is_nested(field.type) and FIELD_ID in (field.metadata or {})
    }


def _outside(statistics: FileStatistics, field_id: int, order: Order, chunks: list[pq.Statistics]) -> Iterator[str]:
    lower, upper = statistics.lower.get(field_id), statistics.upper.get(field_id)
    for chunk in chunks:
        try:
            low, high = chunk.min_raw, chunk.max_raw
        except pa.ArrowNotImplementedError:  # INT96, whose order is not defined
            return
        below = lower is not None and order(lower) > _comparable(low, order)
        above = upper is not None and order(upper) < _comparable(high, order)
        if below or above:
            yield f"column {field_id} has values {low!r}..{high!r} outside the registered bounds"
            return


def _comparable(raw: Any, order: Order) -> Any:
    """A physical value as `order` gives a bound: numbers are that already; texts, binary and decimals come as bytes."""
    if isinstance(raw, bool):
        return order(bytes([raw]))
    return order(raw) if isinstance(raw, bytes) else raw
