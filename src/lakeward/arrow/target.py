"""Where a write goes: all that a writer needs to know, and nothing of the registry."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import msgspec
import pyarrow as pa

from lakeward.arrow.broken_rows import BrokenRows
from lakeward.errors import InvalidSetting
from lakeward.iceberg import schemas
from lakeward.storage import locations
from lakeward.storage.engine import StorageEngine
from lakeward.tables.records.files import Intent
from lakeward.tables.records.properties import COMPRESSION_LEVEL, TARGET_FILE_SIZE
from lakeward.tables.records.tables import UNPARTITIONED, UNSORTED, Document, Table, TableMetadata

# A table's compression -> pyarrow's codec of Parquet pages; None for no compression.
PARQUET_CODECS: dict[str, str] = {
    "zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "lz4": "lz4", "none": "none", "uncompressed": "none",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class WriteTarget:
    """What files are made of rows, and where: each below the prefix of one intent, which the target counts them for."""

    location: str  # of the table or topic
    intent: Intent
    engine: StorageEngine
    schema: Document
    compression: str
    file_size: int  # bytes at which a file is closed and the next one begun; a file may pass it by one row group
    spec: Document = field(default_factory=UNPARTITIONED.copy)
    sort_by: Document = field(default_factory=UNSORTED.copy)
    compression_level: int | None = None
    # Set where others, such as Spark's tasks, may have left other files below the prefix, or may still write there when the
    # write is over.
    outlived: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    _numbers: Iterator[int] = field(default_factory=itertools.count, repr=False, compare=False)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema to write with, field ids in its metadata."""
        return arrow_schema(self.schema)

    @property
    def codec(self) -> str:
        """pyarrow's name of the Parquet codec. Raises InvalidSetting: the compression is unknown."""
        return parquet_codec(self.compression)

    @property
    def is_compressed(self) -> bool:
        return self.codec != "none"

    def next_location(self, extension: str) -> str:
        """The location of the write's next file."""
        return self.intent.prefix + locations.file_name(next(self._numbers), extension)


@dataclass(frozen=True, kw_only=True)
class TableTarget(WriteTarget):
    """A table at one version of its metadata."""

    table: Table
    metadata: TableMetadata
    # Where rows go that break the table's schema; None refuses the write for them.
    broken: BrokenRows | None = field(default=None, repr=False, compare=False)


def table_target(
    table: Table,
    metadata: TableMetadata,
    intent: Intent,
    engine: StorageEngine,
    *,
    file_size: int | None = None,
    outlived: threading.Event | None = None,
    broken: BrokenRows | None = None,
) -> TableTarget:
    """A write to a table as its metadata says; `file_size` in place of the table's own."""
    return TableTarget(
        location=table.location,
        intent=intent,
        engine=engine,
        schema=metadata.schema,
        compression=metadata.compression,
        file_size=TARGET_FILE_SIZE.of(metadata.properties) if file_size is None else file_size,
        spec=metadata.partition_by,
        sort_by=metadata.sort_by,
        compression_level=COMPRESSION_LEVEL.of(metadata.properties),
        outlived=threading.Event() if outlived is None else outlived,
        table=table,
        metadata=metadata,
        broken=broken,
    )


def arrow_schema(schema: Document) -> pa.Schema:
    """`iceberg.schemas.to_arrow`, remembered: it is asked for at every append."""
    return _arrow_schema(msgspec.json.encode(schema))


@lru_cache(maxsize=256)
def _arrow_schema(schema: bytes) -> pa.Schema:
    return schemas.to_arrow(msgspec.json.decode(schema))


def parquet_codec(compression: str) -> str:
    """pyarrow's name of the codec of a table's compression.

    Raises:
        InvalidSetting: naming those that are known.
    """
    try:
        return PARQUET_CODECS[compression.lower()]
    except KeyError:
        raise InvalidSetting(
            f"compression {compression!r} is not known; use one of zstd, snappy, gzip, lz4, none"
        ) from None
