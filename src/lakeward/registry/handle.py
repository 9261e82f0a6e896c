"""An open registry: its database, its warehouse, who we are in it, and the thread that keeps our intents alive."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import uuid
import weakref
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, Self

import sqlalchemy as sa

from lakeward.background import Worker
from lakeward.config import Settings
from lakeward.db import dialect, migrate
from lakeward.db.database import Database
from lakeward.db.group_commit import GroupCommit
from lakeward.db.retry import retried
from lakeward.errors import InvalidSetting, RegistryOutdated, WarehouseTaken
from lakeward.logs import log, log_and_go_on
from lakeward.registry import warehouse_marker
from lakeward.registry.sql import intents, warehouses
from lakeward.registry.warehouse_objects import of_warehouse
from lakeward.retry import steady
from lakeward.storage.engine import StorageEngine
from lakeward.storage.engines import engine_for, engine_name
from lakeward.storage.locations import warehouse_location
from lakeward.tables.records.tables import TableMetadata, Warehouse
from lakeward.tables.schema_cache import SchemaCache
from lakeward.tables.sql import tables

VERSIONS_AT_ONCE = 100  # a longer history is read as it is asked for, and not remembered


class Registry:
    """What every function of this layer and above takes first. Threads may share it; a forked child opens its own."""

    def __init__(
        self, database: Database, settings: Settings, warehouse: Warehouse, *, is_checked: bool = False
    ) -> None:
        self.database = database
        self._is_checked = is_checked  # that the warehouse is this registry's
        self.group_commit = GroupCommit(database)
        self.settings = settings
        self.warehouse = warehouse
        # Somebody waits for what each call says, and nothing does it again: a refusal is no open error.
        self.is_attended = False
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4()}"
        self.schemas = SchemaCache(settings.schema_cache_entries, settings.schema_cache_bytes)
        self._keeper = _Keeper(self)
        self._closing: set[Callable[[], object]] = set()

    @property
    def is_sync(self) -> bool:
        """Whether an append returns only when its snapshot exists."""
        return self.settings.metadata_updates == "sync"

    def engine(self, location: str, table_config: Mapping[str, Any] | None = None) -> StorageEngine:
        """The storage engine for a location, with this registry's credentials, and a table's own settings over them.

        What is gone because its table or topic was dropped is TableNotFound or TopicNotFound to whoever reads it.

        Raises:
            InvalidSetting: the engine does not know a setting.
            ForkedProcess: the handle is a parent process'.
            WarehouseTaken: the location is in the warehouse, and that is another registry's.
        """
        self.database.check_usable()
        if not self._is_checked and location.startswith(self.below):
            warehouse = self.warehouse.location
            warehouse_marker.check(_engine(warehouse, self.settings), warehouse, registry_uuid(self.database))
            self._is_checked = True
        return of_warehouse(_engine(location, self.settings, table_config), self.database, self.below)

    @property
    def below(self) -> str:
        """What every location of this handle's warehouse begins with."""
        return self.warehouse.location + "/"

    def metadata_version(self, connection: sa.Connection | None, table_id: int, version: int) -> TableMetadata | None:
        """A version of a table's metadata, remembered; its documents cannot be changed. None: outside of a transaction."""
        self.database.check_usable()
        # What is remembered is read outside of the transaction: it may have written the version itself, and be rolled back.
        found = self.schemas.get(table_id, version)
        if found is None and self._remembers:
            found = self.committed_version(table_id, version)
        if found is not None:
            return found
        with self.database.read() if connection is None else contextlib.nullcontext(connection) as used:
            return tables.metadata_version(used, table_id, version)

    def committed_version(self, table_id: int, version: int) -> TableMetadata | None:
        """Read a version of a live table now, and remember it, whether memory is in use or not. Counts for nothing."""
        if not self.database.lookups.is_apart:
            return None
        mark = self.schemas.mark()
        row = self.database.lookups.one(tables.LIVE_METADATA, {"table_id": table_id, "version": version})
        return None if row is None else self.schemas.put(tables.version_from_row(row), mark)

    def metadata_versions(
        self, connection: sa.Connection, table_id: int, last: int, after: int = 0
    ) -> list[TableMetadata]:
        """The versions of a table's metadata later than `after`, oldest first; `last` is the current one to the transaction.

        Remembered as single ones are, unless there are very many.
        """
        found = {number: self.schemas.get(table_id, number) for number in range(after + 1, last + 1)}
        missing = [number for number, version in found.items() if version is None]
        if missing and self._remembers and len(missing) <= VERSIONS_AT_ONCE:
            mark = self.schemas.mark()
            span = {"table_id": table_id, "after": missing[0] - 1, "last": missing[-1]}
            for row in self.database.lookups.all(tables.LIVE_METADATA_RANGE, span):
                found[row["metadata_version"]] = self.schemas.put(tables.version_from_row(row), mark)
        known = [version for version in found.values() if version is not None]
        return known if len(known) == last - after else tables.metadata_versions(connection, table_id, after)

    @property
    def _remembers(self) -> bool:
        return self.database.lookups.is_apart and not self.schemas.is_suspended

    def quarantine_ends(self, now: datetime, *, metadata: bool = False) -> datetime:
        """Until when a file that leaves now is kept; superseded `metadata` files have a time of their own."""
        settings = self.settings
        seconds = settings.metadata_quarantine_seconds if metadata else settings.quarantine_seconds
        return now + timedelta(seconds=seconds)

    def keep(self, intent_id: str) -> None:
        """From now on the intent's lease is renewed in the background, until it is taken or let go."""
        self._keeper.keep(intent_id)

    def let_go(self, intent_id: str) -> None:
        """Renew the intent no longer: if it is still open, recovery may have it once its lease has run out."""
        self._keeper.let_go(intent_id)

    def before_close(self, action: Callable[[], object]) -> None:
        """Have something done when this handle is closed, while it still works."""
        self._closing.add(action)

    def not_before_close(self, action: Callable[[], object]) -> None:
        self._closing.discard(action)

    def close(self) -> None:
        if self.database.is_forked:  # all of it is the parent's
            return
        while self._closing:
            self._closing.pop()()
        self._keeper.stop()
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class HasRegistry(Protocol):
    """A Lake, say."""

    @property
    def registry(self) -> Registry: ...


def registry_of(lake: Registry | HasRegistry) -> Registry:
    """The registry of a lake, or itself: components take either."""
    return lake if isinstance(lake, Registry) else lake.registry


def open_database(settings: Settings, *, create: bool = True) -> Database:
    """The database that the settings name, whatever is in it. Raises InvalidSetting, RegistryUnavailable."""
    return Database(
        registry_url(settings.registry),
        durable=settings.durable,
        create=create,
        metadata_schema=settings.metadata_schema,
        pool_size=settings.pool_size,
        pool_overflow=settings.pool_overflow,
    )


def open_registry(
    settings: Settings, *, create: bool = True, upgrade: bool = False, touch_warehouse: bool = True
) -> Registry:
    """Open the registry that the settings name; a new one is created, with its warehouse.

    Without `create` nothing is made where there is no registry: a mistyped name must not look like an empty lakehouse.
    Without `touch_warehouse` the warehouse's storage is not looked at, and its location is what the registry says.

    Raises:
        RegistryOutdated: it is older than this code and `upgrade` is false, or is not there and `create` is false.
        RegistryTooNew: code of this age may no longer use it.
        RegistryUnavailable: it does not answer.
        WarehouseTaken: the warehouse is new to this registry, and another's.
        InvalidSetting: the warehouse of this name lies elsewhere than the settings say. Where they leave it at its default, a
            PostgreSQL registry says where it is.
    """
    database = open_database(settings, create=create)
    try:
        if not migrate.status(database).exists:
            _check_new(database, settings, create=create, upgrade=upgrade, touch_warehouse=touch_warehouse)
        migrate.open_checked(database, upgrade)
        warehouse, is_checked = _warehouse(database, settings, touch_warehouse)
        return Registry(database, settings, warehouse, is_checked=is_checked)
    except BaseException:
        database.close()
        raise


def _check_new(database: Database, settings: Settings, *, create: bool, upgrade: bool, touch_warehouse: bool) -> None:
    """Before a registry is made: what would refuse it leaves nothing behind. Raises as `open_registry`, and StorageError."""
    if not upgrade and (others := migrate.foreign_tables(database)):
        raise RegistryOutdated(
            f"{database.shown_url} is a SQLite database that holds no registry, but the table {others[0]!r}: name the registry's "
            "file with --registry; to have a registry beside these tables, make it by `lakeward db upgrade`"
        )
    if not create:
        raise RegistryOutdated(
            f"there is no lakehouse at {database.shown_url}: name it with --registry or go to the folder of its "
            "lakeward.toml; `lakeward create TABLE`, `lakeward topics create TOPIC`, `lakeward serve --create` and `lakeward db upgrade` "
            "make one"
        )
    if touch_warehouse:
        location = warehouse_location(settings.warehouse)
        engine = _engine(location, settings)
        engine.check_writable(location)
        try:
            warehouse_marker.check_free(engine, location)
        except WarehouseTaken:
            # Where there is a registry now another process was quicker, and the warehouse is this registry's, maybe.
            if not migrate.status(database).exists:
                raise


def registry_url(text: str) -> str:
    """A URL stays; a file's path becomes sqlite:///absolute/path.

    Raises:
        InvalidSetting: a path with '?', where a URL's path ends.
    """
    if "?" in text and "://" not in text:
        raise InvalidSetting(f"registry path {text!r} holds '?', which a database URL cannot hold; choose another path")
    return text if "://" in text else f"sqlite:///{Path(text).expanduser().absolute()}"


def _engine(location: str, settings: Settings, table_config: Mapping[str, Any] | None = None) -> StorageEngine:
    is_s3 = engine_name(location) == "s3"
    config = settings.engine_config if is_s3 else {"fsync": settings.durable}
    return engine_for(location, {**config, **(table_config or {})})


def registry_uuid(database: Database) -> str:
    with database.read() as connection:
        return migrate.info(connection).registry_uuid


def adopt_warehouse(registry: Registry) -> str | None:
    """Make the handle's warehouse this registry's; whose it was, if it was marked. Its former registry is then refused.

    Raises StorageError.
    """
    location = registry.warehouse.location
    engine = _engine(location, registry.settings)
    before = warehouse_marker.owner(engine, location)
    warehouse_marker.mark(engine, location, registry_uuid(registry.database))
    return before


@retried
def _warehouse(database: Database, settings: Settings, touch: bool) -> tuple[Warehouse, bool]:
    """The warehouse, and whether it is known to be this registry's. One that is not new is looked at when it is first used."""
    location = warehouse_location(settings.warehouse)
    name = settings.warehouse_name
    with database.read() as connection:
        found = warehouses.by_name(connection, name)
    is_checked = found is None and touch
    if found is None:
        if touch:
            engine = _engine(location, settings)
            engine.check_writable(location)
            warehouse_marker.check(engine, location, registry_uuid(database), is_new=True)
        with database.transaction() as connection:
            _check_apart(location, warehouses.others(connection, name))
            with contextlib.suppress(sa.exc.IntegrityError), connection.begin_nested():  # another may be quicker
                warehouses.insert(connection, str(uuid.uuid4()), name, location, dialect.now(connection))
            found = warehouses.by_name(connection, name)
    assert found is not None
    # A registry that others share is known by its URL; a copy of a SQLite file must not reach the files of the original.
    is_left_out = settings.warehouse == Settings().warehouse and not database.is_sqlite
    if touch and found.location != location and not is_left_out:
        raise InvalidSetting(
            f"warehouse {name!r} of this registry is at {found.location}, not at {location}; set warehouse (--warehouse, "
            "LAKEWARD_WAREHOUSE, lakeward.toml) to the former, or give the latter a warehouse_name of its own"
        )
    return found, is_checked


def _check_apart(location: str, others: list[Warehouse]) -> None:
    """What a warehouse's clean-up deletes is told by its location: it must hold no other one, nor stand in one.

    Raises InvalidSetting.
    """
    for other in others:
        if f"{location}/".startswith(f"{other.location}/") or f"{other.location}/".startswith(f"{location}/"):
            raise InvalidSetting(
                f"the warehouse {location} would stand in {other.location}, the place of {other.name!r}, or around it; choose "
                "a folder apart from it"
            )


class _Keeper:
    """Renews the leases of this process's open intents, every third of a lease, from the first intent on."""

    def __init__(self, registry: Registry) -> None:
        self._registry = weakref.ref(registry)  # one that is forgotten without being closed takes its thread with it
        self._owner = registry.owner
        self._seconds = registry.settings.lease_seconds
        self._lock = threading.Lock()
        self._kept: set[str] = set()
        self._worker = Worker("lakeward-leases", self._run, retry=steady(self._seconds / 3), failed=self._not_renewed)

    def keep(self, intent_id: str) -> None:
        with self._lock:
            self._kept.add(intent_id)
        self._worker.wake(self._seconds / 3)

    def let_go(self, intent_id: str) -> None:
        with self._lock:
            self._kept.discard(intent_id)

    def stop(self) -> None:
        self._worker.stop()

    def _run(self) -> float | None:
        registry = self._registry()
        if registry is None:
            return None
        self._renew(registry.database, timedelta(seconds=self._seconds))
        return self._seconds / 3

    def _not_renewed(self, error: Exception) -> None:
        """The next round tries again; a lease that runs out all the same fails its registration, loudly."""
        log_and_go_on(log, "lease_renewal_failed", error, owner=self._owner)

    def _renew(self, database: Database, lease: timedelta) -> None:
        with self._lock:
            kept = set(self._kept)
        if not kept:
            return
        with database.read() as connection:
            still = set(intents.still_open(connection, kept))
        with self._lock:
            self._kept -= kept - still
        if still:
            _renew(database, still, lease)


@retried
def _renew(database: Database, intent_ids: set[str], lease: timedelta) -> None:
    with database.transaction() as connection:
        intents.renew(connection, intent_ids, dialect.now(connection) + lease)
