"""Consumer groups: how far each has read. A committed offset is the next one to read; it goes with its topic."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

import sqlalchemy as sa

from lakeward.db import dialect
from lakeward.db.retry import retried
from lakeward.db.rows import from_row
from lakeward.errors import ConsumerGroupNotFound, InvalidName, InvalidOffset
from lakeward.log import topics
from lakeward.log.records import MAX_OFFSET, ConsumerGroup, ConsumerOffset, PartitionLag, Topic, TopicRef
from lakeward.log.sql import groups, partitions
from lakeward.names import is_storable
from lakeward.registry.handle import Registry

MAX_GROUP_LENGTH = 255


def _check_name(group_id: str) -> None:
    if not isinstance(group_id, str) or not 0 < len(group_id) <= MAX_GROUP_LENGTH or not is_storable(group_id):
        raise InvalidName(
            f"group {str(group_id)[:80]!r} is not allowed: give a text of 1 to {MAX_GROUP_LENGTH} characters, without NUL and surrogates"
        )


@retried
def ensure(registry: Registry, group_id: str) -> None:
    """Make a group; one that exists stays as it is. Raises InvalidName."""
    with registry.database.transaction() as connection:
        ensure_in(connection, registry, group_id, dialect.now(connection))


def ensure_in(connection: sa.Connection, registry: Registry, group_id: str, now: datetime) -> int:
    """The group's key; the group is not deleted before the transaction ends."""
    _check_name(group_id)
    warehouse_id = registry.warehouse.warehouse_id
    found = groups.key(connection, warehouse_id, group_id, share=True)
    if found is None:
        groups.insert(connection, warehouse_id, group_id, now)
        found = groups.key(connection, warehouse_id, group_id, share=True)
    assert found is not None
    return found


def ensure_same_in(connection: sa.Connection, registry: Registry, group_id: str, key: int | None, now: datetime) -> int:
    """As `ensure_in`, for a reader that knows the group by its key, or has not known it yet.

    Raises:
        InvalidName.
        ConsumerGroupNotFound: the group was deleted, even if one was made again under its name.
    """
    found = ensure_in(connection, registry, group_id, now)
    if key is not None and found != key:
        raise ConsumerGroupNotFound(
            f"the group {group_id!r} was deleted while it was in use; nothing was committed: open the reader anew, and it "
            "begins where a new group does"
        )
    return found


def get(registry: Registry, group_id: str) -> ConsumerGroup | None:
    """A group, with the time of its last commit; None if there is none of that name."""
    with registry.database.read() as connection:
        return groups.load(connection, registry.warehouse.warehouse_id, group_id)


def list_groups(registry: Registry) -> list[str]:
    """By name."""
    with registry.database.read() as connection:
        return groups.names(connection, registry.warehouse.warehouse_id)


@retried
def delete(registry: Registry, group_id: str) -> None:
    """Forget a group and all that it has committed. Raises ConsumerGroupNotFound."""
    with registry.database.transaction() as connection:
        groups.delete(connection, load_key(connection, registry, group_id))


def find_key(registry: Registry, group_id: str) -> int | None:
    """What a group is known by, as long as it lives; None for a group that is not there."""
    with registry.database.read() as connection:
        return groups.key(connection, registry.warehouse.warehouse_id, group_id)


def load_key(connection: sa.Connection, registry: Registry, group_id: str) -> int:
    """What a group is known by, as long as it lives. Raises ConsumerGroupNotFound."""
    found = groups.key(connection, registry.warehouse.warehouse_id, group_id)
    if found is None:
        raise ConsumerGroupNotFound(f"no group {group_id!r}; `lakeward groups list` shows those there are")
    return found


# Committing ---------------------------------------------------------------------------------------------------------------
def commit_one(
    registry: Registry,
    group_id: str,
    topic: str,
    partition_id: int,
    offset: int,
    metadata: str | None = None,
    *,
    strict: bool = False,
) -> None:
    """Commit the next offset to read of one partition; the group is made if it is new. A lower one than before is a rewind.

    Raises:
        TopicNotFound, PartitionNotFound, InvalidName.
        InvalidOffset: it is negative, or with `strict` past the high watermark.
    """
    commit(registry, group_id, [ConsumerOffset(group_id, topic, partition_id, offset, metadata)], strict=strict)


def commit(registry: Registry, group_id: str, offsets: Iterable[ConsumerOffset], *, strict: bool = False) -> None:
    """Commit offsets, of one partition or many, in one transaction; the group is made if it is new.

    Any offset from 0 on is accepted, as in Kafka, a lower one than before too; with `strict` none past the high watermark.

    Raises:
        TopicNotFound, PartitionNotFound, InvalidName.
        InvalidOffset: a negative one, or with `strict` one past the high watermark.
    """
    by_name: dict[str, dict[int, ConsumerOffset]] = {}
    for each in offsets:
        by_name.setdefault(each.topic, {})[each.partition_id] = each
    _commit(registry, group_id, by_name, strict)


@retried
def _commit(
    registry: Registry, group_id: str, by_name: Mapping[str, Mapping[int, ConsumerOffset]], strict: bool
) -> None:
    with registry.database.transaction() as connection:
        for name, chosen in sorted(by_name.items()):
            topic = topics.load_in(connection, registry, name)
            commit_in(connection, registry, group_id, topic, chosen.values(), strict=strict)


@retried
def commit_read(
    registry: Registry, group_id: str, offsets: Collection[tuple[Topic, Mapping[int, int]]], key: int | None = None
) -> int:
    """Commit how far topics were read, in one transaction: offsets by partition, of those very topics.

    Args:
        key: the group's, as the reader first knew it; None where it was not there.

    Returns:
        The group's key.

    Raises:
        TopicNotFound: a topic was deleted, even if one was made again under its name.
        ConsumerGroupNotFound: the group of `key` was deleted, even if one was made again under its name.
        PartitionNotFound, InvalidName, InvalidOffset.
    """
    with registry.database.transaction() as connection:
        same = ensure_same_in(connection, registry, group_id, key, dialect.now(connection))
        for read, numbers in sorted(offsets, key=lambda each: each[0].name):
            topic = topics.load_in(connection, registry, read)
            chosen = [ConsumerOffset(group_id, topic.name, number, offset) for number, offset in numbers.items()]
            commit_in(connection, registry, group_id, topic, chosen)
    return same


def commit_in(
    connection: sa.Connection,
    registry: Registry,
    group_id: str,
    topic: Topic,
    offsets: Iterable[ConsumerOffset],
    *,
    strict: bool = False,
) -> None:
    """As `commit`, of one topic, in the caller's transaction: with what was made of the records, say."""
    chosen = list(offsets)
    _check_offsets(connection, topic, chosen, strict)
    now = dialect.now(connection)
    key = ensure_in(connection, registry, group_id, now)
    rows = [
        {
            "group_key": key,
            "topic_id": topic.topic_id,
            "partition_id": each.partition_id,
            "committed_offset": each.committed_offset,
            "metadata": each.metadata,
            "committed_at": now,
        }
        for each in sorted(chosen, key=lambda each: each.partition_id)
    ]
    if rows:
        groups.touch(connection, key, now)
        groups.set_offsets(connection, rows)


def _check_offsets(connection: sa.Connection, topic: Topic, offsets: list[ConsumerOffset], strict: bool) -> None:
    known = topics.locked_partitions(connection, topic, [each.partition_id for each in offsets], share=True)
    for each in offsets:
        where = f"offset {each.committed_offset} of {topic.name}, partition {each.partition_id}"
        if not 0 <= each.committed_offset <= MAX_OFFSET + 1:
            raise InvalidOffset(f"{where}, cannot be committed: offsets are from 0 to {MAX_OFFSET}")
        mark = known[each.partition_id].high_watermark
        if strict and each.committed_offset > mark:
            raise InvalidOffset(f"{where}, is past the high watermark {mark}")


# Looking ------------------------------------------------------------------------------------------------------------------
def committed(registry: Registry, group_id: str, topic: TopicRef, partition_id: int) -> int | None:
    """The next offset to read; None if the group has committed none there."""
    query = groups.COMMITTED_BY_ID if isinstance(topic, Topic) else groups.COMMITTED
    parameters = {
        **topics.key_of(registry, topic),
        "warehouse_id": registry.warehouse.warehouse_id,
        "group_id": group_id,
        "partition_id": partition_id,
    }
    found = from_row(ConsumerOffset, registry.database.lookups.one(query, parameters))
    return None if found is None else found.committed_offset


def offsets(registry: Registry, group_id: str, topic: TopicRef | None = None) -> list[ConsumerOffset]:
    """All that a group has committed (in one topic), by topic and partition; empty for an unknown group.

    Raises TopicNotFound.
    """
    with registry.database.read() as connection:
        topic_id = None if topic is None else topics.load_in(connection, registry, topic).topic_id
        key = groups.key(connection, registry.warehouse.warehouse_id, group_id)
        return [] if key is None else groups.offsets(connection, key, topic_id)


def lag(registry: Registry, group_id: str) -> list[PartitionLag]:
    """How far a group is behind, in every partition of the topics in which it has committed something.

    A partition without a committed offset counts from the start of its log. Raises ConsumerGroupNotFound.
    """
    with registry.database.read() as connection:
        return _lag(connection, registry, load_key(connection, registry, group_id))


def lags(connection: sa.Connection, registry: Registry) -> dict[str, list[PartitionLag]]:
    """Every group's lag, as of the connection's transaction, by name."""
    names = groups.names(connection, registry.warehouse.warehouse_id)
    return {name: _lag(connection, registry, load_key(connection, registry, name)) for name in names}


def _lag(connection: sa.Connection, registry: Registry, key: int) -> list[PartitionLag]:
    done: dict[str, dict[int, int]] = {}
    for each in groups.offsets(connection, key):
        done.setdefault(each.topic, {})[each.partition_id] = each.committed_offset
    found: list[PartitionLag] = []
    for name, committed_offsets in done.items():
        topic = topics.load_in(connection, registry, name)
        for partition in partitions.of_topic(connection, topic.topic_id):
            at = committed_offsets.get(partition.partition_id, partition.log_start_offset)
            behind = max(0, partition.high_watermark - max(at, partition.log_start_offset))
            found.append(PartitionLag(name, partition.partition_id, at, partition.high_watermark, behind))
    return found
