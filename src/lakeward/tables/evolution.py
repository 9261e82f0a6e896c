"""Changes of a table's metadata: each is a new version, and any version can be brought back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from lakeward.db import dialect
from lakeward.db.retry import retried
from lakeward.iceberg import evolution, partitions, schemas
from lakeward.registry.handle import Registry
from lakeward.tables import judging
from lakeward.tables.records.properties import check_level, check_properties
from lakeward.tables.records.tables import Document, Table, TableMetadata
from lakeward.tables.sql import tables
from lakeward.tables.tables import Which, find_locked, no_such_version


class Edited(msgspec.Struct, frozen=True):
    """The new metadata (its version and schema id are set here), and the last ids given where it gave new ones."""

    metadata: TableMetadata
    last_column_id: int = 0
    last_partition_id: int = 0


# Of the table, locked, and its versions, oldest first; the last one is current.
Edit = Callable[[Table, Sequence[TableMetadata]], Edited]


@retried
def alter(registry: Registry, which: Which, change: str, edit: Edit) -> TableMetadata:
    """Make a new version of a table's metadata by `edit`; one that changes nothing makes none.

    Raises:
        TableNotFound, InvalidName, and what `edit` raises.
    """
    with registry.database.transaction() as connection:
        table = find_locked(connection, registry, which)
        # From the registry itself: a version that memory holds would undo what somebody has changed by hand.
        versions = tables.metadata_versions(connection, table.table_id)
        edited = edit(table, versions)
        if edited.metadata == versions[-1]:
            return versions[-1]
        return _store(connection, table, versions, edited, change)


def _store(
    connection: sa.Connection, table: Table, earlier: Sequence[TableMetadata], edited: Edited, change: str
) -> TableMetadata:
    judging.check_change(connection, table, earlier, edited.metadata, change)
    now = dialect.now(connection)
    numbered = {"metadata_version": table.version + 1, "change": change, "created_at": now}
    version = _with_schema_id(msgspec.structs.replace(edited.metadata, **numbered), earlier)
    tables.insert_metadata(connection, version)
    tables.replace_columns(connection, table.table_id, version.schema["fields"])
    values = {
        "version": version.metadata_version,
        "last_column_id": max(table.last_column_id, edited.last_column_id),
        "last_partition_id": max(table.last_partition_id, edited.last_partition_id),
        "format": version.format,
        "last_modified": now,
    }
    tables.update(connection, table.table_id, values)
    return version


def _with_schema_id(version: TableMetadata, earlier: Sequence[TableMetadata]) -> TableMetadata:
    """Equal schemas share an id, as Iceberg has it; a new one gets the next."""
    equal = [v.schema_version for v in earlier if schemas.same_schema(v.schema, version.schema)]
    schema_id = equal[0] if equal else max(v.schema_version for v in earlier) + 1
    return msgspec.structs.replace(
        version, schema_version=schema_id, schema=schemas.with_schema_id(version.schema, schema_id)
    )


def _alter_schema(
    registry: Registry, which: Which, change: str, edit: Callable[[TableMetadata], Document]
) -> TableMetadata:
    return alter(registry, which, change, lambda _, v: Edited(msgspec.structs.replace(v[-1], schema=edit(v[-1]))))


def add_column(registry: Registry, name: Which, column: Any, type: Any, doc: str | None = None) -> TableMetadata:
    """Add a column at the end; rows that are there have null in it.

    `column` is a name, or a path such as 'address.zip' of a field in a struct; `type` is one that `create_table` takes.

    Raises:
        InvalidSchema: the name is taken, or the type unknown.
        ColumnNotFound: of a path, the struct. TableNotFound.
    """
    parsed = schemas.parse_type(type)

    def edit(table: Table, versions: Sequence[TableMetadata]) -> Edited:
        now, last, version = versions[-1], table.last_column_id, table.format_version
        schema, last = evolution.add_column(now.schema, last, column, parsed, doc, format_version=version)
        return Edited(msgspec.structs.replace(now, schema=schema), last)

    return alter(registry, name, "add_column", edit)


def drop_column(registry: Registry, name: Which, column: Any) -> TableMetadata:
    """Drop a column (a name or a path). Files keep it; a column of its name later is another one.

    Raises:
        InvalidSchema: the sort order or a partition uses it, of earlier files too.
        ColumnNotFound, TableNotFound.
    """
    return _alter_schema(
        registry,
        name,
        "drop_column",
        lambda now: evolution.drop_column(now.schema, column, [now.partition_by], [now.sort_by]),
    )


def rename_column(registry: Registry, name: Which, column: Any, new_name: str) -> TableMetadata:
    """Rename a column (a name or a path); files need no change.

    Raises:
        InvalidSchema: the name is taken.
        ColumnNotFound, TableNotFound.
    """
    return _alter_schema(
        registry, name, "rename_column", lambda now: evolution.rename_column(now.schema, column, new_name)
    )


def widen_column(registry: Registry, name: Which, column: Any, type: Any) -> TableMetadata:
    """Give a column a wider type: int to long, float to double, a decimal more digits.

    Raises:
        InvalidSchema: the type is not wider.
        ColumnNotFound, TableNotFound.
    """
    parsed = schemas.parse_type(type)
    return _alter_schema(registry, name, "widen_column", lambda now: evolution.widen_column(now.schema, column, parsed))


def move_column(
    registry: Registry,
    name: Which,
    column: Any,
    *,
    first: bool = False,
    after: str | None = None,
    before: str | None = None,
) -> TableMetadata:
    """Move a column to the front (`first=True`), or `before='b'` or `after='b'`.

    Raises InvalidSchema, ColumnNotFound, TableNotFound.
    """
    return _alter_schema(
        registry,
        name,
        "move_column",
        lambda now: evolution.move_column(now.schema, column, first=first, after=after, before=before),
    )


def set_properties(registry: Registry, name: Which, properties: Mapping[str, str | None]) -> TableMetadata:
    """Set properties of a table; None for a value removes one.

    Raises:
        InvalidInput: a value that cannot be used.
        TableNotFound.
    """
    check_properties(properties)

    def edit(_: Table, versions: Sequence[TableMetadata]) -> Edited:
        merged = {**versions[-1].properties, **properties}
        kept = {key: str(value) for key, value in merged.items() if value is not None}
        check_level(kept, versions[-1].compression)
        return Edited(msgspec.structs.replace(versions[-1], properties=kept))

    return alter(registry, name, "set_properties", edit)


def set_partition_spec(registry: Registry, name: Which, partition_by: Sequence[Any] = ()) -> TableMetadata:
    """How files are partitioned that are written from now on, as for `create_table`; those that are there stay.

    Raises InvalidSchema, ColumnNotFound, TableNotFound.
    """

    def edit(table: Table, versions: Sequence[TableMetadata]) -> Edited:
        current = versions[-1]
        earlier = [version.partition_by for version in versions]
        spec, last = partitions.evolved_spec(partition_by, current.schema, earlier, table.last_partition_id)
        changed = msgspec.structs.replace(current, partition_by=spec, spec_id=spec["spec-id"])
        return Edited(changed, last_partition_id=last)

    return alter(registry, name, "set_partition_spec", edit)


def set_sort_order(registry: Registry, name: Which, sort_by: Sequence[Any] = ()) -> TableMetadata:
    """How files are sorted that are written from now on, as for `create_table`; those that are there stay.

    Raises InvalidSchema, ColumnNotFound, TableNotFound.
    """

    def edit(_: Table, versions: Sequence[TableMetadata]) -> Edited:
        order = partitions.evolved_order(sort_by, versions[-1].schema, [version.sort_by for version in versions])
        return Edited(msgspec.structs.replace(versions[-1], sort_by=order, sort_order_id=order["order-id"]))

    return alter(registry, name, "set_sort_order", edit)


@retried
def rollback(registry: Registry, name: Which, version: int) -> TableMetadata:
    """Bring an earlier version of the metadata back, as a new version; rows stay as they are, and field ids stay given.

    Raises:
        MetadataVersionNotFound, TableNotFound.
        InvalidSchema: live files, or those of a write under way, could not be read then.
        InvalidInput: a property that comes back cannot be used any more.
    """
    with registry.database.transaction() as connection:
        table = find_locked(connection, registry, name)
        versions = tables.metadata_versions(connection, table.table_id)
        earlier = next((each for each in versions if each.metadata_version == version), None)
        if earlier is None:
            raise no_such_version(table, version)
        now = versions[-1].properties
        check_properties({key: value for key, value in earlier.properties.items() if now.get(key) != value})
        return _store(connection, table, versions, Edited(earlier), f"rollback to {version}")
