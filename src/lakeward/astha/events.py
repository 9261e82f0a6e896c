"""Events of the feed: one for each changed row of a watched registry table, typed by that table's record.

The records have the columns' names. What the feed leaves out (statistics, split offsets) they lack; a component that needs
it reads the registry. Columns that a newer version has added are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from lakeward.tables.records.files import TableFile
from lakeward.tables.records.tables import StatsRow, TableMetadata, TableRow, TableSnapshot

Operation = Literal["INSERT", "UPDATE", "DELETE"]


class TableColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `table_columns`."""

    table_id: int
    field_id: int
    position: int
    name: str
    type: Any  # an Iceberg type: a name, or a document
    required: bool
    doc: str | None


T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class WatchedTable(str, Generic[T_co]):
    """The name of a watched registry table; its type says which record its events carry."""

    record: type[T_co]

    def __new__(cls, name: str, record: type[T_co]) -> WatchedTable[T_co]:
        made = super().__new__(cls, name)
        made.record = record
        return made


TABLES = WatchedTable("tables", TableRow)
TABLE_COLUMNS = WatchedTable("table_columns", TableColumn)
TABLE_METADATA = WatchedTable("table_metadata", TableMetadata)
TABLE_FILES = WatchedTable("table_files", TableFile)
TABLE_STATS = WatchedTable("table_stats", StatsRow)
TABLE_SNAPSHOTS = WatchedTable("table_snapshots", TableSnapshot)

Record: TypeAlias = TableRow | TableColumn | TableMetadata | TableFile | StatsRow | TableSnapshot
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
