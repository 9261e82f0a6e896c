"""Who a registry is: its UUID, its versions, and the server that keeps it."""

from __future__ import annotations

from datetime import datetime

import msgspec
import sqlalchemy as sa

from lakeward.db.schema import registry_info
from lakeward.errors import DatabaseError


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
