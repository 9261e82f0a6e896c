"""What looks after the tables: flush, recovery, clean-up, audit."""

from lakeward.components.metadata_orchestrator import MetadataOrchestrator, MetadataOrchestratorConfig
from lakeward.components.schema_manager import SchemaManager, SchemaManagerConfig

__all__ = ["MetadataOrchestrator", "MetadataOrchestratorConfig", "SchemaManager", "SchemaManagerConfig"]
