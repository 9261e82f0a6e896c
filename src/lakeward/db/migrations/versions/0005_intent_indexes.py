"""Intents: no index that nothing asks for, and none for the table of a topic's write or the topic of a table's.

Each index is a page more in the commit of every write.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.drop_index("ix_pending_writes_owner", "pending_writes")
    for column in ("table_id", "topic_id"):
        known = sa.text(f"{column} IS NOT NULL")
        op.drop_index(f"ix_pending_writes_{column}", "pending_writes")
        op.create_index(
            f"ix_pending_writes_{column}", "pending_writes", [column], sqlite_where=known, postgresql_where=known
        )
    op.execute("UPDATE registry_info SET schema_version = 5")
