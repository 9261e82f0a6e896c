"""Arrow data and rows into a table's Parquet files, without Spark."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.arrow import splitting, statistics
from lakeward.arrow.coerce import coerce
from lakeward.arrow.file_writer import FileSink, NewSink, Part, checksum_of, partition_terms, write_files
from lakeward.arrow.target import TableTarget, WriteTarget, arrow_schema
from lakeward.iceberg.types import LAST_FIELD_ID
from lakeward.storage.parquet_footers import encode_footer
from lakeward.tables.records.files import DataFile
from lakeward.tables.records.tables import Document


def write_arrow(target: TableTarget, data: Any, new_sink: NewSink | None = None) -> list[DataFile]:
    """Write data (see `coerce`) as files below the intent's prefix, Parquet without another sink; no rows, no file.

    Nothing is registered.

    One file a partition, and another one past the table's target size (128 MB unless 'write.target-file-size-bytes' says
    otherwise). Every column carries its field id. Rows are sorted by the table's sort order within each row group; only
    a file that is one row group, and so sorted as a whole, says so in its sort_order_id.

    Rows that do not fit go to `target.broken`, if there is one.

    Raises:
        FileRefused, InvalidInput: see `coerce`; files that are finished by then are left to the intent's rollback.
        StorageError: a file could not be written.
    """
    rows = coerce(data, target.schema, partition_terms(target), target.broken, target.metadata.properties)
    return write_files(target, rows, new_sink or ParquetSink)


class ParquetSink(FileSink):
    """One Parquet file. A file that is one small row group is made in memory and written at once."""

    def __init__(self, target: WriteTarget, part: Part) -> None:
        super().__init__(target, part, "parquet")
        self._leaves = statistics.leaves(target.schema)
        self._order = target.sort_by["fields"]
        self._order_terms = splitting.terms(self._order, target.schema)
        self._nans: dict[int, int] = {}
        self._uuids = statistics.UuidStatistics(self._leaves)
        self._groups = 0
        self._footer: list[pq.FileMetaData] = []
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        if self._output is None:
            self._writer = self._open(self._open_output())
        self._write_group(self._writer, table)

    def finish(self, last: pa.Table | None) -> DataFile:
        if self._output is None:
            assert last is not None, "a file without rows"
            return self._finish_in_memory(last)
        if last is not None:
            self.write(last)
        assert self._writer is not None
        self._writer.close()
        size, checksum = self._output.tell(), self._output.checksum
        self._output.output.close()
        return self._data_file(size, checksum)

    def _finish_in_memory(self, table: pa.Table) -> DataFile:
        stream = pa.BufferOutputStream()
        with self._open(stream) as writer:
            self._write_group(writer, table)
        data = stream.getvalue()
        self._target.engine.write(self._location, data)
        return self._data_file(data.size, checksum_of(data))

    def _open(self, where: Any) -> pq.ParquetWriter:
        target = self._target
        counted = columns_with_statistics(target.schema)
        return pq.ParquetWriter(
            where,
            target.arrow_schema,
            compression=target.codec,
            compression_level=target.compression_level,
            version="2.6",
            # Decimals as the specification's table 'Parquet' has them; the Arrow schema would only swell the footer.
            store_decimal_as_integer=True,
            store_schema=False,
            write_statistics=counted,
            use_dictionary=counted,
            metadata_collector=self._footer,
        )

    def _write_group(self, writer: Any, table: pa.Table) -> None:
        table = self._in_order(table)
        for batch in table.to_batches():
            statistics.add_counts(self._nans, statistics.nan_counts(batch, self._leaves))
            self._uuids.add(batch)
        writer.write_table(table, row_group_size=table.num_rows)
        self._groups += 1

    def _in_order(self, table: pa.Table) -> pa.Table:
        return splitting.sort(table, self._order, self._order_terms) if self._order else table

    @property
    def _is_sorted(self) -> bool:
        return self._groups == 1

    def _data_file(self, size: int, checksum: str) -> DataFile:
        (footer,) = self._footer
        target = self._target
        # Reserved fields, such as those of row lineage, are no columns of the table.
        ids = [leaf.field_id if leaf.field_id <= LAST_FIELD_ID else None for leaf in self._leaves]
        return DataFile(
            path=self._location,
            size=size,
            row_count=footer.num_rows,
            schema_id=target.schema["schema-id"],
            spec_id=target.spec["spec-id"],
            sort_order_id=target.sort_by["order-id"] if self._is_sorted else 0,
            partition=self._part.values,
            partition_path=self._part.path,
            statistics=self._uuids.merged(statistics.from_footer(footer, target.schema, self._nans, ids=ids)),
            split_offsets=statistics.split_offsets(footer),
            checksum=checksum,
            is_compressed=target.is_compressed,
            footer=encode_footer(footer),
        )


class SortedSink(ParquetSink):
    """One Parquet file of rows that come in the table's sort order, however many row groups they make."""

    def _in_order(self, table: pa.Table) -> pa.Table:
        return table

    @property
    def _is_sorted(self) -> bool:
        return True


def columns_with_statistics(schema: Document) -> bool | list[str]:
    """The columns, as Parquet names them, whose values Parquet files may count and order; true for all.

    Those of uuids it may not: Java compares them as signed numbers, and Spark would pass over row groups that hold what is
    asked for, by statistics and by dictionaries.
    """
    return _columns_with_statistics(msgspec.json.encode(schema))


@lru_cache(maxsize=256)
def _columns_with_statistics(schema: bytes) -> bool | list[str]:
    document = msgspec.json.decode(schema)
    types = [leaf.type for leaf in statistics.leaves(document)]
    if "uuid" not in types:
        return True
    empty = pa.BufferOutputStream()
    pq.ParquetWriter(empty, arrow_schema(document)).close()
    columns = pq.read_metadata(pa.BufferReader(empty.getvalue())).schema
    return [columns.column(i).path for i, type_ in enumerate(types) if type_ != "uuid"]
