"""A table in a folder, for the tests of the metadata engine: real Parquet files, and real engines that read it."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.table import StaticTable

from lakeward.iceberg import commit, metadata, partitions, schemas
from lakeward.tables.records.files import FileStatistics, PartitionValues, RegisteredFile, partition_key
from lakeward.tables.records.tables import NO_PARTITION_ID, Document, Table, TableMetadata
from tests.support import duck

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)


def table_record(location: str, last_column_id: int, last_partition_id: int, format_version: int = 2) -> Table:
    return Table(
        table_id=1,
        table_uuid=str(uuid.uuid4()),
        namespace_id=1,
        namespace=("ns",),
        name="t",
        location=location,
        format="parquet",
        format_version=format_version,
        version=1,
        row_count=0,
        total_size=0,
        file_count=0,
        landing_row_count=0,
        landing_size=0,
        landing_file_count=0,
        last_modified=NOW,
        last_column_id=last_column_id,
        last_partition_id=last_partition_id,
        metadata_location=None,
        iceberg_version=0,
        current_snapshot_id=None,
        created_at=NOW,
        dropped_at=None,
    )


def version_record(schema: Document, spec: Document, order: Document, **changes: Any) -> TableMetadata:
    fields: dict[str, Any] = {
        "table_id": 1,
        "metadata_version": 1,
        "schema_version": schema["schema-id"],
        "schema": schema,
        "spec_id": spec["spec-id"],
        "partition_by": spec,
        "sort_order_id": order["order-id"],
        "sort_by": order,
        "properties": {},
        "storage_engine": "local",
        "engine_config": {},
        "format": "parquet",
        "compression": "zstd",
        "change": "create",
        "created_at": NOW,
    }
    return TableMetadata(**{**fields, **changes})


def registered(path: str, **fields: Any) -> RegisteredFile:
    """A file as the registry has it, of no real object unless the fields say so."""
    base: dict[str, Any] = {
        "file_id": 1,
        "table_id": 1,
        "file_name": path.rpartition("/")[2],
        "file_path": path,
        "file_size": 1000,
        "file_type": "parquet",
        "content": 0,
        "partition_key": "{}",
        "partition_path": "",
        "row_count": 10,
        "checksum": None,
        "is_compressed": True,
        "statistics": FileStatistics(),
        "split_offsets": [4],
        "schema_id": 0,
        "spec_id": 0,
        "sort_order_id": 0,
        "created_at": NOW,
        "modified_at": NOW,
        "registered_at": NOW,
        "intent_id": None,
        "snapshot_id": None,
        "sequence_number": None,
        "first_row_id": None,
        "set_aside_reason": None,
    }
    return RegisteredFile(**{**base, **fields})


def spec_of(partition_by: Sequence[Any], schema: Document) -> tuple[Document, int]:
    """A spec as tables have it that were made before some were refused: by values that engines cannot read."""
    return partitions._spec(partition_by, schema, 0, NO_PARTITION_ID)


class LocalTable:
    """A table of one folder, whose metadata is what the engine makes."""

    def __init__(
        self, folder: Path, schema: Any, partition_by: Sequence[str] = (), sort_by: Sequence[str] = (), version: int = 2
    ) -> None:
        self.folder = folder
        self.schema, self.last_column_id = schemas.schema_from(schema, version)
        self.spec, self.last_partition_id = spec_of(partition_by, self.schema)
        self.order = partitions.sort_order(sort_by, self.schema)
        record = table_record(str(folder), self.last_column_id, self.last_partition_id, version)
        self.record = record
        self.document = metadata.new_metadata(record, version_record(self.schema, self.spec, self.order), NOW_MS)
        self.previous: str | None = None
        self._numbers = itertools.count(1)
        (folder / "metadata").mkdir()
        (folder / "data").mkdir()

    @property
    def prefix(self) -> str:
        return f"{self.folder}/metadata/"

    def read(self, location: str) -> bytes:
        return Path(location).read_bytes()

    def write(self, location: str, data: bytes) -> None:
        with open(location, "xb") as file:  # no object is ever written twice
            file.write(data)

    def parquet(self, data: pa.Table, partition: PartitionValues | None = None) -> RegisteredFile:
        """Write rows into a real file, with the statistics that PyIceberg takes from it."""
        path = f"{self.folder}/data/{next(self._numbers):05d}.parquet"
        pq.write_table(data.cast(schemas.to_arrow(self.schema)), path)
        footer = pq.read_metadata(path)
        model = schemas.to_pyiceberg(self.schema)
        found = data_file_statistics_from_parquet_metadata(
            footer, compute_statistics_plan(model, {}), parquet_path_to_id_mapping(model)
        ).to_serialized_dict()
        statistics = FileStatistics(
            column_sizes=found["column_sizes"],
            value_counts=found["value_counts"],
            null_counts=found["null_value_counts"],
            nan_counts=found["nan_value_counts"],
            lower=found["lower_bounds"],
            upper=found["upper_bounds"],
        )
        return registered(
            path,
            file_size=Path(path).stat().st_size,
            row_count=data.num_rows,
            statistics=statistics,
            split_offsets=found["split_offsets"],
            schema_id=self.schema["schema-id"],
            spec_id=self.spec["spec-id"],
            partition_key=partition_key(partition or {}),
        )

    def build(self, added: Sequence[RegisteredFile] = (), removed: Sequence[str] = (), **options: Any) -> commit.Built:
        """Build a snapshot and make it the current one."""
        given = {"timestamp_ms": NOW_MS, **options}
        built = commit.build_snapshot(
            self.document, added, removed, read=self.read, write=self.write, prefix=self.prefix, **given
        )
        self.document = built.document
        return built

    def evolve(self, schema: Document, spec: Document | None = None, **changes: Any) -> None:
        self.schema, self.spec = schema, spec or self.spec
        version = version_record(self.schema, self.spec, self.order, **changes)
        self.document = metadata.apply_version(self.document, version, NOW_MS)

    def save(self) -> str:
        location = self.prefix + metadata.metadata_file_name(next(self._numbers))
        self.write(location, metadata.encode(self.document))
        return location

    # The judges
    def pyiceberg(self) -> StaticTable:
        return StaticTable.from_metadata(self.save())

    def duckdb(self, query: str) -> list[tuple[Any, ...]]:
        """Rows of a query on the table, which it calls `t`."""
        connection = _duckdb()
        connection.execute(f"create or replace temp view t as select * from iceberg_scan('{self.save()}')")
        return connection.execute(query).fetchall()


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    return duck.connect()
