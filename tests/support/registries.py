"""Registries for tests: tables and files that are rows alone, without a byte behind them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from lakeward.config import Settings
from lakeward.db import schema
from lakeward.iceberg.partitions import partition_spec
from lakeward.iceberg.schemas import schema_from
from lakeward.registry import Registry, intents, open_registry
from lakeward.registry.leases import Lease
from lakeward.tables import bounds, namespaces, registration, tables
from lakeward.tables.records.files import AppendResult, Batch, DataFile, FileStatistics
from lakeward.tables.records.tables import Table
from lakeward.tables.sql import files as file_store
from lakeward.tables.sql import stats
from lakeward.tables.sql import tables as table_store

NAME = "sales.orders"
COLUMNS = {"id": "long", "name": "string"}

_numbers = itertools.count(1)


def open_at(url: str, folder: Path, **settings: Any) -> Registry:
    """A registry whose last commits may be lost when the machine stops: a test's commits need not outlive that."""
    defaults = {"registry": url, "warehouse": str(folder / "warehouse"), "durable": False}
    return open_registry(Settings(**{**defaults, **settings}))


def make_table(
    registry: Registry,
    name: Any = NAME,
    columns: Any = None,
    partition_by: Sequence[Any] = (),
    **options: Any,
) -> Table:
    """A table, in a namespace that is made where it is missing."""
    document, last_column_id = schema_from(COLUMNS if columns is None else columns, 2)
    spec, last_partition_id = partition_spec(partition_by, document)
    levels = name.split(".")[:-1] if isinstance(name, str) else name[:-1]
    namespaces.create(registry, tuple(levels), if_absent=True)
    return tables.create(
        registry,
        name,
        schema=document,
        last_column_id=last_column_id,
        partition_by=spec,
        last_partition_id=last_partition_id,
        **options,
    )


def number(value: int) -> bytes:
    """A long as a bound (Iceberg specification, appendix D)."""
    return value.to_bytes(8, "little", signed=True)


def data_file(prefix: str, ids: Sequence[int] = (1, 2, 3), partition: Any = None, **values: Any) -> DataFile:
    """A file below a prefix that says to hold these ids; its size follows from their count."""
    count = len(ids)
    lower = {1: number(min(ids))} if ids else {}
    upper = {1: number(max(ids))} if ids else {}
    defaults: dict[str, Any] = {
        "path": f"{prefix}{next(_numbers):05d}.parquet",
        "size": 100 + 10 * count,
        "row_count": count,
        "schema_id": 0,
        "partition": {} if partition is None else {1000: partition},
        "partition_path": "" if partition is None else f"name={partition}",
        "statistics": FileStatistics(
            value_counts={1: count, 2: count}, null_counts={1: 0, 2: count}, lower=lower, upper=upper
        ),
        "footer": b"footer",
    }
    return DataFile(**{**defaults, **values})


def register(
    registry: Registry,
    table: Table,
    *ids: Sequence[int],
    partition: Any = None,
    batch: Batch | None = None,
    lease: Lease | None = None,
    **values: Any,
) -> AppendResult:
    """Register one file for each sequence of ids, under an intent of its own."""
    intent = intents.open_intent(registry, table)
    files = [data_file(intent.prefix, each, partition, **values) for each in ids]
    return registration.register(registry, table, intent, files, batch=batch, lease=lease)


def rows_of(registry: Registry, table: str) -> list[sa.RowMapping]:
    """Every row of one of the registry's tables."""
    with registry.database.read() as connection:
        return list(connection.execute(sa.select(schema.metadata.tables[table])).mappings())


def open_intents(registry: Registry) -> int:
    return len(rows_of(registry, "pending_writes"))


def changes(registry: Registry, after: int = 0) -> list[sa.RowMapping]:
    """The feed, by sequence."""
    return sorted(
        (row for row in rows_of(registry, "registry_changes") if row["sequence"] > after),
        key=lambda row: int(row["sequence"]),
    )


def last_sequence(registry: Registry) -> int:
    return max((row["sequence"] for row in rows_of(registry, "registry_changes")), default=0)


def assert_exact(registry: Registry, table: Table) -> None:
    """The counters of `tables` and `table_stats` are the sums over the live files, column statistics too."""
    with registry.database.read() as connection:
        found = table_store.by_id(connection, table.table_id)
        live = file_store.live(connection, table.table_id)
        parts = stats.of_table(connection, table.table_id)
        assert found is not None
        current = table_store.metadata_version(connection, table.table_id, found.version)
        assert current is not None
    for landing, kind in (("", "parquet"), ("landing_", "json")):
        files = [file for file in live if file.file_type == kind]
        sums = (sum(f.row_count for f in files), sum(f.file_size for f in files), len(files))
        size = getattr(found, "landing_size" if landing else "total_size")
        assert (getattr(found, f"{landing}row_count"), size, getattr(found, f"{landing}file_count")) == sums
        own = [part for part in parts if part.file_type == kind]
        assert (
            sum(p.row_count for p in own),
            sum(p.total_size for p in own),
            sum(p.file_count for p in own),
        ) == sums
    orders = bounds.orders_by_id(current.schema)
    for part in parts:
        key = (part.spec_id, part.partition_key, part.file_type)
        members = [f for f in live if (f.spec_id, f.partition_key, f.file_type) == key]
        assert (part.row_count, part.file_count) == (sum(f.row_count for f in members), len(members))
        assert part.columns == bounds.merge({}, (f.statistics for f in members), orders)


def wait_for_lock(registry: Registry) -> None:
    """Until a session of PostgreSQL waits for another's lock."""
    deadline = time.monotonic() + 30
    waiting = sa.text(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    while time.monotonic() < deadline:
        with registry.database.read() as connection:
            if connection.execute(waiting).scalar_one():
                return
        time.sleep(0.01)
    raise AssertionError("nobody waits")
