"""A registry of some size: thousands of rows where a house has many, hundreds where it has some."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from lakeward.db import dialect, migrate, schema
from lakeward.db.database import Database
from tests.contract.db import rows

# Of what is due by now, and of what nothing was heard of lately, there is a little, whenever the tests run.
LATER = datetime.now(UTC).replace(microsecond=0)
NOW = LATER - timedelta(days=1)
BIG = 1  # the table that has thousands of files
FILES = 3000
OTHERS = 300  # rows of what is counted in hundreds

_path = "/lake/1/{}.parquet".format


def make(url: str) -> None:
    with closing(Database(url)) as database:
        migrate.create_or_upgrade(database)
        with database.transaction() as connection:
            _fill(connection)


def analyze(database: Database) -> None:
    """Have the planner know all of it."""
    with database.transaction() as connection:
        connection.exec_driver_sql("ANALYZE")


def _fill(connection: sa.Connection) -> None:
    def insert(table: str, changes: list[dict[str, Any]]) -> None:
        connection.execute(schema.metadata.tables[table].insert(), [rows.VALID[table] | each for each in changes])

    ids = range(1, OTHERS + 1)
    rows.insert(connection, "warehouses")
    insert("namespaces", [{"namespace_id": i, "levels": [f"n{i}"], "path": f"n{i}"} for i in ids])
    insert(
        "tables",
        [
            {"table_id": i, "table_uuid": f"t-{i}", "name": f"t{i}", "location": f"/{i}", "namespace_id": i % 20 + 1}
            for i in ids
        ],
    )
    insert(
        "tables",
        [
            {
                "table_id": 1000 + i,
                "table_uuid": f"d-{i}",
                "location": f"/d{i}",
                "namespace_id": None,
                "dropped_at": LATER,
            }
            for i in ids
        ],
    )
    insert("table_columns", [{"table_id": t, "field_id": f, "name": f"c{f}"} for t in ids for f in (1, 2, 3)])
    insert("table_metadata", [{"table_id": t, "metadata_version": v} for t in (1, 2, 3) for v in ids])
    insert(
        "table_files",
        [
            {
                "file_id": i,
                "table_id": BIG if i > OTHERS else i % 10 + 2,
                "file_path": _path(i),
                "partition_key": str(i % 100),
                "file_type": "parquet" if i % 3 else "json",
                "snapshot_id": None if i > FILES - 150 else 1,
                "set_aside_reason": "truncated" if i > FILES - 50 else None,
                "intent_id": f"i-{i}",
            }
            for i in range(1, FILES + 1)
        ],
    )
    insert("file_pages", [{"last_file_id": i, "field_id": field} for i in range(1, FILES) for field in (0, 1)])
    insert("partition_metadata", [{"file_path": _path(i), "table_id": BIG} for i in range(1, FILES + 1)])
    insert("table_stats", [{"table_id": t, "partition_key": str(i)} for t in (1, 2) for i in ids])
    insert(
        "table_snapshots",
        [
            {"table_id": t, "snapshot_id": i, "sequence_number": i, "expired_at": NOW if i < 250 else None}
            for t in (1, 2)
            for i in ids
        ],
    )
    insert(
        "pending_writes",
        [
            {
                "intent_id": f"i-{i}",
                "table_id": i % 10 + 1,
                "prefix": f"/p{i}/",
                "owner": f"host:{i % 30}",
                "lease_until": LATER,
                "recovered_at": None if i % 2 else NOW,
                "sweep_after": None if i % 2 else LATER,
            }
            for i in ids
        ],
    )
    insert("orphan_sweeps", [{"prefix": f"/s{i}/", "sweep_after": LATER} for i in ids])
    insert(
        "retired_files",
        [
            {
                "retired_id": i,
                "table_id": i % 10 + 1,
                "file_path": f"/r{i}",
                "expires_at": NOW + timedelta(hours=i),
                "snapshot_id": 1,
                "removed_by": 2 if i % 7 else None,
                "removed_sequence": 2 if i % 7 else None,
            }
            for i in range(1, 4 * OTHERS)
        ],
    )
    insert("subscriber_cursors", [{"subscriber": f"s{i}"} for i in ids])
    insert("parked_events", [{"parked_id": i, "sequence": i} for i in ids])
    insert("leases", [{"name": f"l{i}"} for i in ids])
    insert("topics", [{"topic_id": i, "topic_uuid": f"o-{i}", "name": f"o{i}", "location": f"/o{i}"} for i in ids])
    insert(
        "topics",
        [
            {"topic_id": 1000 + i, "topic_uuid": f"d-{i}", "name": "d", "location": f"/d{i}", "deleted_at": LATER}
            for i in ids
        ],
    )
    insert("partitions", [{"topic_id": i % 5 + 1, "partition_id": i} for i in ids])
    insert("partitions", [{"topic_id": 1, "partition_id": i} for i in (1, 2, 3)])
    insert(
        "segments",
        [
            {
                "segment_id": p * FILES + i,
                "partition_id": p,
                "base_offset": 10 * i,
                "end_offset": 10 * i + 9,
                "record_count": 10,
                "s3_key": f"k{p}-{i}",
                "location": f"/o/{p}-{i}",
            }
            for p in (1, 2)
            for i in range(OTHERS)
        ],
    )
    insert("partitions", [{"topic_id": i, "partition_id": 1} for i in range(6, 206)])
    insert("segments", [{"segment_id": 90_000 + i, "topic_id": i, "partition_id": 1} for i in range(6, 206)])
    insert(
        "pending_writes",
        [
            {"intent_id": f"o-{i}", "table_id": None, "topic_id": i, "prefix": f"/o{i}/", "owner": f"o:{i}"}
            for i in range(2, 202)
        ],
    )
    insert("consumer_groups", [{"group_key": i, "group_id": f"g{i}"} for i in ids])
    insert("consumer_offsets", [{"group_key": i, "partition_id": p} for i in ids for p in (1, 2)])
    insert("producer_batches", [{"sequence": i} for i in ids])
    insert("stream_plans", [{"group_key": i} for i in ids])
    insert("applied_batches", [{"table_id": t, "stream": f"s{i}"} for t in (1, 2) for i in ids])
    insert("stream_positions", [{"table_id": t, "stream": f"s{i}"} for t in (1, 2) for i in ids])
    _fill_operations(insert)
    if connection.dialect.name == "postgresql":  # the rows brought ids of their own, which the sequences have not seen
        for table in schema.metadata.sorted_tables:
            if table.autoincrement_column is not None and table.name != "registry_changes":
                sequence = f"pg_get_serial_sequence('{table.name}', '{table.autoincrement_column.name}')"
                connection.exec_driver_sql(f"SELECT setval({sequence}, 100000)")
    assert dialect.now(connection) > migrate.info(connection).created_at


def _fill_operations(insert: Callable[[str, list[dict[str, Any]]], None]) -> None:
    ids = range(1, 4 * OTHERS + 1)
    insert(
        "sync_runs",
        [
            {
                "id": i,
                "schema_name": f"s{i % 30}",
                "status": "completed" if i % 20 else "running",
                "completed_at": NOW + timedelta(hours=i) if i % 20 else None,
                "started_at": NOW + timedelta(hours=i),
                "last_seen_at": NOW + timedelta(hours=i),
                "import_key": f"k-{i}",
            }
            for i in ids
        ],
    )
    insert(
        "sync_markers",
        [
            {"id": i, "schema_name": f"s{i}", "table_name": table, "sync_run_id": i % 300 + 1}
            for i, table in enumerate([None, "t1"] * OTHERS, 1)
        ],
    )
    insert("schema_registry", [{"id": i, "table_name": f"t{i % 60}", "version": i // 60 + 1} for i in ids])
    insert(
        "error_log",
        [
            {
                "id": i,
                "schema_name": f"s{i % 30}",
                "sync_run_id": i,
                "error_type": ("validation", "timeout", "schema", "data")[i % 4],
                "status": "resolved" if i % 20 else "open",
                "resolved_at": NOW + timedelta(hours=i) if i % 20 else None,
                "next_retry_at": NOW + timedelta(hours=i) if i % 40 else None,
                "occurred_at": NOW + timedelta(hours=i),
                "import_key": f"k-{i}",
            }
            for i in ids
        ],
    )
    states = ("pending", "processing", "discarded", *["resolved"] * 37)
    insert(
        "dead_letter_queue",
        [
            {
                "id": i,
                "schema_name": f"s{i % 30}" if i % 30 else "shop",  # which tests ask for
                "table_name": f"t{i % 5}" if i % 5 else "orders",
                "sync_run_id": i,
                "error_log_id": i,
                "source_record_id": f"r-{i}" if i % 3 else None,
                "status": (status := states[i % 40]),
                "claimed_by": "w" if status == "processing" else None,
                "claimed_until": NOW + timedelta(hours=i) if status == "processing" else None,
                "resolved_at": NOW + timedelta(hours=i) if status in ("resolved", "discarded") else None,
                "error_count": i % 9 + 1,
                "import_key": f"k-{i}",
            }
            for i in ids
        ],
    )
