"""Operations metadata: positions, schemas, runs, errors and dead letters, under the names that people look for."""

from lakeward.metadata.manager import MetadataManager
from lakeward.model.operations import (
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
from lakeward.model.schema_versions import (
    Compatibility,
    EvolutionType,
    SchemaChange,
    SchemaDefinition,
    SchemaVersion,
)
from lakeward.registry.error_log import Backoff
from lakeward.registry.positions import ANYTHING

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
