"""`lakeward.MetadataStore`, to await: each method runs the one of the same name in a thread."""

from __future__ import annotations

import asyncio
import os
from typing import Self

from lakeward.aio.threads import Awaited, awaited, iterated
from lakeward.lake import Lake
from lakeward.lake import MetadataStore as Store


class MetadataStore(Awaited):
    """See `lakeward.MetadataStore`: the same methods, meanings and errors."""

    def __init__(self, lake: Lake | Store) -> None:
        super().__init__(lake if isinstance(lake, Store) else Store(lake))

    @classmethod
    async def open(cls, registry: str | os.PathLike[str]) -> Self:
        return cls(await asyncio.to_thread(Store.open, registry))

    @classmethod
    async def in_memory(cls) -> Self:
        return cls(await asyncio.to_thread(Store.in_memory))

    create_topic = awaited(Store.create_topic)
    delete_topic = awaited(Store.delete_topic)
    get_topic = awaited(Store.get_topic)
    list_topics = awaited(Store.list_topics)
    update_topic_config = awaited(Store.update_topic_config)
    get_partition = awaited(Store.get_partition)
    list_partitions = awaited(Store.list_partitions)
    update_high_watermark = awaited(Store.update_high_watermark)
    add_segment = awaited(Store.add_segment)
    add_segments = awaited(Store.add_segments)
    get_segments = iterated(Store.get_segments)
    find_segment_for_offset = awaited(Store.find_segment_for_offset)
    delete_segments_before = awaited(Store.delete_segments_before)
    ensure_consumer_group = awaited(Store.ensure_consumer_group)
    get_consumer_group = awaited(Store.get_consumer_group)
    commit_offset = awaited(Store.commit_offset)
    commit_offsets = awaited(Store.commit_offsets)
    get_committed_offset = awaited(Store.get_committed_offset)
    get_consumer_offsets = awaited(Store.get_consumer_offsets)
    list_consumer_groups = awaited(Store.list_consumer_groups)
    delete_consumer_group = awaited(Store.delete_consumer_group)
    lag = awaited(Store.lag)
