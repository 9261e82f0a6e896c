"""Lakeward: a streaming lakehouse kept by one SQL registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward import late

__version__ = "0.1.0"

if TYPE_CHECKING:
    from lakeward.lake import Lake, MetadataStore, StorageManager, connect
    from lakeward.log.records import ConsumerOffset, Partition, SegmentInfo, Topic, TopicConfig
    from lakeward.tables.records.files import AppendResult, Batch, FileInfo
    from lakeward.tables.records.tables import Snapshot, Table

__all__ = [
    "AppendResult", "Batch", "ConsumerOffset", "FileInfo", "Lake", "MetadataStore", "Partition", "SegmentInfo", "Snapshot",
    "StorageManager", "Table", "Topic", "TopicConfig", "__version__", "connect",
]  # fmt: skip

_HOMES = {
    **dict.fromkeys(("AppendResult", "Batch", "FileInfo"), "tables.records.files"),
    **dict.fromkeys(("Lake", "MetadataStore", "StorageManager", "connect"), "lake"),
    **dict.fromkeys(("Snapshot", "Table"), "tables.records.tables"),
    **dict.fromkeys(("ConsumerOffset", "Partition", "SegmentInfo", "Topic", "TopicConfig"), "log.records"),
}


__getattr__ = late.attributes(__name__, _HOMES)
