"""The same things to await. See docs/decisions/0007-async-front.md."""

from lakeward.aio.metadata_manager import MetadataManager
from lakeward.aio.metadata_store import MetadataStore

__all__ = ["MetadataManager", "MetadataStore"]
