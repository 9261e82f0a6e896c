"""Tables, their metadata versions, statistics and snapshots."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from lakeward.names import TableIdentifier

# An Iceberg document, as JSON: a schema, a partition spec, a sort order.
Document = dict[str, Any]

UNPARTITIONED: Document = {"spec-id": 0, "fields": []}
FIRST_PARTITION_ID = 1000  # ids of partition fields start here,
NO_PARTITION_ID = FIRST_PARTITION_ID - 1  # and the last one of a table that never had any is this
UNSORTED: Document = {"order-id": 0, "fields": []}


class Warehouse(msgspec.Struct, frozen=True):
    warehouse_id: int
    warehouse_uuid: str
    name: str
    location: str  # without a slash at its end
    created_at: datetime


class Namespace(msgspec.Struct, frozen=True):
    namespace_id: int
    warehouse_id: int
    levels: tuple[str, ...]
    properties: dict[str, str]
    created_at: datetime


class TableRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `tables`. Counters are of live Parquet files; landing_* are of JSON files. Sizes in bytes."""

    table_id: int
    table_uuid: str
    namespace_id: int | None  # None once dropped
    name: str
    location: str  # fixed at creation, without a slash at its end
    format: str  # parquet | json
    format_version: int  # Iceberg's: 2 | 3
    version: int  # the current table_metadata.metadata_version
    row_count: int
    total_size: int
    file_count: int
    landing_row_count: int
    landing_size: int
    landing_file_count: int
    last_modified: datetime
    last_column_id: int
    last_partition_id: int
    metadata_location: str | None  # None until the first Iceberg metadata file is made
    iceberg_version: int  # the metadata_version that metadata_location shows; 0 for none
    current_snapshot_id: int | None
    created_at: datetime
    dropped_at: datetime | None


class Table(TableRow, frozen=True, kw_only=True):
    """A table: its row, and its namespace."""

    namespace_id: int  # 0 once dropped
    namespace: tuple[str, ...]

    @property
    def identifier(self) -> TableIdentifier:
        """Its namespace and name, as every call takes them; as text, namespace.name."""
        return TableIdentifier(self.namespace, self.name)


class TableMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """One row of table_metadata: all that a table was at one version of itself."""

    table_id: int
    metadata_version: int
    schema_version: int  # Iceberg's schema-id
    schema: Document
    spec_id: int
    partition_by: Document  # an Iceberg partition spec: {"spec-id", "fields"}
    sort_order_id: int
    sort_by: Document  # an Iceberg sort order: {"order-id", "fields"}
    properties: dict[str, str]
    storage_engine: str
    engine_config: dict[str, Any]
    format: str
    compression: str
    change: str  # what made this version: create, add_column, ..., rollback
    created_at: datetime


class ColumnStatistics(msgspec.Struct, frozen=True, omit_defaults=True):
    """One column over all files of a partition. Bounds are Iceberg's single-value binary."""

    value_count: int = 0
    null_count: int = 0
    nan_count: int = 0
    lower: bytes | None = None
    upper: bytes | None = None
    bounded: bool = True  # false once a file without bounds, but with values, has entered: bounds are then none


class StatsRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `table_stats` without the columns' statistics: the counters of one partition, or of an unpartitioned table."""

    table_id: int
    spec_id: int
    partition_key: str  # canonical JSON of the partition's values
    file_type: str
    partition_path: str
    row_count: int
    file_count: int
    total_size: int
    last_modified: datetime


class TableStats(StatsRow, frozen=True, kw_only=True):
    """A row of `table_stats`."""

    columns: dict[int, ColumnStatistics]


class TableSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One row of table_snapshots."""

    table_id: int
    snapshot_id: int
    parent_snapshot_id: int | None
    sequence_number: int
    timestamp_ms: int
    operation: str
    summary: dict[str, str]
    manifest_list: str
    schema_id: int
    metadata_location: str
    trigger: str  # query | manual | sync | time | size | client
    created_at: datetime
    expired_at: datetime | None = None  # when it left the metadata file: it cannot be read any more


class SnapshotRef(msgspec.Struct, frozen=True, kw_only=True):
    """A branch or a tag: a name for a snapshot. What is None follows the table's properties (history.expire.*)."""

    name: str
    type: str  # branch | tag
    snapshot_id: int
    min_snapshots_to_keep: int | None = None  # of a branch's own ancestors
    max_snapshot_age_ms: int | None = None  # the same
    max_ref_age_ms: int | None = None  # an expiry drops the name itself once its snapshot is older


class Snapshot(msgspec.Struct, frozen=True):
    """An Iceberg snapshot as the write path's calls name it."""

    snapshot_id: int
    timestamp_ms: int
    manifest_list: str
    summary: dict[str, str]
    schema_id: int
