from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa

from lakeward.db.conditions import equal
from lakeward.db.prepared import Prepared, Row
from lakeward.db.rows import columns
from lakeward.db.schema import schema_registry
from lakeward.frozen_documents import SharedList, shared
from lakeward.ops.records.schema_versions import EvolutionType, SchemaChange, SchemaDefinition, SchemaVersion

_c = schema_registry.c
_COLUMNS = columns(schema_registry, SchemaVersion)
_OF_TABLE = sa.and_(_c.schema_name == sa.bindparam("schema_name"), _c.table_name == sa.bindparam("table_name"))
LATEST = Prepared(sa.select(*_COLUMNS).where(_OF_TABLE).order_by(_c.version.desc()).limit(1))

# Of the latest, what may change, and what tells which it is: ids come again where a file is made anew.
_BRIEF = (_c.id, _c.version, _c.registered_at, _c.schema_hash, _c.iceberg_schema_id, _c.source_position)
BRIEF = Prepared(sa.select(*_BRIEF).where(_OF_TABLE).order_by(_c.version.desc()).limit(1))


def from_row(row: Row | None) -> SchemaVersion | None:
    """A version whose documents cannot be changed: many hold the same one."""
    if row is None:
        return None
    return SchemaVersion(
        **{
            **row,
            "evolution_type": EvolutionType(row["evolution_type"]),
            "schema_definition": SchemaDefinition(**shared(row["schema_definition"])),
            "changes": SharedList(
                SchemaChange(**{**change, "type": EvolutionType(change["type"])}) for change in shared(row["changes"])
            ),
            "source_position": shared(row["source_position"]),
        }
    )


def latest(connection: sa.Connection, schema_name: str, table_name: str) -> SchemaVersion | None:
    return from_row(LATEST.one(connection, {"schema_name": schema_name, "table_name": table_name}))


def insert(connection: sa.Connection, values: Mapping[str, Any]) -> SchemaVersion:
    """With the definition and the changes as records."""
    row = {
        **values,
        "schema_definition": msgspec.structs.asdict(values["schema_definition"]),
        "changes": [{**msgspec.structs.asdict(each), "type": each.type.value} for each in values["changes"]],
    }
    made = connection.execute(schema_registry.insert().values(row).returning(*_COLUMNS)).mappings().one()
    found = from_row(dict(made))
    assert found is not None
    return found


def load(connection: sa.Connection, schema_name: str, table_name: str, version: int) -> SchemaVersion | None:
    key = {"schema_name": schema_name, "table_name": table_name}
    row = connection.execute(sa.select(*_COLUMNS).where(_OF_TABLE, _c.version == version), key).mappings().one_or_none()
    return None if row is None else from_row(dict(row))


def page(connection: sa.Connection, schema_name: str, table_name: str) -> list[SchemaVersion]:
    """All versions of a table, by number."""
    key = {"schema_name": schema_name, "table_name": table_name}
    rows = connection.execute(sa.select(*_COLUMNS).where(_OF_TABLE).order_by(_c.version), key).mappings()
    return [found for row in rows if (found := from_row(dict(row))) is not None]


def tie(connection: sa.Connection, version_id: int, values: Mapping[str, Any]) -> None:
    connection.execute(schema_registry.update().where(_c.id == version_id).values(values))


def tables(connection: sa.Connection, schema_name: str | None = None) -> list[tuple[str, str, int]]:
    """(schema, table, newest version), by name."""
    query = sa.select(_c.schema_name, _c.table_name, sa.func.max(_c.version)).where(
        _c.schema_name >= "", equal(_c.schema_name, schema_name)
    )
    grouped = query.group_by(_c.schema_name, _c.table_name).order_by(_c.schema_name, _c.table_name)
    return [(name, table, version) for name, table, version in connection.execute(grouped)]


def delete_old(connection: sa.Connection, before: datetime, keep: int, limit: int, after: int) -> tuple[int, int]:
    """Look at some of those registered before a time, from an id on, and delete those that are not among the newest `keep` of
    their table; how many were deleted, and the last id looked at (0 when there is none).
    """
    newer = schema_registry.alias()
    newest = sa.select(sa.func.max(newer.c.version)).where(
        newer.c.schema_name == _c.schema_name, newer.c.table_name == _c.table_name
    )
    looked = (
        sa.select(_c.id, (_c.version <= newest.scalar_subquery() - keep).label("old"))
        .where(_c.id > after, _c.registered_at < before)
        .order_by(_c.id)
        .limit(limit)
    )
    found = connection.execute(looked).all()
    old = [row.id for row in found if row.old]
    if old:
        connection.execute(
            schema_registry.delete().where(_c.id == sa.bindparam("old_id")), [{"old_id": i} for i in old]
        )
    return len(old), found[-1].id if found else 0
