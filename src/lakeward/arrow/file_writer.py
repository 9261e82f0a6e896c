"""Rows into files, whatever the format: split by partition, buffered, rolled at a size, hashed while they are written."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Self

import pyarrow as pa

from lakeward.arrow import splitting
from lakeward.arrow.target import WriteTarget
from lakeward.iceberg.partitions import partition_path
from lakeward.storage.engine import OutputFile
from lakeward.tables.records.files import DataFile, PartitionValues, partition_key

SLICE_ROWS = 1 << 18  # at most so many rows are looked at together
FLUSH_ROWS = 1 << 20  # rows of one partition that are written together: a row group
FLUSH_BYTES = 64 << 20  # the same in bytes, as Arrow holds them
BUFFER_BYTES = 256 << 20  # over all partitions
MAX_OPEN_FILES = 32


class Part:
    """A partition: its values, the rows that wait, and its open file if it has one."""

    def __init__(self, values: PartitionValues, path: str) -> None:
        self.values, self.path = values, path
        self.waiting: list[pa.RecordBatch] = []
        self.rows = 0
        self.bytes = 0
        self.sink: FileSink | None = None

    @classmethod
    def of(cls, target: WriteTarget, values: PartitionValues) -> Self:
        return cls(values, partition_path(target.schema, target.spec, values))

    def add(self, batch: pa.RecordBatch) -> None:
        self.waiting.append(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes

    def take(self) -> pa.Table | None:
        if not self.waiting:
            return None
        table = pa.Table.from_batches(self.waiting)
        self.waiting, self.rows, self.bytes = [], 0, 0
        return table


class FileSink(ABC):
    """One file being written. Nothing is open before the first `write`."""

    def __init__(self, target: WriteTarget, part: Part, extension: str) -> None:
        self._target, self._part = target, part
        self._location = target.next_location(extension)
        self._output: HashingOutput | None = None

    @property
    def size(self) -> int:
        """Bytes so far."""
        return 0 if self._output is None else self._output.tell()

    def _open_output(self) -> HashingOutput:
        self._output = HashingOutput(self._target.engine.open_output(self._location))
        return self._output

    @abstractmethod
    def write(self, table: pa.Table) -> None: ...

    @abstractmethod
    def finish(self, last: pa.Table | None) -> DataFile:
        """Write what is left, and close the file."""

    def abort(self) -> None:
        if self._output is not None:
            self._output.abort()


NewSink = Callable[[WriteTarget, Part], FileSink]
# The rows of a batch by partition.
Split = Callable[[pa.RecordBatch], Iterable[tuple[PartitionValues, pa.RecordBatch]]]


def write_files(
    target: WriteTarget,
    batches: Iterable[pa.RecordBatch],
    new_sink: NewSink,
    split: Split | None = None,
) -> list[DataFile]:
    """Write batches of the target's Arrow schema as files below the intent's prefix; without rows there is no file.

    Rows go to the partitions that `split` says; without it, to those of the table's partition spec.

    A stream is never held whole: at most BUFFER_BYTES wait, and at most MAX_OPEN_FILES files are open. Past that the file
    that was longest without rows is finished, and its partition gets another one if more rows come.
    """
    if split is None:
        terms = splitting.terms(target.spec["fields"], target.schema)
        split = (lambda batch: splitting.split(batch, terms)) if terms else (lambda batch: [({}, batch)])
    writer = _Writer(target, new_sink, split)
    try:
        for batch in batches:
            for start in range(0, batch.num_rows, SLICE_ROWS):
                writer.add(batch.slice(start, SLICE_ROWS))
        return writer.finish()
    except BaseException:
        writer.abort()
        raise


def partition_terms(target: WriteTarget) -> list[splitting.Term]:
    """What the table's partitions are made from."""
    fields = [field for field in target.spec["fields"] if field["transform"] != "void"]
    return splitting.terms(fields, target.schema)


class _Writer:
    def __init__(self, target: WriteTarget, new_sink: NewSink, split: Split) -> None:
        self._target, self._new_sink, self._split = target, new_sink, split
        self._parts: dict[str, Part] = {}
        self._open: dict[str, Part] = {}  # the one that waits longest first
        self._waiting_bytes = 0
        self._files: list[DataFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        for values, rows in self._split(batch):
            self._add_to(values, rows)

    def _add_to(self, values: PartitionValues, rows: pa.RecordBatch) -> None:
        key = partition_key(values)
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = Part.of(self._target, values)
        before = part.bytes
        part.add(rows)
        self._waiting_bytes += part.bytes - before
        if part.rows >= FLUSH_ROWS or part.bytes >= FLUSH_BYTES:
            self._flush(key, part)
        while self._waiting_bytes > BUFFER_BYTES:
            self._flush(*max(self._parts.items(), key=lambda item: item[1].bytes))

    def _flush(self, key: str, part: Part) -> None:
        self._waiting_bytes -= part.bytes
        table = part.take()
        assert table is not None
        if part.sink is None:
            part.sink = self._new_sink(self._target, part)
        self._open.pop(key, None)
        self._open[key] = part
        part.sink.write(table)
        if part.sink.size >= self._target.file_size:
            self._close(key, part)
        elif len(self._open) > MAX_OPEN_FILES:
            self._close(*next(iter(self._open.items())))

    def _close(self, key: str, part: Part) -> None:
        """Finish a partition's file, with the rows that wait for it."""
        self._waiting_bytes -= part.bytes
        last = part.take()
        sink = part.sink or self._new_sink(self._target, part)
        part.sink = sink
        self._open[key] = part
        self._files.append(sink.finish(last))
        part.sink = None
        del self._open[key]

    def finish(self) -> list[DataFile]:
        for key, part in self._parts.items():
            if part.sink is not None or part.waiting:
                self._close(key, part)
        return self._files

    def abort(self) -> None:
        for part in self._open.values():
            if part.sink is not None:
                part.sink.abort()


class HashingOutput:
    """What pyarrow writes a file to: passes bytes on to a storage's output and hashes them. Closing it closes nothing."""

    def __init__(self, output: OutputFile) -> None:
        self.output = output
        self._digest = hashlib.sha256()
        self.closed = False
        self.mode = "wb"

    def write(self, data: Any) -> int:
        view = memoryview(data)
        if self.closed:  # a writer that is thrown away writes its footer all the same
            return view.nbytes
        self._digest.update(view)
        return self.output.write(view)

    def tell(self) -> int:
        return self.output.tell()

    def flush(self) -> None:
        """Nothing: the bytes are on their way."""

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        """Leave nothing behind, and take no notice of what is written later."""
        self.closed = True
        self.output.abort()

    @property
    def checksum(self) -> str:
        return f"sha256:{self._digest.hexdigest()}"


def checksum_of(data: Any) -> str:
    """'sha256:hex' of bytes in memory."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
