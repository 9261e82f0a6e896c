"""Intents: the version of the table's metadata that a write goes by, so that a change is judged against it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from lakeward.db.migrations import parts as p

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("pending_writes", sa.Column("metadata_version", p.INT64, nullable=True))
    op.execute("UPDATE registry_info SET schema_version = 7")
