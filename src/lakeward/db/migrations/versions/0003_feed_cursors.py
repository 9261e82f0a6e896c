"""What stands behind the feed: how far each subscriber has come, and the events that failed in all tries.

Its definitions are its own, so that it makes the same tables for ever, whatever the code's become.
"""

from __future__ import annotations

from functools import partial

import sqlalchemy as sa
from alembic import op

from lakeward.db.migrations import parts as p

revision = "0003"
down_revision = "0002"

metadata = p.new_metadata()
table = partial(p.table, metadata)

# How far each subscriber has come in the feed. A position names the registry, and on PostgreSQL snapshots too.
subscriber_cursors = table(
    "subscriber_cursors",
    sa.Column("astha", p.TEXT, primary_key=True),
    sa.Column("subscriber", p.TEXT, primary_key=True),
    p.column("position", p.JSON, null=True),  # none: it is told to refresh first
    p.column("state", p.JSON),  # what `lakeward astha status` shows
    p.column("seen_at", p.TIME),  # a subscriber that is not seen for long holds the feed no more
)

# Events that failed in all tries: kept until somebody discards them.
parked_events = table(
    "parked_events",
    p.id_column("parked_id"),
    p.column("astha", p.TEXT),
    p.column("subscriber", p.TEXT),
    p.column("sequence", p.INT64),
    p.column("table_name", p.TEXT),
    p.column("operation", p.TEXT),
    p.column("table_id", p.INT64),
    p.column("data", p.JSON),
    p.column("changed_at", p.TIME),
    p.column("attempts", p.INT32),
    p.column("error", p.TEXT),
    p.column("parked_at", p.TIME),
    sa.UniqueConstraint("astha", "subscriber", "sequence"),
    p.one_of("operation", "INSERT", "UPDATE", "DELETE"),
)


def upgrade() -> None:
    connection = op.get_bind()
    p.make(connection, (subscriber_cursors, parked_events))
    connection.execute(sa.text("UPDATE registry_info SET schema_version = 3"))
