"""Upkeep: when work that is done now and then is due, and how long operations metadata is kept whoever deletes it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from lakeward.db.migrations import parts as p

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "upkeep",
        sa.Column("work", sa.Text(), nullable=False),
        sa.Column("due_at", p.TIME, nullable=True),
        sa.Column("keep_seconds", p.INT64, nullable=True),
        sa.PrimaryKeyConstraint("work", name="pk_upkeep"),
        sa.CheckConstraint("keep_seconds >= 0", name="keep_seconds"),
        sqlite_strict=True,
    )
    op.execute("UPDATE registry_info SET schema_version = 10")
