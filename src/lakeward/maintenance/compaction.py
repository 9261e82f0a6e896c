"""Compaction: small files of a table become larger ones, sorted as the table says, and JSON lines become Parquet.

A job writes under an intent like any write, holds nothing, and swaps its files in one short transaction. If a file that it has
read has left meanwhile, ingest was quicker: the job's files are given up, and the next plan tries again.

JSON lines and small groups are written in this process, larger groups by Spark: by the same rules, with the same rows.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Self, TypeAlias

from lakeward.arrow import scan
from lakeward.arrow.target import TableTarget, table_target
from lakeward.arrow.write import write_arrow
from lakeward.errors import IntentLost, LeaseLost, RegistryUnavailable, TableNotFound
from lakeward.iceberg.rebuilding import write_listing
from lakeward.logs import log
from lakeward.maintenance.compaction_plan import Job, Plan, plan
from lakeward.ops.failures import insert_failure, not_recorded
from lakeward.ops.records.operations import SyncMode
from lakeward.ops.run_recorder import Recorder, of_table
from lakeward.registry import Registry, intents, leases
from lakeward.registry.intents import Overtaken
from lakeward.registry.leases import Lease
from lakeward.sums import Sum
from lakeward.tables import compaction, tables
from lakeward.tables.compaction import PartitionId
from lakeward.tables.records.files import DataFile, RegisteredFile
from lakeward.tables.records.tables import Table, TableMetadata

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEASE_SECONDS = 30.0
LOOK_SECONDS = 0.2  # between two looks at whether a job that waits for its turn is to stop

_one_merge = threading.Lock()  # in this process at a time: each may hold the rows of a group

Sessions: TypeAlias = "Callable[[], SparkSession]"  # asked for the first job that needs Spark


class Compacted(Sum, frozen=True, kw_only=True):
    """What jobs have done. Sizes in bytes; a job that lost to ingest is counted in `conflicts` alone."""

    jobs: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows: int = 0
    conflicts: int = 0
    seconds: float = 0.0


def compact_table(
    registry: Registry,
    table: Table,
    session: Sessions,
    partitions: Collection[PartitionId] | None = None,
    *,
    may_run: Callable[[Job], bool] = lambda _: True,
    on_job: Callable[[Job, Compacted], object] = lambda *_: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Compacted:
    """Do what `plan` finds in a table, job by job. It is a sync run as soon as there is a job to do.

    A job of several partitions that loses to ingest is tried once more, a partition at a time.

    Args:
        session: gives a Spark session on this lake's catalog; not called where no job `needs_spark`.
        may_run: asked before each job; what it refuses is left.
        on_job: told of each job that is over.
        is_stopped: whether whoever asked for it ends, so that a job which fails was only told to stop.

    Raises:
        Stopped: a job was told to stop; those before it are done, and the run is cancelled.
        LeaseHeld: somebody else is compacting the table.
        What `run_job` raises of the first job that failed; the others are done all the same.
    """
    done = Compacted()
    failed: Exception | None = None
    with leases.held(registry, lease_name(table), seconds=LEASE_SECONDS) as lease, _Run(registry, table) as run:
        found = plan(registry, table, partitions)
        waiting = deque(found.jobs)
        while waiting:
            job = waiting.popleft()
            if not may_run(job):
                continue
            try:
                if job.state == "committed" and compaction.is_held(registry, table):
                    result = Compacted(conflicts=1)
                else:
                    is_last = not waiting and failed is None
                    counted = run.of_job(is_last=is_last)
                    result = run_job(registry, found, job, session, lease=lease, run=counted, is_stopped=is_stopped)
            except (LeaseLost, RegistryUnavailable, TableNotFound):
                raise
            except Exception as error:
                if is_stopped():
                    raise Stopped(f"the compaction of {table.identifier} was told to stop") from error
                # One damaged file does not keep the rest of the table small.
                if failed is not None:
                    run.failed(error)
                failed = failed or error
                continue
            if result.conflicts and len(job.groups) > 1 and _is_planned_for(registry, found):
                waiting.extendleft(reversed([Job([group]) for group in job.groups]))
            done += result
            on_job(job, result)
        if failed is not None:
            raise failed
    return done


def _is_planned_for(registry: Registry, planned: Plan) -> bool:
    """Whether a job that has lost is worth another try: by partition, so that one whose files never rest keeps no other one
    waiting."""
    return tables.live_version(registry, planned.table.table_id) == planned.metadata.metadata_version


class Stopped(SystemExit):
    """Whoever asked for a compaction ends, and what was not committed was given up."""


class _Run:
    """The run of a table's compaction, from the first job on. Without a job there is none."""

    def __init__(self, registry: Registry, table: Table) -> None:
        self._registry, self._table = registry, table
        self._recorder: Recorder | None = None

    def of_job(self, *, is_last: bool) -> Recorder:
        """What a job is to count for, in its commit: the run, which the last job completes."""
        if self._recorder is None:
            self._recorder = Recorder(
                self._registry,
                mode=SyncMode.BATCH,
                source_info={"component": "compactor"},
                **of_table(self._table.identifier),
            )
        self._recorder.is_last = is_last
        return self._recorder

    def failed(self, error: Exception) -> None:
        if self._recorder is not None:
            self._recorder.failed(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        """What goes wrong before the first job is an error without a run."""
        if self._recorder is not None:
            self._recorder.end(error)
        elif isinstance(error, Exception) and not isinstance(error, TableNotFound):
            try:
                insert_failure(self._registry, error, ".".join(self._table.namespace), self._table.name)
            except Exception as problem:
                not_recorded(error, problem)


def lease_name(table: Table) -> str:
    return f"compact:{table.table_uuid}"


def needs_spark(registry: Registry, job: Job) -> bool:
    """Whether a job has a group that is too large to be merged in this process."""
    limit = registry.settings.merge_in_process_bytes
    return job.state != "landing" and any(group.bytes > limit for group in job.groups)


def run_job(
    registry: Registry,
    planned: Plan,
    job: Job,
    session: Sessions,
    *,
    lease: Lease | None = None,
    run: Recorder | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Compacted:
    """Write a job's files anew and swap them. Whatever goes wrong, the old files stay, and the new ones are given up.

    They are read and written by the table's metadata as it is when the job begins. Where it has another partition spec than the
    plan went by, or where the job fails and the metadata has moved on meanwhile, that is a conflict.

    Raises:
        Stopped: `is_stopped` said so while small groups were merged here.
        DataLoss: the new files have other rows than the old ones.
        LeaseLost: another compactor has taken over.
        StorageError, RegistryUnavailable, and what Spark raises.
    """
    started = time.perf_counter()
    table = planned.table
    versions = tables.versions(registry, table)
    if not versions or (job.state != "landing" and versions[-1].spec_id != planned.metadata.spec_id):
        return Compacted(conflicts=1)
    outlived = threading.Event()
    lost: Exception
    try:
        with intents.declared(registry, table, gives_way=True, outlived=outlived) as intent:
            engine = registry.engine(table.location, versions[-1].engine_config)
            size = planned.rules.target
            target = table_target(table, versions[-1], intent, engine, file_size=size, outlived=outlived)
            old = compaction.rows_of(registry, table.table_id, job.files)
            if job.state == "landing":
                made = _arrow(target, versions, old)
            elif needs_spark(registry, job):
                made = _spark(registry, target, versions, job, old, session())
            else:
                made = _merged(registry, target, versions, job, old, session, is_stopped)
            is_outlived = outlived.is_set()
            compaction.swap(registry, table, intent, job.files, made, lease=lease, run=run, outlived=is_outlived)
    except (LeaseLost, RegistryUnavailable):
        raise
    except (Overtaken, IntentLost, TableNotFound) as error:
        lost = error
    except Exception as error:
        if not _is_outdated(registry, versions[-1], job):
            raise
        lost = error
    else:
        return Compacted(
            jobs=1,
            files_before=len(job.files),
            files_after=len(made),
            bytes_before=job.bytes,
            bytes_after=sum(file.size for file in made),
            rows=sum(file.row_count for file in made),
            seconds=time.perf_counter() - started,
        )
    log.info("compaction_lost_to_ingest", table=str(table.identifier), files=len(job.files), why=str(lost)[:200])
    return Compacted(conflicts=1, seconds=time.perf_counter() - started)


def _is_outdated(registry: Registry, known: TableMetadata, job: Job) -> bool:
    """Whether an error may be due to what has changed while the job ran: a file that has left the table and was deleted, or
    another schema than the one that it writes by."""
    has_moved = tables.live_version(registry, known.table_id) != known.metadata_version
    return has_moved or not compaction.are_live(registry, known.table_id, job.files)


def _spark(
    registry: Registry,
    target: TableTarget,
    versions: Sequence[TableMetadata],
    job: Job,
    old: Sequence[RegisteredFile],
    spark: SparkSession,
) -> list[DataFile]:
    from lakeward.spark.rewrite import rewrite_spark

    prefix = target.intent.prefix + "read/"
    listing = write_listing(
        target.table,
        versions,
        old,
        write=target.engine.write,
        prefix=prefix,
        now_ms=int(time.time() * 1000),
    )
    # Groups that share a job have one file each.
    expected = job.expected if len(job.groups) == 1 else 1
    made = rewrite_spark(
        target,
        spark,
        registry.settings.catalog,
        listing,
        size=job.bytes,
        expected=expected,
        count=len(job.files),
    )
    target.engine.delete_prefix(prefix)
    return made


def _merged(
    registry: Registry,
    target: TableTarget,
    versions: Sequence[TableMetadata],
    job: Job,
    old: Sequence[RegisteredFile],
    session: Sessions,
    is_stopped: Callable[[], bool],
) -> list[DataFile]:
    """Small groups, here; by Spark where that cannot be."""
    from lakeward.arrow.merge import NotHere, merge

    def check() -> None:
        if is_stopped():
            raise Stopped(f"the compaction of {target.table.identifier} was told to stop")

    by_id = {file.file_id: file for file in old}
    made: list[DataFile] = []
    while not _one_merge.acquire(timeout=LOOK_SECONDS):
        check()
    try:
        for group in job.groups:
            files = [by_id[file.file_id] for file in group.files]
            made += merge(target, versions, files, group.expected, check)
        return made
    except NotHere as error:
        log.info("compaction_needs_spark", table=str(target.table.identifier), why=str(error))
    finally:
        _one_merge.release()
    target.engine.delete([file.path for file in made], below=target.intent.prefix)
    return _spark(registry, target, versions, job, old, session())


def _arrow(target: TableTarget, versions: Sequence[TableMetadata], old: Sequence[RegisteredFile]) -> list[DataFile]:
    """JSON lines as Parquet, here: the reader that knows them is Lakeward's own."""
    reading = scan.prepare(versions)
    return write_arrow(target, scan.scan_files(reading, old, lambda _: {}, target.engine))
