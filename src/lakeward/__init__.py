"""Lakeward: a streaming lakehouse kept by one SQL registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from lakeward.lake import Lake, StorageManager, connect
    from lakeward.model.files import AppendResult, Batch, FileInfo
    from lakeward.model.tables import Snapshot, Table

__all__ = ["AppendResult", "Batch", "FileInfo", "Lake", "Snapshot", "StorageManager", "Table", "__version__", "connect"]

_HOMES = {
    "AppendResult": "lakeward.model.files",
    "Batch": "lakeward.model.files",
    "FileInfo": "lakeward.model.files",
    "Lake": "lakeward.lake",
    "Snapshot": "lakeward.model.tables",
    "StorageManager": "lakeward.lake",
    "Table": "lakeward.model.tables",
    "connect": "lakeward.lake",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import lakeward` (and the command's --help) is quick."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'lakeward' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
