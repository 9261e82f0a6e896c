"""The rules of the lakehouse: one transaction per public operation. Its modules are loaded when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward import late
from lakeward.registry.handle import HasRegistry, Registry, open_registry, registry_of

if TYPE_CHECKING:
    from lakeward.registry import evolution, footers, leases, namespaces, retirement, snapshots, tables

__all__ = [
    "HasRegistry",
    "Registry",
    "evolution",
    "footers",
    "leases",
    "namespaces",
    "open_registry",
    "registry_of",
    "retirement",
    "snapshots",
    "tables",
]

__getattr__ = late.attributes(__name__)
