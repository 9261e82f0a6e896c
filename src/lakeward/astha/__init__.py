"""Astha: the registry's changes, pushed to the components that act on them."""

from lakeward.astha.astha import Astha
from lakeward.astha.config import AsthaConfig
from lakeward.astha.events import (
    SUBSCRIPTIONS,
    TABLE_COLUMNS,
    TABLE_FILES,
    TABLE_METADATA,
    TABLE_SNAPSHOTS,
    TABLE_STATS,
    TABLES,
    Event,
    Subscriber,
    TableColumn,
    WatchedTable,
)
from lakeward.astha.status import AsthaStatus, ComponentStatus, load_status
from lakeward.retry import RetryConfig
from lakeward.tables.records.files import TableFile
from lakeward.tables.records.tables import StatsRow as TableStats
from lakeward.tables.records.tables import TableMetadata, TableSnapshot
from lakeward.tables.records.tables import TableRow as Table

__all__ = [
    "SUBSCRIPTIONS",
    "TABLES",
    "TABLE_COLUMNS",
    "TABLE_FILES",
    "TABLE_METADATA",
    "TABLE_SNAPSHOTS",
    "TABLE_STATS",
    "Astha",
    "AsthaConfig",
    "AsthaStatus",
    "ComponentStatus",
    "Event",
    "RetryConfig",
    "Subscriber",
    "Table",
    "TableColumn",
    "TableFile",
    "TableMetadata",
    "TableSnapshot",
    "TableStats",
    "WatchedTable",
    "load_status",
]
