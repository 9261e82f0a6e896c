"""JSON lines, as tables of format 'json' are written: one object a line, UTF-8, compressed with zstd or gzip or not at all.

Values are written as Iceberg's single values in JSON (see `json_values`), columns by name. `json_read` reads them.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from lakeward.arrow import json_values, statistics
from lakeward.arrow.file_writer import FileSink, Part
from lakeward.arrow.target import WriteTarget
from lakeward.errors import InvalidSetting
from lakeward.tables.records.files import DataFile, FileStatistics
from lakeward.tables.records.tables import Document

ROWS_AT_A_TIME = 10_000
CODECS: dict[str, str | None] = {"zstd": "zstd", "gzip": "gzip", "none": None, "uncompressed": None}
_EXTENSIONS = {"zstd": "json.zst", "gzip": "json.gz", None: "json"}


def json_codec(compression: str) -> str | None:
    """pyarrow's name of a table's compression, none for none.

    Raises:
        InvalidSetting: naming those that JSON lines have.
    """
    try:
        return CODECS[compression.lower()]
    except KeyError:
        raise InvalidSetting(f"compression {compression!r} is not for JSON lines; use zstd, gzip or none") from None


class JsonSink(FileSink):
    """One file of JSON lines. Raises InvalidSetting: they do not have the target's compression."""

    def __init__(self, target: WriteTarget, part: Part) -> None:
        self._codec = json_codec(target.compression)
        super().__init__(target, part, _EXTENSIONS[self._codec])
        self._leaves = [leaf for leaf in statistics.leaves(target.schema) if not leaf.repeated]
        self._rows = 0
        self._nulls: dict[int, int] = {}
        self._nans: dict[int, int] = {}
        self._stream: Any = None

    def write(self, table: pa.Table) -> None:
        if self._output is None:
            sink = pa.PythonFile(self._open_output(), mode="w")
            self._stream = sink if self._codec is None else pa.CompressedOutputStream(sink, self._codec)
        for batch in table.to_batches(max_chunksize=ROWS_AT_A_TIME):
            self._stream.write(encode_lines(batch, self._target.schema))
            self._count(batch)

    def finish(self, last: pa.Table | None) -> DataFile:
        if last is not None:
            self.write(last)
        assert self._output is not None, "a file without rows"
        self._stream.close()
        self._output.output.close()
        target = self._target
        return DataFile(
            path=self._location,
            size=self._output.tell(),
            row_count=self._rows,
            file_type="json",
            schema_id=target.schema["schema-id"],
            spec_id=target.spec["spec-id"],
            partition=self._part.values,
            partition_path=self._part.path,
            statistics=FileStatistics(
                value_counts={leaf.field_id: self._rows for leaf in self._leaves},
                null_counts=self._nulls,
                nan_counts=self._nans,
            ),
            checksum=self._output.checksum,
            is_compressed=self._codec is not None,
        )

    def _count(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        statistics.add_counts(self._nans, statistics.nan_counts(batch, self._leaves))
        nulls = {leaf.field_id: statistics.leaf_array(batch, leaf).null_count for leaf in self._leaves}
        statistics.add_counts(self._nulls, nulls)


def encode_lines(batch: pa.RecordBatch, schema: Document) -> bytes:
    """A batch of the schema's Arrow schema as JSON lines, each ended by a newline."""
    return msgspec.json.Encoder().encode_lines(rows_of(batch, schema))


def rows_of(batch: pa.RecordBatch, schema: Document) -> list[dict[str, Any]]:
    """The rows of a batch of the schema's Arrow schema, their values as JSON has them."""
    names = [field["name"] for field in schema["fields"]]
    columns = [json_values.encode(batch.column(i), field["type"]) for i, field in enumerate(schema["fields"])]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
