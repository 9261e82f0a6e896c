"""Compaction without Spark: files are read and written by pyarrow, the swap is the real one."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from lakeward import Lake
from lakeward.arrow.target import table_target
from lakeward.arrow.write import write_arrow
from lakeward.names import TableName
from lakeward.registry import intents
from lakeward.tables import compaction, tables
from lakeward.tables.compaction import Old
from lakeward.tables.records.files import DataFile, Intent
from lakeward.tables.records.tables import Table


def rewritten(lake: Lake, name: TableName, old: Sequence[Old]) -> tuple[Table, Intent, list[DataFile]]:
    """The rows of files in new files below an intent of their own; nothing is committed."""
    registry = lake.registry
    table, metadata = tables.load_with_metadata(registry, name)
    engine = registry.engine(table.location)
    rows = pa.concat_tables(pq.read_table(pa.BufferReader(engine.read(file.file_path))) for file in old)
    intent = intents.open_intent(registry, table)
    return table, intent, write_arrow(table_target(table, metadata, intent, engine), rows)


def swapped(lake: Lake, name: TableName, old: Sequence[Old] | None = None) -> str:
    """Compact files of a table (all that are live) and give the intent of what took their place."""
    files = lake.files(name) if old is None else old
    table, intent, made = rewritten(lake, name, files)
    compaction.swap(lake.registry, table, intent, files, made)
    return intent.intent_id
