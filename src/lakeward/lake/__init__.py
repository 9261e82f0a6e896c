"""The front door: `connect` gives a Lake, and a Lake does everything."""

from lakeward.lake.lake import Lake, connect
from lakeward.lake.metadata_store import MetadataStore
from lakeward.lake.rolling import RollingWriter
from lakeward.lake.storage_manager import StorageManager

__all__ = ["Lake", "MetadataStore", "RollingWriter", "StorageManager", "connect"]
