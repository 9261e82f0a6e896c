"""Tables: made, found, renamed, dropped. Their metadata's versions are changed in `evolution`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypeVar

import sqlalchemy as sa

from lakeward.db import dialect, lock_order
from lakeward.db.retry import retried
from lakeward.errors import (
    InvalidInput,
    MetadataVersionNotFound,
    TableAlreadyExists,
    TableNotFound,
    TransactionConflict,
)
from lakeward.names import NamespaceName, TableIdentifier, TableName, parse_namespace, parse_table
from lakeward.registry.handle import Registry
from lakeward.registry.sql import intents, leases
from lakeward.secret_names import check_no_secrets
from lakeward.storage.engines import engine_name
from lakeward.storage.locations import table_location
from lakeward.tables import namespaces
from lakeward.tables.records.properties import check_level, check_properties
from lakeward.tables.records.tables import NO_PARTITION_ID, UNPARTITIONED, UNSORTED, Document, Table, TableMetadata
from lakeward.tables.sql import footers, retired, snapshots, tables
from lakeward.tables.sql.namespaces import path

T = TypeVar("T")

# A table by its name, or one that was found before and is meant whatever has its name by now: whoever has found a table goes
# on with what it found, and never asks for the name again.
Which: TypeAlias = "TableName | Table"

FORMATS = ("parquet", "json")
COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")
PAGE = 500  # tables of one read


def find(connection: sa.Connection, registry: Registry, identifier: TableIdentifier) -> Table:
    """A table by its name, as the transaction sees it. Raises TableNotFound."""
    found = tables.by_name(connection, registry.warehouse.warehouse_id, path(identifier.namespace), identifier.name)
    if found is None:
        raise _none_of_name(identifier)
    return found


def _none_of_name(identifier: TableIdentifier) -> TableNotFound:
    """In the words that clients of the catalog look for."""
    error = TableNotFound(f"Table does not exist: {identifier}")
    error.sought = (*identifier.namespace, identifier.name)
    return error


def find_locked(connection: sa.Connection, registry: Registry, which: Which, *, keys: bool = False) -> Table:
    """A table, its row locked, as it is now that nobody else changes it. With `keys` its name may be changed.

    Raises:
        TableNotFound, InvalidName.
        TransactionConflict: the name went to another table while this waited for the one that had it.
    """
    if isinstance(which, Table):
        return _live(which, tables.locked_by_id(connection, which.table_id, keys=keys))
    identifier = parse_table(which)
    warehouse_id, namespace = registry.warehouse.warehouse_id, path(identifier.namespace)
    found = tables.locked_by_name(connection, warehouse_id, namespace, identifier.name, keys=keys)
    if found is not None:
        return found
    now = find(connection, registry, identifier)
    raise TransactionConflict(
        f"{identifier} is table {now.table_id} now, and was another one: run the transaction again"
    )


def find_which(connection: sa.Connection, registry: Registry, which: Which) -> Table:
    """The table of a name, or one that was found before as it is now. Raises TableNotFound: it is gone, or dropped."""
    if not isinstance(which, Table):
        return find(connection, registry, parse_table(which))
    return _live(which, tables.by_id(connection, which.table_id))


def _live(which: Table, found: Table | None) -> Table:
    if found is None or found.dropped_at is not None:
        raise TableNotFound(f"Table does not exist: {which.identifier} (it was dropped)")
    return found


def load(registry: Registry, name: Which) -> Table:
    """A table as it is now. Raises TableNotFound, InvalidName."""
    if isinstance(name, Table):
        row = registry.database.lookups.one(tables.BY_ID, {"table_id": name.table_id})
        return _live(name, None if row is None else tables.table_of_row(row))
    identifier = parse_table(name)
    key = tables.name_key(registry.warehouse.warehouse_id, path(identifier.namespace), identifier.name)
    row = registry.database.lookups.one(tables.BY_NAME, key)
    if row is None:
        raise _none_of_name(identifier)
    return tables.table_of_row(row)


def table_of(registry: Registry, which: Which) -> Table:
    """The table of a name; one that was found before, as it was found. Raises TableNotFound, InvalidName."""
    return which if isinstance(which, Table) else load(registry, which)


def load_by_id(registry: Registry, table_id: int) -> Table:
    """A dropped table is found too, until it has been cleaned up. Raises TableNotFound."""
    with registry.database.read() as connection:
        found = tables.by_id(connection, table_id)
    if found is None:
        raise TableNotFound(f"Table does not exist: no table has the id {table_id}")
    return found


def head(registry: Registry, identifier: TableIdentifier) -> tuple[int, int]:
    """(table_id, current metadata version) of a table, quickly. Raises TableNotFound."""
    warehouse_id = registry.warehouse.warehouse_id
    found = registry.database.lookups.one(
        tables.HEAD_BY_NAME, tables.name_key(warehouse_id, path(identifier.namespace), identifier.name)
    )
    if found is None:
        raise _none_of_name(identifier)
    return found["table_id"], found["version"]


def live_version(registry: Registry, table_id: int) -> int | None:
    """The current metadata version of a table; None if it is gone or dropped."""
    found = registry.database.lookups.one(tables.LIVE_VERSION, {"table_id": table_id})
    return None if found is None else int(found["version"])


def current_metadata(registry: Registry, before: int, limit: int) -> list[TableMetadata]:
    """The current versions of live tables of any warehouse, by falling table id from `before` on, which is left out."""
    rows = registry.database.lookups.all(tables.CURRENT_METADATA, {"before": before, "most": limit})
    return [tables.version_from_row(row) for row in rows]


def metadata(registry: Registry, name: Which, version: int | None = None) -> TableMetadata:
    """A table's schema, partitions, order and properties: as they are, or were at a version.

    Raises:
        MetadataVersionNotFound.
        TableNotFound: or it has been dropped, and its metadata is gone.
    """
    table = table_of(registry, name)
    try:
        return metadata_in(None, registry, table, version)
    except MetadataVersionNotFound:
        if live_version(registry, table.table_id) is None:
            raise TableNotFound(f"Table does not exist: {table.identifier} (it was dropped)") from None
        raise


def metadata_in(
    connection: sa.Connection | None, registry: Registry, table: Table, version: int | None = None
) -> TableMetadata:
    found = registry.metadata_version(connection, table.table_id, table.version if version is None else version)
    if found is None:
        raise no_such_version(table, table.version if version is None else version)
    return found


def no_such_version(table: Table, version: int) -> MetadataVersionNotFound:
    return MetadataVersionNotFound(f"{table.identifier} has no metadata version {version}; it has 1..{table.version}")


def load_with_metadata(registry: Registry, which: Which) -> tuple[Table, TableMetadata]:
    """Both as of one moment: a version never changes. Raises TableNotFound, InvalidName."""
    found = load(registry, which)
    return found, metadata(registry, found)


def versions(registry: Registry, name: Which) -> list[TableMetadata]:
    """Every version of a table's metadata, oldest first. Raises TableNotFound, InvalidName."""
    table = table_of(registry, name)
    with registry.database.read() as connection:
        current = tables.by_id(connection, table.table_id)
        return [] if current is None else registry.metadata_versions(connection, table.table_id, current.version)


def list_tables(
    registry: Registry, namespace: NamespaceName, *, after: str = "", limit: int | None = None
) -> list[Table]:
    """By name; `after` is the last name of the page before. Raises NamespaceNotFound."""
    with registry.database.read() as connection:
        found = namespaces.find(connection, registry, parse_namespace(namespace))
        return tables.in_namespace(connection, found.namespace_id, after, limit)


def every(registry: Registry) -> Iterator[Table]:
    """The tables of this handle's warehouse, without those that were dropped; read by pages, as the caller goes on."""
    after, more = 0, True
    while more:
        with registry.database.read() as connection:
            page = tables.live(connection, registry.warehouse.warehouse_id, after, PAGE)
        yield from page
        more = len(page) == PAGE
        after = page[-1].table_id if page else after


@retried
def create(
    registry: Registry,
    name: TableName,
    *,
    schema: Document,
    last_column_id: int,
    partition_by: Document = UNPARTITIONED,
    last_partition_id: int = NO_PARTITION_ID,
    sort_by: Document = UNSORTED,
    properties: Mapping[str, str] | None = None,
    format: str = "parquet",
    compression: str = "zstd",
    storage_engine: str | None = None,
    engine_config: Mapping[str, Any] | None = None,
    format_version: int = 2,
) -> Table:
    """Make a table from Iceberg documents (see iceberg.schemas and iceberg.partitions). No file is written yet.

    Raises:
        NamespaceNotFound, TableAlreadyExists, InvalidName.
        InvalidSchema: documents that readers of Iceberg refuse.
        InvalidInput: a format, compression, format version or storage engine that is not offered.
        InvalidSetting: `engine_config` has a setting that the storage engine does not know.
    """
    from lakeward.tables.judging import check_new  # knows Iceberg's types, which a look at a table does not need

    identifier = parse_table(name)
    location_engine = engine_name(registry.warehouse.location)
    _one_of("format", format, FORMATS)
    _one_of("compression", compression, COMPRESSIONS)
    _one_of("format_version", format_version, (2, 3))
    _one_of("storage_engine", storage_engine or location_engine, (location_engine,))
    check_no_secrets("engine_config", engine_config or {})
    registry.engine(registry.warehouse.location, engine_config)  # refuses a setting that the engine does not know
    check_properties(properties or {})
    check_level(properties or {}, compression)
    table_uuid = str(uuid.uuid4())
    with registry.database.transaction() as connection:
        now = dialect.now(connection)
        location = table_location(registry.warehouse.location, identifier.namespace, identifier.name, table_uuid)
        values = {
            "table_uuid": table_uuid,
            "location": location,
            "format": format,
            "format_version": format_version,
            "version": 1,
            "last_modified": now,
            "last_column_id": last_column_id,
            "last_partition_id": last_partition_id,
            "created_at": now,
        }
        table_id = _named(connection, registry, identifier, lambda name: tables.insert(connection, {**values, **name}))
        first = TableMetadata(
            table_id=table_id,
            metadata_version=1,
            schema_version=schema["schema-id"],
            schema=schema,
            spec_id=partition_by["spec-id"],
            partition_by=partition_by,
            sort_order_id=sort_by["order-id"],
            sort_by=sort_by,
            properties=dict(properties or {}),
            storage_engine=location_engine,
            engine_config=dict(engine_config or {}),
            format=format,
            compression=compression,
            change="create",
            created_at=now,
        )
        check_new(first, format_version)
        tables.insert_metadata(connection, first)
        tables.replace_columns(connection, table_id, schema["fields"])
        return find(connection, registry, identifier)


def _named(
    connection: sa.Connection, registry: Registry, identifier: TableIdentifier, write: Callable[[dict[str, Any]], T]
) -> T:
    """What `write` gives, which puts a table at a name, given as columns of its row.

    Raises NamespaceNotFound, TableAlreadyExists.
    """
    namespace = namespaces.find(connection, registry, identifier.namespace)
    if not tables.by_name(connection, namespace.warehouse_id, path(identifier.namespace), identifier.name):
        try:
            with connection.begin_nested():
                return write({"namespace_id": namespace.namespace_id, "name": identifier.name})
        except sa.exc.IntegrityError:  # another process was quicker: to drop the namespace, it may be
            namespaces.find(connection, registry, identifier.namespace)
    raise TableAlreadyExists(f"Table already exists: {identifier}")


def _one_of(setting: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        raise InvalidInput(f"{setting}={value!r} is not offered here; use {' or '.join(map(repr, allowed))}")


@retried
def rename(registry: Registry, name: TableName, new_name: TableName) -> Table:
    """Give a table another name, in another namespace too. Its location, files and UUID stay.

    Raises:
        TableNotFound, TableAlreadyExists, NamespaceNotFound, InvalidName.
    """
    old, new = parse_table(name), parse_table(new_name)
    with registry.database.transaction() as connection:
        found = find_locked(connection, registry, old, keys=True)
        _named(connection, registry, new, lambda name: tables.update(connection, found.table_id, name))
        return find(connection, registry, new)


@retried
def drop(registry: Registry, which: Which, *, purge: bool = False) -> Table:
    """Drop a table: its name is free at once, its files wait in quarantine (with `purge`, for the next clean-up only).

    Writes that are under way fail at their registration.

    Raises:
        TableNotFound, InvalidName.
    """
    with registry.database.transaction() as connection:
        found = find_locked(connection, registry, which, keys=True)
        now = dialect.now(connection)
        _retire_everything(connection, registry, found, now, now if purge else registry.quarantine_ends(now))
        tables.update(connection, found.table_id, _DROPPED | {"dropped_at": now, "last_modified": now})
        return found


_DROPPED: dict[str, Any] = {"namespace_id": None, **dict.fromkeys(tables.COUNTERS, 0)}


def _retire_everything(
    connection: sa.Connection, registry: Registry, table: Table, now: datetime, expires_at: datetime
) -> None:
    sweep_after = now + timedelta(seconds=registry.settings.sweep_after_seconds)
    intents.recover_of_table(connection, table.table_id, now, sweep_after)
    removed_by = table.current_snapshot_id or 0
    retired.expire_table(connection, table.table_id, expires_at, removed_by)
    retired.retire_all(
        connection, table.table_id, reason="table dropped", now=now, expires_at=expires_at, removed_by=removed_by
    )
    if table.metadata_location is not None:  # the table's folder goes with this one, with all that is in it
        current = [{"file_path": table.metadata_location}]
        retired.insert(
            connection, table.table_id, current, kind="metadata", reason="table dropped", now=now, expires_at=expires_at
        )
    snapshots.mark_expired(connection, table.table_id, now)
    tables.delete_stats(connection, table.table_id)


# The end of a dropped table -----------------------------------------------------------------------------------------------
def due(registry: Registry) -> list[Table]:
    """Tables of this handle's warehouse whose time in quarantine is over, the longest dropped first."""
    with registry.database.read() as connection:
        return tables.dropped_before(connection, registry.below, dialect.now(connection))


@retried
def forget(registry: Registry, table: Table) -> bool:
    """Delete a table's rows, whose folder is gone; whether they are.

    While a write of it may still be under way somewhere they stay, so that recovery finds the write's prefix.
    """
    with registry.database.transaction() as connection:
        lock_order.tables(connection, [table.table_id], keys=True)
        if intents.any_of(connection, table):
            return False
        leases.delete_of(connection, table.table_uuid)
        footers.delete_of_table(connection, table.table_id)
        tables.delete(connection, table.table_id)
    return True
