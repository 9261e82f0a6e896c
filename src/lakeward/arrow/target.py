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
from lakeward.log.records import Topic
from lakeward.storage import locations
from lakeward.storage.engine import StorageEngine
from lakeward.tables.records.files import Intent
from lakeward.tables.records.properties import COMPRESSION_LEVEL, TARGET_FILE_SIZE
from lakeward.tables.records.tables import Document, Table, TableMetadata

# A table's compression -> pyarrow's codec of Parquet pages; none for no compression.
PARQUET_CODECS: dict[str, str] = {
    "zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "lz4": "lz4", "none": "none", "uncompressed": "none",
}  # fmt: skip


@dataclass(frozen=True)
class WriteTarget:
    """A table at one version of its metadata (or a topic), and the intent below whose prefix every file goes.

    One target serves one intent: the numbers of its files are counted here.
    """

    table: Table | Topic
    metadata: TableMetadata
    intent: Intent
    engine: StorageEngine
    # Set where others, such as Spark's tasks, may have left other files below the prefix, or may still write there when the
    # write is over.
    outlived: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    # Where rows go that break the table's schema; none refuses the write for them.
    broken: BrokenRows | None = field(default=None, repr=False, compare=False)
    _numbers: Iterator[int] = field(default_factory=itertools.count, repr=False, compare=False)

    @property
    def of_table(self) -> Table:
        """The table, for writers that need one."""
        assert isinstance(self.table, Table)
        return self.table

    @property
    def schema(self) -> Document:
        return self.metadata.schema

    @property
    def spec(self) -> Document:
        return self.metadata.partition_by

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema to write with, field ids in its metadata."""
        return arrow_schema(self.schema)

    @property
    def codec(self) -> str:
        """pyarrow's name of the Parquet codec. Raises InvalidSetting: the table's compression is unknown."""
        return parquet_codec(self.metadata.compression)

    @property
    def is_compressed(self) -> bool:
        return self.codec != "none"

    @property
    def compression_level(self) -> int | None:
        return COMPRESSION_LEVEL.of(self.metadata.properties)

    @property
    def file_size(self) -> int:
        """Bytes at which a file is closed and the next one begun; a file may pass it by one row group."""
        return TARGET_FILE_SIZE.of(self.metadata.properties)

    def next_location(self, extension: str) -> str:
        """The location of the write's next file."""
        return self.intent.prefix + locations.file_name(next(self._numbers), extension)


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
