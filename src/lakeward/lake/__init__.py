"""The front door: `connect` gives a Lake, and a Lake does everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakeward.lake.lake import Lake, connect
    from lakeward.lake.metadata_store import MetadataStore
    from lakeward.lake.rolling import RollingWriter
    from lakeward.lake.storage_manager import StorageManager

__all__ = ["Lake", "MetadataStore", "RollingWriter", "StorageManager", "connect"]

_HOMES = {
    **dict.fromkeys(("Lake", "connect"), "lake"),
    "MetadataStore": "metadata_store",
    "RollingWriter": "rolling",
    "StorageManager": "storage_manager",
}


def __getattr__(name: str) -> Any:
    """Import on first use: who only asks where an offset is does not load what writes tables (70 MB)."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'lakeward.lake' has no attribute {name!r}")
    return getattr(importlib.import_module(f"lakeward.lake.{_HOMES[name]}"), name)
