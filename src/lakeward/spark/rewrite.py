"""The Spark half of compaction: rows of given files, written anew by Iceberg's own reader and writer.

As in Iceberg's own rewrite, the files are staged as the tasks of a scan, under an id by which Spark reads them. They are found
through metadata that lists them alone, which is written for this one job and never committed: so files that no snapshot holds
yet are read like any other.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakeward.arrow.target import TableTarget
from lakeward.iceberg import types
from lakeward.spark.columns import quoted
from lakeward.spark.jvm import COMPACT, active, new, static
from lakeward.spark.session import stage_catalog
from lakeward.spark.write import Loaded, load, write_rows
from lakeward.tables.records.files import DataFile

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Over the split size: what keeps files that just do not fit from making a task, and so a file, of their own.
_SLACK = 1.05
# A task writes one file, whose size follows from what it reads. The writer, which counts what it has not compressed yet as if
# it were written, would close files too early; it only has to keep a task whose rows are far too many from making one of them.
_LIMIT_TARGETS = 4
_LEAST_LIMIT = 1 << 30  # bytes
_TINY = 1 << 20  # bytes: reading such a file costs less than opening it
_FILES_A_READER = 50


def rewrite_spark(
    target: TableTarget, spark: SparkSession, catalog: str, listing: str, *, size: int, expected: int, count: int
) -> list[DataFile]:
    """Write the rows of the files that a listing names as new files below the intent's prefix; nothing is committed.

    Each new file is sorted by the table's order, and where there are several, their rows do not overlap in it. In format
    version 3 the rows keep the ids that they have (specification, 'Row Lineage').

    Args:
        listing: the location of metadata that `iceberg.rebuilding` has written; may go after the call.
        size: bytes of the old files.
        expected: how many new files a partition should have.
        count: how many old files there are.

    Raises:
        What `spark_write.write_spark` says of the session and the table.
        PySparkException, Py4JError: an old file could not be read.
    """
    loaded = load(spark, target, catalog, COMPACT)
    options = {
        "distribution-mode": "none",  # the rows are spread here already
        "target-file-size-bytes": str(max(_LIMIT_TARGETS * target.file_size, _LEAST_LIMIT)),
    }
    keys = [] if expected == 1 else _range_keys(target)
    readers = _readers(spark, size, count) if expected == 1 else expected
    with _staged(loaded, spark, catalog, target, listing, -(-size // readers)) as rows:
        if keys:
            rows = rows.repartitionByRange(expected, *keys)
        elif readers > expected:
            rows = rows.repartition(expected)
        return write_rows(loaded, rows, target, catalog, options)


def _readers(spark: SparkSession, size: int, count: int) -> int:
    """Tasks that read for one that writes: what takes long with many tiny files is to open them, not to move their rows."""
    if size // count >= _TINY:
        return 1
    return max(1, min(spark.sparkContext.defaultParallelism, count // _FILES_A_READER))


@contextmanager
def _staged(
    loaded: Loaded, spark: SparkSession, catalog: str, target: TableTarget, listing: str, split_size: int
) -> Iterator[DataFrame]:
    """The listing's rows as a DataFrame, with those of row lineage where the format has it."""
    java = loaded.java
    operations = new(java, "org.apache.iceberg.StaticTableOperations", listing, _file_io(loaded, spark, target))
    group = str(uuid.uuid4())
    table = new(java, "org.apache.iceberg.BaseTable", operations, group)
    planned = table.newScan().planFiles()
    tasks = static(java, "relocated.com.google.common.collect.Lists.newArrayList")(planned)
    planned.close()
    cache, staged = static(java, "spark.SparkTableCache.get")(), static(java, "spark.ScanTaskSetManager.get")()
    cache.add(group, table)
    staged.stageTasks(table, group, tasks)
    try:
        reader = spark.read.option("split-size", str(int(split_size * _SLACK))).option("file-open-cost", "0")
        with active(java, spark):
            yield reader.table(f"{quoted(stage_catalog(catalog))}.{quoted(group)}")
    finally:
        staged.removeTasks(table, group)
        cache.remove(group)


def _range_keys(target: TableTarget) -> list[Column]:
    """The first columns of the table's sort order, as far as it sorts by columns themselves."""
    from pyspark.sql import functions

    paths = {column.field_id: column.path for column in types.walk(target.schema)}
    keys = []
    for field in target.sort_by["fields"]:
        if field["transform"] != "identity":
            break
        column = functions.col(".".join(quoted(part) for part in paths[field["source-id"]]))
        keys.append(getattr(column, f"{field['direction']}_{field['null-order'].replace('-', '_')}")())
    return keys


def _file_io(loaded: Loaded, spark: SparkSession, target: TableTarget) -> Any:
    """What reads the old files: the catalog's for writers cannot read local ones in a scan."""
    if target.engine.name != "local":
        return loaded.table.io()
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    return new(loaded.java, "org.apache.iceberg.hadoop.HadoopFileIO", conf)
