"""The compactor: merges small files in the background, and makes Parquet of JSON lines.

Events only say where to look. What is merged is planned from the registry, job by job, within a budget, and swapped only if
nothing that was read has left: ingest never waits for a compaction, and never fails because of one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import msgspec

from lakeward.astha.events import TABLE_FILES, TABLE_STATS, Event
from lakeward.background import Worker, begin
from lakeward.components.component import OwnComponent
from lakeward.errors import LeaseHeld, SparkMissing, TableNotFound, error_code
from lakeward.logs import log
from lakeward.maintenance import compaction
from lakeward.maintenance.compaction import Compacted
from lakeward.maintenance.compaction_plan import Job
from lakeward.registry import HasRegistry, Registry
from lakeward.retry import RetryConfig, steady
from lakeward.tables import pending, tables
from lakeward.tables.compaction import PartitionId
from lakeward.tables.records.files import TableFile
from lakeward.tables.records.tables import StatsRow
from lakeward.validation import check_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Record: TypeAlias = TableFile | StatsRow

HOUR = 3_600.0
FINISH_SECONDS = 3.0  # that a stop leaves to jobs in hand before it tells Spark to end them
STOP_SECONDS = 4.0  # that a stop takes at most
NO_SPARK = "the compactor has no Spark, which large groups need: give CompactorConfig(spark=...), or a Lake"


class CompactorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """When and how much. Sizes in bytes, of the files that are read.

    Raises InvalidSetting: a value that makes no sense.
    """

    interval_seconds: float = 60.0  # between two looks at the partitions that have changed, and at tables' properties
    max_jobs: int = 1  # tables that are compacted at once
    bytes_per_hour: int | None = None  # None: no limit; a job larger than the limit runs when nothing else has
    retry: RetryConfig = RetryConfig(initial_delay=30.0, max_delay=3_600.0)  # of a table whose compaction failed
    spark: Callable[[], SparkSession] | None = None  # None: the lake's own; without a lake, only what needs none

    def __post_init__(self) -> None:
        check_config(self)


class CompactorMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Since the start. `waiting`: tables with changes that have not been looked at."""

    done: Compacted = Compacted()
    failures: int = 0
    over_budget: int = 0  # jobs that were put off
    waiting: int = 0
    last_error: str | None = None


@runtime_checkable
class HasSpark(Protocol):
    """A Lake, say."""

    def spark(self) -> SparkSession: ...


class _Waiting(msgspec.Struct):
    """What is to be looked at in one table: some partitions, or all with none."""

    partitions: set[PartitionId] | None
    failures: int = 0
    not_before: float = 0.0


class Compactor(OwnComponent[Record]):
    """A component of Astha. Without Astha, call `on_refresh` first; `run_once` looks at once, `start` every interval."""

    name = "compactor"
    tables = (TABLE_FILES, TABLE_STATS)
    operations = frozenset({"INSERT", "UPDATE"})

    def __init__(self, lake: Registry | HasRegistry, config: CompactorConfig | None = None) -> None:
        super().__init__(lake)
        self._config = config or CompactorConfig()
        self._spark = self._config.spark or (lake.spark if isinstance(lake, HasSpark) else None)
        self._budget = Budget(self._config.bytes_per_hour)
        self._waiting: dict[int, _Waiting] = {}
        self._versions: dict[int, int] = {}  # of the metadata that the tables had at the last look, by table_id
        self._metrics = CompactorMetrics()
        self._lock = threading.Lock()  # guards what is waiting, and the metrics
        self._is_running = threading.Lock()  # one round at a time
        self._stopping = threading.Event()
        self._sessions: dict[str, SparkSession] = {}  # that work for this compactor, by the group of their jobs

    # What Astha calls -------------------------------------------------------------------------------------------------
    def on_event(self, event: Event[Record]) -> None:
        """Note that a partition has changed; the next look sees to it."""
        if event.operation != "DELETE":
            self._look(event.table_id, (event.data.spec_id, event.data.partition_key))

    def on_refresh(self) -> None:
        """Raises RegistryUnavailable."""
        versions = {each.table_id: each.version for each in pending.table_properties(self._registry)}
        for table_id in versions:
            self._look(table_id, None)
        self._versions = versions

    # Its own ----------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Compact what has changed, every interval, in a thread of its own."""
        self._stopping.clear()
        self._worker = Worker("lakeward-compactor", self._step, retry=steady(self._config.interval_seconds))
        self._worker.wake(self._config.interval_seconds)

    def stop(self) -> None:
        """Begin no job, and finish those in hand if they are soon done; the others are given up: STOP_SECONDS at most.

        What does not let itself be stopped, such as a Spark that starts, changes nothing any more.
        """
        self._stopping.set()
        worker, self._worker = self._worker, None
        if worker is None:
            return
        deadline = time.monotonic() + STOP_SECONDS
        has_ended = worker.stop(FINISH_SECONDS)
        while not has_ended and time.monotonic() < deadline:
            self._cancel_jobs()  # again: those that a thread was about to submit too
            has_ended = worker.stop(0.2)

    def _cancel_jobs(self) -> None:
        for group, spark in list(self._sessions.items()):
            try:
                spark.sparkContext.cancelJobGroup(group)
            except Exception as error:  # the session may be gone
                log.info("compaction_not_cancelled", error=str(error)[:200])

    def metrics(self) -> CompactorMetrics:
        """What it has done since it was made, and how many tables wait."""
        with self._lock:
            return msgspec.structs.replace(self._metrics, waiting=len(self._waiting))

    def run_once(self) -> Compacted:
        """Look at every table that has changed and is not waiting after a failure; what was done."""
        with self._is_running:
            self._look_at_altered()
            before = self.metrics().done
            due = self._take_due()
            self._in_threads(deque(due.items()))
            return _difference(self.metrics().done, before)

    def _in_threads(self, due: deque[tuple[int, _Waiting]]) -> None:
        """Compact tables, some at once: in threads that keep no program from its end, which those of an executor do."""

        def work() -> None:
            while due:
                try:
                    item = due.popleft()
                except IndexError:  # another thread was quicker
                    return
                self._compact(*item)

        count = min(self._config.max_jobs, len(due))
        for done in [begin(f"lakeward-compaction-{n}", work) for n in range(count)]:
            done.result()
        self._sessions.clear()

    def _step(self) -> float:
        self.run_once()
        return self._config.interval_seconds

    # What waits -------------------------------------------------------------------------------------------------------
    def _look(self, table_id: int, partition: PartitionId | None, failed: _Waiting | None = None) -> None:
        with self._lock:
            there = self._waiting.setdefault(table_id, _Waiting(set()))
            if partition is None:
                there.partitions = None
            elif there.partitions is not None:
                there.partitions.add(partition)
            if failed is not None:
                there.failures, there.not_before = failed.failures, failed.not_before

    def _look_at_altered(self) -> None:
        """Tables whose metadata changed: other files may be small now, or compaction allowed. Events do not tell of that.

        A table that was not there at the last look needs none: each of its files came with an event. What had failed is tried
        again at once: the reason may have been a property.
        """
        before = self._versions
        self._versions = {each.table_id: each.version for each in pending.table_properties(self._registry)}
        for table_id, version in self._versions.items():
            if before.get(table_id, version) != version:
                self._look(table_id, None, failed=_Waiting(None))

    def _take_due(self) -> Mapping[int, _Waiting]:
        now = time.monotonic()
        with self._lock:
            due = {i: each for i, each in self._waiting.items() if each.not_before <= now}
            self._waiting = {i: each for i, each in self._waiting.items() if i not in due}
        return due

    def _put_back(self, table_id: int, what: _Waiting) -> None:
        if what.partitions is None:
            self._look(table_id, None, what)
        for partition in what.partitions or ():
            self._look(table_id, partition, what)

    # Work -------------------------------------------------------------------------------------------------------------
    def _compact(self, table_id: int, what: _Waiting) -> None:
        put_off = False

        def may_run(job: Job) -> bool:
            nonlocal put_off
            can = self._spark is not None or not compaction.needs_spark(self._registry, job)
            if not can:
                self._count(last_error=NO_SPARK)
            allowed = can and not self._stopping.is_set() and self._budget.take(job.bytes)
            put_off |= can and not allowed
            if can and not allowed:
                self._count(over_budget=1)
            return allowed

        def on_job(job: Job, result: Compacted) -> None:
            nonlocal put_off
            put_off |= result.conflicts > 0
            self._count(done=result)
            log.info("compacted", table_id=table_id, state=job.state, **msgspec.structs.asdict(result))

        try:
            if not pending.is_here(self._registry, table_id):  # dropped, or of another warehouse
                return
            table = tables.load_by_id(self._registry, table_id)
            compaction.compact_table(
                self._registry,
                table,
                self._session,
                what.partitions,
                may_run=may_run,
                on_job=on_job,
                is_stopped=self._stopping.is_set,
            )
        except (TableNotFound, compaction.Stopped):
            return
        except LeaseHeld:  # another process is at it: look again, it may not have seen what we have
            self._put_back(table_id, what)
        except Exception as error:  # Spark raises what it likes; this table waits, the others go on
            self._failed(table_id, what, error)
        else:
            if put_off:
                self._put_back(table_id, _Waiting(what.partitions))

    def _session(self) -> SparkSession:
        if self._spark is None:
            raise SparkMissing(NO_SPARK)
        spark = self._spark()
        if hasattr(spark, "_jsparkSession"):  # Spark Connect has neither groups nor a use here
            group = f"lakeward-compaction-{threading.get_ident()}"
            spark.sparkContext.setJobGroup(group, "Lakeward's compactor")
            self._sessions[group] = spark
        if self._stopping.is_set():  # while Spark started
            raise compaction.Stopped("the compactor was told to stop")
        return spark

    def _failed(self, table_id: int, what: _Waiting, error: Exception) -> None:
        what.failures += 1
        what.not_before = time.monotonic() + self._config.retry.delay(what.failures)
        code = error_code(error)
        log.warning("compaction_failed", table_id=table_id, error=str(error)[:1_000], code=code, times=what.failures)
        self._count(failures=1, last_error=f"table {table_id}: {str(error)[:300]} [{code}]")
        self._put_back(table_id, what)

    def _count(self, last_error: str | None = None, **more: Compacted | int) -> None:
        with self._lock:
            now = self._metrics
            grown = {name: getattr(now, name) + each for name, each in more.items()}
            self._metrics = msgspec.structs.replace(now, last_error=last_error or now.last_error, **grown)


def _difference(after: Compacted, before: Compacted) -> Compacted:
    return Compacted(**{name: getattr(after, name) - getattr(before, name) for name in Compacted.__struct_fields__})


class Budget:
    """Bytes in any hour. What is larger than all of it may run when the hour is empty, or it never would."""

    def __init__(self, limit: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._clock = limit, clock
        self._taken: deque[tuple[float, int]] = deque()
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """Whether so many bytes may be read now; they count from then on."""
        if self._limit is None:
            return True
        with self._lock:
            now = self._clock()
            while self._taken and self._taken[0][0] <= now - HOUR:
                self._taken.popleft()
            if self._taken and sum(each for _, each in self._taken) + size > self._limit:
                return False
            self._taken.append((now, size))
            return True
