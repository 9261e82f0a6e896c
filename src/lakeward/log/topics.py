"""Topics: made, found, grown, deleted. What is in them is in `segments`."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from lakeward import validation
from lakeward.db import dialect
from lakeward.db.prepared import Prepared
from lakeward.db.retry import retried
from lakeward.db.rows import from_row
from lakeward.errors import InvalidInput, InvalidName, PartitionNotFound, TopicAlreadyExists, TopicNotFound
from lakeward.iceberg.schemas import schema_from
from lakeward.log.records import Partition, Topic, TopicConfig, TopicRef
from lakeward.log.sql import partitions, producers, segments, topics
from lakeward.registry.handle import Registry
from lakeward.registry.sql import intents, leases
from lakeward.secret_names import check_no_secrets
from lakeward.storage.locations import topic_location
from lakeward.tables.records.properties import check_topic
from lakeward.tables.records.tables import Document

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
MAX_PARTITIONS = 100_000


def check_name(name: str) -> str:
    """Kafka's rule. Raises InvalidName."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidName(
            f"topic name {str(name)[:300]!r} is not allowed: use 1 to 249 letters, digits, '.', '_' and '-', and not '.' or '..'"
        )
    return name


def _settings(count: Any, retention: Any, config: Mapping[str, str], new: Mapping[str, Any]) -> dict[str, Any]:
    """A topic's settings as columns, once they are checked. `new`: what is set of the config now. Raises InvalidInput."""
    for key, value in config.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidInput(f"config {key!r}={value!r}: names and values are texts; write {str(value)!r}")
    check_no_secrets("config", new)
    check_topic(config)
    return {
        "partition_count": validation.whole(count, "partition_count", 1, MAX_PARTITIONS),
        "retention_ms": validation.whole_or_none(retention, "retention_ms", 0),
        "config": dict(config),
    }


FIRST_VALUE_FIELD = 100  # field ids of a declared schema of values follow it: those before are the record's own


def _value_schema(source: object) -> Document | None:
    """A declared schema as an Iceberg struct whose field ids do not meet those of the record's own columns."""
    if source is None:
        return None
    document, _ = schema_from(source)
    return {"type": "struct", "fields": _shifted(document["fields"])}


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


@retried
def create(registry: Registry, config: TopicConfig) -> Topic:
    """Make a topic with its partitions.

    Raises:
        TopicAlreadyExists, InvalidName, InvalidInput, InvalidSchema.
    """
    name = check_name(config.name)
    settings = _settings(config.partition_count, config.retention_ms, config.config, config.config)
    value_schema = _value_schema(config.value_schema)
    topic_uuid = str(uuid.uuid4())
    with registry.database.transaction() as connection:
        now = dialect.now(connection)
        values = {
            "topic_uuid": topic_uuid,
            "warehouse_id": registry.warehouse.warehouse_id,
            "name": name,
            **settings,
            "value_schema": value_schema,
            "location": topic_location(registry.warehouse.location, name, topic_uuid),
            "created_at": now,
            "updated_at": now,
        }
        try:
            with connection.begin_nested():
                topic_id = topics.insert(connection, values)
        except sa.exc.IntegrityError as error:
            raise TopicAlreadyExists(f"Topic already exists: {name}") from error
        partitions.insert(connection, topic_id, range(settings["partition_count"]), now)
        made = topics.by_id(connection, topic_id)
    assert made is not None
    return made


def key_of(registry: Registry, topic: TopicRef) -> dict[str, Any]:
    """What a look-up of a topic, or of something in it, is given: with a Topic its id, and the name only to show it."""
    if isinstance(topic, Topic):
        return {"topic_id": topic.topic_id, "name": topic.name}
    return {"warehouse_id": registry.warehouse.warehouse_id, "name": topic}


def get(registry: Registry, topic: TopicRef) -> Topic | None:
    """A topic as it is now; None if there is none, or the Topic that is meant was deleted."""
    return from_row(Topic, registry.database.lookups.one(_query(topic), key_of(registry, topic)))


def load(registry: Registry, topic: TopicRef) -> Topic:
    """As `get`. Raises TopicNotFound."""
    found = get(registry, topic)
    if found is None:
        raise unknown(topic, isinstance(topic, Topic) and get(registry, topic.name) is not None)
    return found


def load_in(connection: sa.Connection, registry: Registry, topic: TopicRef) -> Topic:
    """As `load`, as of the connection's transaction."""
    found = _get_in(connection, registry, topic)
    if found is None:
        raise unknown(topic, isinstance(topic, Topic) and _get_in(connection, registry, topic.name) is not None)
    return found


def _get_in(connection: sa.Connection, registry: Registry, topic: TopicRef) -> Topic | None:
    return from_row(Topic, _query(topic).one(connection, key_of(registry, topic)))


def _query(topic: TopicRef) -> Prepared:
    return topics.BY_ID if isinstance(topic, Topic) else topics.BY_NAME


def unknown(topic: TopicRef, is_made_again: bool = False) -> TopicNotFound:
    """The error for a name that no topic has, or for a topic that is gone."""
    if isinstance(topic, str):
        return TopicNotFound(f"Topic does not exist: {topic}; `lakeward topics list` shows those there are")
    if not is_made_again:
        return TopicNotFound(f"Topic does not exist: {topic.name} was deleted")
    return TopicNotFound(
        f"Topic does not exist: {topic.name} was deleted and made again; to go on with the new one, open it anew"
    )


def list_topics(registry: Registry) -> list[Topic]:
    """By name."""
    with registry.database.read() as connection:
        return topics.every(connection, registry.warehouse.warehouse_id)


KEEP = -1  # of retention_ms: leave it as it is


@retried
def update(
    registry: Registry,
    topic: TopicRef,
    config: Mapping[str, str | None] | None = None,
    *,
    partition_count: int | None = None,
    retention_ms: int | None = KEEP,
) -> Topic:
    """Change what is given of a topic. `config` is laid over what is there; None for a value removes it.

    Raises:
        TopicNotFound.
        InvalidInput: fewer partitions than there are, or a value that is not allowed.
    """
    with registry.database.transaction() as connection:
        found = _locked(connection, registry, topic)
        laid = {**found.config, **(config or {})}
        settings = _settings(
            found.partition_count if partition_count is None else partition_count,
            found.retention_ms if retention_ms == KEEP else retention_ms,
            {key: value for key, value in laid.items() if value is not None},
            config or {},
        )
        count = settings["partition_count"]
        if count < found.partition_count:
            raise InvalidInput(
                f"partition_count {count} is less than the {found.partition_count} of {found.name}: partitions hold records, and "
                "keys their places; make another topic"
            )
        now = dialect.now(connection)
        topics.update(connection, found.topic_id, {**settings, "updated_at": now})
        partitions.insert(connection, found.topic_id, range(found.partition_count, count), now)
        changed = topics.by_id(connection, found.topic_id)
    assert changed is not None
    return changed


def _locked(connection: sa.Connection, registry: Registry, topic: TopicRef) -> Topic:
    found = load_in(connection, registry, topic)
    locked = topics.lock(connection, found.topic_id)
    if locked is None:
        raise unknown(topic)
    return locked


@retried
def delete(registry: Registry, topic: TopicRef) -> None:
    """Delete a topic: partitions, segments and committed offsets go now, its files wait in quarantine.

    Raises TopicNotFound.
    """
    with registry.database.transaction() as connection:
        found = _locked(connection, registry, topic)
        # Before the intents, as an append does.
        partitions.lock(connection, found.topic_id, range(found.partition_count), keys=True)
        now = dialect.now(connection)
        expires_at = registry.quarantine_ends(now)
        sweep_after = now + timedelta(seconds=registry.settings.sweep_after_seconds)
        intents.recover_of_topic(connection, found.topic_id, now, sweep_after)
        segments.retire(
            connection, found.topic_id, found.location + "/", reason="topic deleted", now=now, expires_at=expires_at
        )
        producers.delete_of_topic(connection, found.topic_id)
        partitions.delete_of_topic(connection, found.topic_id)
        topics.update(connection, found.topic_id, {"deleted_at": now})


def check_partition(topic: Topic, number: int) -> None:
    """Raises PartitionNotFound."""
    if not 0 <= number < topic.partition_count:
        raise _no_partition(topic, number)


def _no_partition(topic: Topic, number: int) -> PartitionNotFound:
    return PartitionNotFound(f"{topic.name} has no partition {number}; it has 0 to {topic.partition_count - 1}")


# Partitions ---------------------------------------------------------------------------------------------------------------
def get_partition(registry: Registry, topic: TopicRef, partition_id: int) -> Partition | None:
    """A partition with its high watermark and log start; None if there is no such topic or partition."""
    query = partitions.BY_ID if isinstance(topic, Topic) else partitions.BY_NAME
    parameters = {**key_of(registry, topic), "partition_id": partition_id}
    return from_row(Partition, registry.database.lookups.one(query, parameters))


def list_partitions(registry: Registry, topic: TopicRef) -> list[Partition]:
    """By number. Raises TopicNotFound."""
    with registry.database.read() as connection:
        return partitions.of_topic(connection, load_in(connection, registry, topic).topic_id)


def locked_partitions(
    connection: sa.Connection, topic: Topic, numbers: Iterable[int], *, share: bool = False
) -> dict[int, Partition]:
    """Partitions as they are now, locked until the transaction ends; with `share` others may advance them, and not delete them.

    Raises:
        TopicNotFound: the topic was deleted.
        PartitionNotFound.
    """
    wanted = set(numbers)
    found = partitions.lock(connection, topic.topic_id, wanted, share=share)
    if missing := sorted(wanted - found.keys()):
        now = topics.by_id(connection, topic.topic_id)
        if now is None or now.deleted_at is not None:
            raise unknown(topic)
        raise _no_partition(topic, missing[0])
    return found


# The end of a deleted topic -----------------------------------------------------------------------------------------------
def due(registry: Registry) -> list[Topic]:
    """Deleted topics of this handle's warehouse whose time in quarantine is over, the longest deleted first."""
    with registry.database.read() as connection:
        return topics.deleted(connection, registry.below, dialect.now(connection))


@retried
def forget(registry: Registry, topic: Topic) -> bool:
    """As `forget` of a dropped table."""
    with registry.database.transaction() as connection:
        topics.lock_deleted(connection, topic.topic_id)
        if intents.any_of(connection, topic):
            return False
        leases.delete_of(connection, topic.topic_uuid)
        topics.delete(connection, topic.topic_id)
    return True
