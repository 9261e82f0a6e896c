"""Leases and intents: how long their lease is, so that one that a wrong clock set does not count for ever."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

INT64 = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    for table in ("pending_writes", "leases"):
        op.add_column(table, sa.Column("lease_ms", INT64, nullable=True))
    op.execute("UPDATE registry_info SET schema_version = 11")


def downgrade() -> None:
    raise NotImplementedError("the registry's schema only goes forward; restore a backup to go back")
