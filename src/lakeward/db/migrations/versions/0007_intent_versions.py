"""Intents: the version of the table's metadata that a write goes by, so that a change is judged against it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

INT64 = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("pending_writes", sa.Column("metadata_version", INT64, nullable=True))
    op.execute("UPDATE registry_info SET schema_version = 7")


def downgrade() -> None:
    raise NotImplementedError("the registry's schema only goes forward; restore a backup to go back")
