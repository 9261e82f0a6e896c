"""Who a registry is: its UUID, its versions, and the server that keeps it."""

from __future__ import annotations

from datetime import datetime

import msgspec
import sqlalchemy as sa

from lakeward.errors import DatabaseError
from lakeward.store import dialect
from lakeward.store.schema import registry_info


class RegistryInfo(msgspec.Struct, frozen=True):
    """The one row of registry_info. Versions are of the schema."""

    registry_uuid: str
    schema_version: int
    minimum_version: int  # the oldest code, by its SCHEMA_VERSION, that may read and write the registry
    created_at: datetime


def load(connection: sa.Connection) -> RegistryInfo:
    """The registry's own row.

    Raises:
        DatabaseError: there is none, so the registry was not made whole.
    """
    c = registry_info.c
    row = connection.execute(
        sa.select(c.registry_uuid, c.schema_version, c.minimum_version, c.created_at)
    ).one_or_none()
    if row is None:
        raise DatabaseError("registry_info has no row: the registry was not made whole; restore it from a backup")
    return RegistryInfo(row.registry_uuid, row.schema_version, row.minimum_version, row.created_at)


def system_identifier(connection: sa.Connection) -> str:
    """What differs between a PostgreSQL server and one restored elsewhere from its dump; '' on SQLite.

    A cursor into the feed names it beside the registry's UUID: transaction ids of another server mean nothing.
    """
    if dialect.is_sqlite(connection):
        return ""
    identifier: str = connection.execute(
        sa.text("SELECT system_identifier::text FROM pg_control_system()")
    ).scalar_one()
    return identifier
