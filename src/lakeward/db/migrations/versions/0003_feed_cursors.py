"""What stands behind the feed: how far each subscriber has come, and the events that failed in all tries.

Its definitions are its own, so that it makes the same tables for ever, whatever the code's become.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

INT64 = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INT32 = sa.Integer()
TEXT = sa.Text()
TIME = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
JSON = postgresql.JSON().with_variant(sa.Text(), "sqlite")

metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def _table(name: str, *parts: Any) -> sa.Table:
    return sa.Table(name, metadata, *parts, sqlite_strict=True, sqlite_autoincrement=True)


def _id(name: str) -> sa.Column[int]:
    return sa.Column(name, INT64, primary_key=True, autoincrement=True)


def _col(name: str, type_: Any, *rest: Any, null: bool = False, default: str | None = None) -> sa.Column[Any]:
    return sa.Column(name, type_, *rest, nullable=null, server_default=None if default is None else sa.text(default))


def _one_of(column: str, *values: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(f"{column} IN ({', '.join(repr(v) for v in values)})", name=column)


# How far each subscriber has come in the feed. A position names the registry, and on PostgreSQL snapshots too.
subscriber_cursors = _table(
    "subscriber_cursors",
    sa.Column("astha", TEXT, primary_key=True),
    sa.Column("subscriber", TEXT, primary_key=True),
    _col("position", JSON, null=True),  # none: it is told to refresh first
    _col("state", JSON),  # what `lakeward astha status` shows
    _col("seen_at", TIME),  # a subscriber that is not seen for long holds the feed no more
)

# Events that failed in all tries: kept until somebody discards them.
parked_events = _table(
    "parked_events",
    _id("parked_id"),
    _col("astha", TEXT),
    _col("subscriber", TEXT),
    _col("sequence", INT64),
    _col("table_name", TEXT),
    _col("operation", TEXT),
    _col("table_id", INT64),
    _col("data", JSON),
    _col("changed_at", TIME),
    _col("attempts", INT32),
    _col("error", TEXT),
    _col("parked_at", TIME),
    sa.UniqueConstraint("astha", "subscriber", "sequence"),
    _one_of("operation", "INSERT", "UPDATE", "DELETE"),
)


def upgrade() -> None:
    connection = op.get_bind()
    for table in (subscriber_cursors, parked_events):
        connection.execute(sa.schema.CreateTable(table))
    connection.execute(sa.text("UPDATE registry_info SET schema_version = 3"))


def downgrade() -> None:
    raise NotImplementedError("the registry's schema only goes forward; restore a backup to go back")
