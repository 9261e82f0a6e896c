"""The registry's tables, once for SQLite and PostgreSQL.

Things are known by id: `table_id`, `namespace_id` and `warehouse_id` are never used again, and tables and warehouses
have a UUID for the outside. Rules that must hold stand here as constraints, so that SQL typed by hand keeps them too.
"""

from __future__ import annotations

from lakeward.db.schema.feed import WATCHED, parked_events, registry_changes, subscriber_cursors
from lakeward.db.schema.lakehouse import (
    PENDING,
    applied_batches,
    file_pages,
    leases,
    namespaces,
    orphan_sweeps,
    partition_metadata,
    pending_writes,
    registry_info,
    retired_files,
    stream_positions,
    table_columns,
    table_files,
    table_metadata,
    table_snapshots,
    table_stats,
    tables,
    upkeep,
    warehouses,
)
from lakeward.db.schema.log import (
    consumer_groups,
    consumer_offsets,
    partitions,
    producer_batches,
    segments,
    stream_plans,
    topics,
)
from lakeward.db.schema.operations import (
    OPERATIONS,
    dead_letter_queue,
    error_log,
    schema_registry,
    sync_markers,
    sync_runs,
)
from lakeward.db.schema.parts import metadata

SCHEMA_VERSION = 14  # of the newest migration
MINIMUM_VERSION = 14  # the oldest code (by its SCHEMA_VERSION) that may read and write a registry of this schema
