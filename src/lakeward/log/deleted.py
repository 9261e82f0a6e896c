"""Topics that were deleted: whose time in quarantine is over, and the end of their rows."""

from __future__ import annotations

from lakeward.db import dialect
from lakeward.db.retry import retried
from lakeward.log.records import Topic
from lakeward.log.sql import topics
from lakeward.registry.handle import Registry
from lakeward.registry.sql import intents, leases


def due(registry: Registry) -> list[Topic]:
    """Those of this handle's warehouse, the longest deleted first."""
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
