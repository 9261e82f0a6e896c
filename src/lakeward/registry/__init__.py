"""The rules of the lakehouse: one transaction per public operation."""

from lakeward.registry.handle import HasRegistry, Registry, open_registry, registry_of

__all__ = ["HasRegistry", "Registry", "open_registry", "registry_of"]
