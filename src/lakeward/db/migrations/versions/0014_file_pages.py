"""Bounds of files in pages, by which a filter chooses files. There are none at first: they are made when they are missed.

Code from before would bring files back from quarantine without taking the pages away that lack them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from lakeward.db.migrations import parts as p

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "file_pages",
        sa.Column("table_id", p.INT64, nullable=False, autoincrement=False),
        sa.Column("field_id", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("last_file_id", p.INT64, nullable=False, autoincrement=False),
        sa.Column("file_count", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "field_id", "last_file_id", name="pk_file_pages"),
        sa.ForeignKeyConstraint(["table_id"], ["tables.table_id"], name="fk_file_pages_table_id", ondelete="CASCADE"),
        sa.CheckConstraint("file_count >= 0", name=op.f("ck_file_pages_file_count")),
        sqlite_strict=True,
    )
    op.execute("UPDATE registry_info SET schema_version = 14, minimum_version = 14")
