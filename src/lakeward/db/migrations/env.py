"""Alembic's environment: runs revisions on the connection, and in the transaction, that migrate.py hands over."""

from __future__ import annotations

from alembic import context

from lakeward.db import schema

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=schema.metadata,
    transactional_ddl=True,  # SQLite's too
    render_as_batch=connection.dialect.name == "sqlite",
    compare_type=True,
    compare_server_default=True,
)
with context.begin_transaction():
    context.run_migrations()
