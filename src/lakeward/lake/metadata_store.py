"""The metadata of the topic log under the names that people look for: a thin front over the registry's functions."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from lakeward.config import load_settings
from lakeward.iceberg.schemas import schema_from
from lakeward.lake.argument_aliases import also_named
from lakeward.log import groups, segments, topics
from lakeward.log.records import ConsumerGroup, ConsumerOffset, Partition, PartitionLag, SegmentInfo, Topic, TopicConfig
from lakeward.registry import Registry, open_registry
from lakeward.tables.records.tables import Document

if TYPE_CHECKING:
    from lakeward.lake.lake import Lake

_MEMORY = "/dev/shm"  # noqa: S108 - a folder of its own is made in it
FIRST_VALUE_FIELD = 100  # field ids of a declared schema of values follow it: those before are the record's own


class MetadataStore:
    """Topics, partitions, segments and consumer groups of a registry. Threads may share it.

    Look-ups give None for what does not exist; operations that change something raise, and then change nothing.
    """

    def __init__(self, lake: Lake | Registry) -> None:
        self._registry = lake if isinstance(lake, Registry) else lake.registry
        self._own = False
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @classmethod
    def open(cls, registry: str | os.PathLike[str]) -> Self:
        """A store of its own on a SQLite file or postgresql://user@host/database, made or upgraded where needed.

        Raises:
            InvalidSetting, RegistryUnavailable, RegistryTooNew.
        """
        settings = load_settings(registry=registry)
        store = cls(open_registry(settings, upgrade=True, touch_warehouse=False))
        store._own = True
        return store

    @classmethod
    def in_memory(cls) -> Self:
        """A store for tests: new and empty, shared by threads, and gone when it is closed."""
        folder = tempfile.TemporaryDirectory(prefix="lakeward-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None)
        settings = load_settings(
            registry=os.path.join(folder.name, "registry.db"), warehouse=folder.name, durable=False
        )
        store = cls(open_registry(settings))
        store._own, store._folder = True, folder
        return store

    def close(self) -> None:
        """Let go of what this store has opened itself; a Lake's registry stays open."""
        if self._own:
            self._registry.close()
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Topics ---------------------------------------------------------------------------------------------------------------
    def create_topic(self, config: TopicConfig) -> Topic:
        """Raises TopicAlreadyExists, InvalidName, InvalidInput, InvalidSchema."""
        return topics.create(self._registry, config, _value_schema(config.value_schema))

    @also_named(name="topic")
    def delete_topic(self, topic: str) -> None:
        """Partitions, segments and committed offsets go with it; its files wait in quarantine. Raises TopicNotFound."""
        topics.delete(self._registry, topic)

    @also_named(name="topic")
    def get_topic(self, topic: str) -> Topic | None:
        """A topic; none if there is none of that name."""
        return topics.get(self._registry, topic)

    def list_topics(self) -> list[Topic]:
        """By name."""
        return topics.list_topics(self._registry)

    @also_named(name="topic")
    def update_topic_config(
        self,
        topic: str,
        config: Mapping[str, str | None] | None = None,
        *,
        partition_count: int | None = None,
        retention_ms: int | None = topics.KEEP,
    ) -> Topic:
        """Change what is given. `config` is laid over what is there; None for a value removes it.

        Raises:
            TopicNotFound.
            InvalidInput: fewer partitions than there are, or a value that is not allowed.
        """
        return topics.update(
            self._registry, topic, partition_count=partition_count, retention_ms=retention_ms, config=config
        )

    # Partitions -----------------------------------------------------------------------------------------------------------
    def get_partition(self, topic: str, partition_id: int) -> Partition | None:
        """A partition with its high watermark and log start; none if there is no such topic or partition."""
        return topics.get_partition(self._registry, topic, partition_id)

    def list_partitions(self, topic: str) -> list[Partition]:
        """By number. Raises TopicNotFound."""
        return topics.list_partitions(self._registry, topic)

    @also_named(offset="high_watermark")
    def update_high_watermark(self, topic: str, partition_id: int, high_watermark: int) -> Partition:
        """Segments raise it as they are added. Raises TopicNotFound, PartitionNotFound, InvalidOffset: back, or past them."""
        return segments.raise_watermark(self._registry, topic, partition_id, high_watermark)

    # Segments -------------------------------------------------------------------------------------------------------------
    def add_segment(self, segment: SegmentInfo) -> SegmentInfo:
        """Register a segment, and raise the high watermark to its end_offset + 1; as it is registered, with its id.

        An `id` and a `created_at` that it is given with are kept as `given_id` and `given_created_at`.

        Raises:
            TopicNotFound, PartitionNotFound.
            InvalidOffset: it overlaps another or leaves a hole, or its offsets and its count do not fit each other.
        """
        return segments.add_one(self._registry, segment)

    def add_segments(self, new: Sequence[SegmentInfo]) -> int:
        """Register many in one transaction, those of a partition in their order; how many were. Raises as `add_segment`."""
        return segments.add(self._registry, new)

    def get_segments(
        self, topic: str, partition_id: int, start_offset: int = 0, end_offset: int | None = None
    ) -> Sequence[SegmentInfo]:
        """Segments with offsets from `start_offset` to before `end_offset`, by offset: read as they are asked for, by place
        or one after the other, a thousand at a time.

        Raises (when one is asked for): TopicNotFound, PartitionNotFound.
        """
        return segments.Segments(self._registry, topic, partition_id, start_offset, end_offset)

    def find_segment_for_offset(self, topic: str, partition_id: int, offset: int) -> SegmentInfo | None:
        """The segment that holds an offset; none if no segment does."""
        return segments.find(self._registry, topic, partition_id, offset)

    @also_named(before_offset="offset")
    def delete_segments_before(self, topic: str, partition_id: int, offset: int) -> int:
        """Delete whole segments that end before an offset; how many were. Raises TopicNotFound, PartitionNotFound."""
        return segments.delete_before(self._registry, topic, partition_id, offset)

    # Consumer groups ------------------------------------------------------------------------------------------------------
    def ensure_consumer_group(self, group_id: str) -> None:
        """Raises InvalidName."""
        groups.ensure(self._registry, group_id)

    def get_consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """A group, with the time of its last commit; none if there is none of that name."""
        return groups.get(self._registry, group_id)

    def commit_offset(
        self,
        group_id: str,
        topic: str,
        partition_id: int,
        offset: int,
        metadata: str | None = None,
        *,
        strict: bool = False,
    ) -> None:
        """Commit the next offset to read; the group is made if it is new. A lower one than before is a rewind.

        Raises:
            TopicNotFound, PartitionNotFound, InvalidName.
            InvalidOffset: it is negative, or with `strict` past the high watermark.
        """
        groups.commit(
            self._registry, group_id, [ConsumerOffset(group_id, topic, partition_id, offset, metadata)], strict=strict
        )

    def commit_offsets(self, group_id: str, offsets: Iterable[ConsumerOffset], *, strict: bool = False) -> None:
        """Commit offsets of many partitions in one transaction. Raises as `commit_offset` does."""
        groups.commit(self._registry, group_id, offsets, strict=strict)

    def get_committed_offset(self, group_id: str, topic: str, partition_id: int) -> int | None:
        """The offset that a group goes on from; none if it has committed none."""
        return groups.committed(self._registry, group_id, topic, partition_id)

    def get_consumer_offsets(self, group_id: str, topic: str | None = None) -> list[ConsumerOffset]:
        """All that a group has committed (in one topic); empty for an unknown group. Raises TopicNotFound."""
        return groups.offsets(self._registry, group_id, topic)

    def list_consumer_groups(self) -> list[str]:
        """By name."""
        return groups.list_groups(self._registry)

    def delete_consumer_group(self, group_id: str) -> None:
        """Raises ConsumerGroupNotFound."""
        groups.delete(self._registry, group_id)

    def lag(self, group_id: str) -> list[PartitionLag]:
        """How far the group is behind in each partition of its topics. Raises ConsumerGroupNotFound."""
        return groups.lag(self._registry, group_id)


def _value_schema(source: object) -> Document | None:
    """A declared schema as an Iceberg struct whose field ids do not meet those of the record's own columns."""
    if source is None:
        return None
    document, _ = schema_from(source)
    fields = _shifted(document["fields"])
    return {"type": "struct", "fields": fields}


def _shifted(part: object) -> object:
    """A part of a schema document with other ids."""
    if isinstance(part, list):
        return [_shifted(each) for each in part]
    if not isinstance(part, dict):
        return part
    ids = ("id", "element-id", "key-id", "value-id")
    return {
        key: value + FIRST_VALUE_FIELD if key in ids and isinstance(value, int) else _shifted(value)
        for key, value in part.items()
    }
