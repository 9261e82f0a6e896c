"""Astha: the registry's changes, pushed to the components that act on them."""

from lakeward.astha.astha import Astha, load_status
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
    Table,
    TableColumn,
    TableFile,
    TableMetadata,
    TableSnapshot,
    TableStats,
    WatchedTable,
)
from lakeward.astha.status import AsthaStatus, ComponentStatus
from lakeward.retry import RetryConfig

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
