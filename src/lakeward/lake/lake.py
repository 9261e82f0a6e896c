"""`connect` and the Lake: a thin front over the registry, the pipeline, the components and the server."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from lakeward import arrow, catalog, iceberg, lake, maintenance, registry, snapshots, spark, tables
from lakeward.config import Settings, load_settings
from lakeward.errors import TableAlreadyExists
from lakeward.names import NamespaceName, TableName, parse_table
from lakeward.ops.records.operations import DeadLetter
from lakeward.registry import Registry, open_registry
from lakeward.tables.records.files import AppendResult, RegisteredFile
from lakeward.tables.records.tables import Namespace, SnapshotRef, Table, TableMetadata, TableSnapshot

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from lakeward.ops.counted_runs import Counting
    from lakeward.snapshots.expiry import ExpireResult
    from lakeward.snapshots.manifest_merging import ManifestInfo, MergeResult
    from lakeward.snapshots.rollback import RollbackResult
    from lakeward.snapshots.snapshot_commit import FlushResult
    from lakeward.tables.tables import Which


def connect(
    registry: str | os.PathLike[str] | None = None,
    warehouse: str | os.PathLike[str] | None = None,
    metadata_updates: str | None = None,
    config: str | os.PathLike[str] | None = None,
    *,
    create: bool = True,
    upgrade: bool = False,
    **settings: Any,
) -> Lake:
    """Open a lakehouse; a registry that does not exist yet is created.

    Args:
        registry: a SQLite file's path or postgresql://user@host/database.
        warehouse: a folder or s3://bucket/prefix.
        metadata_updates: 'async' (an append returns when it is registered) or 'sync' (when its snapshot exists).
        config: a settings file; without it `lakeward.toml` of the working folder, if there is one.
        create: false refuses a registry that does not exist (RegistryOutdated) and makes nothing.
        upgrade: bring an older registry's schema up.
        settings: any other setting (config.Settings lists them). LAKEWARD_* variables come between file and arguments.

    Raises:
        InvalidSetting, RegistryUnavailable, RegistryOutdated, RegistryTooNew, WarehouseNotWritable.
    """
    merged = load_settings(
        config, registry=registry, warehouse=warehouse, metadata_updates=metadata_updates, **settings
    )
    return Lake(open_registry(merged, create=create, upgrade=upgrade))


class Lake:
    """A lakehouse, open. Use as a context manager, or call `close`. Threads may share it; a forked child opens its own."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._server: catalog.embedded.EmbeddedServer | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Lake {self.registry.database.shown_url}, warehouse {self.registry.warehouse.location}>"

    @property
    def settings(self) -> Settings:
        """What it was opened with: see config.Settings."""
        return self.registry.settings

    @property
    def is_sync(self) -> bool:
        """Whether an append returns only when its snapshot exists."""
        return self.settings.metadata_updates == "sync"

    def close(self) -> None:
        """End the catalog's server, if this lake serves it, and let the registry go. In a forked child nothing happens."""
        if self.registry.database.is_forked:
            return
        with self._lock:
            if self._server is not None:
                self._server.stop()
                self._server = None
        self.registry.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Namespaces and tables --------------------------------------------------------------------------------------------
    def create_namespace(self, name: NamespaceName, properties: Mapping[str, str] | None = None) -> Namespace:
        """Make a namespace; one that exists is returned as it is."""
        return tables.namespaces.create(self.registry, name, properties, if_absent=True)

    def namespaces(self, parent: NamespaceName = ()) -> list[Namespace]:
        """The namespaces directly below one, or all that are at the top."""
        return tables.namespaces.list_namespaces(self.registry, parent)

    def drop_namespace(self, name: NamespaceName) -> None:
        """Raises NamespaceNotFound, NamespaceNotEmpty."""
        tables.namespaces.drop(self.registry, name)

    def create_table(
        self,
        name: TableName,
        schema: Any,
        partition_by: Sequence[Any] = (),
        sort_by: Sequence[Any] = (),
        properties: Mapping[str, str] | None = None,
        format: str = "parquet",
        compression: str = "zstd",
        storage_engine: str | None = None,
        engine_config: Mapping[str, Any] | None = None,
        *,
        format_version: int = 2,
        if_not_exists: bool = False,
    ) -> Table:
        """Make a table, and its namespace if it is missing.

        Args:
            schema: an Arrow, Spark or PyIceberg schema, an Iceberg schema document, or {name: type} such as
                {'id': 'long', 'price': 'decimal(9,2)'}.
            partition_by: 'month', 'day(ts)', 'bucket(16, id)', 'truncate(4, name)', ...; odd names in backquotes.
            sort_by: 'ts', 'ts desc', 'ts asc nulls last'.
            format: 'parquet', or 'json' for JSON lines (registered and counted, but in no Iceberg snapshot).
            if_not_exists: a table that has the name already is returned as it is, whatever its schema.

        Raises:
            TableAlreadyExists, InvalidName, InvalidSchema, InvalidInput.
        """
        document, last_column_id = iceberg.schemas.schema_from(schema, format_version)
        spec, last_partition_id = iceberg.partitions.partition_spec(
            partition_by, document, 0, tables.tables.FIRST_PARTITION_ID
        )
        order = iceberg.partitions.sort_order(sort_by, document, 1) if sort_by else tables.tables.UNSORTED
        identifier = parse_table(name)
        self.create_namespace(identifier.namespace)
        try:
            return tables.tables.create(
                self.registry,
                identifier,
                schema=document,
                last_column_id=last_column_id,
                partition_by=spec,
                last_partition_id=last_partition_id,
                sort_by=order,
                properties=properties,
                format=format,
                compression=compression,
                storage_engine=storage_engine,
                engine_config=engine_config,
                format_version=format_version,
            )
        except TableAlreadyExists:
            if not if_not_exists:
                raise
            return tables.tables.load(self.registry, identifier)

    def table(self, name: TableName) -> Table:
        """Raises TableNotFound, InvalidName."""
        return tables.tables.load(self.registry, name)

    def tables(self, namespace: NamespaceName | None = None) -> list[Table]:
        """The tables of a namespace, or of all."""
        wanted = [namespace] if namespace else [found.levels for found in self.namespaces()]
        return [table for levels in wanted for table in tables.tables.list_tables(self.registry, levels)]

    def rename_table(self, name: TableName, new_name: TableName) -> Table:
        """Raises TableNotFound, TableAlreadyExists, NamespaceNotFound."""
        return tables.tables.rename(self.registry, name, new_name)

    def drop_table(self, name: TableName, purge: bool = False) -> None:
        """Its files wait in quarantine; with `purge` they are deleted now."""
        maintenance.cleaner.drop(self.registry, name, purge=purge)

    # Metadata ---------------------------------------------------------------------------------------------------------
    def metadata(self, name: TableName, version: int | None = None) -> TableMetadata:
        """A table's schema, partitions, order and properties: as they are, or were at a version.

        Raises:
            MetadataVersionNotFound, TableNotFound.
        """
        return tables.tables.metadata(self.registry, self.table(name), version)

    def metadata_versions(self, name: TableName) -> list[TableMetadata]:
        """All of them, oldest first. Raises TableNotFound."""
        return tables.tables.versions(self.registry, self.table(name))

    def add_column(self, name: TableName, column: Any, type: Any, doc: str | None = None) -> TableMetadata:
        """Add a column at the end; rows that are there have null in it.

        `column` is a name, or a path such as 'address.zip' of a field in a struct; `type` is one that `create_table` takes.

        Raises:
            InvalidSchema: the name is taken, or the type unknown.
            ColumnNotFound: of a path, the struct. TableNotFound.
        """
        return tables.evolution.add_column(self.registry, name, column, type, doc)

    def drop_column(self, name: TableName, column: Any) -> TableMetadata:
        """Drop a column (a name or a path). Files keep it; a column of its name later is another one.

        Raises:
            InvalidSchema: the sort order or a partition uses it, of earlier files too.
            ColumnNotFound, TableNotFound.
        """
        return tables.evolution.drop_column(self.registry, name, column)

    def rename_column(self, name: TableName, column: Any, new_name: str) -> TableMetadata:
        """Rename a column (a name or a path); files need no change.

        Raises:
            InvalidSchema: the name is taken.
            ColumnNotFound, TableNotFound.
        """
        return tables.evolution.rename_column(self.registry, name, column, new_name)

    def widen_column(self, name: TableName, column: Any, type: Any) -> TableMetadata:
        """Give a column a wider type: int to long, float to double, a decimal more digits.

        Raises:
            InvalidSchema: the type is not wider.
            ColumnNotFound, TableNotFound.
        """
        return tables.evolution.widen_column(self.registry, name, column, type)

    def move_column(self, name: TableName, column: Any, **where: Any) -> TableMetadata:
        """`first=True`, `before='b'` or `after='b'`."""
        return tables.evolution.move_column(self.registry, name, column, **where)

    def set_properties(self, name: TableName, properties: Mapping[str, str | None]) -> TableMetadata:
        """Set properties of a table; None for a value removes one.

        Raises:
            InvalidInput: a value that cannot be used.
            TableNotFound.
        """
        return tables.evolution.set_properties(self.registry, name, properties)

    def set_partition_spec(self, name: TableName, partition_by: Sequence[Any] = ()) -> TableMetadata:
        """How files are partitioned that are written from now on, as for `create_table`; those that are there stay."""
        return tables.evolution.set_partition_spec(self.registry, name, partition_by)

    def set_sort_order(self, name: TableName, sort_by: Sequence[Any] = ()) -> TableMetadata:
        """How files are sorted that are written from now on, as for `create_table`; those that are there stay."""
        return tables.evolution.set_sort_order(self.registry, name, sort_by)

    def rollback_metadata(self, name: TableName, version: int) -> TableMetadata:
        """Bring an earlier version of the metadata back, as a new version; rows stay as they are.

        Raises:
            MetadataVersionNotFound, TableNotFound.
        """
        return tables.evolution.rollback(self.registry, name, version)

    # Writing ----------------------------------------------------------------------------------------------------------
    def append(
        self,
        name: TableName,
        data: Any,
        batch: lake.writes.BatchKey = None,
        *,
        run: lake.ingest.Run = None,
        repairs: DeadLetter | int | None = None,
    ) -> AppendResult:
        """Append a Spark DataFrame, an Arrow table or reader, rows (dicts), or files that exist: a path or several.

        Files are Parquet, JSON (lines or an array) or CSV; all are checked before the first one is copied in, and the originals
        stay untouched. What a column takes is one rule for all of it (docs/reference/values.md).

        `batch=(stream, id)` makes it happen once: a batch seen before changes nothing and gets the first answer.
        `(stream, id, from, to)` also says what it consumed: it is refused unless the stream stands at `from`. The first
        batch of a stream may start anywhere.

        An append is a sync run. `run` (a SyncRun or its id) is one that it may join instead: its counts grow in the
        transaction of the rows.

        Where the table's property `lakeward.invalid-rows` is 'dead-letter', rows that do not fit become dead letters in the
        commit of the others, and the result counts them. A batch none of whose rows fitted may be sent again under its key
        (unless it says what it consumed): its dead letters are then those of the last time, counted.

        `repairs`: the dead letter (as it was claimed, or its number) whose record this is, mended: the commit resolves it. If
        the record still does not fit, the same letter holds it and counts one failure more.

        Raises:
            FileRefused: rows or a file do not fit; `reason` says which rule they break, and nothing was appended.
            TableNotFound, InvalidInput, IntentLost, BatchOutOfOrder, SparkConnectUnsupported, StorageError.
            SyncRunNotFound, StatusConflict: there is no such run, or it has ended; nothing was appended.
            DeadLetterNotFound, StatusConflict, InvalidInput: the letter is not there, has ended, is claimed by somebody else,
                or is of another table; nothing was appended.
        """
        key, identifier, letter = lake.writes.batch_of(batch), parse_table(name), lake.writes.repair_of(repairs)

        def write(which: Which, data: Any, counting: Counting) -> AppendResult:
            make = lake.writes.writer_for(data, self.settings.catalog)
            return lake.writes.write(
                self.registry, which, make, batch=key, repairs=letter, sync=self.is_sync, run=counting
            )

        return lake.ingest.ingest(self.registry, identifier, data, write, batch=key, run=run)

    def writer(
        self,
        name: TableName,
        rotate_seconds: float = 60.0,
        rotate_bytes: int = 128 << 20,
        rotate_rows: int = 1_000_000,
        *,
        run: lake.ingest.Run = None,
    ) -> lake.rolling.RollingWriter:
        """A writer for small rows that keep coming; see RollingWriter."""
        return lake.rolling.RollingWriter(
            self.registry,
            name,
            rotate_seconds=rotate_seconds,
            rotate_bytes=rotate_bytes,
            rotate_rows=rotate_rows,
            sync=self.is_sync,
            run=run,
        )

    # The topic log ----------------------------------------------------------------------------------------------------
    @cached_property
    def log(self) -> lake.log.TopicLog:
        """Topics of records: append, read and consume them."""
        return lake.log.TopicLog(self.registry)

    # Reading ----------------------------------------------------------------------------------------------------------
    def scan(
        self,
        name: TableName,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        *,
        snapshot: int | str | None = None,
    ) -> pa.RecordBatchReader:
        """Read without Spark: what is registered now, pending files too.

        Args:
            filter: text such as "month = 1 and origin in ('JFK', 'LGA')" or a pyarrow expression. Files are left out by
                their statistics and row groups by the stored footers.
            snapshot: a retained snapshot (its id, or the name of a branch or tag) to read in place of what is there now.

        Raises:
            TableNotFound, ColumnNotFound, InvalidFilter, InvalidInput, SnapshotNotFound, RefNotFound, StorageError.
        """
        return self._scan(name, columns, filter, snapshot)

    def _scan(
        self,
        which: Which,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        snapshot: int | str | None = None,
    ) -> pa.RecordBatchReader:
        def prepare(versions: Sequence[TableMetadata]) -> arrow.scan.Reading:
            return arrow.scan.prepare(versions, columns, filter)

        if snapshot is None:
            planned, reading = tables.footers.plan(self.registry, which, prepare)
        else:
            planned, reading = snapshots.time_travel.plan(self.registry, which, snapshot, prepare)
        engine = self.registry.engine(planned.table.location)
        return arrow.scan.scan_files(reading, planned.files, tables.footers.loader(self.registry, planned), engine)

    def files(self, name: TableName, *, set_aside: bool = False) -> list[RegisteredFile]:
        """The live files; with `set_aside`, those that could not become part of a snapshot."""
        return tables.snapshots.list_files(self.registry, self.table(name), set_aside=set_aside)

    # Snapshots --------------------------------------------------------------------------------------------------------
    def snapshots(self, name: TableName, *, expired: bool = False) -> list[TableSnapshot]:
        """The retained snapshots, oldest first; with `expired`, those too that can be read no more."""
        return tables.snapshots.list_snapshots(self.registry, self.table(name), expired=expired)

    def refs(self, name: TableName) -> list[SnapshotRef]:
        """The branches and tags of a table, by name; `main` is one once there is a snapshot."""
        return snapshots.refs.list_refs(self.registry, self.table(name))

    def create_tag(
        self,
        name: TableName,
        tag: str,
        snapshot_id: int | None = None,
        *,
        max_age: timedelta | None = None,
        replace: bool = False,
    ) -> SnapshotRef:
        """Give a snapshot a name, without `snapshot_id` the table as it is now (what is pending becomes a snapshot).

        It does not expire while the tag is there. `max_age`: an expiry drops the tag once its snapshot is older.

        Raises:
            SnapshotNotFound, RefAlreadyExists (without `replace`), InvalidName, InvalidInput, TableNotFound.
        """
        wanted = snapshots.refs.CURRENT if snapshot_id is None else snapshot_id
        ref = SnapshotRef(name=tag, type="tag", snapshot_id=wanted, max_ref_age_ms=_milliseconds(max_age))
        return snapshots.refs.create_ref(self.registry, self.table(name), ref, replace=replace)

    def create_branch(
        self,
        name: TableName,
        branch: str,
        snapshot_id: int | None = None,
        *,
        max_age: timedelta | None = None,
        keep: int | None = None,
        max_snapshot_age: timedelta | None = None,
        replace: bool = False,
    ) -> SnapshotRef:
        """As `create_tag`, for a branch. Of its ancestors, an expiry leaves the newest `keep` and those up to an age.

        Raises:
            SnapshotNotFound, RefAlreadyExists (without `replace`), InvalidName, InvalidInput, TableNotFound.
        """
        ref = SnapshotRef(
            name=branch,
            type="branch",
            snapshot_id=snapshots.refs.CURRENT if snapshot_id is None else snapshot_id,
            min_snapshots_to_keep=keep,
            max_snapshot_age_ms=_milliseconds(max_snapshot_age),
            max_ref_age_ms=_milliseconds(max_age),
        )
        return snapshots.refs.create_ref(self.registry, self.table(name), ref, replace=replace)

    def drop_tag(self, name: TableName, tag: str) -> SnapshotRef:
        """Raises RefNotFound, TableNotFound."""
        return snapshots.refs.drop_ref(self.registry, self.table(name), tag, "tag")

    def drop_branch(self, name: TableName, branch: str) -> SnapshotRef:
        """Raises RefNotFound, InvalidName (of main), TableNotFound."""
        return snapshots.refs.drop_ref(self.registry, self.table(name), branch, "branch")

    def expire_snapshots(
        self,
        name: TableName,
        older_than: datetime | timedelta | None = None,
        keep: int | None = None,
        *,
        dry_run: bool = False,
    ) -> ExpireResult:
        """Let go of snapshots older than a time (or an age) that are not the newest `keep` of a branch.

        Without arguments the table's `history.expire.*` properties say which. `clean` then deletes what only they reached.

        Raises:
            InvalidInput, MetadataConflict, TableNotFound.
        """
        return snapshots.expiry.expire(
            self.registry, self.table(name), older_than=older_than, keep=keep, dry_run=dry_run
        )

    def rollback(self, name: TableName, to: int | str) -> RollbackResult:
        """Make a retained snapshot (its id, or a branch's or tag's name) the current one again; see `rollback_table`.

        Raises:
            SnapshotNotFound, RefNotFound, LeaseHeld, MetadataConflict, AuditFailed, TableNotFound.
        """
        return snapshots.rollback.rollback_table(self.registry, self.table(name), to)

    # Upkeep -----------------------------------------------------------------------------------------------------------
    def flush(self, name: TableName) -> FlushResult:
        """Make one snapshot of everything that is pending."""
        return snapshots.snapshot_commit.flush(self.registry, self.table(name).table_id, "manual")

    def manifests(self, name: TableName) -> list[ManifestInfo]:
        """The manifests of the snapshot that engines see now, oldest first."""
        return snapshots.manifest_merging.list_manifests(self.registry, self.table(name))

    def merge_manifests(self, name: TableName) -> MergeResult:
        """Merge manifests where there are many, as the table's properties say; `lakeward serve` does it by itself.

        Raises:
            TableNotFound, InvalidName.
            LeaseHeld: another merge of the table is under way.
        """
        return snapshots.manifest_merging.merge_manifests(self.registry, self.table(name).table_id)

    def hold(
        self, name: TableName, seconds: float = 60.0, wait: float = 0.0
    ) -> AbstractContextManager[registry.leases.Lease]:
        """Keep a table's pending files out of snapshots for a block; renewed in the background for as long as it runs.

        For a job of another engine that must not see its table move on, such as a long MERGE. Appends go on.

        Raises:
            TableNotFound, InvalidName.
            LeaseHeld: somebody else holds them still after `wait` seconds.
        """
        return tables.snapshots.hold(self.registry, self.table(name), seconds=seconds, wait=wait)

    def retire_partitions(self, name: TableName, partitions: Iterable[Mapping[str, Any] | str]) -> int:
        """Take whole partitions out of the table; how many files were. Their files wait in quarantine.

        Each is a dict with a value of the column behind each partition field, {'at_month': date(2026, 1, 31)}, or the text
        that its files show: 'at_month=2026-01'.
        """
        return tables.retirement.retire_partitions(self.registry, self.table(name), partitions)

    def retire_expired_partitions(self, name: TableName, age: timedelta) -> int:
        """Take out the partitions whose newest file was registered longer ago than `age`; how many files were."""
        return tables.retirement.retire_expired_partitions(self.registry, self.table(name), age)

    def retry_set_aside(self, name: TableName) -> int:
        """Make the files that could not become part of a snapshot pending again; how many were."""
        return tables.retirement.retry_set_aside(self.registry, self.table(name))

    def retire_set_aside(self, name: TableName) -> int:
        """Send the files that could not become part of a snapshot to quarantine; how many were."""
        return tables.retirement.retire_set_aside(self.registry, self.table(name))

    def plan_compaction(self, name: TableName) -> maintenance.compaction_plan.Plan:
        """What `compact` would merge, and what it would leave, with the reasons. Only the registry is read."""
        return maintenance.compaction_plan.plan(self.registry, self.table(name))

    def compact(self, name: TableName, spark: SparkSession | None = None) -> maintenance.compaction.Compacted:
        """Merge a table's small files into larger ones, and make Parquet of JSON lines. Appends go on meanwhile.

        Raises:
            TableNotFound, InvalidName, InvalidSetting, SparkMissing, JavaMissing.
            LeaseHeld: somebody else is compacting the table.
            SparkConnectUnsupported: the session is one of Spark Connect.
        """
        if spark is not None:
            from lakeward.spark import jvm

            jvm.gateway(spark, jvm.COMPACT)
        return maintenance.compaction.compact_table(self.registry, self.table(name), lambda: spark or self.spark())

    def status(self) -> maintenance.status.Status:
        """What runs, what waits, what failed, and what to do about it; only the registry is read."""
        return maintenance.status.status(self.registry)

    def recover(self) -> maintenance.recovery.RecoveryResult:
        """Clear what dead writers left: their leases have run out. Living writers are left alone."""
        return maintenance.recovery.recover(self.registry)

    def clean(self, *, dry_run: bool = False) -> maintenance.cleaner.CleanResult:
        """Delete what has been in quarantine for its time and is reachable no more; `dry_run`: only say what would go."""
        return maintenance.cleaner.due(self.registry) if dry_run else maintenance.cleaner.clean(self.registry)

    def repair(self, name: TableName) -> maintenance.repair.RepairResult:
        """Write a table's Iceberg metadata anew from the registry, where some of it is gone; nothing where nothing is.

        The rows stay what they are. Earlier snapshots, tags and branches were in what is gone.

        Raises:
            LeaseHeld: somebody holds the table.
            InvalidInput: it has files of deletes, whose metadata the registry cannot give.
        """
        return maintenance.repair.repair(self.registry, self.table(name))

    def audit(self, name: TableName, checksums: bool = False) -> maintenance.audit.AuditReport:
        """Compare the registry with the files themselves."""
        return maintenance.audit.audit(self.registry, self.table(name), checksums=checksums)

    # Engines ----------------------------------------------------------------------------------------------------------
    def serve(self) -> tuple[str, str | None]:
        """(URL, token) of the REST catalog: the settings' server, or one in this process for as long as the lake is open.

        Raises:
            ServerUnavailable: the settings name several servers, and none answers.
        """
        if self.settings.server_url:
            return spark.catalog_server.first_of(self.settings.server_url), self.settings.token
        self.registry.database.check_usable()  # a forked child's catalog would be the parent's
        with self._lock:
            if self._server is None:
                started = catalog.embedded.EmbeddedServer(self.registry)
                started.start()
                self._server = started
            return self._server.url, self._server.token

    @property
    def catalog_url(self) -> str:
        """Where Iceberg clients find the REST catalog: as `serve` says, which starts it if need be."""
        return self.serve()[0]

    @property
    def token(self) -> str | None:
        """The bearer token that clients of `catalog_url` send; none if it asks for none."""
        return self.serve()[1]

    def spark_conf(self, *, jars: bool = True) -> dict[str, str]:
        """The options that put this lake's catalog into a Spark session of one's own.

        `jars`: whether to name Iceberg's jars too; false for a cluster that has them.
        """
        url, token = self.serve()
        is_s3 = self.registry.warehouse.location.startswith("s3://")
        s3 = self.settings.engine_config if is_s3 else None
        return spark.session.spark_conf(url, token, self.settings.catalog, s3, jars=jars)

    def spark(self, master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
        """A Spark session on the catalog: tables are `namespace.table` there, or `lakeward.namespace.table`.

        Args:
            master: where Spark runs; without it the setting `spark_master`, then what spark-submit or Spark's own
                configuration says, then this machine.
            conf: settings of Spark, over those of the setting `spark_conf`.

        What the user or the cluster has set for Spark is never overridden by a default of ours.

        Raises:
            SparkMissing, JavaMissing: the message says what to install.
        """
        chosen = {**self.settings.spark_options, **(conf or {})}
        return spark.session.spark_session(self.spark_conf(), master or self.settings.spark_master, chosen)

    def dataframe(self, name: TableName, spark: SparkSession | None = None) -> DataFrame:
        """A table as a Spark DataFrame: what is registered now, pending files too.

        A Parquet table is loaded through the catalog. A table of JSON lines is in no Iceberg snapshot: its rows are read
        here, by the table's schema, and handed to Spark, so it should fit in memory.

        Raises:
            TableNotFound, InvalidName, SparkMissing, JavaMissing.
        """
        session = spark if spark is not None else self.spark()
        table = self.table(name)
        if table.format == "json":
            return session.createDataFrame(self._scan(table).read_all())
        parts = (self.settings.catalog, *table.namespace, table.name)
        return session.table(".".join(f"`{part.replace('`', '``')}`" for part in parts))


def _milliseconds(age: timedelta | None) -> int | None:
    return None if age is None else age // timedelta(milliseconds=1)
