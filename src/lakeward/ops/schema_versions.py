"""Versions of the schemas of source tables: numbered without gaps, a new one only where something has changed."""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa

from lakeward import lossless_json, validation
from lakeward.db import dialect, lock_order
from lakeward.db.retry import retried
from lakeward.errors import InvalidSchema, SchemaVersionNotFound
from lakeward.frozen_documents import shared
from lakeward.ops import schema_changes
from lakeward.ops.positions import check_names, joined
from lakeward.ops.records.schema_versions import (
    Compatibility,
    EvolutionType,
    SchemaChange,
    SchemaDefinition,
    SchemaVersion,
)
from lakeward.ops.sql import schema_versions
from lakeward.registry.handle import Registry


@retried
def register(
    registry: Registry,
    schema_name: str,
    table_name: str,
    schema_definition: SchemaDefinition,
    evolution_type: EvolutionType | None = None,
    *,
    renamed: Mapping[str, str] | None = None,
    iceberg_schema_id: int | None = None,
    source_position: Any = None,
    connection: sa.Connection | None = None,
) -> SchemaVersion:
    """The version of a definition: the latest one if that says the same, else a new one.

    Args:
        evolution_type: one of the changes that lead here from the latest version; worked out where it is not given.
        renamed: old names of columns to new ones; worked out for `rename_column` where it is not given.
        source_position: where in the source it took effect.

    Raises:
        InvalidName.
        InvalidSchema: the definition contradicts itself, or no change of the given type was made.
    """
    given = validation.one_of_or_none(EvolutionType, evolution_type, "evolution_type")
    validation.whole_or_none(iceberg_schema_id, "iceberg_schema_id", 0, MAX_INT32)
    check_names(schema_name, table_name)
    if not isinstance(schema_definition, SchemaDefinition):
        raise InvalidSchema(
            f"{str(schema_definition)[:100]!r} is a {type(schema_definition).__name__}; give SchemaDefinition(columns)"
        )
    normal, digest = _known_digest(schema_definition)
    if connection is None:
        known = latest(registry, schema_name, table_name)
        if known is not None and known.schema_hash == digest:
            return known
    lossless_json.dumps(source_position, "source_position")
    with joined(registry.database, connection) as joint:
        lock_order.name(joint, f"schema:{schema_name}\x1f{table_name}")
        before = schema_versions.latest(joint, schema_name, table_name)
        if before is not None and before.schema_hash == digest:
            return before
        changes = _changes(before, normal, given, renamed)
        values = {
            "schema_name": schema_name,
            "table_name": table_name,
            "version": 1 if before is None else before.version + 1,
            "schema_definition": normal,
            "schema_hash": digest,
            "evolution_type": (given or changes[0].type).value,
            "changes": changes,
            "previous_version": None if before is None else before.version,
            "iceberg_schema_id": iceberg_schema_id,
            "source_position": source_position,
            "registered_at": dialect.now(joint),
        }
        return schema_versions.insert(joint, values)


MAX_INT32 = (1 << 31) - 1


def _known_digest(definition: SchemaDefinition) -> tuple[SchemaDefinition, str]:
    """A definition in its normal form, with its hash. Most are registered again and again: these are remembered."""
    try:
        # Without references (version 2), so that equal values are equal bytes; types are told apart.
        key = marshal.dumps((list(definition.columns), list(definition.primary_keys), list(definition.indexes)), 2)
    except (TypeError, ValueError):  # it holds what marshal does not know, or is no list
        key = None
    if key is not None and (known := _digests.get(key)) is not None:
        return known
    normal = schema_changes.normal(definition)
    digest = schema_changes.digest(normal)
    # A copy: what the caller's definition holds may change, and this one is remembered.
    found = SchemaDefinition(shared(normal.columns), shared(normal.primary_keys), shared(normal.indexes)), digest
    if key is not None:
        _keep(_digests, key, found)
    return found


def _changes(
    before: SchemaVersion | None,
    normal: SchemaDefinition,
    given: EvolutionType | None,
    renamed: Mapping[str, str] | None,
) -> list[SchemaChange]:
    old = None if before is None else before.schema_definition
    if renamed is None and old is not None and given == EvolutionType.RENAME_COLUMN:
        renamed = schema_changes.guessed_renames(old, normal)
    changes = schema_changes.diff(old, normal, renamed)
    made = sorted({change.type.value for change in changes})
    if given is not None and given.value not in made:
        at = "the first version" if before is None else f"the changes since version {before.version}"
        raise InvalidSchema(
            f"evolution_type {given.value!r} is none of {at}: {', '.join(made)}; give one of these, or none"
        )
    return changes


def latest(registry: Registry, schema_name: str, table_name: str) -> SchemaVersion | None:
    """The latest version that has committed; None for an unknown table."""
    _check(schema_name, table_name)
    lookups = registry.database.lookups
    parameters = {"schema_name": schema_name, "table_name": table_name}
    brief = lookups.one(schema_versions.BRIEF, parameters)
    if brief is None:
        return None
    known = _decoded.get(_identity(registry, schema_name, table_name, brief))
    if known is not None:
        tied = {"iceberg_schema_id": brief["iceberg_schema_id"], "source_position": shared(brief["source_position"])}
        return msgspec.structs.replace(known, **tied)
    found = schema_versions.from_row(lookups.one(schema_versions.LATEST, parameters))
    if found is not None:
        _keep(_decoded, _identity(registry, schema_name, table_name, msgspec.structs.asdict(found)), found)
    return found


# Two memories, for the time in which an unchanged schema is registered (docs/performance.md): the normal form of a definition,
# and a version as it was decoded, which never changes.
_digests: dict[bytes, tuple[SchemaDefinition, str]] = {}
_decoded: dict[tuple[Any, ...], SchemaVersion] = {}
KEPT = 1_000  # of each
_K = TypeVar("_K")
_V = TypeVar("_V")


def _keep(memory: dict[_K, _V], key: _K, value: _V) -> None:
    if len(memory) >= KEPT:
        memory.clear()
    memory[key] = value


def _identity(registry: Registry, schema_name: str, table_name: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What no two versions have in common, even if a registry is made anew at the same address."""
    database = registry.database
    which = (row["id"], row["version"], row["registered_at"], row["schema_hash"])
    return (database.shown_url, database.metadata_schema, schema_name, table_name, *which)


def get(registry: Registry, schema_name: str, table_name: str, version: int | None = None) -> SchemaVersion | None:
    """A version, the latest without a number; None where there is none."""
    if version is None:
        return latest(registry, schema_name, table_name)
    _check(schema_name, table_name, version)
    with registry.database.read() as connection:
        return schema_versions.load(connection, schema_name, table_name, version)


def _check(schema_name: str, table_name: str | None, version: int | None = None) -> None:
    validation.text_or_none(schema_name, "schema_name")
    validation.text_or_none(table_name, "table_name")
    validation.whole_or_none(version, "version", most=MAX_INT32)


def load(registry: Registry, schema_name: str, table_name: str, version: int | None = None) -> SchemaVersion:
    """A version, the latest without a number. Raises SchemaVersionNotFound."""
    found = get(registry, schema_name, table_name, version)
    if found is None:
        raise _unknown(schema_name, table_name, version)
    return found


def _unknown(schema_name: str, table_name: str, version: int | None) -> SchemaVersionNotFound:
    which = "no version" if version is None else f"no version {version}"
    return SchemaVersionNotFound(
        f"{which} of the schema of {schema_name}.{table_name}; `lakeward schemas list` shows the tables there are"
    )


def list_versions(registry: Registry, schema_name: str, table_name: str) -> list[SchemaVersion]:
    """By number; empty for an unknown table."""
    _check(schema_name, table_name)
    with registry.database.read() as connection:
        return schema_versions.page(connection, schema_name, table_name)


def list_tables(registry: Registry, schema_name: str | None = None) -> list[tuple[str, str, int]]:
    """(schema, table, latest version), by name."""
    validation.text_or_none(schema_name, "schema_name")
    with registry.database.read() as connection:
        return schema_versions.tables(connection, schema_name)


def diff(
    registry: Registry, schema_name: str, table_name: str, old_version: int, new_version: int
) -> list[SchemaChange]:
    """What leads from one version to another. Raises SchemaVersionNotFound."""
    before, after = (load(registry, schema_name, table_name, version) for version in (old_version, new_version))
    if new_version == old_version + 1:
        return after.changes  # with the renames that were told then
    return schema_changes.diff(before.schema_definition, after.schema_definition)


def check(registry: Registry, schema_name: str, table_name: str, schema_definition: SchemaDefinition) -> Compatibility:
    """What a definition would allow as the next version. Raises SchemaVersionNotFound, InvalidSchema."""
    before = load(registry, schema_name, table_name)
    return schema_changes.compatibility(
        schema_changes.diff(before.schema_definition, schema_changes.normal(schema_definition))
    )


@retried
def tie(
    registry: Registry,
    schema_name: str,
    table_name: str,
    version: int,
    *,
    iceberg_schema_id: int | None = None,
    source_position: Any = None,
    connection: sa.Connection | None = None,
) -> SchemaVersion:
    """Say which Iceberg schema a version became, and where in the source it took effect; what is None stays.

    Raises SchemaVersionNotFound, InvalidInput.
    """
    _check(schema_name, table_name, version)
    validation.whole_or_none(iceberg_schema_id, "iceberg_schema_id", 0, MAX_INT32)
    lossless_json.dumps(source_position, "source_position")
    values = {"iceberg_schema_id": iceberg_schema_id, "source_position": source_position}
    with joined(registry.database, connection) as joint:
        found = schema_versions.load(joint, schema_name, table_name, version)
        if found is None:
            raise _unknown(schema_name, table_name, version)
        changed = {name: value for name, value in values.items() if value is not None}
        if changed:
            schema_versions.tie(joint, found.id, changed)
    return msgspec.structs.replace(found, **changed)
