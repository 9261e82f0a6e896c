"""The rules of the lakehouse: one transaction per public operation."""

from lakeward.registry.handle import Registry, open_registry

__all__ = ["Registry", "open_registry"]
