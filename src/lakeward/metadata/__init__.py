"""Operations metadata: positions, schemas, runs, errors and dead letters, under the names that people look for."""

from lakeward.metadata.manager import MetadataManager
from lakeward.ops.error_log import Backoff
from lakeward.ops.positions import ANYTHING
from lakeward.ops.records.operations import (
    DeadLetter,
    DeadLetterFilter,
    DeadLetterStatus,
    ErrorFilter,
    ErrorRecord,
    ErrorStatus,
    ErrorTrend,
    ErrorType,
    MarkerType,
    OperationType,
    SyncMarker,
    SyncMode,
    SyncRun,
    SyncRunStatistics,
    SyncStatus,
)
from lakeward.ops.records.schema_versions import (
    Compatibility,
    EvolutionType,
    SchemaChange,
    SchemaDefinition,
    SchemaVersion,
)

__all__ = [
    "ANYTHING",
    "Backoff",
    "Compatibility",
    "DeadLetter",
    "DeadLetterFilter",
    "DeadLetterStatus",
    "ErrorFilter",
    "ErrorRecord",
    "ErrorStatus",
    "ErrorTrend",
    "ErrorType",
    "EvolutionType",
    "MarkerType",
    "MetadataManager",
    "OperationType",
    "SchemaChange",
    "SchemaDefinition",
    "SchemaVersion",
    "SyncMarker",
    "SyncMode",
    "SyncRun",
    "SyncRunStatistics",
    "SyncStatus",
]
