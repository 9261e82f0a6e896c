"""Upkeep: when work that is done now and then is due, and how long operations metadata is kept whoever deletes it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
INT64 = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "upkeep",
        sa.Column("work", sa.Text(), nullable=False),
        sa.Column("due_at", TIME, nullable=True),
        sa.Column("keep_seconds", INT64, nullable=True),
        sa.PrimaryKeyConstraint("work", name="pk_upkeep"),
        sa.CheckConstraint("keep_seconds >= 0", name="keep_seconds"),
        sqlite_strict=True,
    )
    op.execute("UPDATE registry_info SET schema_version = 10")


def downgrade() -> None:
    raise NotImplementedError("the registry's schema only goes forward; restore a backup to go back")
