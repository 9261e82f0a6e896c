"""One valid row of each table of the registry, to insert as it is or with some values changed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from lakeward.model.files import FileStatistics
from lakeward.model.tables import ColumnStatistics
from lakeward.store import schema

TIME = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)

# In an order in which each row finds what it refers to.
VALID: dict[str, dict[str, Any]] = {
    "warehouses": {
        "warehouse_id": 1,
        "warehouse_uuid": "w-1",
        "name": "main",
        "location": "/lake",
        "created_at": TIME,
    },
    "namespaces": {
        "namespace_id": 1,
        "warehouse_id": 1,
        "levels": ["sales"],
        "path": "sales",
        "properties": {"owner": "ann"},
        "created_at": TIME,
    },
    "tables": {
        "table_id": 1,
        "table_uuid": "t-1",
        "namespace_id": 1,
        "name": "orders",
        "location": "/lake/sales/orders-1",
        "format": "parquet",
        "format_version": 2,
        "version": 1,
        "last_modified": TIME,
        "last_column_id": 2,
        "last_partition_id": 999,
        "created_at": TIME,
    },
    "table_columns": {
        "table_id": 1,
        "field_id": 1,
        "position": 0,
        "name": "id",
        "type": "long",
        "required": True,
        "doc": None,
    },
    "table_metadata": {
        "table_id": 1,
        "metadata_version": 1,
        "schema_version": 0,
        "schema": {"type": "struct", "schema-id": 0, "fields": []},
        "spec_id": 0,
        "partition_by": {"spec-id": 0, "fields": []},
        "sort_order_id": 0,
        "sort_by": {"order-id": 0, "fields": []},
        "properties": {},
        "storage_engine": "local",
        "engine_config": {},
        "format": "parquet",
        "compression": "zstd",
        "change": "create",
        "created_at": TIME,
    },
    "table_files": {
        "file_id": 1,
        "table_id": 1,
        "file_name": "a.parquet",
        "file_path": "/lake/sales/orders-1/data/i-1/a.parquet",
        "file_size": 1000,
        "file_type": "parquet",
        "partition_key": "{}",
        "partition_path": "",
        "row_count": 10,
        "is_compressed": True,
        "statistics": FileStatistics(value_counts={1: 10}, lower={1: b"\x00\x01"}),
        "split_offsets": [4],
        "schema_id": 0,
        "spec_id": 0,
        "sort_order_id": 0,
        "created_at": TIME,
        "modified_at": TIME,
        "registered_at": TIME,
    },
    "table_stats": {
        "table_id": 1,
        "spec_id": 0,
        "partition_key": "{}",
        "file_type": "parquet",
        "partition_path": "",
        "row_count": 10,
        "file_count": 1,
        "total_size": 1000,
        "last_modified": TIME,
        "columns": {1: ColumnStatistics(value_count=10)},
    },
    "table_snapshots": {
        "table_id": 1,
        "snapshot_id": 2**62 + 1,
        "sequence_number": 1,
        "timestamp_ms": 1_767_323_045_000,
        "operation": "append",
        "summary": {"added-records": "10"},
        "manifest_list": "/lake/sales/orders-1/metadata/snap-1.avro",
        "schema_id": 0,
        "metadata_location": "/lake/sales/orders-1/metadata/1.metadata.json",
        "trigger": "manual",
        "created_at": TIME,
    },
    "partition_metadata": {
        "file_path": "/lake/sales/orders-1/data/i-1/a.parquet",
        "table_id": 1,
        "metadata": b"\x00PAR1\xff",
        "metadata_size": 6,
        "insert_time": TIME,
    },
    "topics": {
        "topic_id": 1,
        "topic_uuid": "o-1",
        "warehouse_id": 1,
        "name": "orders",
        "partition_count": 2,
        "retention_ms": 604_800_000,
        "config": {"cleanup.policy": "delete"},
        "value_schema": {"type": "struct", "fields": []},
        "location": "/lake/topics/orders-1",
        "created_at": TIME,
    },
    "partitions": {"topic_id": 1, "partition_id": 0, "log_start_offset": 0, "high_watermark": 100_000},
    "segments": {
        "segment_id": 1,
        "topic_id": 1,
        "partition_id": 0,
        "base_offset": 0,
        "end_offset": 99_999,
        "record_count": 100_000,
        "size_bytes": 1_048_576,
        "s3_bucket": "lake",
        "s3_key": "orders-0-0",
        "location": "s3://lake/orders-0-0",
        "created_at": TIME,
    },
    "consumer_groups": {"group_key": 1, "warehouse_id": 1, "group_id": "analytics-group", "created_at": TIME},
    "consumer_offsets": {
        "group_key": 1,
        "topic_id": 1,
        "partition_id": 0,
        "committed_offset": 50_000,
        "metadata": "m",
        "committed_at": TIME,
    },
    "producer_batches": {"topic_id": 1, "producer": "p", "sequence": 1, "answer": [], "created_at": TIME},
    "stream_plans": {"group_key": 1, "topic_id": 1, "offsets": {"0": 50_000}, "updated_at": TIME},
    "pending_writes": {
        "intent_id": "i-1",
        "table_id": 1,
        "kind": "write",
        "prefix": "/lake/sales/orders-1/data/i-1/",
        "owner": "host:1",
        "started_at": TIME,
        "lease_until": TIME,
    },
    "retired_files": {
        "retired_id": 1,
        "table_id": 1,
        "file_path": "/lake/sales/orders-1/data/i-0/b.parquet",
        "file_size": 1000,
        "kind": "data",
        "reason": "compaction",
        "retired_at": TIME,
        "expires_at": TIME,
        "record": {"file_id": 7},
    },
    "subscriber_cursors": {
        "astha": "lakeward",
        "subscriber": "compactor",
        "position": {"sequence": 5},
        "state": {},
        "seen_at": TIME,
    },
    "parked_events": {
        "parked_id": 1,
        "astha": "lakeward",
        "subscriber": "compactor",
        "sequence": 5,
        "table_name": "table_files",
        "operation": "INSERT",
        "table_id": 1,
        "data": {"file_id": 1},
        "changed_at": TIME,
        "attempts": 31,
        "error": "no",
        "parked_at": TIME,
    },
    "leases": {"name": "flush:1", "owner": "host:1", "fence": 1, "expires_at": TIME},
    "applied_batches": {
        "table_id": 1,
        "stream": "s",
        "batch_id": "1",
        "end_position": {"offset": 5},
        "answer": {"rows": 10},
        "applied_at": TIME,
    },
    "stream_positions": {
        "table_id": 1,
        "stream": "s",
        "position": {"offset": 5},
        "batch_id": "1",
        "updated_at": TIME,
    },
}


def insert(connection: sa.Connection, table: str, **changes: Any) -> None:
    """Insert the valid row of `table` with `changes`. An id that is generated is left out unless it is changed."""
    connection.execute(schema.metadata.tables[table].insert().values(VALID[table] | changes))


def insert_up_to(connection: sa.Connection, last: str) -> None:
    """Insert the valid row of each table before `last`, and of `last`."""
    for name in VALID:
        insert(connection, name)
        if name == last:
            return


def insert_all(connection: sa.Connection) -> None:
    insert_up_to(connection, list(VALID)[-1])
