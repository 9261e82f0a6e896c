"""`connect` and the Lake: the functions of the rooms below, under the names that people look for."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from lakeward import arrow, catalog, iceberg, lake, maintenance, snapshots, spark, tables
from lakeward.config import Settings, load_settings
from lakeward.errors import TableAlreadyExists
from lakeward.fronts import late_bound
from lakeward.names import NamespaceName, TableName, parse_table
from lakeward.ops.records.operations import DeadLetter
from lakeward.registry import Registry, open_registry
from lakeward.tables.records.files import AppendResult
from lakeward.tables.records.tables import UNSORTED, Table, TableMetadata

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from lakeward.snapshots.manifest_merging import MergeResult
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
        return self.registry.is_sync

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
    create_namespace = late_bound(lambda: tables.namespaces.ensure)
    namespaces = late_bound(lambda: tables.namespaces.list_namespaces)
    drop_namespace = late_bound(lambda: tables.namespaces.drop)

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
        spec, last_partition_id = iceberg.partitions.partition_spec(partition_by, document)
        order = iceberg.partitions.sort_order(sort_by, document, 1) if sort_by else UNSORTED
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

    table = late_bound(lambda: tables.tables.load)

    def tables(self, namespace: NamespaceName | None = None) -> list[Table]:
        """The tables of a namespace, or of all."""
        wanted = [namespace] if namespace else [found.levels for found in self.namespaces()]
        return [table for levels in wanted for table in tables.tables.list_tables(self.registry, levels)]

    rename_table = late_bound(lambda: tables.tables.rename)
    drop_table = late_bound(lambda: maintenance.cleaner.drop)

    # Metadata ---------------------------------------------------------------------------------------------------------
    metadata = late_bound(lambda: tables.tables.metadata)
    metadata_versions = late_bound(lambda: tables.tables.versions)
    add_column = late_bound(lambda: tables.evolution.add_column)
    drop_column = late_bound(lambda: tables.evolution.drop_column)
    rename_column = late_bound(lambda: tables.evolution.rename_column)
    widen_column = late_bound(lambda: tables.evolution.widen_column)
    move_column = late_bound(lambda: tables.evolution.move_column)
    set_properties = late_bound(lambda: tables.evolution.set_properties)
    set_partition_spec = late_bound(lambda: tables.evolution.set_partition_spec)
    set_sort_order = late_bound(lambda: tables.evolution.set_sort_order)
    rollback_metadata = late_bound(lambda: tables.evolution.rollback)

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
        with lake.ingest.ingested(self.registry, identifier, data, batch=key, run=run) as given:
            make = lake.writes.writer_for(given.data, self.settings.catalog)
            return lake.writes.write(self.registry, given.which, make, batch=key, repairs=letter, run=given.run)

    writer = late_bound(lambda: lake.rolling.RollingWriter)

    # The topic log ----------------------------------------------------------------------------------------------------
    @cached_property
    def log(self) -> lake.log.TopicLog:
        """Topics of records: append, read and consume them."""
        return lake.log.TopicLog(self.registry)

    # Reading ----------------------------------------------------------------------------------------------------------
    def scan(
        self,
        name: Which,
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

        def prepare(versions: Sequence[TableMetadata]) -> arrow.scan.Reading:
            return arrow.scan.prepare(versions, columns, filter)

        if snapshot is None:
            planned, reading = tables.footers.plan(self.registry, name, prepare)
        else:
            planned, reading = snapshots.time_travel.plan(self.registry, name, snapshot, prepare)
        engine = self.registry.engine(planned.table.location)
        return arrow.scan.scan_files(reading, planned.files, tables.footers.loader(self.registry, planned), engine)

    files = late_bound(lambda: tables.snapshots.list_files)

    # Snapshots --------------------------------------------------------------------------------------------------------
    snapshots = late_bound(lambda: tables.snapshots.list_snapshots)
    refs = late_bound(lambda: snapshots.refs.list_refs)
    create_tag = late_bound(lambda: snapshots.refs.create_tag)
    create_branch = late_bound(lambda: snapshots.refs.create_branch)
    drop_tag = late_bound(lambda: snapshots.refs.drop_tag)
    drop_branch = late_bound(lambda: snapshots.refs.drop_branch)
    expire_snapshots = late_bound(lambda: snapshots.expiry.expire)
    rollback = late_bound(lambda: snapshots.rollback.rollback_table)

    # Upkeep -----------------------------------------------------------------------------------------------------------
    def flush(self, name: TableName) -> FlushResult:
        """Make one snapshot of everything that is pending."""
        return snapshots.snapshot_commit.flush(self.registry, self.table(name).table_id, "manual")

    manifests = late_bound(lambda: snapshots.manifest_merging.list_manifests)

    def merge_manifests(self, name: TableName) -> MergeResult:
        """Merge manifests where there are many, as the table's properties say; `lakeward serve` does it by itself.

        Raises:
            TableNotFound, InvalidName.
            LeaseHeld: another merge of the table is under way.
        """
        return snapshots.manifest_merging.merge_manifests(self.registry, self.table(name).table_id)

    hold = late_bound(lambda: tables.snapshots.hold)
    retire_partitions = late_bound(lambda: tables.retirement.retire_partitions)
    retire_expired_partitions = late_bound(lambda: tables.retirement.retire_expired_partitions)
    retry_set_aside = late_bound(lambda: tables.retirement.retry_set_aside)
    retire_set_aside = late_bound(lambda: tables.retirement.retire_set_aside)
    plan_compaction = late_bound(lambda: maintenance.compaction_plan.plan)

    def compact(self, name: TableName, spark: SparkSession | None = None) -> maintenance.compaction.Compacted:
        """Merge a table's small files into larger ones, and make Parquet of JSON lines. Appends go on meanwhile.

        Spark merges groups above the setting `merge_in_process_bytes`: `spark`, or a session that is started for the first.

        Raises:
            TableNotFound, InvalidName, InvalidSetting, SparkMissing, JavaMissing.
            LeaseHeld: somebody else is compacting the table.
            SparkConnectUnsupported: the session is one of Spark Connect.
        """
        if spark is not None:
            from lakeward.spark import jvm

            jvm.gateway(spark, jvm.COMPACT)
        return maintenance.compaction.compact_table(self.registry, self.table(name), lambda: spark or self.spark())

    status = late_bound(lambda: maintenance.status.status)
    recover = late_bound(lambda: maintenance.recovery.recover)
    clean = late_bound(lambda: maintenance.cleaner.clean)
    repair = late_bound(lambda: maintenance.repair.repair)
    audit = late_bound(lambda: maintenance.audit.audit)

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
        """The bearer token that clients of `catalog_url` send; None if it asks for none."""
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
            return session.createDataFrame(self.scan(table).read_all())
        parts = (self.settings.catalog, *table.namespace, table.name)
        return session.table(".".join(f"`{part.replace('`', '``')}`" for part in parts))
