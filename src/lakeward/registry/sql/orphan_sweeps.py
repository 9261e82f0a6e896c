"""Sweeps of registered writes' prefixes, and which objects there belong to somebody."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import msgspec
import sqlalchemy as sa

from lakeward.db.dialect import begins, in_texts
from lakeward.db.rows import columns, records
from lakeward.db.schema import orphan_sweeps, retired_files, segments, table_files

_c = orphan_sweeps.c


class OrphanSweep(msgspec.Struct, frozen=True):
    prefix: str
    registered_at: datetime
    sweep_after: datetime


def insert(connection: sa.Connection, sweep: OrphanSweep) -> None:
    connection.execute(orphan_sweeps.insert().values(msgspec.structs.asdict(sweep)))


def due(connection: sa.Connection, below: str, now: datetime, limit: int | None) -> list[OrphanSweep]:
    """Those of prefixes below a location, that of a warehouse."""
    query = sa.select(*columns(orphan_sweeps, OrphanSweep)).where(_c.sweep_after <= now, begins(_c.prefix, below))
    return records(OrphanSweep, connection.execute(query.order_by(_c.sweep_after).limit(limit)))


def sweep_at(connection: sa.Connection, prefix: str, time: datetime) -> None:
    connection.execute(orphan_sweeps.update().where(_c.prefix == prefix).values(sweep_after=time))


def forget(connection: sa.Connection, prefix: str) -> None:
    connection.execute(orphan_sweeps.delete().where(_c.prefix == prefix))


def owned(connection: sa.Connection, locations: Collection[str]) -> set[str]:
    """Those of some objects that are files of tables, segments, or in quarantine. A file that goes from one to the other meanwhile must
    not be missed: the connection is one of `Database.read`, or has locked whose it is."""
    places = (table_files.c.file_path, retired_files.c.file_path, segments.c.location)
    found = (
        connection.execute(sa.select(each).where(in_texts(connection, each, locations))).scalars() for each in places
    )
    return {location for each in found for location in each}
