"""Errors: each claim of one that is due has a number."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

INT64 = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("error_log", sa.Column("claim", INT64, nullable=False, server_default=sa.text("0")))
    op.execute("UPDATE registry_info SET schema_version = 12")


def downgrade() -> None:
    raise NotImplementedError("the registry's schema only goes forward; restore a backup to go back")
