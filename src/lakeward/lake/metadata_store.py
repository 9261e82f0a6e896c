"""`MetadataStore`: the functions for the topic log's metadata, under the names that people look for."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from lakeward.config import load_settings
from lakeward.fronts import bound
from lakeward.log import groups, segments, topics
from lakeward.registry import Registry, open_registry

if TYPE_CHECKING:
    from lakeward.lake.lake import Lake

_MEMORY = "/dev/shm"  # noqa: S108 - a folder of its own is made in it


class MetadataStore:
    """Topics, partitions, segments and consumer groups of a registry. Threads may share it.

    Look-ups give None for what does not exist; operations that change something raise, and then change nothing.
    """

    def __init__(self, lake: Lake | Registry) -> None:
        self.registry = lake if isinstance(lake, Registry) else lake.registry
        self._own = ExitStack()  # what this store has opened itself

    @classmethod
    def open(cls, registry: str | os.PathLike[str]) -> Self:
        """A store of its own on a SQLite file or postgresql://user@host/database, made or upgraded where needed.

        Raises:
            InvalidSetting, RegistryUnavailable, RegistryTooNew.
        """
        settings = load_settings(registry=registry)
        store = cls(open_registry(settings, upgrade=True, touch_warehouse=False))
        store._own.callback(store.registry.close)
        return store

    @classmethod
    def in_memory(cls) -> Self:
        """A store for tests: new and empty, shared by threads, and gone when it is closed."""
        folder = tempfile.TemporaryDirectory(prefix="lakeward-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None)
        settings = load_settings(
            registry=os.path.join(folder.name, "registry.db"), warehouse=folder.name, durable=False
        )
        store = cls(open_registry(settings))
        store._own.callback(folder.cleanup)
        store._own.callback(store.registry.close)
        return store

    def close(self) -> None:
        """Let go of what this store has opened itself; a Lake's registry stays open."""
        self._own.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Topics ---------------------------------------------------------------------------------------------------------------
    create_topic = bound(topics.create)
    delete_topic = bound(topics.delete, name="topic")
    get_topic = bound(topics.get, name="topic")
    list_topics = bound(topics.list_topics)
    update_topic_config = bound(topics.update, name="topic")

    # Partitions -----------------------------------------------------------------------------------------------------------
    get_partition = bound(topics.get_partition)
    list_partitions = bound(topics.list_partitions)
    update_high_watermark = bound(segments.raise_watermark, offset="high_watermark")

    # Segments -------------------------------------------------------------------------------------------------------------
    add_segment = bound(segments.add_one)
    add_segments = bound(segments.add)
    get_segments = bound(segments.Segments)
    find_segment_for_offset = bound(segments.find)
    delete_segments_before = bound(segments.delete_before, before_offset="offset")

    # Consumer groups ------------------------------------------------------------------------------------------------------
    ensure_consumer_group = bound(groups.ensure)
    get_consumer_group = bound(groups.get)
    commit_offset = bound(groups.commit_one)
    commit_offsets = bound(groups.commit)
    get_committed_offset = bound(groups.committed)
    get_consumer_offsets = bound(groups.offsets)
    list_consumer_groups = bound(groups.list_groups)
    delete_consumer_group = bound(groups.delete)
    lag = bound(groups.lag)
