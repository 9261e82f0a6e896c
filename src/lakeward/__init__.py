"""Lakeward: a streaming lakehouse kept by one SQL registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from lakeward.lake import Lake, MetadataStore, StorageManager, connect
    from lakeward.model.files import AppendResult, Batch, FileInfo
    from lakeward.model.tables import Snapshot, Table
    from lakeward.model.topics import ConsumerOffset, Partition, SegmentInfo, Topic, TopicConfig

__all__ = [
    "AppendResult", "Batch", "ConsumerOffset", "FileInfo", "Lake", "MetadataStore", "Partition", "SegmentInfo", "Snapshot",
    "StorageManager", "Table", "Topic", "TopicConfig", "__version__", "connect",
]  # fmt: skip

_HOMES = {
    **dict.fromkeys(("AppendResult", "Batch", "FileInfo"), "lakeward.model.files"),
    **dict.fromkeys(("Lake", "MetadataStore", "StorageManager", "connect"), "lakeward.lake"),
    **dict.fromkeys(("Snapshot", "Table"), "lakeward.model.tables"),
    **dict.fromkeys(("ConsumerOffset", "Partition", "SegmentInfo", "Topic", "TopicConfig"), "lakeward.model.topics"),
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import lakeward` (and the command's --help) is quick."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'lakeward' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
