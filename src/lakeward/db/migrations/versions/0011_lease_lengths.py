"""Leases and intents: how long their lease is, so that one that a wrong clock set does not count for ever."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from lakeward.db.migrations import parts as p

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    for table in ("pending_writes", "leases"):
        op.add_column(table, sa.Column("lease_ms", p.INT64, nullable=True))
    op.execute("UPDATE registry_info SET schema_version = 11")
