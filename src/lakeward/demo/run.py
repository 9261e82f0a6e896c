"""One run of the demo: load, register, serve, read back through three engines, compare."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.demo import demo_workload
from lakeward.demo.checksums import TableSums, differences, table_sums
from lakeward.demo.report import Comparison, DemoReport, Overhead, Step, TableReport, stepped
from lakeward.demo.source import (
    FLIGHTS,
    NULLS,
    TABLES,
    WHOLE,
    SourceTable,
    csv_file,
    data_folder,
    read_table,
    unpack_months,
)
from lakeward.errors import CheckFailed
from lakeward.lake import Lake, connect
from lakeward.spark.output import jvm_output_to
from lakeward.tables.records.files import AppendResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMESPACE = "nycflights"
NAME_AT_WORK = "january"  # the table that the components work on

# Which airlines lose the most time; it joins two tables and goes over all partitions.
QUERY = f"""
SELECT a.name AS airline, count(*) AS flights, round(avg(f.dep_delay), 1) AS mean_departure_delay
FROM {NAMESPACE}.flights f JOIN {NAMESPACE}.airlines a USING (carrier)
GROUP BY a.name ORDER BY mean_departure_delay DESC LIMIT 5
"""


def no_step(what: str, done: int, total: int) -> None:
    """For callers that show no progress."""


@dataclass(slots=True)
class _Clock:
    """Seconds of each part of the run."""

    seconds: dict[str, float] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = time.perf_counter() - started

    def total(self) -> dict[str, float]:
        return {**self.seconds, "total": time.perf_counter() - self.started}


def run(folder: Path, step: Step = no_step, master: str = "local[*]") -> DemoReport:
    """Run the demo in an empty folder (`make_folder`). Spark's own words go to spark.log in it.

    Raises:
        CheckFailed: an engine read something else than the source holds; the message says what.
        ExtraMissing, JavaMissing, SparkMissing: something is not installed; the message says how to get it.
    """
    clock = _Clock()
    data = data_folder()
    with connect(folder / "registry.db", folder / "warehouse", "async", upgrade=True) as lake:
        with clock.part("read_source"):
            sums = _source_sums(data, step)
        with clock.part("start_spark"):
            step("Starting Spark", 0, 1)
            with jvm_output_to(folder / "spark.log"):
                spark = lake.spark(master, SPARK_CONF)
            step("Starting Spark", 1, 1)
        try:
            return _run(lake, spark, data, folder, sums, clock, step)
        finally:
            spark.stop()


# The catalog is loaded once more by every statement, which is as it should be; the rest is for a small machine.
SPARK_CONF = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def _run(
    lake: Lake, spark: SparkSession, data: Path, folder: Path, sums: Mapping[str, TableSums], clock: _Clock, step: Step
) -> DemoReport:
    with clock.part("load"):
        months = _load(lake, spark, data, folder, step)
    before = {table.name: _registered(lake, table) for table in TABLES}
    with clock.part("read_back"):
        compared = _read_back(lake, spark, sums, step)
        answer = [row.asDict() for row in spark.sql(QUERY).collect()]
    after = {table.name: _registered(lake, table) for table in TABLES}
    with clock.part("at_work"):
        worked = demo_workload.run(lake, spark, f"{NAMESPACE}.{NAME_AT_WORK}", _name(FLIGHTS), step)
    report = DemoReport(
        folder=str(folder),
        tables={table.name: _table_report(lake, table, before[table.name], after[table.name]) for table in TABLES},
        source_rows={name: each.row_count for name, each in sums.items()},
        comparisons=compared,
        overhead=_overhead(months),
        answer=answer,
        seconds=clock.total(),
        workload=worked,
    )
    check(report)
    return report


def check(report: DemoReport) -> None:
    """Raises CheckFailed: an engine's answer, or what was registered, differs from the source."""
    failures = [
        *report.failures,
        *(
            f"{name}: {table.rows:,} rows registered, not {report.source_rows[name]:,}"
            for name, table in report.tables.items()
            if table.rows != report.source_rows[name]
        ),
        *(
            f"{name}: {table.pending_after} files are pending after the table was read"
            for name, table in report.tables.items()
            if table.pending_after
        ),
    ]
    if failures:
        raise CheckFailed("what was read differs from the source:\n" + "\n".join(f"  {line}" for line in failures))


def _source_sums(data: Path, step: Step) -> dict[str, TableSums]:
    tables = stepped("Reading the source", TABLES, step)
    return {table.name: table_sums(read_table(data, table)) for table in tables}


# Loading --------------------------------------------------------------------------------------------------------------


def _load(lake: Lake, spark: SparkSession, data: Path, folder: Path, step: Step) -> list[AppendResult]:
    """All tables; the answers of flights' appends, one a month."""
    for table in TABLES:
        lake.create_table(_name(table), dict(table.columns), partition_by=table.partition_by)
    for table in stepped("Loading four tables whole", WHOLE, step):
        lake.append(_name(table), _dataframe(spark, csv_file(data, table), table), batch=("demo", table.name))
    months = unpack_months(data, folder / "source")
    results = []
    for month, file in stepped("Loading flights, month by month", list(months.items()), step):
        flights = _dataframe(spark, file, FLIGHTS)
        results.append(lake.append(_name(FLIGHTS), flights, batch=("demo-flights", f"2013-{month:02}")))
    return results


def _dataframe(spark: SparkSession, file: Path, table: SourceTable) -> DataFrame:
    # An empty field becomes Spark's nullValue before that is turned into a null, so both spellings are read as one.
    return spark.read.csv(
        str(file), schema=table.spark_schema, header=True, nullValue=NULLS[-1], mode="FAILFAST", enforceSchema=False
    )


def _name(table: SourceTable) -> str:
    return f"{NAMESPACE}.{table.name}"


def _overhead(results: list[AppendResult]) -> Overhead:
    """Without the first append, whose write is the slowest: it would make registration look cheaper than it is."""
    warm = results[1:]
    return Overhead(len(warm), sum(r.seconds["write"] for r in warm), sum(r.seconds["register"] for r in warm))


# Reading back ---------------------------------------------------------------------------------------------------------


def _read_back(lake: Lake, spark: SparkSession, sums: Mapping[str, TableSums], step: Step) -> list[Comparison]:
    engines: dict[str, Callable[[SourceTable], pa.Table]] = {
        "spark": lambda table: spark.sql(f"SELECT * FROM {_name(table)}").toArrow(),
        "pyiceberg": _pyiceberg(lake),
        "scan": lambda table: lake.scan(_name(table)).read_all(),
    }
    compared = []
    for engine, read in engines.items():
        for table in stepped(f"Reading back through {engine}", TABLES, step):
            found = table_sums(read(table))
            wanted = sums[table.name]
            compared.append(
                Comparison(table.name, engine, found.row_count, len(found.columns), differences(wanted, found))
            )
    return compared


def _pyiceberg(lake: Lake) -> Callable[[SourceTable], pa.Table]:
    from pyiceberg.catalog.rest import RestCatalog

    url, token = lake.serve()
    catalog = RestCatalog("lakeward", uri=url, **({"token": token} if token else {}))
    return lambda table: catalog.load_table(_name(table)).scan().to_arrow()


# What is registered ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Registered:
    pending: int
    snapshots: int


def _registered(lake: Lake, table: SourceTable) -> _Registered:
    pending = sum(1 for file in lake.files(_name(table)) if file.snapshot_id is None)
    return _Registered(pending, len(lake.snapshots(_name(table))))


def _table_report(lake: Lake, table: SourceTable, before: _Registered, after: _Registered) -> TableReport:
    row = lake.table(_name(table))
    partitions = {file.partition_key for file in lake.files(_name(table))}
    return TableReport(
        rows=row.row_count,
        files=row.file_count,
        bytes=row.total_size,
        partitions=len(partitions) if table.partition_by else 0,
        pending_before=before.pending,
        pending_after=after.pending,
        snapshots_before=before.snapshots,
        snapshots_after=after.snapshots,
    )
