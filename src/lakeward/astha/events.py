"""Events of the feed: one for each changed row of a watched registry table, typed by that table's record.

The records have the columns' names. What the feed leaves out (statistics, split offsets) they lack; a component that needs
it reads the registry. Columns that a newer version has added are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from lakeward.tables.records.tables import Document

Operation = Literal["INSERT", "UPDATE", "DELETE"]


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `tables`."""

    table_id: int
    table_uuid: str
    namespace_id: int | None  # None once dropped
    name: str
    location: str
    format: str
    format_version: int
    version: int
    row_count: int
    deleted_row_count: int
    total_size: int
    file_count: int
    landing_row_count: int
    landing_size: int
    landing_file_count: int
    last_modified: datetime
    last_column_id: int
    last_partition_id: int
    metadata_location: str | None
    iceberg_version: int
    current_snapshot_id: int | None
    created_at: datetime
    dropped_at: datetime | None


class TableColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `table_columns`."""

    table_id: int
    field_id: int
    position: int
    name: str
    type: Any  # an Iceberg type: a name, or a document
    required: bool
    doc: str | None


class TableMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `table_metadata`: a new version arrives as an INSERT."""

    table_id: int
    metadata_version: int
    schema_version: int
    schema: Document
    spec_id: int
    partition_by: Document
    sort_order_id: int
    sort_by: Document
    properties: dict[str, str]
    storage_engine: str
    engine_config: dict[str, Any]
    format: str
    compression: str
    change: str
    created_at: datetime


class TableFile(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `table_files`, without its statistics and split offsets."""

    file_id: int
    table_id: int
    file_name: str
    file_path: str
    file_size: int
    file_type: str
    content: int
    referenced_data_file: str | None
    partition_key: str
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
    snapshot_id: int | None
    sequence_number: int | None
    first_row_id: int | None
    set_aside_reason: str | None


class TableStats(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `table_stats`, without the columns' statistics."""

    table_id: int
    spec_id: int
    partition_key: str
    file_type: str
    partition_path: str
    row_count: int
    file_count: int
    total_size: int
    last_modified: datetime


class TableSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `table_snapshots`."""

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
    trigger: str
    created_at: datetime
    expired_at: datetime | None


T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class WatchedTable(str, Generic[T_co]):
    """The name of a watched registry table; its type says which record its events carry."""

    record: type[T_co]

    def __new__(cls, name: str, record: type[T_co]) -> WatchedTable[T_co]:
        made = super().__new__(cls, name)
        made.record = record
        return made


TABLES = WatchedTable("tables", Table)
TABLE_COLUMNS = WatchedTable("table_columns", TableColumn)
TABLE_METADATA = WatchedTable("table_metadata", TableMetadata)
TABLE_FILES = WatchedTable("table_files", TableFile)
TABLE_STATS = WatchedTable("table_stats", TableStats)
TABLE_SNAPSHOTS = WatchedTable("table_snapshots", TableSnapshot)

Record: TypeAlias = Table | TableColumn | TableMetadata | TableFile | TableStats | TableSnapshot
WATCHED: Mapping[str, WatchedTable[Record]] = {
    name: name for name in (TABLES, TABLE_COLUMNS, TABLE_METADATA, TABLE_FILES, TABLE_STATS, TABLE_SNAPSHOTS)
}

# Who is told what: fixed, so that what a component hears of can be read here.
SUBSCRIPTIONS: Mapping[str, frozenset[str]] = {
    "iceberg_updater": frozenset({TABLE_METADATA, TABLE_FILES}),
    "compactor": frozenset({TABLE_FILES, TABLE_STATS}),
    "snapshotter": frozenset({TABLE_METADATA, TABLE_FILES, TABLE_SNAPSHOTS}),
    "metadata_orchestrator": frozenset({TABLES, TABLE_METADATA}),
    "schema_manager": frozenset({TABLES, TABLE_COLUMNS, TABLE_METADATA}),
}


class Event(msgspec.Struct, Generic[T_co], frozen=True):
    """One change of one row: the row after it, or before it where it was deleted."""

    table: str  # the registry table: one of WATCHED
    operation: Operation
    data: T_co
    timestamp: datetime  # when the change was made, by the registry's clock
    table_id: int  # the lakehouse table that it concerns
    sequence: int  # the feed's number of it; rises within a lakehouse table


class Subscriber(Protocol[T]):
    """What Astha pushes events to. mypy checks that `on_event` takes the records of all that it subscribes to.

    Methods are called from Astha's threads: `on_event` for one event of a lakehouse table at a time, in their order, and
    for several tables at once. Whatever raises is tried again. All must be idempotent: an event may come twice.
    """

    @property
    def name(self) -> str:
        """A name in SUBSCRIPTIONS."""

    @property
    def version(self) -> str:
        """Of the component, as `lakeward astha status` shows it."""

    def get_subscribed_tables(self) -> Sequence[WatchedTable[T]]:
        """The registry tables it hears of: exactly those of its name in SUBSCRIPTIONS or `AsthaConfig.subscriptions`."""

    def on_event(self, event: Event[T]) -> None:
        """Act on one change. Raise, and it comes again after a while; returning says that it is done."""

    def on_health(self) -> bool | None:
        """Whether it works: returning nothing counts as yes, raising as no. Called on an interval, and must return soon."""

    def on_refresh(self) -> None:
        """Take the whole state from the registry: at each start, and when events were parked, dropped or trimmed."""


class Registers(Protocol):
    """What a component registers itself with: Astha."""

    def register(
        self,
        subscriber: Subscriber[T],
        *,
        operations: Iterable[str] | None = None,
        tables: Iterable[int] | None = None,
        fold: bool = False,
    ) -> None: ...
