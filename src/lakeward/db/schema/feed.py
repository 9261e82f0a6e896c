"""The feed of changes, and what stands behind it."""

from __future__ import annotations

import sqlalchemy as sa

from lakeward.db.schema.parts import column, id_column, one_of, table
from lakeward.db.types import Int32, Int64, Json, Text, UtcTime

# Written by triggers only (feed.py). On PostgreSQL it has a column more: xid, the writing transaction's id.
registry_changes = table(
    "registry_changes",
    id_column("sequence"),
    column("table_name", Text),
    column("operation", Text),
    column("table_id", Int64),
    column("data", Json()),
    column("changed_at", UtcTime),
    one_of("operation", "INSERT", "UPDATE", "DELETE"),
)

# How far each subscriber has come in the feed. A position names the registry, and on PostgreSQL snapshots too.
subscriber_cursors = table(
    "subscriber_cursors",
    sa.Column("astha", Text, primary_key=True),
    sa.Column("subscriber", Text, primary_key=True),
    column("position", Json(), null=True),  # None: it is told to refresh first
    column("state", Json()),  # what `lakeward astha status` shows
    column("seen_at", UtcTime),  # a subscriber that is not seen for long holds the feed no more
)

# Events that failed in all tries: kept until somebody discards them.
parked_events = table(
    "parked_events",
    id_column("parked_id"),
    column("astha", Text),
    column("subscriber", Text),
    column("sequence", Int64),
    column("table_name", Text),
    column("operation", Text),
    column("table_id", Int64),
    column("data", Json()),
    column("changed_at", UtcTime),
    column("attempts", Int32),
    column("error", Text),
    column("parked_at", UtcTime),
    sa.UniqueConstraint("astha", "subscriber", "sequence"),
    one_of("operation", "INSERT", "UPDATE", "DELETE"),
)

# Watched by the feed, and the columns that the feed leaves out.
WATCHED: dict[str, frozenset[str]] = {
    "tables": frozenset(),
    "table_columns": frozenset(),
    "table_metadata": frozenset(),
    "table_files": frozenset({"statistics", "split_offsets"}),
    "table_stats": frozenset({"columns"}),
    "table_snapshots": frozenset(),
}
