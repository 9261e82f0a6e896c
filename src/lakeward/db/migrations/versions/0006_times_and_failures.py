"""Times of topics, partitions and groups; failures of one key are one open error that counts them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from lakeward.db.migrations import parts as p

revision = "0006"
down_revision = "0005"

TIMES = (
    ("topics", "updated_at"),
    ("partitions", "created_at"),
    ("partitions", "updated_at"),
    ("consumer_groups", "updated_at"),
    ("error_log", "last_occurred_at"),
)


def upgrade() -> None:
    for table, name in TIMES:
        op.add_column(table, sa.Column(name, p.TIME, nullable=True))
    op.add_column("error_log", sa.Column("failure_key", sa.Text(), nullable=True))
    op.add_column("error_log", sa.Column("occurrences", sa.Integer(), nullable=False, server_default=sa.text("1")))
    is_open = sa.text("failure_key IS NOT NULL AND status = 'open'")
    op.create_index(
        "uq_error_log_failure_key_open",
        "error_log",
        ["failure_key"],
        unique=True,
        sqlite_where=is_open,
        postgresql_where=is_open,
    )
    op.execute("UPDATE registry_info SET schema_version = 6")
