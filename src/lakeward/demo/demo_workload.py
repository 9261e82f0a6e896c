"""The components at work: small files arrive, and others make snapshots of them, follow a change of the schema, merge them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.components import supervisor
from lakeward.components.compactor import Compactor, CompactorConfig
from lakeward.components.schema_manager import SchemaManager
from lakeward.demo.checksums import differences, table_sums
from lakeward.demo.report import Step, WorkloadReport, stepped
from lakeward.demo.source import FLIGHTS
from lakeward.errors import CheckFailed
from lakeward.lake import Lake
from lakeward.tables.records import properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SNAPSHOT_FILES = 10
WAIT_SECONDS = 60.0
COLUMN = "checked_by"


def run(lake: Lake, spark: SparkSession, name: str, flights: str, step: Step) -> WorkloadReport:
    """Append January of the table of flights day by day to a new one, change it, and wait for what the components do.

    Raises:
        CheckFailed: a component did not do its part in time, or rows are not what they were.
    """
    chosen = {properties.SNAPSHOT_FILES.name: str(SNAPSHOT_FILES), properties.COMPACTION_ENABLED.name: "false"}
    lake.create_table(name, dict(FLIGHTS.columns), properties=chosen)
    january = lake.scan(flights, filter="month = 1").read_all()
    days = sorted(set(january["day"].to_pylist()))
    compactor = Compactor(lake, CompactorConfig(interval_seconds=0.5, spark=lambda: spark))
    with supervisor.running(lake, others={"compactor": compactor}) as running:
        for day in stepped("Small files arrive", days[:-1], step):
            lake.append(name, january.filter(pc.equal(january["day"], day)))
        arrived = lake.table(name).file_count
        step("The components at work", 0, 4)
        # How many it makes depends on how many files come while it makes one.
        _wait(lambda: _pending(lake, name) < SNAPSHOT_FILES, "snapshotter", "make snapshots")
        step("The components at work", 1, 4)
        lake.add_column(name, COLUMN, "string")
        _wait(lambda: _is_shown(lake, name), "iceberg_updater", "write the metadata of the new column")
        schemas = running.components["schema_manager"]
        assert isinstance(schemas, SchemaManager)
        fields = [field["name"] for field in schemas.get_schema(name).schema["fields"]]
        step("The components at work", 2, 4)
        lake.set_properties(name, {properties.COMPACTION_ENABLED.name: None})
        lake.append(name, january.filter(pc.equal(january["day"], days[-1])))  # the compactor looks where files come
        arrived += 1
        _wait(lambda: lake.table(name).file_count < arrived // 10, "compactor", "merge the small files")
        step("The components at work", 3, 4)
        lake.flush(name)
        _expect_equal(lake, name, january, fields)
        status = running.astha.status()
        step("The components at work", 4, 4)
    table, merged = lake.table(name), compactor.metrics().done
    return WorkloadReport(
        table=name,
        rows=table.row_count,
        files_arrived=arrived,
        files_after=table.file_count,
        bytes_before=merged.bytes_before,
        bytes_after=merged.bytes_after,
        snapshots=dict(Counter(snapshot.trigger for snapshot in lake.snapshots(name))),
        columns=len(fields),
        cache=schemas.get_cache_stats().hit_ratio,
        events={component.name: component.delivered for component in status.components},
    )


def _pending(lake: Lake, name: str) -> int:
    return sum(file.snapshot_id is None for file in lake.files(name))


def _is_shown(lake: Lake, name: str) -> bool:
    """Whether Iceberg's metadata file is that of the newest version, before anybody has loaded the table."""
    table = lake.table(name)
    return table.iceberg_version == table.version


def _wait(is_so: Callable[[], bool], component: str, what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise CheckFailed(f"{component} did not {what} within {WAIT_SECONDS:.0f} seconds")
        time.sleep(0.05)


def _expect_equal(lake: Lake, name: str, january: pa.Table, fields: list[str]) -> None:
    wanted = january.append_column(COLUMN, pa.nulls(january.num_rows, pa.string()))
    found = differences(table_sums(wanted), table_sums(lake.scan(name).read_all()))
    if found or fields != wanted.column_names:
        raise CheckFailed(f"{name} is not what was appended: {'; '.join(found) or fields}")
