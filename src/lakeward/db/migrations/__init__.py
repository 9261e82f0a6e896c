"""The history of the registry's schema, one for SQLite and PostgreSQL (Alembic). `migrate.py` runs it, forward only: who goes back
restores a backup.
"""
