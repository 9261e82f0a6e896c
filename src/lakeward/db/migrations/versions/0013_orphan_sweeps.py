"""Prefixes of registered writes whose lost tasks may have left more than the files that were registered."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from lakeward.db.types import UtcTime

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "orphan_sweeps",
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("registered_at", UtcTime(), nullable=False),
        sa.Column("sweep_after", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("prefix", name="pk_orphan_sweeps"),
        sqlite_strict=True,
    )
    op.create_index("ix_orphan_sweeps_sweep_after", "orphan_sweeps", ["sweep_after"])
    op.create_index("ix_segments_location", "segments", ["location"])
    op.execute("UPDATE registry_info SET schema_version = 13")
