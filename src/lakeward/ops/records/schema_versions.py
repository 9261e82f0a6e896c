"""Schemas of source tables, as versions: what a definition is, what differs between two, and what each allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec


class EvolutionType(StrEnum):
    CREATE = "create"
    ADD_COLUMN = "add_column"
    DROP_COLUMN = "drop_column"
    RENAME_COLUMN = "rename_column"
    MODIFY_COLUMN = "modify_column"  # its type, whether it may be null, or another of its properties
    ADD_INDEX = "add_index"
    DROP_INDEX = "drop_index"
    MODIFY_INDEX = "modify_index"
    CHANGE_PRIMARY_KEY = "change_primary_key"


class SchemaDefinition(msgspec.Struct, frozen=True):
    """A table's columns, keys and indexes.

    Args:
        columns: objects with name and type, and nullable (true if left out), primary_key and whatever else is known.
        primary_keys: names of columns, in the key's order; left out, the columns that say primary_key.
        indexes: objects with name and columns, and whatever else is known.
    """

    columns: Sequence[Mapping[str, Any]]
    primary_keys: Sequence[str] = ()
    indexes: Sequence[Mapping[str, Any]] = ()


class SchemaChange(msgspec.Struct, frozen=True):
    """One difference between two versions: of a column, an index, or the primary key."""

    type: EvolutionType
    name: str = ""  # of the column or index, the old one of a renamed column
    before: Any = None
    after: Any = None


class Compatibility(msgspec.Struct, frozen=True):
    """What a change of schema allows. Reasons say what stands against it.

    backward: who knows the new schema reads what was written under the old one. forward: the other way round.
    """

    backward: bool
    forward: bool
    reasons: list[str] = []

    @property
    def full(self) -> bool:
        """Both ways."""
        return self.backward and self.forward


class SchemaVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One row of schema_registry."""

    id: int
    schema_name: str
    table_name: str
    version: int  # from 1 on, without gaps
    schema_definition: SchemaDefinition
    schema_hash: str  # SHA-256 of the canonical definition, hex
    evolution_type: EvolutionType
    changes: list[SchemaChange]  # all, evolution_type's among them
    previous_version: int | None
    iceberg_schema_id: int | None  # of the table that it became
    source_position: Any  # where in the source it took effect
    registered_at: datetime
