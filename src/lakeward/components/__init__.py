"""The five that Astha drives. Its modules are loaded when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward import late

if TYPE_CHECKING:
    from lakeward.components.metadata_orchestrator import MetadataOrchestrator, MetadataOrchestratorConfig
    from lakeward.components.schema_manager import SchemaManager, SchemaManagerConfig

__all__ = ["MetadataOrchestrator", "MetadataOrchestratorConfig", "SchemaManager", "SchemaManagerConfig"]

__getattr__ = late.attributes(
    __name__,
    {
        **dict.fromkeys(("MetadataOrchestrator", "MetadataOrchestratorConfig"), "metadata_orchestrator"),
        **dict.fromkeys(("SchemaManager", "SchemaManagerConfig"), "schema_manager"),
    },
)
