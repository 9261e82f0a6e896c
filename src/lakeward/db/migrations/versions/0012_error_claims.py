"""Errors: each claim of one that is due has a number."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from lakeward.db.migrations import parts as p

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("error_log", sa.Column("claim", p.INT64, nullable=False, server_default=sa.text("0")))
    op.execute("UPDATE registry_info SET schema_version = 12")
