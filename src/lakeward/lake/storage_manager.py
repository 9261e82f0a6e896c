"""The write path under the names that people look for: a thin front over registration, flush, retirement and footers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from lakeward.arrow import given_files
from lakeward.errors import MetadataConflict, ObjectNotFound
from lakeward.fronts import bound
from lakeward.lake import ingest, writes
from lakeward.maintenance import cleaner
from lakeward.names import NamespaceName, TableIdentifier, parse_namespace
from lakeward.registry import abandoned
from lakeward.snapshots import snapshot_commit
from lakeward.tables import footers, snapshots, tables
from lakeward.tables.counters import rebuild_counters
from lakeward.tables.records.files import AppendResult, FileInfo, RegisteredFile
from lakeward.tables.records.tables import Snapshot, Table

if TYPE_CHECKING:
    from lakeward.lake.lake import Lake


class StorageManager:
    """Insert, replace and retire data of a lake's tables, step by step.

    An insert is: intent, files, then ONE transaction with the rows of `table_files`, the statistics, the footers and the
    batch key. The Iceberg snapshot and metadata follow when a trigger asks, or in the call where the connection says 'sync'.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.registry = lake.registry

    def insert_data(
        self,
        namespace: NamespaceName,
        table: str,
        data: Any,
        batch: writes.BatchKey = None,
        *,
        run: ingest.Run = None,
    ) -> AppendResult:
        """Write and register; as `lake.append`. `seconds` of the answer tells what each step took."""
        return self._lake.append(_identifier(namespace, table), data, batch, run=run)

    def update_table_files(
        self, namespace: NamespaceName, table: str, *files: FileInfo, batch: writes.BatchKey = None
    ) -> AppendResult:
        """Register files that exist: they are checked, copied below the table's location and registered in one transaction.

        All that a FileInfo says is checked: name, size, rows, checksum ('sha256:...', where it is not none), the partition
        (where it is not ''), and that its times have a zone and are in order. `batch` makes it happen once, as for
        `insert_data`; the same key with other files is refused.

        Raises:
            TableNotFound, BatchOutOfOrder.
            InvalidInput: a FileInfo contradicts itself, or names a file twice.
            FileRefused: a file is not what its FileInfo says (wrong_size, wrong_checksum, wrong_row_count, wrong_partition), is
                a file of a table already (already_registered), or does not fit; nothing was registered.
        """
        found = tables.load(self.registry, _identifier(namespace, table))
        engine = self.registry.engine(found.location)
        key = writes.batch_of(batch)
        given = given_files.checked(
            files, engine, lambda locations: abandoned.owned(self.registry, locations), whole=key is not None
        )
        if key is not None:
            key = msgspec.structs.replace(key, content=given_files.content_of(given))

        make = partial(given_files.take, files=given)
        with ingest.ingested(self.registry, found.identifier, [file.path for file in files]) as ingested:
            return writes.write(self.registry, found, make, batch=key, run=ingested.run)

    def update_table_statistics(
        self, namespace: NamespaceName, table: str, row_count: int | None = None, file_size: int | None = None
    ) -> Table:
        """Work the table's counters out anew from its live files: a repair, since each write keeps them exact already.

        Raises:
            AuditFailed: `row_count` or `file_size`, where given, is not what the live files have; nothing is changed.
        """
        found = tables.load(self.registry, _identifier(namespace, table))
        return rebuild_counters(self.registry, found, row_count, file_size)

    def table_files(self, namespace: NamespaceName, table: str) -> list[FileInfo]:
        """The live files."""
        return [file_info(file) for file in self._lake.files(_identifier(namespace, table))]

    def create_iceberg_snapshot(
        self, namespace: NamespaceName, table: str, files: Iterable[FileInfo] = ()
    ) -> Snapshot | None:
        """Make one snapshot of ALL that is pending, with the metadata that names it; None if nothing was pending.

        A snapshot of some of the pending files would show an engine a table that never was: `files`, where given, are
        checked to be live files of the table.

        Raises:
            TableNotFound, ObjectNotFound: one of `files` is no live file of the table.
        """
        name = _identifier(namespace, table)
        found = tables.load(self.registry, name)
        live = {file.file_path for file in snapshots.list_files(self.registry, found)} if files else set()
        for file in files:
            if file.path not in live:
                raise ObjectNotFound(f"{file.path} is no live file of {name}; register it first")
        flushed = snapshot_commit.flush(self.registry, found.table_id, "manual")
        if flushed.snapshot_id is None:
            return None
        return snapshots.load_snapshot(self.registry, found, flushed.snapshot_id)

    def update_iceberg_metadata(self, namespace: NamespaceName, table: str, snapshot: Snapshot | None = None) -> str:
        """Make the Iceberg metadata file true to the registry's schema and properties; its location.

        A snapshot, where given, must be the table's current one: it is in the metadata already, since both are one commit.

        Raises:
            MetadataConflict: the table has moved on from `snapshot`.
        """
        found = tables.load(self.registry, _identifier(namespace, table))
        if snapshot is not None and found.current_snapshot_id != snapshot.snapshot_id:
            raise MetadataConflict(
                f"{found.identifier} stands at snapshot {found.current_snapshot_id}, not at {snapshot.snapshot_id}"
            )
        return snapshot_commit.flush(self.registry, found.table_id, "manual", files=False).metadata_location

    def insert_partition(
        self,
        namespace: NamespaceName,
        table: str,
        partition: Mapping[str, Any] | str,
        data: Any,
        batch: writes.BatchKey = None,
        *,
        run: ingest.Run = None,
    ) -> AppendResult:
        """Replace a partition's rows by `data`, in one transaction with the retirement of the files that were there.

        `partition` names every partition field: {'month': 1}, or 'month=1' as its files show it. `data` is what `lake.append`
        takes, files that exist too; all its rows must be of that partition, and without rows the partition is empty afterwards.
        """
        key, name = writes.batch_of(batch), _identifier(namespace, table)

        with ingest.ingested(self.registry, name, data, batch=key, run=run) as given:
            make = writes.writer_for(given.data, self._lake.settings.catalog)
            return writes.write(self.registry, given.which, make, partition=partition, batch=key, run=given.run)

    def retire_partitions(
        self, namespace: NamespaceName, table: str, partitions: Iterable[Mapping[str, Any] | str]
    ) -> int:
        """As `lake.retire_partitions`."""
        return self._lake.retire_partitions(_identifier(namespace, table), partitions)

    def retire_expired_partitions(self, namespace: NamespaceName, table: str, age: timedelta) -> int:
        """As `lake.retire_expired_partitions`."""
        return self._lake.retire_expired_partitions(_identifier(namespace, table), age)

    delete_expired_temporary_files = bound(cleaner.clean)
    load_partition_metadata = bound(footers.load_partition_metadata)
    delete_partition_metadata_batch = bound(footers.delete_partition_metadata_batch)


def _identifier(namespace: NamespaceName, table: str) -> TableIdentifier:
    return TableIdentifier(parse_namespace(namespace), table)


def file_info(file: RegisteredFile) -> FileInfo:
    return FileInfo(
        name=file.file_name,
        path=file.file_path,
        size=file.file_size,
        row_count=file.row_count,
        checksum=file.checksum,
        created=file.created_at,
        modified=file.modified_at,
        partition_path=file.partition_path,
    )
