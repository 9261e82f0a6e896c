"""Targets of writes for tests: a table that exists in memory alone, and a folder to write to."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lakeward.arrow.target import TableTarget, table_target
from lakeward.iceberg import schemas
from lakeward.storage import locations
from lakeward.storage.engine import StorageEngine
from lakeward.storage.engines import engine_for
from lakeward.tables.records.files import Intent
from lakeward.tables.records.tables import Document, Table, TableMetadata

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def schema_of(source: Any, format_version: int = 2) -> Document:
    return schemas.schema_from(source, format_version)[0]


def spec_of(schema: Document, *fields: tuple[str, str]) -> Document:
    """A spec from (column, transform), named 'column_transform' where the transform is not identity."""
    by_name = {column.full_name: column.field_id for column in schemas.columns(schema)}
    return {
        "spec-id": 1,
        "fields": [
            {
                "source-id": by_name[column],
                "field-id": 1000 + number,
                "transform": transform,
                "name": column if transform == "identity" else f"{column}_{transform.partition('[')[0]}",
            }
            for number, (column, transform) in enumerate(fields)
        ],
    }


def target_for(
    folder: Path | str,
    schema: Any,
    *partition_by: tuple[str, str],
    sort_by: tuple[tuple[str, str, str], ...] = (),
    compression: str = "zstd",
    file_format: str = "parquet",
    properties: dict[str, str] | None = None,
    intent: str = "intent1",
    engine: StorageEngine | None = None,
) -> TableTarget:
    """`sort_by`: (column, direction, null order)."""
    document = schema if isinstance(schema, dict) and schema.get("type") == "struct" else schema_of(schema)
    warehouse = locations.warehouse_location(str(folder))
    location = locations.table_location(warehouse, ("ns",), "t", "1f0c9a2e-0000-4000-8000-000000000000")
    by_name = {column.full_name: column.field_id for column in schemas.columns(document)}
    order = [{"transform": "identity", "source-id": by_name[c], "direction": d, "null-order": n} for c, d, n in sort_by]
    table = Table(
        table_id=1, table_uuid="1f0c9a2e-0000-4000-8000-000000000000", namespace_id=1, namespace=("ns",), name="t",
        location=location, format=file_format, format_version=2, version=1, row_count=0, total_size=0,
        file_count=0, landing_row_count=0, landing_size=0, landing_file_count=0, last_modified=NOW, last_column_id=1,
        last_partition_id=999, metadata_location=None, iceberg_version=0, current_snapshot_id=None, created_at=NOW,
        dropped_at=None,
    )  # fmt: skip
    metadata = TableMetadata(
        table_id=1, metadata_version=1, schema_version=document["schema-id"], schema=document, spec_id=1,
        partition_by=spec_of(document, *partition_by), sort_order_id=1 if order else 0,
        sort_by={"order-id": 1 if order else 0, "fields": order}, properties=properties or {}, storage_engine="local",
        engine_config={}, format=file_format, compression=compression, change="create", created_at=NOW,
    )  # fmt: skip
    prefix = locations.write_prefix(location, intent)
    declared = Intent(intent, 1, "write", prefix, "test", NOW)
    return table_target(table, metadata, declared, engine or engine_for("local", {"fsync": False}))
