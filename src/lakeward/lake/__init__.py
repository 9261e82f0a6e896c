"""The front door: `connect` gives a Lake, and a Lake does everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward import late

if TYPE_CHECKING:
    from lakeward.lake import ingest, log, rolling, writes
    from lakeward.lake.lake import Lake, connect
    from lakeward.lake.metadata_store import MetadataStore
    from lakeward.lake.rolling import RollingWriter
    from lakeward.lake.storage_manager import StorageManager

__all__ = ["Lake", "MetadataStore", "RollingWriter", "StorageManager", "connect", "ingest", "log", "rolling", "writes"]

_HOMES = {
    **dict.fromkeys(("Lake", "connect"), "lake"),
    "MetadataStore": "metadata_store",
    "RollingWriter": "rolling",
    "StorageManager": "storage_manager",
}


__getattr__ = late.attributes(__name__, _HOMES)
