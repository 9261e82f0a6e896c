"""Segments keep the id and the time that they were given with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
JSON = postgresql.JSON().with_variant(sa.Text(), "sqlite")


def upgrade() -> None:
    op.add_column("segments", sa.Column("given_id", JSON, nullable=True))
    op.add_column("segments", sa.Column("given_created_at", TIME, nullable=True))
    op.execute("UPDATE registry_info SET schema_version = 9")


def downgrade() -> None:
    raise NotImplementedError("the registry's schema only goes forward; restore a backup to go back")
