"""The Iceberg updater: keeps Iceberg's metadata files true to the tables' metadata, and their manifests few.

A new version of a table's metadata is written out at once, so that no query has to. Manifests are looked at when commits may
have made many of them, and merged in a thread of its own. Both are only ever early: a query that comes before does the first
itself, and the second changes nothing that a query returns. So an event that is lost, or comes twice, does no harm.
"""

from __future__ import annotations

import math
import threading
import time
from typing import TypeAlias

import msgspec

from lakeward.astha.events import TABLE_FILES, TABLE_METADATA, Event
from lakeward.background import Worker
from lakeward.components.component import OwnComponent
from lakeward.errors import InvalidInput, LeaseHeld, TableNotFound, error_code
from lakeward.logs import log, log_and_go_on
from lakeward.registry import HasRegistry, Registry
from lakeward.retry import RetryConfig
from lakeward.snapshots.manifest_merging import MergeResult, merge_manifests
from lakeward.snapshots.snapshot_commit import flush
from lakeward.sums import Sum
from lakeward.tables import tables
from lakeward.tables.records.files import TableFile
from lakeward.tables.records.tables import Table, TableMetadata
from lakeward.validation import check_config

Record: TypeAlias = TableMetadata | TableFile

RETRY = RetryConfig(initial_delay=1.0, max_delay=60.0, jitter=0.0)  # of a merge that failed or always lost
ENOUGH_KEPT = 10_000  # tables of which is remembered that they have too few manifests: those looked at last


class IcebergUpdaterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`merges`: whether manifests are merged, in tables whose properties do not forbid it."""

    merges: bool = True

    def __post_init__(self) -> None:
        check_config(self)


class UpdaterCounts(Sum, frozen=True, kw_only=True):
    """What an updater has done since it was made."""

    metadata_files: int = 0  # for new versions of tables
    merges: int = 0
    replaced: int = 0  # manifests that were merged
    created: int = 0  # manifests that they became
    conflicts: int = 0  # commits that were quicker than a merge's
    failures: int = 0


class _Waiting(msgspec.Struct):
    """A table whose manifests are to be looked at."""

    not_before: float = 0.0  # by the monotonic clock
    failures: int = 0


class IcebergUpdater(OwnComponent[Record]):
    """A component of Astha. Metadata is written in `on_event`; merges wait for the thread of `start`, or `merge_waiting`."""

    name = "iceberg_updater"
    tables = (TABLE_METADATA, TABLE_FILES)
    operations = frozenset({"INSERT", "UPDATE"})

    def __init__(self, lake: Registry | HasRegistry, config: IcebergUpdaterConfig | None = None) -> None:
        super().__init__(lake)
        self._config = config or IcebergUpdaterConfig()
        self._counts = UpdaterCounts()
        self._waiting: dict[int, _Waiting] = {}
        self._enough: dict[int, int] = {}  # by table: up to this sequence number there are too few manifests to merge
        self._lock = threading.Lock()  # guards all of the above

    # What Astha calls -------------------------------------------------------------------------------------------------
    def on_event(self, event: Event[Record]) -> None:
        """Raises what a flush raises: it is then tried again."""
        data = event.data
        if isinstance(data, TableMetadata):
            self._update(event.table_id)
            with self._lock:
                self._enough.pop(event.table_id, None)  # properties may say otherwise when manifests are merged
            self._look(event.table_id)
        elif data.sequence_number is not None:
            with self._lock:
                is_enough = data.sequence_number <= self._enough.get(event.table_id, 0)
            if not is_enough:
                self._look(event.table_id)

    def on_refresh(self) -> None:
        """Raises RegistryUnavailable, and what a flush of a table raises, once all others have been seen to."""
        failed: Exception | None = None
        with self._lock:
            self._enough.clear()
        for table in tables.every(self._registry):
            if table.current_snapshot_id is not None:
                self._look(table.table_id)
            if table.iceberg_version < table.version:
                try:
                    self._update(table.table_id)
                except Exception as error:
                    code = error_code(error)
                    log.warning("metadata_not_written", table=str(table.identifier), error=str(error), code=code)
                    failed = error
        if failed is not None:
            raise failed

    # Its own ----------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start merging, in a thread. Without Astha, call `on_refresh` first."""
        self._worker = Worker("lakeward-iceberg-updater", self._step)
        self._worker.wake()

    def counts(self) -> UpdaterCounts:
        """What it has done since it was made."""
        with self._lock:
            return self._counts

    def merge_waiting(self) -> int:
        """Look at the tables that wait, those too that failed and wait for their next try; how many were looked at."""
        with self._lock:
            for each in self._waiting.values():
                each.not_before = 0.0
            count = len(self._waiting)
        for _ in range(count):
            found = self._next()
            if found is not None:
                self._merge(*found)
        return count

    # Metadata ---------------------------------------------------------------------------------------------------------
    def _update(self, table_id: int) -> None:
        try:
            table = tables.load_by_id(self._registry, table_id)
            if not self._is_ours(table):
                return
            result = flush(self._registry, table_id, files=False)
        except TableNotFound:  # dropped meanwhile
            return
        if result.metadata_location != table.metadata_location:
            self._count(metadata_files=1)

    def _is_ours(self, table: Table) -> bool:
        """Whether it lies in this handle's warehouse, whose storage the settings have the credentials for."""
        return table.location.startswith(self._registry.below)

    # Manifests --------------------------------------------------------------------------------------------------------
    def _look(self, table_id: int) -> None:
        with self._lock:
            if not self._config.merges or table_id in self._waiting:
                return
            self._waiting[table_id] = _Waiting()
        self._wake()

    def _step(self) -> float:
        found = self._next()
        if found is not None:
            self._merge(*found)
        with self._lock:
            first = min((each.not_before for each in self._waiting.values()), default=math.inf)
        return max(0.0, first - time.monotonic())

    def _next(self) -> tuple[int, _Waiting] | None:
        """Take out the table that has waited longest of those that may be looked at now."""
        with self._lock:
            now = time.monotonic()
            table_id = next((i for i, each in self._waiting.items() if each.not_before <= now), None)
            return None if table_id is None else (table_id, self._waiting.pop(table_id))

    def _merge(self, table_id: int, waited: _Waiting) -> None:
        try:
            if not self._is_ours(tables.load_by_id(self._registry, table_id)):
                return
            result = merge_manifests(self._registry, table_id)
        except (TableNotFound, LeaseHeld):  # gone, or somebody is at it
            return
        except InvalidInput as error:  # a new version of the metadata brings it here again
            log.warning("manifests_not_merged", table_id=table_id, error=str(error), code=error.code)
            self._count(failures=1)
        except Exception as error:  # maybe metadata that is none: this table waits, the others go on
            log_and_go_on(log, "manifests_not_merged", error, table_id=table_id)
            self._count(failures=1)
            self._again(table_id, waited)
        else:
            self._done(table_id, waited, result)

    def _done(self, table_id: int, waited: _Waiting, result: MergeResult) -> None:
        is_merged = result.snapshot_id is not None
        self._count(merges=int(is_merged), replaced=result.replaced, created=result.created, conflicts=result.conflicts)
        if is_merged:
            log.info("manifests_merged", table_id=table_id, replaced=result.replaced, created=result.created)
            self._look(table_id)  # what was merged may make a tier full
        elif result.conflicts:
            self._again(table_id, waited)
        elif result.enough_until is not None:
            with self._lock:
                self._enough.pop(table_id, None)
                self._enough[table_id] = result.enough_until
                while len(self._enough) > ENOUGH_KEPT:  # dropped tables among them: no event tells of those
                    del self._enough[next(iter(self._enough))]

    def _again(self, table_id: int, waited: _Waiting) -> None:
        """Later: each time it fails in a row twice as late. Where an event has brought it here meanwhile, that holds too."""
        failures = waited.failures + 1
        with self._lock:
            self._waiting[table_id] = _Waiting(time.monotonic() + RETRY.delay(failures), failures)

    def _count(self, **more: int) -> None:
        with self._lock:
            self._counts += UpdaterCounts(**more)
