"""`lakeward.MetadataStore`, to await: each method runs the one of the same name in a thread."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Self

from lakeward.aio.threads import Threads
from lakeward.lake import Lake
from lakeward.lake import MetadataStore as Store
from lakeward.lake.argument_aliases import also_named
from lakeward.log import topics
from lakeward.log.records import ConsumerGroup, ConsumerOffset, Partition, PartitionLag, SegmentInfo, Topic, TopicConfig


class MetadataStore:
    """See `lakeward.MetadataStore`: the same methods, meanings and errors."""

    def __init__(self, lake: Lake | Store) -> None:
        self._store = lake if isinstance(lake, Store) else Store(lake)
        self._threads = Threads()

    @classmethod
    async def open(cls, registry: str | os.PathLike[str]) -> Self:
        return cls(await asyncio.to_thread(Store.open, registry))

    @classmethod
    async def in_memory(cls) -> Self:
        return cls(await asyncio.to_thread(Store.in_memory))

    async def close(self) -> None:
        await self._threads.run(self._store.close)
        await self._threads.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Topics ---------------------------------------------------------------------------------------------------------------

    async def create_topic(self, config: TopicConfig) -> Topic:
        return await self._threads.run(self._store.create_topic, config)

    @also_named(name="topic")
    async def delete_topic(self, topic: str) -> None:
        await self._threads.run(self._store.delete_topic, topic)

    @also_named(name="topic")
    async def get_topic(self, topic: str) -> Topic | None:
        return await self._threads.run(self._store.get_topic, topic)

    async def list_topics(self) -> list[Topic]:
        return await self._threads.run(self._store.list_topics)

    @also_named(name="topic")
    async def update_topic_config(
        self,
        topic: str,
        config: Mapping[str, str | None] | None = None,
        *,
        partition_count: int | None = None,
        retention_ms: int | None = topics.KEEP,
    ) -> Topic:
        return await self._threads.run(
            self._store.update_topic_config, topic, config, partition_count=partition_count, retention_ms=retention_ms
        )

    # Partitions -----------------------------------------------------------------------------------------------------------

    async def get_partition(self, topic: str, partition_id: int) -> Partition | None:
        return await self._threads.run(self._store.get_partition, topic, partition_id)

    async def list_partitions(self, topic: str) -> list[Partition]:
        return await self._threads.run(self._store.list_partitions, topic)

    @also_named(offset="high_watermark")
    async def update_high_watermark(self, topic: str, partition_id: int, high_watermark: int) -> Partition:
        return await self._threads.run(self._store.update_high_watermark, topic, partition_id, high_watermark)

    # Segments -------------------------------------------------------------------------------------------------------------

    async def add_segment(self, segment: SegmentInfo) -> SegmentInfo:
        return await self._threads.run(self._store.add_segment, segment)

    async def add_segments(self, new: Sequence[SegmentInfo]) -> int:
        return await self._threads.run(self._store.add_segments, new)

    def get_segments(
        self, topic: str, partition_id: int, start_offset: int = 0, end_offset: int | None = None
    ) -> AsyncIterator[SegmentInfo]:
        return self._threads.iterate(
            lambda: iter(self._store.get_segments(topic, partition_id, start_offset, end_offset))
        )

    async def find_segment_for_offset(self, topic: str, partition_id: int, offset: int) -> SegmentInfo | None:
        return await self._threads.run(self._store.find_segment_for_offset, topic, partition_id, offset)

    @also_named(before_offset="offset")
    async def delete_segments_before(self, topic: str, partition_id: int, offset: int) -> int:
        return await self._threads.run(self._store.delete_segments_before, topic, partition_id, offset)

    # Consumer groups ------------------------------------------------------------------------------------------------------

    async def ensure_consumer_group(self, group_id: str) -> None:
        await self._threads.run(self._store.ensure_consumer_group, group_id)

    async def get_consumer_group(self, group_id: str) -> ConsumerGroup | None:
        return await self._threads.run(self._store.get_consumer_group, group_id)

    async def commit_offset(
        self,
        group_id: str,
        topic: str,
        partition_id: int,
        offset: int,
        metadata: str | None = None,
        *,
        strict: bool = False,
    ) -> None:
        await self._threads.run(
            self._store.commit_offset, group_id, topic, partition_id, offset, metadata, strict=strict
        )

    async def commit_offsets(self, group_id: str, offsets: Iterable[ConsumerOffset], *, strict: bool = False) -> None:
        await self._threads.run(self._store.commit_offsets, group_id, offsets, strict=strict)

    async def get_committed_offset(self, group_id: str, topic: str, partition_id: int) -> int | None:
        return await self._threads.run(self._store.get_committed_offset, group_id, topic, partition_id)

    async def get_consumer_offsets(self, group_id: str, topic: str | None = None) -> list[ConsumerOffset]:
        return await self._threads.run(self._store.get_consumer_offsets, group_id, topic)

    async def list_consumer_groups(self) -> list[str]:
        return await self._threads.run(self._store.list_consumer_groups)

    async def delete_consumer_group(self, group_id: str) -> None:
        await self._threads.run(self._store.delete_consumer_group, group_id)

    async def lag(self, group_id: str) -> list[PartitionLag]:
        return await self._threads.run(self._store.lag, group_id)
