"""Files of tables, as writers hand them over and as the registry keeps them."""

from __future__ import annotations

import hashlib
import json
import os
from datetime import datetime
from typing import Any

import msgspec

# A partition's values by partition field id, each as Iceberg's single-value JSON (specification, appendix D); null is None.
PartitionValues = dict[int, Any]


def partition_key(partition: PartitionValues) -> str:
    """One text for one partition, equal exactly when all values are: canonical JSON, fields by ascending id."""
    return msgspec.json.encode({str(i): partition[i] for i in sorted(partition)}).decode()


def partition_values(key: str) -> PartitionValues:
    """The values behind a key made by `partition_key`."""
    return {int(field): value for field, value in msgspec.json.decode(key).items()}


class FileStatistics(msgspec.Struct, frozen=True, omit_defaults=True):
    """Column statistics of one file by field id. Bounds are Iceberg's single-value binary (specification, appendix D).

    In JSON, bounds are base64 text. A column whose bounds are unknown or NaN has none.
    """

    column_sizes: dict[int, int] = {}
    value_counts: dict[int, int] = {}
    null_counts: dict[int, int] = {}
    nan_counts: dict[int, int] = {}
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}


class DataFile(msgspec.Struct, frozen=True, kw_only=True):
    """A finished file that a writer hands to registration. Sizes in bytes."""

    path: str
    size: int
    row_count: int
    file_type: str = "parquet"  # parquet | json
    schema_id: int
    spec_id: int = 0
    sort_order_id: int = 0
    partition: PartitionValues = {}
    partition_path: str = ""  # for people: 'month=1/origin=JFK'; '' when unpartitioned
    statistics: FileStatistics = FileStatistics()
    split_offsets: list[int] = []
    checksum: str | None = None  # 'algorithm:hex'
    is_compressed: bool = True
    created_at: datetime | None = None  # None: the time of registration
    modified_at: datetime | None = None
    footer: bytes | None = None  # Parquet's footer: thrift bytes as pyarrow's FileMetaData writes them


class TableFile(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `table_files`, without its statistics and split offsets."""

    file_id: int
    table_id: int
    file_name: str
    file_path: str
    file_size: int
    file_type: str
    content: int  # 0 data, 1 position deletes, 2 equality deletes, as in Iceberg
    partition_key: str  # canonical JSON of the partition's values
    partition_path: str
    row_count: int
    checksum: str | None
    is_compressed: bool
    schema_id: int
    spec_id: int
    sort_order_id: int
    created_at: datetime
    modified_at: datetime
    registered_at: datetime
    intent_id: str | None
    snapshot_id: int | None  # None while the file is pending
    sequence_number: int | None
    first_row_id: int | None
    set_aside_reason: str | None  # why the file cannot be part of a snapshot; None for a live file


class RegisteredFile(TableFile, frozen=True, kw_only=True):
    """A row of `table_files`."""

    statistics: FileStatistics
    split_offsets: list[int]

    @property
    def partition(self) -> PartitionValues:
        """The partition's values by the id of the partition field; `partition_path` shows them with names."""
        return partition_values(self.partition_key)


COMPACTED = "compacted by "  # and an intent: why a file was retired whose rows are in others now


class RetiredFile(msgspec.Struct, frozen=True, kw_only=True):
    """One row of retired_files: an object in quarantine."""

    retired_id: int
    table_id: int | None  # None where it is a topic's
    file_path: str
    file_size: int
    kind: str  # data | metadata | manifest | manifest_list | stray | segment
    reason: str
    retired_at: datetime
    expires_at: datetime
    snapshot_id: int | None  # the snapshot that added the file, if one did
    sequence_number: int | None  # of the snapshot that added it
    removed_by: int | None  # the snapshot that removed it, once one has; None while Iceberg still lists it
    removed_sequence: int | None
    ended_at: datetime | None  # the quarantine is over: the footer is gone, the object goes next
    record: dict[str, Any] | None  # the table_files row, so that a rollback can bring it back
    topic_id: int | None = None

    @property
    def compacted_by(self) -> str | None:
        """The intent of the compaction whose files have its rows now; None where it left otherwise."""
        return self.reason.removeprefix(COMPACTED) if self.reason.startswith(COMPACTED) else None

    def as_registered(self) -> RegisteredFile:
        """The row of table_files that a data file had when it left."""
        return msgspec.json.decode(msgspec.json.encode(self.record), type=RegisteredFile)


class FileInfo(msgspec.Struct, frozen=True):
    """A file as the write path's calls name it (`update_table_files`), which check all that is said of it."""

    name: str  # the last part of its path
    path: str
    size: int
    row_count: int
    checksum: str | None
    created: datetime
    modified: datetime
    partition_path: str  # '' where nothing is said of it


class PartitionMetadata(msgspec.Struct, frozen=True):
    """One row of partition_metadata. `metadata` is None where the footer is larger than is stored."""

    file_path: str
    table_id: int
    metadata: bytes | None
    metadata_size: int
    insert_time: datetime


class NamedCopy(msgspec.Struct, frozen=True):
    """A path of a copy that is made for a moment: messages, runs and dead letters say what it is a copy of."""

    path: str
    name: str

    def __fspath__(self) -> str:
        return self.path


def shown_path(path: str | os.PathLike[str]) -> str:
    """What a person knows a file by."""
    return path.name if isinstance(path, NamedCopy) else os.fspath(path)


class Intent(msgspec.Struct, frozen=True):
    """A declared write, to a table or a topic: everything it makes stands below `prefix` (a location that ends in '/')."""

    intent_id: str
    table_id: int | None
    kind: str  # write | flush
    prefix: str
    owner: str
    lease_until: datetime
    topic_id: int | None = None
    metadata_version: int | None = None  # of the table, that a write goes by; None where it gives way to changes


class Batch(msgspec.Struct, frozen=True):
    """The key under which an append is applied once: a stream's name and the batch's id in it.

    `start` and `end` say what was consumed; with them, the batch is applied only if the stream stands at `start`.
    """

    stream: str
    batch_id: str
    start: Any = None
    end: Any = None
    content: str | None = None  # a checksum of what it brings, where it is known: the same batch brings the same again

    def digest(self, *owner: str) -> str:
        """A short text that stands for this key of an owner, such as a table's UUID."""
        return "batch:" + hashlib.sha256(json.dumps([*owner, self.stream, self.batch_id]).encode()).hexdigest()


class AppendResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an append did; a replayed batch gets the first answer with `replayed` true. Seconds are of this call."""

    table_uuid: str
    rows: int
    files: list[str]
    bytes: int
    dead_letters: int = 0  # rows that broke the table's schema and are kept as dead letters
    replayed: bool = False
    content: str | None = None  # of the batch
    snapshot_id: int | None = None
    seconds: dict[str, float] = {}  # write, register, snapshot
