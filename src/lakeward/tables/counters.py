"""The counters of `tables` and `table_stats`: kept exact, in the transaction that changes the files, or worked out anew."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TypeAlias

import msgspec
import sqlalchemy as sa

from lakeward.db import dialect, lock_order
from lakeward.db.pipeline import Answer
from lakeward.db.retry import retried
from lakeward.errors import AuditFailed
from lakeward.registry.handle import Registry
from lakeward.tables import bounds
from lakeward.tables.records.files import DataFile, RegisteredFile, partition_key
from lakeward.tables.records.tables import Document, Table, TableMetadata, TableStats
from lakeward.tables.sql import files as file_store
from lakeward.tables.sql import stats, tables
from lakeward.tables.tables import Which, metadata_in, table_of

Counted: TypeAlias = "DataFile | RegisteredFile"
_Key = tuple[int, str, str]  # spec id, partition key, file type
Answers = Mapping[_Key, Answer]


def add(connection: sa.Connection, table_id: int, schema: Document, files: Sequence[Counted], now: datetime) -> None:
    """Count files that have entered the table. `schema` (the current one) says how bounds compare."""
    add_to_partitions(connection, table_id, schema, files, now, send_stats(connection, table_id, files))
    add_to_table(connection, table_id, files, now)


def add_to_table(connection: sa.Connection, table_id: int, files: Sequence[Counted], now: datetime) -> None:
    """The table's half of `add`."""
    tables.add_counts(connection, table_id, now, _counts(files, 1))


def send_stats(connection: sa.Connection, table_id: int, files: Sequence[Counted]) -> Answers:
    """What `add_to_partitions` has to know: the statistics of the partitions that some files are in."""
    return {key: stats.send_load(connection, table_id, *key) for key in _grouped(files)}


def add_to_partitions(
    connection: sa.Connection,
    table_id: int,
    schema: Document,
    files: Sequence[Counted],
    now: datetime,
    known: Answers,
) -> None:
    """The half of `add` that is in table_stats; `known` is what they were."""
    orders = _orders_for(connection, table_id, schema, files)
    for (spec_id, key, file_type), members in _grouped(files).items():
        old = stats.of_answer(known[spec_id, key, file_type])
        new = TableStats(
            table_id=table_id,
            spec_id=spec_id,
            partition_key=key,
            file_type=file_type,
            partition_path=members[0].partition_path,
            row_count=(old.row_count if old else 0) + sum(file.row_count for file in members),
            file_count=(old.file_count if old else 0) + len(members),
            total_size=(old.total_size if old else 0) + sum(_size(file) for file in members),
            last_modified=now,
            columns=bounds.merge(old.columns if old else {}, (file.statistics for file in members), orders),
        )
        (stats.insert if old is None else stats.update)(connection, new)


def remove(
    connection: sa.Connection, table_id: int, schema: Document, files: Sequence[RegisteredFile], now: datetime
) -> None:
    """Count out files whose rows have left (or been set aside) already: bounds come anew from those that stay."""
    staying: dict[tuple[int, str], list[RegisteredFile]] = {}
    for spec_id, key, file_type in _grouped(files):
        old = stats.load(connection, table_id, spec_id, key, file_type)
        if old is None:
            continue
        if (spec_id, key) not in staying:
            staying[spec_id, key] = file_store.in_partition(connection, table_id, spec_id, key)
        rest = [file for file in staying[spec_id, key] if file.file_type == file_type]
        if not rest:
            stats.delete(connection, old)
            continue
        orders = _orders_for(connection, table_id, schema, rest)
        new = msgspec.structs.replace(
            old,
            row_count=sum(file.row_count for file in rest),
            file_count=len(rest),
            total_size=sum(file.file_size for file in rest),
            last_modified=now,
            columns=bounds.merge({}, (file.statistics for file in rest), orders),
        )
        stats.update(connection, new)
    tables.add_counts(connection, table_id, now, _counts(files, -1))


def _grouped(files: Sequence[Counted]) -> dict[_Key, list[Counted]]:
    groups: dict[_Key, list[Counted]] = defaultdict(list)
    for file in files:
        key = file.partition_key if isinstance(file, RegisteredFile) else partition_key(file.partition)
        groups[file.spec_id, key, file.file_type].append(file)
    return dict(sorted(groups.items()))


def _size(file: Counted) -> int:
    return file.file_size if isinstance(file, RegisteredFile) else file.size


def _counts(files: Sequence[Counted], sign: int) -> Mapping[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for file in files:
        landing = "landing_" if file.file_type == "json" else ""
        counts[landing + "row_count"] += sign * file.row_count
        counts[landing + "file_count"] += sign
        counts[f"{landing}size" if landing else "total_size"] += sign * _size(file)
    return counts


def _orders_for(
    connection: sa.Connection, table_id: int, schema: Document, files: Sequence[Counted]
) -> Mapping[int, bounds.Order]:
    """How the bounds of the files' columns compare; columns that the current schema has no more included."""
    orders = _orders(msgspec.json.encode(schema))
    if all(file.statistics.value_counts.keys() <= orders.keys() for file in files):
        return orders
    return all_orders(tables.metadata_versions(connection, table_id))


def all_orders(versions: Sequence[TableMetadata]) -> dict[int, bounds.Order]:
    """How the bounds of every column compare that a table has or had: ids are never used again, and types only widen."""
    return {i: order for version in versions for i, order in bounds.orders_by_id(version.schema).items()}


@lru_cache(maxsize=256)
def _orders(schema: bytes) -> dict[int, bounds.Order]:
    return bounds.orders_by_id(msgspec.json.decode(schema))


# Worked out anew ----------------------------------------------------------------------------------------------------------
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
        live = file_store.live(connection, table.table_id)
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
        add(connection, table.table_id, metadata_in(connection, registry, current).schema, live, now)
        again = tables.by_id(connection, table.table_id)
        assert again is not None
        return again
