"""The schema manager: keeps the schemas of tables in memory true to the registry, by the events of the feed.

The cache is the registry handle's own (`registry.schemas`), so that whatever reads a table's metadata in this process, the
writers, scans and the server, has the use of it. Events come later than commits; no reader depends on them, since each asks
for a version by the number that it has read itself. What events bring is that a version is there before it is asked for,
that a dropped table's is there no more, and that a row changed by hand is read again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias, TypeVar

import msgspec

from lakeward.astha.events import (
    TABLE_COLUMNS,
    TABLE_METADATA,
    TABLES,
    Event,
    Operation,
    TableColumn,
)
from lakeward.components.component import OwnComponent
from lakeward.errors import LakewardError, RegistryUnavailable
from lakeward.logs import log
from lakeward.names import TableName, parse_table
from lakeward.registry import HasRegistry, Registry
from lakeward.retry import RetryConfig, tried
from lakeward.tables import tables
from lakeward.tables.records.tables import Document, Table, TableMetadata, TableRow
from lakeward.tables.schema_cache import CacheStats
from lakeward.validation import MAX_INTEGER, check_config

T = TypeVar("T")
Row: TypeAlias = TableRow | TableColumn | TableMetadata

REFRESH, REGISTRY, STANDBY = "refresh", "registry", "standby"
PAGE = 200  # versions of one read when the cache is filled


class SchemaManagerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept, and how often a registry that does not answer is asked again.

    Raises InvalidSetting: a value that makes no sense.
    """

    max_entries: int | None = None  # versions; None: the setting schema_cache_entries
    max_bytes: int | None = None  # None: the setting schema_cache_bytes
    retry: RetryConfig = RetryConfig(max_retries=3)  # waits of 0.1 s, doubled up to 5 s

    def __post_init__(self) -> None:
        check_config(self, max_entries=0, max_bytes=0)


class SchemaManager(OwnComponent[Row]):
    """Serves schemas from memory. Threads may share it; a registry handle has one.

    It works without Astha too: what is asked for is then read once, and not before.
    """

    name = "schema_manager"
    tables = (TABLES, TABLE_COLUMNS, TABLE_METADATA)

    def __init__(self, lake: Registry | HasRegistry, config: SchemaManagerConfig | None = None) -> None:
        super().__init__(lake)
        self._config = config or SchemaManagerConfig()
        self._cache = self._registry.schemas
        entries, most = self._cache.limits
        given = self._config
        self._cache.limit(
            entries if given.max_entries is None else given.max_entries,
            most if given.max_bytes is None else given.max_bytes,
        )
        self._lock = threading.Lock()
        # Why memory is not trusted: a table whose event failed, or one of the above.
        self._doubts: set[int | str] = set()
        self._stopped = threading.Event()

    # Reading ----------------------------------------------------------------------------------------------------------
    def get_schema(self, table: TableName | Table, version: int | None = None) -> TableMetadata:
        """A table's schema, with all else that its metadata says, as it is now or was at a version.

        By a name it is the current one, committed before this call: the registry is asked for the version's number. By a
        Table it is the one that this record stood at, mostly without asking. It is shared and cannot be changed;
        copy.deepcopy gives one that can.

        Raises:
            TableNotFound, InvalidName, MetadataVersionNotFound, RegistryUnavailable.
        """
        return self._retried(lambda: self._get(table, version))

    def get_versions(self, table: TableName | Table) -> list[TableMetadata]:
        """All of a table's versions, oldest first, as of now. Raises: as `get_schema`."""
        return self._retried(lambda: tables.versions(self._registry, self._found(table)))

    def get_cache_stats(self) -> CacheStats:
        """How often what was asked for was found in memory, and how much is kept there."""
        return self._cache.stats()

    def _found(self, table: TableName | Table) -> Table:
        return table if isinstance(table, Table) else tables.load(self._registry, table)

    def _get(self, table: TableName | Table, version: int | None) -> TableMetadata:
        if isinstance(table, Table):
            return tables.metadata(self._registry, table, version)
        identifier = parse_table(table)
        table_id, current = tables.head(self._registry, identifier)
        found = self._registry.metadata_version(None, table_id, current if version is None else version)
        if found is None:  # there is no such version, or the table has just been dropped
            return tables.metadata(self._registry, tables.load(self._registry, identifier), version)
        return found

    # Events -----------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Nothing but undoing `stop`: it has no threads."""
        self._stopped.clear()

    def stop(self) -> None:
        """End all waiting for another try, and keep nothing that events would have to keep true."""
        self._stopped.set()
        self._settle()
        self._cache.clear()

    def follow(self, follows: bool) -> None:
        """Whether events come from now on. None come where another process is the active one: reads go to the registry then."""
        if follows:
            self._cache.clear()
        self._doubt(STANDBY, not follows)

    def on_health(self) -> bool:
        """Whether the registry answers, so that events can be handled.

        Not whether all have been: a component that is unhealthy gets none, and would stay behind for ever.
        """
        try:
            tables.live_version(self._registry, 0)
        except LakewardError:
            self._doubt(REGISTRY)
            raise
        self._doubt(REGISTRY, False)
        return True

    def on_event(self, event: Event[Row]) -> None:
        """Raises RegistryUnavailable: it did not answer in all tries."""
        try:
            self._retried(lambda: self._apply(event), lambda: self._doubt(event.table_id))
        except BaseException:
            self._doubt(event.table_id)
            raise
        self._doubt(event.table_id, False)

    def on_refresh(self) -> None:
        """Start anew: forget everything, then read the current versions, the newest tables first, as many as fit."""
        self._doubt(REFRESH)
        self._cache.clear()
        filled = self._retried(self._fill)
        self._settle(frozenset({STANDBY}))
        log.info("schemas_read", versions=filled)

    def _apply(self, event: Event[Row]) -> None:
        row = event.data
        if isinstance(row, TableRow):
            self._apply_table(row, event.operation)
        elif isinstance(row, TableMetadata):
            self._apply_metadata(row, event.operation)
        else:
            self._apply_column(row, event.operation)

    def _apply_table(self, row: TableRow, operation: Operation) -> None:
        """A table that is new is read, one that is gone is forgotten; other changes, of counters mostly, are no concern.

        One whose version has moved is read too, if it is among those that are kept.
        """
        if operation == "DELETE" or row.dropped_at is not None:
            self._cache.forget(row.table_id)
        elif operation == "INSERT" or self._cache.newest(row.table_id) is not None:
            self._read(row.table_id, row.version)

    def _apply_metadata(self, row: TableMetadata, operation: Operation) -> None:
        if operation != "INSERT":  # a version that changes was changed by hand
            self._cache.forget(row.table_id, row.metadata_version)
        if operation != "DELETE":
            self._read(row.table_id, row.metadata_version)

    def _apply_column(self, row: TableColumn, operation: Operation) -> None:
        """Mostly news of what came with the version; what does not fit to it has the current version read again."""
        newest = self._cache.newest(row.table_id)
        if newest is not None:
            if _says(newest, row, operation):
                return
            self._cache.forget(row.table_id, newest.metadata_version)
        elif operation == "DELETE":  # with its table, mostly
            return
        current = tables.live_version(self._registry, row.table_id)
        if current is not None:
            self._read(row.table_id, current)

    def _read(self, table_id: int, version: int) -> None:
        # From the registry, not from the event, which may be old: one that comes again, say.
        if not self._cache.holds(table_id, version):
            self._registry.committed_version(table_id, version)

    def _fill(self) -> int:
        """Read current versions until the cache is full; how many."""
        filled, before = 0, MAX_INTEGER
        while True:
            mark = self._cache.mark()
            found = tables.current_metadata(self._registry, before, PAGE)
            for version in found:
                self._cache.put(version, mark, evict=False)
                if not self._cache.holds(version.table_id, version.metadata_version):
                    return filled
                filled += 1
            if len(found) < PAGE:
                return filled
            before = found[-1].table_id

    # Trying again -----------------------------------------------------------------------------------------------------
    def _retried(self, action: Callable[[], T], failed: Callable[[], object] | None = None) -> T:
        """Do what only reads, and so can be done again, until the registry answers or the tries are over."""

        def told(error: RegistryUnavailable) -> None:
            log.warning("schemas_not_read", error=str(error), code=error.code)
            if failed is not None:
                failed()

        return tried(action, RegistryUnavailable, self._config.retry, sleep=self._stopped.wait, failed=told)

    def _doubt(self, reason: int | str, doubted: bool = True) -> None:
        """While there is any reason for doubt, everybody reads from the registry."""
        if not doubted and reason not in self._doubts:
            return
        with self._lock:
            if doubted and self._stopped.is_set():
                return  # no event would end the doubt, and memory has been emptied
            (self._doubts.add if doubted else self._doubts.discard)(reason)
            if self._doubts:
                self._cache.suspend()
            else:
                self._cache.resume()

    def _settle(self, but_for: frozenset[str] = frozenset()) -> None:
        with self._lock:
            self._doubts &= but_for
            if not self._doubts:
                self._cache.resume()


def _says(version: TableMetadata, row: TableColumn, operation: Operation) -> bool:
    """Whether a version's schema has the column as the row says (for DELETE: has no such column)."""
    fields: list[Document] = version.schema["fields"]
    if operation == "DELETE":
        return all(field["id"] != row.field_id for field in fields)
    if not 0 <= row.position < len(fields):
        return False
    field = fields[row.position]
    said = (row.field_id, row.name, row.type, row.required, row.doc)
    return said == (field["id"], field["name"], field["type"], bool(field["required"]), field.get("doc"))
