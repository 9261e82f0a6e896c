"""Segments keep the id and the time that they were given with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from lakeward.db.migrations import parts as p

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("segments", sa.Column("given_id", p.JSON, nullable=True))
    op.add_column("segments", sa.Column("given_created_at", p.TIME, nullable=True))
    op.execute("UPDATE registry_info SET schema_version = 9")
