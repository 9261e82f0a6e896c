"""Counters worked out anew from the rows of `table_files`: a repair, and the judge of the increments."""

from __future__ import annotations

from collections import Counter

from lakeward.db import dialect, lock_order
from lakeward.db.retry import retried
from lakeward.errors import AuditFailed
from lakeward.registry.handle import Registry
from lakeward.tables import counters
from lakeward.tables.records.tables import Table
from lakeward.tables.sql import files, tables
from lakeward.tables.tables import Which, metadata_in, table_of


@retried
def rebuild_counters(
    registry: Registry, name: Which, row_count: int | None = None, file_size: int | None = None
) -> Table:
    """Set the counters of `tables` and `table_stats` from the live files, in one transaction.

    Raises:
        TableNotFound, InvalidName.
        AuditFailed: the live files do not have `row_count` rows or `file_size` bytes, where given; nothing is changed.
    """
    table = table_of(registry, name)
    with registry.database.transaction() as connection:
        lock_order.tables(connection, [table.table_id])
        current = tables.by_id(connection, table.table_id)
        assert current is not None
        live = files.live(connection, table.table_id)
        parquet = [file for file in live if file.file_type != "json"]
        found = Counter(rows=sum(f.row_count for f in parquet), bytes=sum(f.file_size for f in parquet))
        for what, wanted in (("rows", row_count), ("bytes", file_size)):
            if wanted is not None and found[what] != wanted:
                raise AuditFailed(
                    f"{table.identifier} has {found[what]} {what} in its live files, not {wanted}; look at `lakeward files {table.identifier}`"
                )
        now = dialect.now(connection)
        tables.delete_stats(connection, table.table_id)
        tables.update(connection, table.table_id, dict.fromkeys(tables.COUNTERS, 0))
        counters.add(connection, table.table_id, metadata_in(connection, registry, current).schema, live, now)
        again = tables.by_id(connection, table.table_id)
        assert again is not None
        return again
